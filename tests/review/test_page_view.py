"""The page as it is seen: overview, cards, criterion, filters."""

import pytest
from browser_page import By, WebDriverWait, in_browser
from detections import pets, promised

pytestmark = in_browser


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
    share = found.error_probability[~found.clean].mean()
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
    assert labels == ["cow", "→", "cat"]
    assert "error probability 99.0 %" in card.text and "entry penalty 1.98" in card.text
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
    for steps, threshold in ((-8, 0.1), (16, 0.9), (1, 0.95)):
        page.slide(steps)
        counts.append(int(page.text("#suspects")))
        assert counts[-1] == (found.error_probability > threshold).sum()
        assert page.text("#progress") == f"0 of {counts[-1]} reviewed"
        assert f"above {100 * threshold:g} %" in page.text("#criterion")
        in_heat = [cell.text for cell in page.all("#heat .heat:not(:disabled)")]
        assert sum(map(int, in_heat)) == counts[-1]
    assert counts[0] > 20 > counts[1] > counts[2] > 0
    page.one("#as-detected").click()
    assert page.text("#suspects") == "20"
    assert page.text("#criterion") == "the most likely wrong labels, as many as are worth a look"


def test_slider_starts_from_what_was_promised(open_page):
    features, given, found, _ = pets()
    found = promised(found._replace(clean=found.error_probability < 0.95), 0.05, "suspects")
    page = open_page(found, features, given)
    assert page.text("#suspects") == str((~found.clean).sum())
    assert "at most 5 %" in page.text("#criterion")


def test_classes_filter_the_cards(page):
    _, given, found, _ = pets()
    suspects = [i for i in found.order if not found.clean[i]]
    page.cell("cow", "cat").click()
    assert page.ids() == [str(i) for i in suspects if given[i] == "cow"]
    assert page.cell("cow", "cat").get_attribute("aria-pressed") == "true"
    page.cell("cow", "cat").click()  # removes the filter
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
