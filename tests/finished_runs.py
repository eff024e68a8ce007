"""What a finished run leaves, without the run."""

import json

import numpy as np

from experiments.runs import config_of, folder


def leave(run, out, summary, *, commit="here", wrong=0.4):
    """The folder of the run, with what the experiments read of it."""
    home = folder(run, out)
    home.mkdir(parents=True)
    (home / "config.json").write_text(config_of(run).to_json())
    origin = {"commit": commit, "machine": "a machine", "versions": "its versions"}
    (home / "origin.json").write_text(json.dumps(origin))
    np.savez(home / "noise.npz", obtained=wrong)
    (home / "summary.json").write_text(json.dumps(summary))
    return home
