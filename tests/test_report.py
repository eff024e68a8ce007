import base64
import io
import json
import re

import numpy as np
import pytest
from detections import made_up, pets, promised
from PIL import Image

from spr_jax import evidence, report
from spr_jax.datasets.images import ImageFiles
from spr_jax.evidence import directions_of, most_suspect, nearest_clean
from spr_jax.report import write_report


def data_of(path):
    """The block of JSON in a page."""
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', path)
    return json.loads(block)


def written(folder, found, features, labels, **options):
    write_report(folder / "report.html", found, features, labels, **options)
    return (folder / "report.html").read_text("utf-8")


def unpack(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


def test_numbers_of_every_example_are_in_the_page(tmp_path):
    features, given, found, _ = pets()
    data = data_of(written(tmp_path, found, features, given, title="Pets"))
    assert (data["title"], data["classes"]) == ("Pets", ["cat", "cow", "dog"])
    names = np.array(data["classes"])
    np.testing.assert_array_equal(names[unpack(data["given"], "<u2")], given)
    np.testing.assert_array_equal(names[unpack(data["suggested"], "<u2")], found.suggested)
    np.testing.assert_array_equal(unpack(data["wrong"], "<f4"), found.wrong)
    np.testing.assert_array_equal(unpack(data["entry"], "<f4"), found.entry)
    np.testing.assert_array_equal(unpack(data["order"], "<u4"), found.order)
    np.testing.assert_array_equal(unpack(data["suspect"], "u1"), ~found.clean)
    rates = unpack(data["rates"], "<f4").reshape(4, 3)
    np.testing.assert_allclose(rates[0], [found.noise.rate, *found.noise.interval], rtol=1e-6)
    np.testing.assert_allclose(rates[1:, 0], found.noise.by_class, rtol=1e-6)
    assert data["pictures"] is None and data["names"] is None


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64])
def test_directions_are_cosines_about_the_mean(kind):
    features = np.random.default_rng(0).integers(0, 200, (40, 5)).astype(kind)
    directions = directions_of(features)
    centred = features.astype(np.float64) - features.astype(np.float64).mean(axis=0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(directions, centred / lengths, atol=1e-6)
    np.testing.assert_array_equal(directions_of(np.ones((3, 2), kind)), np.zeros((3, 2)))


def test_nearest_clean_agrees_with_a_search_one_by_one(monkeypatch):
    generator = np.random.default_rng(0)
    directions = generator.standard_normal((50, 4)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    given, clean = generator.integers(0, 3, 50), generator.random(50) < 0.7
    queries, wanted = generator.permutation(50)[:30], generator.integers(0, 3, 30)
    found = nearest_clean(directions, given, clean, queries, wanted)
    monkeypatch.setattr(evidence, "BLOCK", 20)
    np.testing.assert_array_equal(
        nearest_clean(directions, given, clean, queries, wanted).index, found.index
    )
    for row, (query, label) in enumerate(zip(queries, wanted, strict=True)):
        others = [i for i in range(50) if clean[i] and given[i] == label and i != query]
        others.sort(key=lambda i: -(directions[i] @ directions[query]))
        assert found.index[row].tolist() == others[: evidence.NUM_NEIGHBOURS]
        expected = directions[others[: evidence.NUM_NEIGHBOURS]] @ directions[query]
        np.testing.assert_allclose(found.cosine[row], expected, rtol=1e-5)


def test_a_class_with_too_few_clean_examples_leaves_gaps():
    directions = np.eye(4, dtype=np.float32)
    given, clean = np.array([0, 0, 1, 1]), np.array([True, True, False, False])
    index = nearest_clean(directions, given, clean, np.array([0, 2]), np.array([0, 1])).index
    assert index.tolist() == [[1, -1, -1], [-1, -1, -1]]


def test_cards_are_the_most_suspect_of_all_and_of_each_pair():
    given = np.array(["a"] * 6 + ["b"] * 3)
    suggested = np.array(["b"] * 6 + ["a"] * 2 + ["b"])
    found = made_up(given, suggested, [0.9, 0.95, 0.8, 0.99, 0.7, 0.75, 0.6, 0.55, 0.1])
    codes = np.searchsorted(["a", "b"], given), np.searchsorted(["a", "b"], suggested)
    # 3, 1 and 0 are the surest of all; 6 is the surest of its pair, 8 is not suspect.
    assert most_suspect(found, *codes).tolist() == [3, 1, 6, 0, 2, 7, 5, 4, 8]
    assert sorted(most_suspect(found, *codes)) == list(range(9))


def test_pictures_are_small_and_of_the_cards_and_their_neighbours(tmp_path):
    features, given, found, images = pets()
    data = data_of(written(tmp_path, found, features, given, images=images, max_cards=5))
    cards, pictures = unpack(data["cards"], "<u4").tolist(), data["pictures"]
    assert sorted(map(int, pictures["cards"])) == sorted(cards) and len(cards) == 5
    near = set(unpack(data["neighbours"], "<i4").tolist())
    assert set(map(int, pictures["neighbours"])) == near
    for index, picture in pictures["cards"].items():
        image = Image.open(io.BytesIO(base64.b64decode(picture)))
        assert (image.format, image.size) == ("WEBP", (8, 6))
        assert abs(int(np.asarray(image.convert("L")).mean()) - images[int(index)].mean()) < 3


def test_pictures_stop_when_the_page_is_full(tmp_path, monkeypatch):
    features, given, found, images = pets()
    plain = data_of(written(tmp_path, found, features, given))
    for room, some in ((-1, False), (0, True)):
        monkeypatch.setattr(report, "MAX_BYTES", len(report._as_json(plain)) + room)
        data = data_of(written(tmp_path, found, features, given, images=images))
        cards, kept = unpack(data["cards"], "<u4").tolist(), data["pictures"]["cards"]
        assert (len(kept) > 0) == some and len(kept) < len(cards) == 60
        assert set(map(int, kept)) == set(cards[: len(kept)])


def test_large_and_grey_images_are_fine(tmp_path):
    features, given, found, _ = pets(6)
    for shape in ((6, 300, 200), (6, 300, 200, 1)):
        pixels = np.full(shape, 99, np.uint8)
        data = data_of(written(tmp_path, found, features, given, images=pixels))
        image = Image.open(io.BytesIO(base64.b64decode(data["pictures"]["cards"]["0"])))
        assert max(image.size) == report.CARD_SIDE


def test_a_broken_file_leaves_its_card_without_a_picture(tmp_path):
    features, given, found, images = pets(6)
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    paths[1].write_bytes(b"no image")
    files = ImageFiles([str(path) for path in paths], 6, 6)
    pictures = data_of(written(tmp_path, found, features, given, images=files))["pictures"]["cards"]
    assert pictures["1"] == "" and all(pictures[str(i)] for i in (0, 2, 3, 4, 5))


def test_hostile_texts_cannot_leave_their_block(tmp_path):
    hostile = ["</script><script>x()</script>", "<!--<script>", "{{script}}"]
    features, given, found, _ = pets(names=hostile)
    names = [f"{i}</SCRIPT>\n\u2028\\u003c" for i in range(60)]
    html = written(tmp_path, found, features, given, names=names, title="</title><b>")
    plain = written(tmp_path, pets()[2], features, pets()[1])
    for tag in ("<script", "</script", "<!--", "</title", "<b>"):
        assert html.lower().count(tag) == plain.lower().count(tag)
    data = data_of(html)
    assert data["classes"] == sorted(hostile) and data["names"] == names
    assert data["title"] == "</title><b>" and "{{" not in plain


def test_the_policy_names_the_scripts_and_styles_by_their_hash(tmp_path):
    features, given, found, _ = pets()
    html = written(tmp_path, found, features, given)
    (policy,) = re.findall('Content-Security-Policy" content="(.*?)"', html)
    assert policy.startswith("default-src 'none'; img-src data:;") and "unsafe" not in policy


def test_fingerprint_is_of_the_data_and_not_of_the_findings(tmp_path):
    features, given, found, images = pets()

    def mark(found=found, given=given, **options):
        return data_of(written(tmp_path, found, features, given, **options))["fingerprint"]

    again = found._replace(wrong=found.wrong / 2, clean=~found.clean)
    assert mark() == mark(again) == mark(images=images, title="another")
    other = given.copy()
    other[0] = "dog" if given[0] != "dog" else "cat"
    assert len({mark(), mark(given=other), mark(names=[f"{i}.png" for i in range(60)])}) == 3


def test_criterion_is_said_in_words(tmp_path):
    features, given, found, _ = pets()

    def says(found):
        return data_of(written(tmp_path, found, features, given))["criterion"]

    assert says(found) == "labels more likely wrong than right"
    assert says(promised(found, 0.05, "clean")).startswith("chosen for at most 5 % wrong labels")
    assert says(promised(found, 0.1, "suspects")).startswith("chosen for at most 10 % right labels")
    assert "share of each class is kept" in says(found._replace(clean=found.wrong < 0.9))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"labels": ["cat"] * 5}, "Got 5 labels, but the errors were found in 60 examples"),
        ({"labels": ["zebra"] * 60}, "The label at index 0 is none of those"),
        ({"features": np.ones((3, 2))}, "Got 3 features, but"),
        ({"names": ["a"] * 60}, "Only 1 of 60 names differ"),
        ({"images": np.zeros((60, 4, 4))}, "type float64; expected uint8"),
        ({"images": np.zeros((2, 4, 4), np.uint8)}, "Got 2 images"),
    ],
)
def test_what_does_not_match_is_refused(tmp_path, change, says):
    features, labels, found, _ = pets()
    with pytest.raises(ValueError, match=says):
        write_report(
            tmp_path / "report.html", found, **{"features": features, "labels": labels} | change
        )
    assert not list(tmp_path.iterdir())
