"""Compute the features of images once, for training on them.

    spr-encode --dataset=cifar10 --data_dir=DIR --out=cifar10.npz
    spr-encode --images=photos --out=photos.npz
    spr-train --config=configs/features.py --config.dataset.path=photos.npz

or `python -m spr_jax.encode`. The file holds `features`, `labels`, `class_names`, `source` and,
where known, `true_labels`, `test_features` and `test_labels`. Ctrl-C saves and exits with status
75; the same command resumes.
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from spr_jax.devices import keep_freed_memory, one_device_per_core
from spr_jax.io import signals
from spr_jax.io.atomic import replace_file
from spr_jax.io.extras import needs_extra
from spr_jax.io.text import program_name


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program_name("spr_jax.encode"),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--images", default="", help="folder with a folder for each class")
    what.add_argument("--dataset", default="", help="name of a data set, such as cifar10")
    parser.add_argument("--data_dir", default="", help="where data sets are stored")
    parser.add_argument(
        "--encoder", default="efficientnet_lite0", help="a name, or onnx:FILE [%(default)s]"
    )
    parser.add_argument("--out", required=True, help="file to write, ending in .npz")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, should_stop: Callable[[int], bool]) -> str:
    """Encode all splits and write the file; say what it holds."""
    from spr_jax.detection.listing import list_images
    from spr_jax.encoders import load_encoder

    out = Path(options.out).expanduser()
    if out.suffix != ".npz":
        raise ValueError(f"--out is {options.out}; expected a file that ends in .npz.")
    dataset = list_images(
        folder=options.images, name=options.dataset, data_dir=options.data_dir
    ).dataset
    encoder, parts = load_encoder(options.encoder), out.with_suffix(".parts")
    out.parent.mkdir(parents=True, exist_ok=True)
    arrays, unreadable = {"class_names": np.array(dataset.class_names)}, 0
    arrays["source"] = np.array(dataset.name)
    splits = {"": dataset.train}
    if dataset.tests:
        splits["test_"] = next(iter(dataset.tests.values()))
    for prefix, split in splits.items():
        part = dataset._replace(train=split)
        features, kept = encode_split(part, encoder, parts / (prefix or "train"), should_stop)
        unreadable += np.sum(~kept)
        arrays |= {f"{prefix}features": features[kept], f"{prefix}labels": split.labels[kept]}
        if split.true_labels is not None:
            # A test set is judged by the truth, wherever it is known.
            name = "test_labels" if prefix else "true_labels"
            arrays[name] = split.true_labels[kept]
    with replace_file(out, binary=True) as file:
        np.savez(file, allow_pickle=False, **arrays)
    shutil.rmtree(parts)
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
    skipped = f" {unreadable} files cannot be read and are left out." if unreadable else ""
    return f"Wrote {out}: {shapes}.{skipped}"


def encode_split(
    part, encoder, folder: Path, should_stop: Callable[[int], bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Features [N, d] of the images of a data set's `train`, and which of them can be read [N]."""
    from spr_jax.detection.encode import encode_in_folder
    from spr_jax.detection.listing import fingerprint_of

    images, key = part.train.images, fingerprint_of(part)
    encoded = encode_in_folder(images, encoder, folder, key=key, should_stop=should_stop)
    kept = np.ones(len(images), bool)
    kept[list(encoded.errors)] = False
    return np.asarray(encoded.features), kept


def main(arguments: list[str] | None = None) -> None:
    """Run the command; without `arguments`, as a process of its own, on all cores."""
    if arguments is None:
        keep_freed_memory()
        one_device_per_core()
    options = parse_arguments(arguments)
    try:
        with needs_extra("images", "spr_jax.encode"), signals.stop_on_signals() as should_stop:
            print(run(options, should_stop))
    except signals.Stopped:
        print(f"\n{signals.STOPPED}", file=sys.stderr)
        sys.exit(signals.SAVED)
    except (ValueError, OSError) as error:
        print(f"{program_name('spr_jax.encode')}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
