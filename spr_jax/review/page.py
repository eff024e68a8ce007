"""The review page of a detection: one HTML file that needs nothing else.

    write_report("found/report.html", found, features, labels, images=images)

The page holds the numbers of every example, but pictures and neighbours of only the most suspect:
the file must stay small enough to open and to send. The user's texts (class names, file names, the
title) are only data in it: they are in a block of JSON, never in markup, and the page's content
security policy runs no script, and loads nothing, that is not in the file.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import spr_jax
from spr_jax.detection.types import Detection
from spr_jax.io.atomic import replace_file
from spr_jax.review.neighbours import directions_of, most_suspect, nearest_clean
from spr_jax.review.pictures import encode_pictures, known_pictures

MAX_CARDS = 4000  # examples with neighbours and, as long as they fit, pictures
MAX_BYTES = 18_000_000  # of the page; pictures get what the numbers leave of it
DATA_BEGINS = '<script type="application/json" id="data">'
SCRIPTS = ("data", "suspects", "answers", "overview", "gallery", "relabel", "report")


def write_report(
    path: str | Path,
    found: Detection,
    features: np.ndarray,  # [N, d]
    labels: np.ndarray,  # [N], as given to the detector
    *,
    images: Any = None,  # [N, h, w, channels] uint8, or image files with the same indexing
    images_key: str = "",
    names: Sequence[str] | None = None,  # [N]
    title: str = "Label errors",
    source: str = "",
    max_cards: int = MAX_CARDS,
) -> None:
    """Write the review page.

    Args:
      path: the page to write, such as report.html; its folder must exist.
      found: the result of `find_label_errors(features, labels)`.
      features: those that the errors were found with; they decide which examples are alike.
      labels: those given to the detector, as class names if there are any: the page shows them,
        and writes its corrections with them.
      images: shown on the cards; one that cannot be read leaves its card without a picture.
      images_key: changes with the images: a page that is replaced, of the same key, gives its
        pictures to the new one. "": all are made anew.
      names: file names, by which corrections refer to the examples; None: their positions.
      title: heading of the page.
      source: where the features come from, such as the name of an encoder; "" leaves it out.
      max_cards: number of examples with neighbours and pictures: the most suspect, overall and of
        each pair of classes.

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
        "source": source,
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
        "errorProbability": _packed(found.error_probability, "<f4"),
        "entryPenalty": _packed(found.entry_penalty, "<f4"),
        "order": _packed(found.order, "<u4"),
        "cards": _packed(cards, "<u4"),
        "neighbours": _packed(np.stack([side.index for side in evidence], 1), "<i4"),
        "cosines": _packed(np.stack([side.cosine for side in evidence], 1), "<f4"),
        "numNeighbours": evidence[0].index.shape[1],
        "imagesKey": images_key,
        "pictures": None,
    }
    if images is not None:
        room = MAX_BYTES - len(_as_json(data))
        known = known_pictures(_earlier_data(Path(path), images_key))
        data["pictures"] = encode_pictures(images, cards, evidence, room, known)
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
            f"The label at index {unknown[0]} is not among those the errors were found with; give "
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
            f"Only {len(set(names))} of {len(names)} names differ; names must be unique, as "
            "corrections refer to examples by name."
        )
    if isinstance(images, np.ndarray) and images.dtype != np.uint8:
        raise ValueError(f"Images have the type {images.dtype}; expected uint8, from 0 to 255.")


def _criterion(found):
    """Say in words what the detector called suspect."""
    if found.promise is not None:
        level = f"{100 * found.promise.level:g} %"
        mistakes = {"clean": "wrong labels among the rest", "suspects": "correct labels among them"}
        return f"chosen for at most {level} {mistakes[found.promise.kind]}"
    by_probability = np.all(np.diff(found.error_probability[found.order]) <= 0)
    if by_probability and not found.clean[found.order[: np.sum(~found.clean)]].any():
        return "the most likely wrong labels, as many as are worth a look"
    return "all but the requested fraction of each class"


def _rates(found):
    """[1 + c, 3]: estimate, low and high, overall and for each class."""
    noise = found.noise
    by_class = np.column_stack([noise.by_class, noise.by_class_interval])
    return np.vstack([[noise.rate, *noise.interval], by_class])


def _earlier_data(path, images_key):
    """Return the data of the page that is to be replaced, if it is of the same images."""
    try:
        html = path.read_text("utf-8") if images_key else ""
        data = json.loads(html.split(DATA_BEGINS, 1)[1].split("</script>", 1)[0])
        return data if data["imagesKey"] == images_key else {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}  # there is none, or of another version, or cut off


def _fingerprint(found, codes, names):
    """Hash the data, not the findings: answers survive another run of the detector."""
    texts = [found.noise.classes.tolist(), None if names is None else list(map(str, names))]
    facts = hashlib.sha256(json.dumps(texts).encode())
    facts.update(codes.astype("<u4").tobytes())
    return facts.hexdigest()[:16]


def _packed(values, kind):
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()


def _assemble(data):
    home = resources.files("spr_jax.review") / "assets"
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
    """Return JSON that is safe in a block of HTML, which only "<" could end."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _policy(style, script):
    """Return a security policy: this style and script, embedded pictures, nothing else."""

    def mark(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; img-src data:; style-src {mark(style)}; "
        f"script-src {mark(script)}; base-uri 'none'; form-action 'none'"
    )
