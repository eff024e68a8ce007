import pytest

from spr_jax.registry import build, defaults, extends, lookup

REGISTRY = {
    "gce": lambda labels, *, q=0.7: (labels, q),
    "sce": lambda labels, *, alpha=0.1, beta=1.0: (labels, alpha, beta),
}


def test_signature_is_the_configuration():
    assert defaults(REGISTRY, "sce") == {"name": "sce", "alpha": 0.1, "beta": 1.0}


def test_build_calls_the_entry_with_its_options():
    assert build(REGISTRY, {"name": "gce", "q": 0.5}, labels=3) == (3, 0.5)
    assert build(REGISTRY, {"name": "sce"}, labels=3) == (3, 0.1, 1.0)


def test_unknown_names_and_options_come_with_the_nearest():
    with pytest.raises(ValueError, match="Unknown name 'gcee'; did you mean 'gce'?"):
        lookup(REGISTRY, "gcee")
    with pytest.raises(ValueError, match=r"Unknown name 'mixup'; choose from \['gce', 'sce'\]"):
        lookup(REGISTRY, "mixup")
    with pytest.raises(ValueError, match="Unknown option 'betta'; did you mean 'beta'?"):
        build(REGISTRY, {"name": "sce", "betta": 2}, labels=3)


def test_an_extended_function_has_the_options_of_its_base():
    def base(*, q=0.7, beta=1.0):
        return q, beta

    @extends(base)
    def both(*, keep=0.5, **rest):
        return keep, base(**rest)

    registry = {"both": both}
    assert defaults(registry, "both") == {"name": "both", "q": 0.7, "beta": 1.0, "keep": 0.5}
    assert build(registry, {"name": "both", "beta": 2.0, "keep": 0.1}) == (0.1, (0.7, 2.0))
    with pytest.raises(ValueError, match="'betta'; did you mean 'beta'?"):
        build(registry, {"name": "both", "betta": 2.0})
