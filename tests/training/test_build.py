"""From a config to a run: the held-out split, the truth for those who need it, a description."""

import numpy as np
import pytest

from configs import digits_sym, features
from spr_jax.datasets.digits import digits
from spr_jax.datasets.features import Given, dataset_of
from spr_jax.methods.selection_rules import RULES
from spr_jax.training import build
from spr_jax.training.config import resolve
from spr_jax.training.presets import PRESETS


def test_held_out_classes_keep_their_shares():
    dataset = digits()
    rest, validation, members = build.hold_out(dataset, 0.2, seed=0)
    counts = [np.bincount(s.labels) for s in (dataset.train, rest.train, validation)]
    np.testing.assert_array_equal(counts[2], (0.2 * counts[0]).astype(int))
    np.testing.assert_array_equal(counts[1] + counts[2], counts[0])
    np.testing.assert_array_equal(rest.train.images, dataset.train.images[members])
    np.testing.assert_array_equal(rest.train.labels, dataset.train.labels[members])
    held_out = np.setdiff1d(np.arange(len(dataset.train.labels)), members)
    np.testing.assert_array_equal(validation.images, dataset.train.images[held_out])
    np.testing.assert_array_equal(validation.true_labels, dataset.train.true_labels[held_out])
    again, other = (build.hold_out(dataset, 0.2, seed=seed)[2] for seed in (0, 1))
    np.testing.assert_array_equal(again, members)
    assert (other != members).any()


def test_nothing_is_held_out_unless_asked_for():
    dataset = digits()
    rest, validation, members = build.hold_out(dataset, 0.0, seed=0)
    assert rest is dataset and validation is None and len(members) == len(dataset.train.labels)


def test_a_method_that_needs_the_truth_gets_it_or_says_so():
    config = digits_sym.get_config("oracle")
    resolve(config)
    run = build.make_run(config)
    train = run.dataset.train
    clean = build.init_memory(run, run.stages[0])["clean"]
    np.testing.assert_array_equal(clean, train.labels == train.true_labels)
    assert 0 < clean.mean() < 1
    blind = run._replace(dataset=run.dataset._replace(train=train._replace(true_labels=None)))
    with pytest.raises(ValueError, match="needs true labels"):
        build.init_memory(blind, run.stages[0])


def test_a_method_that_needs_the_widths_of_layers_gets_them():
    config = digits_sym.get_config("rog")
    resolve(config)
    run = build.make_run(config)
    (kernel,) = (net.params["head"]["kernel"] for net in build.init_state(config, run).networks)
    assert run.widths == (32, 64, len(kernel)) == (32, 64, 128)
    memory = build.init_memory(run, run.stages[0])
    assert [memory[f"layer_{n}"]["slopes"].shape[1] for n in range(3)] == [*run.widths]
    config = digits_sym.get_config("ce")
    resolve(config)
    assert build.make_run(config).widths == ()  # to find out takes a moment


@pytest.mark.parametrize("preset", PRESETS)
def test_a_description_says_what_the_preset_runs(preset):
    config = digits_sym.get_config()
    config.preset = preset
    resolve(config)
    said = build.describe(config)
    rule, options = PRESETS[preset].rule["name"], config.method.select
    assert f"Preset {preset}: {PRESETS[preset].runs}" in said
    assert f"Selection rule {rule}(" in said and f"pca_dim={options.pca_dim}" in said
    assert build.summary_of(RULES[rule]) in said
    assert "Examples: 1,438, in memory" in said


def test_a_method_without_a_selection_is_described_without_one():
    config = digits_sym.get_config("ce")
    resolve(config)
    said = build.describe(config)
    assert "rule" not in said and "Preset" not in said and "Networks: 1 of " in said


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"backbone": "c2f2"}, "backbone.name is 'c2f2', a network for images"),
        ({"mixing": "cutmix"}, "method.mixing is 'cutmix', which pastes parts of images"),
        ({"augmentation": "flip"}, "Unknown name 'flip'"),
    ],
)
def test_what_only_images_can_have_is_refused_for_vectors(changed, sentence):
    config = features.get_config()
    resolve(config)
    config.method.mixing = changed.get("mixing", "mixup")
    config.backbone.name = changed.get("backbone", "mlp")
    examples = np.random.default_rng(0).standard_normal((8, 3)), np.arange(8) % 2
    dataset = dataset_of(Given(*examples), augmentation=changed.get("augmentation", "none"))
    with pytest.raises(ValueError, match=sentence):
        build.make_run(config, dataset)


@pytest.mark.parametrize("strong", ["rand_augment", "feature_noise"])
def test_strong_views_suit_the_data(strong):
    examples = np.random.default_rng(0).standard_normal((8, 3)), np.arange(8) % 2
    vectors = dataset_of(Given(*examples), augmentation="none")
    for module, dataset, takes in (
        (features, vectors, "feature_noise"),
        (digits_sym, digits(), "rand_augment"),
    ):
        config = module.get_config("ssr")
        config.method.strong = strong
        resolve(config)
        if strong == takes:
            assert build.make_run(config, dataset).stages[0].method.on_top[-1] == strong
        else:
            with pytest.raises(ValueError, match=f"method.strong is '{strong}'.*choose from"):
                build.make_run(config, dataset)


@pytest.mark.parametrize(("method", "option"), [("spr", "record_from"), ("spr_plus", "judge_by")])
def test_images_are_not_judged_by_their_pixels(method, option):
    config = digits_sym.get_config(method)
    config.method[option] = "inputs"
    resolve(config)
    with pytest.raises(ValueError, match=f"method.{option} is 'inputs'.*has images"):
        build.make_run(config)


def test_a_module_beside_the_networks_is_initialized_and_trained_with_them():
    config = digits_sym.get_config("ssr")
    resolve(config)
    run = build.make_run(config)
    (network,) = build.init_state(config, run).networks
    assert network.params["extra"]["Dense_0"]["kernel"].shape[1] == 256
    plain = digits_sym.get_config("ce")
    resolve(plain)
    (other,) = build.init_state(plain, build.make_run(plain)).networks
    assert set(network.params) - set(other.params) == {"extra"}
    np.testing.assert_array_equal(network.params["head"]["bias"], other.params["head"]["bias"])


def test_images_take_no_noise_of_vectors():
    config = digits_sym.get_config()
    resolve(config)
    with pytest.raises(ValueError, match="'feature_noise' augments vectors"):
        build.make_run(config, digits()._replace(augmentation="feature_noise"))
