"""The numbers that the paper prints, and which of our methods they belong to.

Accuracies are in per cent. The paper does not say after which epoch they were taken; most of its
competitors' numbers are quoted from other papers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

NOISE = ("sym-0.2", "sym-0.4", "sym-0.6", "sym-0.8", "asym-0.2", "asym-0.3", "asym-0.4")

# Data set -> row -> a number for each noise above.
TABLE1 = {
    "mnist": {
        "CE": (91.6, 74.0, 49.4, 22.7, 94.6, 88.8, 82.3),
        "FL": (91.7, 74.5, 50.4, 22.7, 94.3, 89.1, 82.1),
        "GCE": (98.9, 97.2, 81.5, 34.0, 96.7, 89.1, 81.5),
        "SCE": (98.9, 97.4, 88.8, 48.8, 98.0, 93.7, 85.4),
        "NLNL": (98.3, 97.8, 96.2, 86.3, 98.4, 97.5, 95.8),
        "APL": (99.1, 98.4, 95.7, 73.0, 98.9, 96.9, 91.5),
        "SR": (99.2, 99.2, 98.9, 98.0, 99.3, 99.2, 99.2),
        "SPR": (99.3, 99.2, 99.2, 98.7, 99.3, 99.2, 99.2),
    },
    "cifar10": {
        "Standard": (85.7, 81.8, 73.7, 42.0, 88.0, 86.4, 84.9),
        "Forgetting": (86.0, 82.1, 75.5, 41.3, 89.5, 88.2, 85.0),
        "Bootstrap": (86.4, 82.5, 75.2, 42.1, 88.8, 87.5, 85.1),
        "Forward": (85.7, 81.0, 73.3, 31.6, 88.5, 87.3, 85.3),
        "Decoupling": (87.4, 83.3, 73.8, 36.0, 89.3, 88.1, 85.1),
        "MentorNet": (88.1, 81.4, 70.4, 31.3, 86.3, 84.8, 78.7),
        "Co-teaching": (89.2, 86.4, 79.0, 22.9, 90.0, 88.2, 78.4),
        "Co-teaching+": (89.8, 86.1, 74.0, 17.9, 89.4, 87.1, 71.3),
        "IterNLD": (87.9, 83.7, 74.1, 38.0, 89.3, 88.8, 85.0),
        "RoG": (89.2, 83.5, 77.9, 29.1, 89.6, 88.4, 86.2),
        "PENCIL": (88.2, 86.6, 74.3, 45.3, 90.2, 88.3, 84.5),
        "GCE": (88.7, 84.7, 76.1, 41.7, 88.1, 86.0, 81.4),
        "SCE": (89.2, 85.3, 78.0, 44.4, 88.7, 86.3, 81.4),
        "TopoFilter": (90.2, 87.2, 80.5, 45.7, 90.5, 89.7, 87.9),
        "SPR": (93.2, 91.0, 82.7, 64.1, 92.8, 91.3, 89.0),
    },
}
# Top-1; for WebVision on its own test set.
TABLE2 = {
    "animal10n": {
        "CE": 79.4,
        "Nested": 81.3,
        "CE+Dropout": 81.3,
        "SELFIE": 81.8,
        "PLC": 83.4,
        "NCT": 84.1,
        "SPR": 86.8,
    },
    "webvision": {
        "CE": 66.96,
        "Decoupling": 62.54,
        "MentorNet": 63.00,
        "Co-teaching": 63.58,
        "Iterative-CV": 65.24,
        "DivideMix": 77.32,
        "SPR": 78.12,
    },
}
TABLE3 = {
    "CE": 65.5,
    "CE + SPR": 80.4,
    "CE + lq": 71.6,
    "CE + CutMix": 87.0,
    "CE + SPR + lq": 88.5,
    "CE + SPR + CutMix": 89.2,
    "CE + SPR + lq + CutMix": 91.0,
}
TABLE4 = {"split": 54.0, "whole": 6 * 3600.0}  # seconds; the 6 h are "about"

METHOD_OF = {  # a row of the paper -> our method; the other rows are not implemented
    "APL": "apl",
    "Bootstrap": "bootstrap",
    "CE": "ce",
    "CE+Dropout": "dropout",
    "Co-teaching": "co_teaching",
    "Co-teaching+": "co_teaching_plus",
    "Decoupling": "decoupling",
    "DivideMix": "divide_mix",
    "FL": "focal",
    "Forgetting": "dropout",
    "Forward": "forward",
    "GCE": "gce",
    "IterNLD": "iter_nld",
    "Iterative-CV": "incv",
    "MentorNet": "mentornet",
    "NCT": "nct",
    "NLNL": "nlnl",
    "Nested": "nested",
    "PENCIL": "pencil",
    "PLC": "plc",
    "RoG": "rog",
    "SCE": "sce",
    "SELFIE": "selfie",
    "SPR": "spr",
    "SR": "sr",
    "Standard": "ce",
    "TopoFilter": "topofilter",
}


def variants(methods: Iterable[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Rows of a table -> method and overrides: SPR and its bound have a row for each preset."""
    rows = {}
    for method in methods:
        if method in ("spr", "oracle"):
            rows |= {
                f"{method}, {preset}": (method, {"preset": preset})
                for preset in ("paper", "noise_model")
            }
        else:
            rows[method] = method, {}
    return rows


def counterparts(rows: Iterable[str], table: Mapping[str, Any]) -> dict[str, str]:
    """Our row -> the paper's; a row that only the paper has is mapped to itself."""
    method_of = {row: row.split(",")[0] for row in rows}
    found = {
        row: name for row in method_of for name in table if METHOD_OF.get(name) == method_of[row]
    }
    return found | {name: name for name in table if name not in METHOD_OF}


def in_brackets(ours: str, number: float | None) -> str:
    """Our number, and the paper's in brackets if it has one."""
    return ours if number is None else f"{ours} ({number})"
