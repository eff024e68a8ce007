"""The page in a real browser."""

import csv
import io
import json

import numpy as np
import pytest
from detections import made_up, pets, promised
from PIL import Image

from experiments.browser import CHROMIUM, DRIVER, MISSING, open_browser
from experiments.screenshot import LOOKS, picture
from spr_jax.apply import main as apply
from spr_jax.report import write_report

pytest.importorskip("selenium", reason="needs selenium: pip install spr_jax[dev]")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING)


@pytest.fixture(scope="module")
def browser():
    with open_browser() as driver:
        yield driver


class Page:
    """What a person does with the page, and sees."""

    def __init__(self, browser, path):
        self.browser, self.path = browser, path
        browser.get(path.as_uri())
        browser.execute_script("localStorage.clear()")
        browser.get_log("browser"), browser.get_log("performance")
        browser.get(path.as_uri())

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.one(selector).text

    def ids(self):
        """Names of the cards."""
        script = "return [...document.querySelectorAll('.card .name')].map(e => e.textContent)"
        return self.browser.execute_script(script)

    def press(self, *keys):
        """In whatever has the focus, which each key may move."""
        webdriver.ActionChains(self.browser).send_keys(*keys).perform()

    def focus_first(self):
        self.browser.execute_script("document.querySelector('.card').focus()")

    def focused(self):
        return self.browser.switch_to.active_element.get_attribute("data-index")

    def verdicts(self):
        return {
            card.get_attribute("data-index"): card.find_element(By.CLASS_NAME, "verdict").text
            for card in self.all(".card:not([data-answer=open])")
        }

    def choose(self, name, option):
        Select(self.one(f"#{name}")).select_by_visible_text(option)

    def slide(self, steps):
        self.one("#slider").send_keys((Keys.RIGHT if steps > 0 else Keys.LEFT) * abs(steps))

    def cell(self, given, suggested):
        return self.one(f"#heat [aria-label*='given {given}, suggested {suggested}']")

    def export(self, folder):
        where = {"behavior": "allow", "downloadPath": str(folder)}
        self.browser.execute_cdp_cmd("Browser.setDownloadBehavior", where)
        self.one("#export").click()
        path = folder / "corrections.csv"
        WebDriverWait(self.browser, 30, poll_frequency=0.05).until(lambda _: path.exists())
        return path

    def complaints(self):
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def requests(self):
        log = (json.loads(entry["message"]) for entry in self.browser.get_log("performance"))
        events = (entry["message"] for entry in log)
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]


@pytest.fixture
def open_page(browser, tmp_path):
    def open_it(found, features, labels, **options):
        path = tmp_path / "report.html"
        write_report(path, found, features, labels, **options)
        return Page(browser, path)

    return open_it


@pytest.fixture
def page(open_page):
    features, given, found, images = pets()
    return open_page(found, features, given, images=images, title="Pets")


def test_page_loads_without_complaint_and_without_network(page):
    assert page.browser.title == page.text("h1") == "Pets"
    assert page.complaints() == []
    asked = page.requests()
    assert page.path.as_uri() in asked
    assert all(url == page.path.as_uri() or url.startswith("data:") for url in asked)


def test_policy_lets_nothing_in(page):
    blocked = page.browser.execute_async_script(
        """
        const done = arguments[0], seen = [];
        document.addEventListener("securitypolicyviolation", (event) => {
          seen.push(event.effectiveDirective);
          if (seen.length === 3) done(seen.sort());
        });
        document.body.append(Object.assign(new Image(), { src: "http://127.0.0.1:9/a.png" }));
        document.body.append(Object.assign(document.createElement("script"), { text: "bad = 1" }));
        fetch("http://127.0.0.1:9/b").catch(() => {});
        """
    )
    assert blocked == ["connect-src", "img-src", "script-src-elem"]
    assert page.browser.execute_script("return typeof bad") == "undefined"


def test_overview_says_what_was_found(page):
    _, _, found, _ = pets()
    assert page.text("#rate") == f"{100 * found.noise.rate:.1f} %"
    low, high = (f"{100 * bound:.1f} %" for bound in found.noise.interval)
    assert page.text("#rate-more").startswith(f"{low} to {high}")
    assert page.text("#suspects") == "20"
    share = found.wrong[~found.clean].mean()
    assert page.text("#expected") == f"{100 * share:.1f} %"
    rows = [row.text.split() for row in page.all("#classes tbody tr")]
    assert [row[0] for row in rows] == ["cat", "cow", "dog"]
    shares = [float(row[2]) for row in rows]
    assert shares == pytest.approx(100 * found.noise.by_class, abs=0.06)
    assert [row[-2:] for row in rows] == [["6", "dog"], ["7", "cat"], ["7", "cow"]]
    assert page.cell("cow", "cat").text == "7" and not page.cell("cat", "cow").is_enabled()
    assert page.text("#progress") == "0 of 20 reviewed"


