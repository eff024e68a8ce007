"""The findings, which are written by hand, agree with the reports that they cite."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINDINGS = (ROOT / "docs" / "findings.md").read_text()
MEASURED, OLDER = FINDINGS.split("## Which runs are older")
PARAGRAPHS = [part for part in MEASURED.split("\n\n") if "reports/" in part and "](" in part]


def cited(text):
    return [(ROOT / "docs" / path).resolve() for path in re.findall(r"\]\((\.\./[\w/.]+)\)", text)]


def test_every_file_that_is_cited_exists():
    assert len(cited(FINDINGS)) > 8
    assert not [path for path in cited(FINDINGS) if not path.exists()]


@pytest.mark.parametrize("paragraph", PARAGRAPHS[1:], ids=range(1, len(PARAGRAPHS)))
def test_commits_and_percentages_are_those_of_the_report(paragraph):
    reports = "".join(path.read_text() for path in cited(paragraph) if path.suffix == ".md")
    commits = re.findall(r"\b(?=\w*\d)[0-9a-f]{7}\b", paragraph)
    percentages = re.findall(r"\b\d\d\.\d\d\b", paragraph)
    assert commits and not [found for found in commits + percentages if found not in reports]


def test_no_report_has_the_sentences_that_were_moved_here():
    reports = {path: path.read_text() for path in cited(OLDER) if path.suffix == ".md"}
    assert len(reports) == 4
    assert not [path for path, text in reports.items() if "by hand" in text]
