"""Registries are plain dicts of functions; a function's signature is its configuration."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def lookup(registry: Mapping[str, Any], name: str) -> Any:
    """The entry of that name; an unknown one fails with the nearest."""
    if name in registry:
        return registry[name]
    raise ValueError(f"Unknown name {name!r}; {suggestion(name, registry)}")


def suggestion(name: str, known) -> str:
    """What the user may have meant, or all there is."""
    nearest = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"choose from {sorted(known)}."


def options_of(function: Callable) -> dict[str, Any]:
    """The arguments that have a default, with it."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def defaults(registry: Mapping[str, Callable], name: str) -> dict[str, Any]:
    """Configuration of an entry: its name and its options."""
    return {"name": name, **options_of(lookup(registry, name))}


def build(registry: Mapping[str, Callable], options: Mapping[str, Any], **given) -> Any:
    """Call the entry that `options` name with the rest of them, and with what is `given`."""
    options = dict(options)
    function = lookup(registry, options.pop("name"))
    known = options_of(function)
    for option in options:
        if option not in known:
            raise ValueError(f"Unknown option {option!r}; {suggestion(option, known)}")
    return function(**options, **given)