def test_card_shows_the_example_and_its_evidence(page):
    card = page.one(".card")
    labels = card.find_element(By.CLASS_NAME, "labels").text.split()
    assert labels == ["cow", "→", "cat"] and "99.0 %" in card.text and "entry 1.98" in card.text
    of_given, of_suggested = (
        like.text.split() for like in card.find_elements(By.CLASS_NAME, "like")
    )
    assert of_given[:2] == ["like", "cow"] and of_suggested[:2] == ["like", "cat"]
    assert float(of_given[2]) < float(of_suggested[2])
    script = "return [...arguments[0].querySelectorAll('img')].map(e => e.naturalWidth)"
    assert page.browser.execute_script(script, card) == [8] * 7


def test_slider_relaxes_and_tightens(page):
    _, _, found, _ = pets()
    counts = []
    for steps, chance in ((-8, 0.1), (16, 0.9), (1, 0.95)):
        page.slide(steps)
        counts.append(int(page.text("#suspects")))
        assert counts[-1] == (found.wrong > chance).sum()
        assert page.text("#progress") == f"0 of {counts[-1]} reviewed"
        assert f"above {100 * chance:g} %" in page.text("#criterion")
        in_heat = [cell.text for cell in page.all("#heat .heat:not(:disabled)")]
        assert sum(map(int, in_heat)) == counts[-1]
    assert counts[0] > 20 > counts[1] > counts[2] > 0
    page.one("#as-detected").click()
    assert page.text("#suspects") == "20"
    assert page.text("#criterion") == "labels more likely wrong than right"


def test_slider_starts_from_what_was_promised(open_page):
    features, given, found, _ = pets()
    found = promised(found._replace(clean=found.wrong < 0.95), 0.05, "suspects")
    page = open_page(found, features, given)
    assert page.text("#suspects") == str((~found.clean).sum())
    assert "at most 5 % right labels" in page.text("#criterion")


def test_classes_filter_the_cards(page):
    _, given, found, _ = pets()
    suspects = [i for i in found.order if not found.clean[i]]
    page.cell("cow", "cat").click()
    assert page.ids() == [str(i) for i in suspects if given[i] == "cow"]
    assert page.cell("cow", "cat").get_attribute("aria-pressed") == "true"
    page.cell("cow", "cat").click()  # lifts it
    assert page.ids() == [str(i) for i in suspects]
    page.one("#classes tbody tr:nth-child(3) button").click()
    assert page.ids() == [str(i) for i in suspects if given[i] == "dog"]
    page.choose("suggested", "cat")
    assert page.ids() == [] and page.text("#empty") == "Nothing matches these filters."
    page.choose("given", "any class")
    assert page.ids() == [str(i) for i in suspects if found.suggested[i] == "cat"]
    page.one("#reset").click()
    assert page.ids() == [str(i) for i in suspects]


def test_suspicion_filters_and_sorts_the_cards(page):
    page.choose("sort", "least suspect first")
    assert page.ids() == [str(i) for i in range(19, -1, -1)]
    page.choose("sort", "order of the data")
    page.choose("show", "not suspect")
    assert page.ids()[:3] == ["20", "21", "22"]
    page.choose("show", "all examples")
    page.choose("sort", "largest entry penalty first")
    assert page.ids()[:3] == ["0", "1", "2"]
    page.choose("show", "suspects")
    page.focus_first()
    page.press("a", "r", "a")
    assert len(page.ids()) == 20  # nothing jumps away while it is reviewed
    page.choose("show", "suspects not yet answered")
    assert page.ids()[0] == "3" and len(page.ids()) == 17
    page.choose("show", "answered")
    assert page.ids() == ["0", "1", "2"]
    page.choose("show", "answered, label changed")
    assert page.ids() == ["0", "2"]


def test_long_lists_are_shown_as_one_scrolls(page):
    page.choose("show", "all examples")
    made = len(page.ids())
    assert made < 60 and page.text("#progress") == "0 of 60 reviewed"
    page.browser.execute_script("scrollTo(0, document.body.scrollHeight)")
    WebDriverWait(page.browser, 30, poll_frequency=0.05).until(lambda _: len(page.ids()) > made)


