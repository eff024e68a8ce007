"""A package imports only from the layers below its own, and nothing imports a command."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]

LAYERS = (
    {"types", "registry", "devices", "rand_augment", "io"},
    {"losses", "augment", "noise", "backbones", "encoders", "solver"},
    {"datasets", "methods"},
    {"training"},
    {"detection"},
    {"review", "estimator"},
    # Commands, and the configs they are given.
    {"main", "prepare", "detect", "apply", "encode", "configs"},
    {"experiments"},
)


def room_of(module: str) -> str:
    """The package of a module: "solver" for spr_jax.solver.basis, "configs" for configs.base."""
    parts = module.split(".")
    return parts[1] if parts[0] == "spr_jax" and len(parts) > 1 else parts[0]


def layer_of(room: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if room in layer)


def imports_of(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            whole = node.module in ("spr_jax", "experiments")  # `from spr_jax import noise`
            names = [f".{alias.name}" for alias in node.names] if whole else [""]
            yield from ((node.module + name, node.lineno) for name in names)


def test_imports_point_downwards():
    files = [
        path
        for place in ("spr_jax", "configs", "experiments")
        for path in ROOT.glob(f"{place}/**/*.py")
    ]
    assert len(files) > 5
    for path in files:
        room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for imported, line in imports_of(path):
            other = room_of(imported)
            if imported.split(".")[0] not in ("spr_jax", "configs", "experiments") or other == room:
                continue
            if (
                room == "__init__" or other == "spr_jax"
            ):  # the package itself, whose imports are lazy
                continue
            assert layer_of(other) < layer_of(room), (
                f"{path.relative_to(ROOT)}:{line} imports {imported}, which is not below it."
            )
