"""Unusual data on the page, and unusual screens."""

import csv
import io

import numpy as np
import pytest
from browser_page import Keys, in_browser
from detections import made_up, pets
from PIL import Image

from experiments.screenshot import LOOKS, picture
from spr_jax.apply import main as apply

pytestmark = in_browser

HOSTILE = (
    "<img src=x onerror=pwned=1>",
    "=HYPERLINK(\"http://x\",'a')",
    "</script><script>pwned=1</script>\u202eevil",
)


def test_hostile_texts_are_shown_as_text(open_page, tmp_path):
    features, given, found, images = pets(names=HOSTILE)
    names = [f"../{i}/\"><svg onload=pwned=1>,'\n猫.png" for i in range(59)] + ["=1+1|cmd.png"]
    page = open_page(found, features, given, images=images, names=names, title="<h1>&amp;</h1>")
    assert page.browser.title == page.text("h1") == "<h1>&amp;</h1>"
    assert page.ids()[:2] == names[:2]
    shown = [name.get_attribute("textContent") for name in page.all("#classes tbody th")]
    assert shown == sorted(HOSTILE)
    assert page.browser.execute_script("return typeof pwned") == "undefined"
    assert page.all("svg, [onerror], [onload]") == [] and page.complaints() == []
    page.focus_first()
    page.press("a", "r", "l", "HYPER", Keys.ENTER)
    page.choose("show", "all examples")
    page.choose("sort", "least suspect first")
    page.focus_first()
    page.press("r")
    exported = page.export(tmp_path)
    with open(exported, newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert len(cells) == 15 and not any(cell[0] in "=+-@" for cell in cells)
    with open(tmp_path / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([("file", "label"), *zip(names, given, strict=True)])
    apply([str(exported), str(tmp_path / "labels.csv"), f"--out={tmp_path / 'fixed.csv'}"])
    with open(tmp_path / "fixed.csv", newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert [row[0] for row in rows] == names
    changed = [i for i in range(60) if rows[i][1] != given[i]]
    assert changed == [0, 2] and rows[0][1] == found.suggested[0] and rows[2][1] == HOSTILE[1]


def test_without_images_the_same_without_pictures(open_page):
    features, given, found, _ = pets()
    page = open_page(found, features, given)
    assert page.all("img, .picture") == [] and len(page.ids()) == 20
    near = [name.text for name in page.all(".card:first-child .near-name")]
    assert len(near) == 6 and all(found.clean[int(name)] for name in near)
    page.press("a", "a")
    assert page.verdicts() == {"0": "✎ becomes cat"} and page.complaints() == []


@pytest.mark.parametrize("n", [3, 30])
def test_no_suspects(open_page, n):
    given = np.array(["a", "b", "c"] * (n // 3))
    page = open_page(made_up(given, given, np.full(n, 0.05)), np.eye(n), given)
    assert page.text("#suspects") == "0" and page.text("#expected") == "–"
    assert page.text("#empty").startswith("No label is suspect by this criterion.")
    page.choose("show", "all examples")
    assert page.ids()[:3] == ["0", "1", "2"]
    assert not page.one("[data-action=accept]").is_enabled()
    page.focus_first()
    page.press("a", "r")
    assert page.verdicts() == {"0": "✓ stays a"} and page.complaints() == []


def test_one_class_and_features_that_explain_nothing(open_page):
    given = np.array([7, 7, 7])
    found = made_up(given, given, [0.9, 0.2, 0.8], explained=False)
    page = open_page(found, np.ones((3, 1)), given, source="the <encoder>")
    assert page.one("#unexplained").is_displayed() and page.complaints() == []
    assert page.ids() == ["0", "2"] and "unsure which" in page.text(".card")
    assert "3 examples of 1 class," in page.text("#about")
    assert "Features: the <encoder>. Made by" in page.text("#about")


def test_many_classes_show_the_noisiest_in_the_heat_map(open_page):
    given = np.arange(300) % 50
    suggested = (given + (given > 35)) % 50
    found = made_up(given, suggested, np.where(given > 35, 0.9, 0.01))
    page = open_page(found, np.random.default_rng(0).random((300, 4)), given)
    heads = [head.text for head in page.all("#heat tbody th")]
    assert len(heads) == 20 and set(map(str, range(36, 50))) <= set(heads)
    assert len(page.all("#classes tbody tr")) == 50 and page.complaints() == []


def test_page_fits_a_phone(page):
    size = {"width": 375, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        script = "return [innerWidth, document.documentElement.scrollWidth]"
        width, needed = page.browser.execute_script(script)
        assert width == 375 >= needed
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_pictures_are_as_large_and_dark_as_they_say(page):
    drawn = {}
    try:
        for name, look in LOOKS.items():
            drawn[name] = Image.open(io.BytesIO(picture(page.browser, page.path, look)))
            assert drawn[name].size == (look.width, look.height)
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    light, dark = (np.mean(drawn[name].convert("L")) for name in ("screen", "dark"))
    assert dark < 100 < light and page.complaints() == []