def test_keys_reach_the_whole_list(page):
    page.choose("show", "all examples")
    page.focus_first()
    page.browser.execute_script(
        """
        const right = () => new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true });
        for (let i = 0; i < 70; i++) document.activeElement.dispatchEvent(right());
        """
    )
    assert page.focused() == "59" and len(page.ids()) == 60


def test_keys_answer_the_card_in_focus_and_go_on(page):
    page.press("a")  # no card is in focus: the first one is, now
    assert page.focused() == "0" and page.verdicts() == {}
    page.press("a", "r")
    assert page.focused() == "2"
    page.press("l", "DO", Keys.ENTER)
    assert page.focused() == "3"
    assert page.verdicts() == {"0": "✎ becomes cat", "1": "✓ stays dog", "2": "✎ becomes dog"}
    assert page.text("#progress") == "3 of 20 reviewed"
    assert page.text("#answered-more") == "2 to change, 1 stay"
    page.press("l", Keys.ESCAPE, Keys.LEFT, "x")
    assert page.focused() == "2" and set(page.verdicts()) == {"0", "1"}
    page.press("u")
    assert page.verdicts()["2"] == "✎ becomes dog"
    page.press("u", "u", "u", "u", "u")
    assert page.verdicts() == {} and not page.one("#undo").is_enabled()


def test_relabel_prefers_what_begins_as_typed(open_page):
    features, given, found, images = pets(names=("a dog", "dog", "ox"))
    page = open_page(found, features, given, images=images)
    page.focus_first()
    page.press("l", "dog", Keys.ENTER, "l", "none", Keys.ENTER)  # no such class: it still asks
    assert page.verdicts() == {"0": "✓ stays dog"} and page.one("#relabel").is_displayed()


def test_focus_is_seen_and_keys_leave_controls_alone(page):
    page.press("a")
    style = page.browser.switch_to.active_element.value_of_css_property
    assert style("outline-style") == "solid" and style("outline-width") == "3px"
    page.one("#show").send_keys("a")  # chooses an option that begins with it
    assert page.verdicts() == {}


def test_buttons_do_what_the_keys_do(page):
    for action in ("accept", "reject"):
        page.one(f".card[data-answer=open] [data-action={action}]").click()
    page.one(".card[data-answer=open] [data-action=relabel]").click()
    page.one("#relabel-classes li:nth-child(2) button").click()
    assert page.verdicts() == {"0": "✎ becomes cat", "1": "✓ stays dog", "2": "✎ becomes cow"}
    page.one("#clear").click()
    assert page.verdicts() == {} and page.text("#answered") == "0"
    page.one("#undo").click()
    assert len(page.verdicts()) == 3


def test_choices_survive_a_reload_and_stay_with_their_data(page, open_page):
    page.focus_first()
    page.press("a", "r")
    page.browser.refresh()
    assert page.verdicts() == {"0": "✎ becomes cat", "1": "✓ stays dog"}
    features, given, found, _ = pets()
    write_report(page.path, found, features, given, names=[f"{i}.png" for i in range(60)])
    page.browser.refresh()
    assert page.verdicts() == {}


def test_a_browser_that_keeps_nothing_is_told_of(page):
    source = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('no'); }})"
    command = "Page.addScriptToEvaluateOnNewDocument"
    script = page.browser.execute_cdp_cmd(command, {"source": source})
    try:
        page.browser.refresh()
        assert page.one("#unsaved").is_displayed()
        page.press("a", "a")
        assert len(page.verdicts()) == 1 and page.complaints() == []
    finally:
        page.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_export_goes_through_apply(page, tmp_path):
    _, given, _, _ = pets()
    page.focus_first()
    page.press("a", "r", "l", "dog", Keys.ENTER)
    exported = page.export(tmp_path)
    assert exported.read_text() == "id,label,corrected\n0,cow,cat\n1,dog,dog\n2,cat,dog\n"
    (tmp_path / "labels.csv").write_text("label\n" + "\n".join(given) + "\n")
    apply([str(exported), str(tmp_path / "labels.csv"), f"--out={tmp_path / 'fixed.csv'}"])
    fixed = (tmp_path / "fixed.csv").read_text().split()[1:]
    assert fixed == ["cat", "dog", "dog", *given[3:]]


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
    page = open_page(found, np.ones((3, 1)), given)
    assert page.one("#unexplained").is_displayed() and page.complaints() == []
    assert page.ids() == ["0", "2"] and "unsure which" in page.text(".card")
    assert "3 examples of 1 class," in page.text("#about")


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
