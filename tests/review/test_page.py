"""The page as a file: its data, its pictures, its texts."""

import base64
import io
import json
import re

import numpy as np
import pytest
from detections import pets, promised
from PIL import Image

from spr_jax.datasets.images import ImageFiles
from spr_jax.review import page, pictures
from spr_jax.review.page import write_report


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
    assert data["source"] == ""
    assert (data["title"], data["classes"]) == ("Pets", ["cat", "cow", "dog"])
    names = np.array(data["classes"])
    np.testing.assert_array_equal(names[unpack(data["given"], "<u2")], given)
    np.testing.assert_array_equal(names[unpack(data["suggested"], "<u2")], found.suggested)
    np.testing.assert_array_equal(unpack(data["errorProbability"], "<f4"), found.error_probability)
    np.testing.assert_array_equal(unpack(data["entryPenalty"], "<f4"), found.entry_penalty)
    np.testing.assert_array_equal(unpack(data["order"], "<u4"), found.order)
    np.testing.assert_array_equal(unpack(data["suspect"], "u1"), ~found.clean)
    rates = unpack(data["rates"], "<f4").reshape(4, 3)
    np.testing.assert_allclose(rates[0], [found.noise.rate, *found.noise.interval], rtol=1e-6)
    np.testing.assert_allclose(rates[1:, 0], found.noise.by_class, rtol=1e-6)
    assert data["pictures"] is None and data["names"] is None


def test_pictures_are_small_and_of_the_cards_and_their_neighbours(tmp_path):
    features, given, found, images = pets()
    data = data_of(written(tmp_path, found, features, given, images=images, max_cards=5))
    cards, shown = unpack(data["cards"], "<u4").tolist(), data["pictures"]
    assert sorted(map(int, shown["cards"])) == sorted(cards) and len(cards) == 5
    near = set(unpack(data["neighbours"], "<i4").tolist())
    assert set(map(int, shown["neighbours"])) == near
    for index, picture in shown["cards"].items():
        image = Image.open(io.BytesIO(base64.b64decode(picture)))
        assert (image.format, image.size) == ("WEBP", (8, 6))
        assert abs(int(np.asarray(image.convert("L")).mean()) - images[int(index)].mean()) < 3


def test_a_page_of_the_same_images_takes_over_their_pictures(tmp_path):
    features, given, found, images = pets()
    shown = {"images": images, "images_key": "a", "max_cards": 5}
    first = data_of(written(tmp_path, found, features, given, **shown))
    others = shown | {"images": 255 - images}
    kept = data_of(written(tmp_path, found, features, given, **others | {"max_cards": 8}))
    cards, before = (each["pictures"]["cards"] for each in (kept, first))
    assert len(cards) == 8 and before.items() <= cards.items()  # three are new, of the new images
    anew = data_of(written(tmp_path, found, features, given, **others | {"images_key": "b"}))
    assert all(anew["pictures"]["cards"][index] != before[index] for index in before)
    without = data_of(written(tmp_path, found, features, given, **shown | {"images_key": ""}))
    assert without["pictures"] == first["pictures"]


@pytest.mark.parametrize("damage", ["cut off", "no picture", "not text"])
def test_what_is_no_picture_of_an_earlier_page_is_made_anew(tmp_path, damage):
    features, given, found, images = pets()
    shown = {"images": images, "images_key": "a", "max_cards": 5}
    html = written(tmp_path, found, features, given, **shown)
    first = data_of(html)["pictures"]
    index, picture = next(iter(first["cards"].items()))
    damaged = {
        "cut off": html[: len(html) // 2],
        "no picture": html.replace(f'"{index}":"{picture}"', f'"{index}":"x onerror=y"'),
        "not text": html.replace(f'"{index}":"{picture}"', f'"{index}":7'),
    }[damage]
    assert damaged != html
    (tmp_path / "report.html").write_text(damaged, "utf-8")
    assert data_of(written(tmp_path, found, features, given, **shown))["pictures"] == first


def test_pictures_stop_when_the_page_is_full(tmp_path, monkeypatch):
    features, given, found, images = pets()
    plain = data_of(written(tmp_path, found, features, given))
    for room, some in ((-1, False), (0, True)):
        monkeypatch.setattr(page, "MAX_BYTES", len(page._as_json(plain)) + room)
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
        assert max(image.size) == pictures.CARD_SIDE


def test_a_broken_file_leaves_its_card_without_a_picture(tmp_path):
    features, given, found, images = pets(6)
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    paths[1].write_bytes(b"no image")
    files = ImageFiles([str(path) for path in paths], 6, 6)
    cards = data_of(written(tmp_path, found, features, given, images=files))["pictures"]["cards"]
    assert cards["1"] == "" and all(cards[str(i)] for i in (0, 2, 3, 4, 5))


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

    again = found._replace(error_probability=found.error_probability / 2, clean=~found.clean)
    assert mark() == "bd6120ef2d4b451e"  # answers in a browser are stored by it: it must not change
    assert mark() == mark(again) == mark(images=images, title="another")
    other = given.copy()
    other[0] = "dog" if given[0] != "dog" else "cat"
    assert len({mark(), mark(given=other), mark(names=[f"{i}.png" for i in range(60)])}) == 3


def test_criterion_is_said_in_words(tmp_path):
    features, given, found, _ = pets()

    def says(found):
        return data_of(written(tmp_path, found, features, given))["criterion"]

    assert "most likely wrong labels" in says(found)
    assert "at most 5 % wrong labels" in says(promised(found, 0.05, "clean"))
    assert "at most 10 % correct labels" in says(promised(found, 0.1, "suspects"))
    some = np.arange(60) != found.order[3]  # three are more suspect, and not called so
    assert "fraction of each class" in says(found._replace(clean=some))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"labels": ["cat"] * 5}, "5 labels.* 60 examples"),
        ({"labels": ["zebra"] * 60}, "label at index 0"),
        ({"features": np.ones((3, 2))}, "3 features.* 60"),
        ({"names": ["a"] * 60}, "1 of 60 names"),
        ({"images": np.zeros((60, 4, 4))}, "float64.* uint8"),
        ({"images": np.zeros((2, 4, 4), np.uint8)}, "2 images.* 60"),
    ],
)
def test_what_does_not_match_is_refused(tmp_path, change, says):
    features, labels, found, _ = pets()
    with pytest.raises(ValueError, match=says):
        write_report(
            tmp_path / "report.html", found, **{"features": features, "labels": labels} | change
        )
    assert not list(tmp_path.iterdir())
