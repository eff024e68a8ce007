"""Runs of earlier versions are found again."""

import json

from experiments.harness.runs import Run, config_of, folder


def test_a_folder_of_an_earlier_version_is_found_by_its_config(tmp_path):
    run = Run("configs/digits_sym.py", "spr", (("preset", "noise_model"),))
    stored = json.loads(config_of(run).to_json())
    select = stored["method"].pop("select")
    stored["preset"], stored["by_preset"] = "exact", {}
    stored["method"] |= {"select": "auto", "pca_dim": select["pca_dim"], "per_class": 0}
    stored["method"] |= {"most_wrong": 0.1, "least_right": 0.9, "ties": "interpolated"}
    stored["method"]["sparse"] = stored["method"].pop("penalty_weight")
    old = tmp_path / "digits_sym-spr" / "preset=exact" / "seed=0"
    old.mkdir(parents=True)
    (old / "config.json").write_text(json.dumps(stored))
    assert folder(run, tmp_path) == old
    assert folder(run._replace(seed=1), tmp_path) != old
    assert folder(run._replace(overrides=()), tmp_path) == old  # the preset is the config's own
    other = run._replace(overrides=(("preset", "paper"),))
    assert folder(other, tmp_path) == tmp_path / "digits_sym-spr" / "preset=paper" / "seed=0"
