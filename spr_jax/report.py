"""What a detector found, as a page to review it on: one HTML file that needs nothing else.

    write_report("found/report.html", found, features, labels, images=images)

The page has the numbers of every example; pictures and evidence of the most suspect, as a file
must stay small enough to open and to send. Texts of the user's (class names, file names, the
title) are nothing but data in it: they stand in a block of JSON, never in markup, and the page's
own policy lets no script run, and nothing load, but what is in the file.
"""

import base64
import hashlib
import io
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import spr_jax
from spr_jax.cores import num_cores
from spr_jax.evidence import directions_of, most_suspect, nearest_clean
from spr_jax.files import replace_file
from spr_jax.label_errors import Detection

MAX_CARDS = 4000  # examples with evidence and, as long as they fit, pictures
MAX_BYTES = 18_000_000  # of the page; what the numbers leave of it may be pictures
CARD_SIDE, NEIGHBOUR_SIDE = 112, 48  # pixels, at most
SCRIPTS = ("data", "suspects", "answers", "overview", "gallery", "relabel", "report")


def write_report(
    path: str | Path,
    found: Detection,
    features: np.ndarray,  # [N, d]
    labels: np.ndarray,  # [N], as given to the detector
    *,
    images: Any = None,  # [N, h, w, channels] uint8, or image files with the same indexing
    names: Sequence[str] | None = None,  # [N]
    title: str = "Label errors",
    max_cards: int = MAX_CARDS,
) -> None:
    """Write the page.

    Args:
      path: of the page, such as report.html; its folder must exist.
      found: by `find_label_errors(features, labels)`.
      features: those the errors were found with; they say what an example is most like.
      labels: class names where there are any, since the page shows them and its corrections are
        written with them.
      images: shown on the cards; one that cannot be read leaves its card without a picture.
      names: file names, by which corrections call the examples; None calls them by position.
      title: of the page.
      max_cards: how many of the most suspect, over all and of each pair of classes, get evidence
        and pictures.

    Raises:
      ValueError: in one sentence, what was given and what is expected.
    """
    given = _codes(labels, found)
    _check(found, features, images, names)
    suggested = np.searchsorted(found.noise.classes, found.suggested)
    cards = most_suspect(found, given, suggested)[:max_cards]
    directions = directions_of(features)
    evidence = [
        nearest_clean(directions, given, found.clean, cards, wanted[cards])
        for wanted in (given, suggested)
    ]
    data = {
        "title": title,
        "version": spr_jax.__version__,
        "fingerprint": _fingerprint(found, given, names),
        "criterion": _criterion(found),
        "explained": found.noise.explained,
        "classes": [str(label) for label in found.noise.classes.tolist()],
        "names": None if names is None else [str(name) for name in names],
        "rates": _packed(_rates(found), "<f4"),
        "given": _packed(given, "<u2"),
        "suggested": _packed(suggested, "<u2"),
        "suspect": _packed(~found.clean, "u1"),
        "wrong": _packed(found.wrong, "<f4"),
        "entry": _packed(found.entry, "<f4"),
        "order": _packed(found.order, "<u4"),
        "cards": _packed(cards, "<u4"),
        "neighbours": _packed(np.stack([side.index for side in evidence], 1), "<i4"),
        "cosines": _packed(np.stack([side.cosine for side in evidence], 1), "<f4"),
        "numNeighbours": evidence[0].index.shape[1],
        "pictures": None,
    }
    if images is not None:
        data["pictures"] = _pictures(images, cards, evidence, MAX_BYTES - len(_as_json(data)))
    with replace_file(Path(path)) as file:
        file.write(_assemble(data))


def _codes(labels, found):
    classes = found.noise.classes
    labels = np.asarray(labels)
    if len(labels) != len(found.clean):
        raise ValueError(
            f"Got {len(labels)} labels, but the errors were found in {len(found.clean)} examples; "
            "give the labels that the detector was given."
        )
    codes = np.searchsorted(classes, labels.astype(classes.dtype)).clip(max=len(classes) - 1)
    unknown = np.flatnonzero(classes[codes] != labels)
    if len(unknown):
        raise ValueError(
            f"The label at index {unknown[0]} is none of those the errors were found with; give "
            "the labels that the detector was given."
        )
    return codes


def _check(found, features, images, names):
    for what, values in (("features", features), ("images", images), ("names", names)):
        if values is not None and len(values) != len(found.clean):
            raise ValueError(
                f"Got {len(values)} {what}, but the errors were found in {len(found.clean)} "
                "examples; they must match."
            )
    if names is not None and len(set(names)) < len(names):
        raise ValueError(
            f"Only {len(set(names))} of {len(names)} names differ; each example needs its own, "
            "as corrections call it by that."
        )
    if isinstance(images, np.ndarray) and images.dtype != np.uint8:
        raise ValueError(f"Images have the type {images.dtype}; expected uint8, from 0 to 255.")


def _criterion(found):
    """What the detector called suspect, in words."""
    if found.promise is not None:
        share = f"{100 * found.promise.level:g} %"
        of = {"clean": "wrong labels among the rest", "suspects": "right labels among them"}
        return f"chosen for at most {share} {of[found.promise.of]}"
    if np.array_equal(found.clean, found.wrong <= 0.5):
        return "labels more likely wrong than right"
    return "what is left when the asked share of each class is kept"


def _rates(found):
    """[1 + c, 3]: estimate, low and high, of all labels and of each class."""
    noise = found.noise
    by_class = np.column_stack([noise.by_class, noise.by_class_interval])
    return np.vstack([[noise.rate, *noise.interval], by_class])


def _fingerprint(found, codes, names):
    """Of the data, not of what was found in it: a review outlives another run of the detector."""
    texts = [found.noise.classes.tolist(), None if names is None else list(map(str, names))]
    facts = hashlib.sha256(json.dumps(texts).encode())
    facts.update(codes.astype("<u4").tobytes())
    return facts.hexdigest()[:16]


def _packed(values, kind):
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()


def _pictures(images, cards, evidence, room):
    """{"cards": ..., "neighbours": ...}, base64 WebP by example, as long as there is room."""
    pictures = {"cards": {}, "neighbours": {}}
    similar = np.concatenate([side.index for side in evidence], axis=1)
    with ThreadPoolExecutor(num_cores()) as threads:
        for rows in np.array_split(np.arange(len(cards)), 1 + len(cards) // 20):
            if room < 0:
                break
            wanted = [("cards", index, CARD_SIDE) for index in cards[rows].tolist()]
            others = np.setdiff1d(similar[rows], -1).tolist()
            wanted += [
                ("neighbours", index, NEIGHBOUR_SIDE)
                for index in others
                if index not in pictures["neighbours"]
            ]
            encoded = threads.map(lambda item: _picture(images, *item[1:]), wanted)
            for (kind, index, _), picture in zip(wanted, encoded, strict=True):
                pictures[kind][index] = picture
                room -= len(picture) + len(f'"{index}":"",')
    return pictures


def _picture(images, index, side):
    """A small WebP in base64; "" of a file that cannot be read."""
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


def _assemble(data):
    home = resources.files("spr_jax") / "page"
    style = (home / "report.css").read_text("utf-8")
    script = "\n".join((home / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    parts = {
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "data": _as_json(data),
    }
    html = (home / "report.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], html)


def _as_json(data):
    """For a block of HTML, which only "<" could end."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _policy(style, script):
    """A content security policy: these two run, embedded pictures are shown, nothing else."""

    def mark(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; img-src data:; style-src {mark(style)}; "
        f"script-src {mark(script)}; base-uri 'none'; form-action 'none'"
    )
