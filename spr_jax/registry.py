"""Registries are plain dicts of functions; a function's signature is its configuration."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def lookup(registry: Mapping[str, Any], name: str) -> Any:
    """Return the entry of that name; the error for an unknown one names the nearest."""
    if name in registry:
        return registry[name]
    raise ValueError(f"Unknown name {name!r}; {suggestion(name, registry)}")


def suggestion(name: str, known) -> str:
    """ "did you mean ...?" for a close match, else the list of choices."""
    nearest = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"choose from {sorted(known)}."


def extends(base: Callable) -> Callable[[Callable], Callable]:
    """Decorate a function that hands its `**options` to `base`: its signature shows them."""

    def decorate(function):
        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        options = inspect.signature(base).parameters.values()
        parameters = [*(p for p in options if p.default is not p.empty), *named]
        keywords = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
        function.__signature__ = own.replace(parameters=keywords)
        return function

    return decorate


def options_of(function: Callable) -> dict[str, Any]:
    """Arguments of a function that have a default, with it."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def defaults(registry: Mapping[str, Callable], name: str) -> dict[str, Any]:
    """Configuration of an entry: its name and its options."""
    return {"name": name, **options_of(lookup(registry, name))}


def build(registry: Mapping[str, Callable], options: Mapping[str, Any], **given) -> Any:
    """Call the entry that `options["name"]` names with the other options and the `given` arguments.

    Raises:
        ValueError: the name or an option is unknown.
    """
    options = dict(options)
    function = lookup(registry, options.pop("name"))
    known = options_of(function)
    for option in options:
        if option not in known:
            raise ValueError(f"Unknown option {option!r}; {suggestion(option, known)}")
    return function(**options, **given)
