"""Small pictures for the review page, as many as there is room for."""

import base64
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from spr_jax.devices import num_cores
from spr_jax.review.neighbours import Neighbours

CARD_SIDE, NEIGHBOUR_SIDE = 112, 48  # pixels, at most
CARDS_AT_ONCE = 20


def files_to_show(folder: str | Path, names: Sequence[str]):
    """Image files below a folder, decoded when they are indexed, as large as a card shows them."""
    from spr_jax.datasets.images import ImageFiles

    root = Path(folder).expanduser()
    return ImageFiles([str(root / name) for name in names], CARD_SIDE, CARD_SIDE)


def encode_pictures(
    images: Any,  # [N, h, w, channels] uint8, or image files with the same indexing
    cards: np.ndarray,  # [M], indices of examples, the most important first
    evidence: Sequence[Neighbours],  # of the cards
    room: int,  # characters
) -> dict[str, dict[int, str]]:
    """Return {"cards": ..., "neighbours": ...}: WebP in base64 by example, while there is room."""
    pictures: dict[str, dict[int, str]] = {"cards": {}, "neighbours": {}}
    similar = np.concatenate([side.index for side in evidence], axis=1)
    with ThreadPoolExecutor(num_cores()) as threads:
        for rows in np.array_split(np.arange(len(cards)), 1 + len(cards) // CARDS_AT_ONCE):
            if room < 0:
                break
            wanted = [("cards", index, CARD_SIDE) for index in cards[rows].tolist()]
            others = np.setdiff1d(similar[rows], -1).tolist()
            wanted += [
                ("neighbours", index, NEIGHBOUR_SIDE)
                for index in others
                if index not in pictures["neighbours"]
            ]
            encoded = threads.map(lambda item: _encode(images, *item[1:]), wanted)
            for (kind, index, _), picture in zip(wanted, encoded, strict=True):
                pictures[kind][index] = picture
                room -= len(picture) + len(f'"{index}":"",')
    return pictures


def _encode(images, index, side):
    """Return a small WebP in base64; "" for a file that cannot be read."""
    from PIL import Image  # needed only if there are pictures

    try:
        pixels = np.asarray(images[index])
    except ValueError:
        return ""
    grey = pixels.ndim == 3 and pixels.shape[-1] == 1
    image = Image.fromarray(pixels[..., 0] if grey else pixels)
    image.thumbnail((side, side))  # never enlarges
    file = io.BytesIO()
    image.save(file, "WEBP", quality=85)
    return base64.b64encode(file.getvalue()).decode()
