"""Records of a data set, written and read through TensorFlow Datasets without TensorFlow.

TFDS shuffles when it writes, so every example carries its `id`, the position in the publisher's
order, and reading restores that order. TFDS is imported here, when it is needed, and nowhere else.
"""

import contextlib
import io
import shutil
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from spr_jax.datasets.source import Examples, Source, content_hash

VERSION = "1.0.0"


def write_records(source: Source, splits: dict[str, Examples], data_dir: Path) -> None:
    """Write into data_dir/spr_NAME/VERSION, completely or not at all."""
    import tensorflow_datasets as tfds

    images, labels = splits["train"]
    features = {
        "id": np.int64,
        "image": tfds.features.Image(shape=images.shape[1:], encoding_format="png"),
        **{name: tfds.features.ClassLabel(names=source.class_names) for name in labels},
    }

    class Builder(  # type: ignore[call-arg]
        tfds.core.GeneratorBasedBuilder, skip_registration=True
    ):
        name = f"spr_{source.name}"
        VERSION = tfds.core.Version(VERSION)

        def _info(self):
            hashes = {split: content_hash(examples) for split, examples in splits.items()}
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(features),
                homepage=source.homepage,
                metadata=tfds.core.MetadataDict(sha256=hashes),
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in splits}

        def _generate_examples(self, split):
            images, labels = splits[split]
            for index in tqdm(range(len(images)), f"Writing {split}", unit=" images"):
                values = {name: int(column[index]) for name, column in labels.items()}
                yield index, {"id": index, "image": _png(images[index]), **values}

    tfds.disable_progress_bar()  # ours says what is written; TFDS's mentions a download
    builder = Builder(data_dir=data_dir, file_format="array_record")
    for partial in Path(builder.data_dir).parent.glob("incomplete.*"):  # left by a killed process
        shutil.rmtree(partial)
    config = tfds.download.DownloadConfig(try_download_gcs=False)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare(download_config=config)
    except RuntimeError as error:  # how array_record reports a full disk
        raise OSError(str(error).split("write() failed: ")[-1].split(";")[0]) from error


def read_records(folder: Path, split: str) -> Examples:
    """Decode all records of a split; they are in the order of their ids, 7 or b"train_7"."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(folder)
    records = builder.as_data_source(split, decoders={"image": tfds.decode.SkipDecoding()})
    missing = np.ones(len(records), bool)
    names = [name for name in builder.info.features if name not in ("id", "image")]
    images = np.empty((len(records), *builder.info.features["image"].shape), np.uint8)
    labels = {name: np.empty(len(records), np.uint8) for name in names}
    for position in tqdm(range(len(records)), f"Decoding {split}", unit=" images"):
        record = records[position]
        identity = record["id"]
        index = int(identity.rsplit(b"_")[-1]) if isinstance(identity, bytes) else int(identity)
        with Image.open(io.BytesIO(record["image"])) as image:
            images[index] = np.asarray(image).reshape(images.shape[1:])
        for name in names:
            labels[name][index] = record[name]
        missing[index] = False
    if missing.any():
        raise ValueError(f"{missing.sum()} of {len(missing)} {split} examples are missing")
    return Examples(images, labels)


def has_records(folder: Path) -> bool:
    """True if TFDS finished a data set here, in the format that needs no TensorFlow."""
    return (folder / "dataset_info.json").exists() and any(folder.glob("*.array_record*"))


def _png(image):
    """Encode one image as a lossless file: without TensorFlow, TFDS takes files but no arrays."""
    file = io.BytesIO()
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    picture.save(file, "png", compress_level=1)
    file.seek(0)
    return file
