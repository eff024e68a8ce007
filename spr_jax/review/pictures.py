"""Small pictures for the review page, as many as there is room for.

To decode and shrink photographs takes longer than to find their errors, so a page that replaces an
earlier one of the same images takes over its pictures.
"""

import base64
import io
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from spr_jax.devices import num_cores
from spr_jax.review.neighbours import Neighbours

CARD_SIDE, NEIGHBOUR_SIDE = 112, 48  # pixels, at most
CARDS_AT_ONCE = 20
KINDS = ("cards", "neighbours")

Pictures = dict[str, dict[int, str]]  # of KINDS: WebP in base64, by example


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
    known: Pictures,
) -> Pictures:
    """Encode cards with their neighbours while there is room, but for those that are known."""
    pictures: Pictures = {kind: {} for kind in KINDS}
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
            encoded = threads.map(
                lambda item: known[item[0]].get(item[1]) or _encode(images, *item[1:]), wanted
            )
            for (kind, index, _), picture in zip(wanted, encoded, strict=True):
                pictures[kind][index] = picture
                room -= len(picture) + len(f'"{index}":"",')
    return pictures


def known_pictures(data: dict[str, Any]) -> Pictures:
    """Take the pictures out of the data of an earlier page, but nothing that is no picture."""
    base64_text, stored = re.compile("[A-Za-z0-9+/]+={0,2}"), data.get("pictures") or {}

    def is_picture(value):
        return isinstance(value, str) and base64_text.fullmatch(value)

    return {
        kind: {int(i): value for i, value in stored.get(kind, {}).items() if is_picture(value)}
        for kind in KINDS
    }


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
