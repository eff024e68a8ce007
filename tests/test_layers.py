"""Which module may import which: a module imports only from the layers below its own."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent

# A package's modules may import each other; the lowest matching entry decides.
LAYERS = {
    "spr_jax": 0,  # the package itself, whose imports are lazy
    "spr_jax.cores": 0,
    "spr_jax.cpu_ops": 0,
    "spr_jax.devices": 0,
    "spr_jax.files": 0,
    "spr_jax.origin": 0,
    "spr_jax.registry": 0,
    "spr_jax.types": 0,
    "spr_jax.augment": 1,
    "spr_jax.backbones": 1,
    "spr_jax.losses": 1,
    "spr_jax.network": 1,
    "spr_jax.noise": 1,
    "spr_jax.solver": 1,
    "spr_jax.theory": 1,
    "spr_jax.levels": 2,
    "spr_jax.batches": 2,
    "spr_jax.datasets": 2,
    "spr_jax.label_errors": 3,
    "spr_jax.apply": 1,
    "spr_jax.evidence": 4,
    "spr_jax.report": 5,
    "spr_jax.findings": 4,
    "spr_jax.self_test": 5,
    "spr_jax.cross_fit": 4,
    "spr_jax.image_features": 7,
    "spr_jax.detect_images": 8,
    "spr_jax.detect": 9,
    "spr_jax.methods": 2,
    "spr_jax.base_config": 3,
    "spr_jax.checkpoint": 3,
    "spr_jax.evaluate": 3,
    "spr_jax.metrics": 3,
    "spr_jax.optim": 3,
    "spr_jax.train": 3,
    "spr_jax.experiment": 4,
    "spr_jax.run": 5,
    "spr_jax.settings": 4,
    "configs": 4,
    "spr_jax.main": 6,
    "spr_jax.prepare": 6,
    "experiments": 10,
}


def layer_of(module: str) -> tuple[str, int]:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in LAYERS and (name != "spr_jax" or module == "spr_jax"):
            return name, LAYERS[name]
    raise AssertionError(f"{module} has no layer; add it to LAYERS in {__file__}.")


def imports_of(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = (ROOT / inner.replace(".", "/")).with_suffix(".py").exists()
                yield (inner if is_module else node.module), node.lineno


def test_imports_point_downwards():
    places = ("spr_jax", "configs", "experiments")
    files = [path for place in places for path in ROOT.glob(f"{place}/**/*.py")]
    assert len(files) > 5
    for path in files:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        home, layer = layer_of(module)
        for imported, line in imports_of(path):
            if imported.split(".")[0] not in ("spr_jax", "experiments", "configs"):
                continue
            other, other_layer = layer_of(imported)
            assert other_layer < layer or other == home or other_layer == 0, (
                f"{path.relative_to(ROOT)}:{line} imports {imported}, which is not below it."
            )
