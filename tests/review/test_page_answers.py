"""The reviewer's answers: given by keys or buttons, stored, exported, applied."""

from browser_page import Keys, in_browser
from detections import pets

from spr_jax.apply import main as apply
from spr_jax.review.page import write_report

pytestmark = in_browser


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


def test_keys_answer_the_card_in_focus_and_move_on(page):
    page.press("a")  # no card is in focus: the first one is, now
    assert page.focused() == "0" and page.verdicts() == {}
    page.press("a", "r")
    assert page.focused() == "2"
    page.press("l", "DO", Keys.ENTER)
    assert page.focused() == "3"
    assert page.verdicts() == {"0": "✎ becomes cat", "1": "✓ stays dog", "2": "✎ becomes dog"}
    assert page.text("#progress") == "3 of 20 reviewed"
    assert page.text("#answered-more") == "2 to change, 1 to keep"
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


def test_answers_survive_a_reload_and_stay_with_their_data(page, open_page):
    page.focus_first()
    page.press("a", "r")
    page.browser.refresh()
    assert page.verdicts() == {"0": "✎ becomes cat", "1": "✓ stays dog"}
    features, given, found, _ = pets()
    write_report(page.path, found, features, given, names=[f"{i}.png" for i in range(60)])
    page.browser.refresh()
    assert page.verdicts() == {}


def test_a_browser_that_stores_nothing_is_reported(page):
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


def test_answers_of_an_earlier_version_are_read(page):
    """The key and the format under which version 0.1.0 stored answers to this data."""
    store = "localStorage.setItem('spr_jax.review.bd6120ef2d4b451e', '[[0,0],[1,2]]')"
    page.browser.execute_script(store)
    page.browser.refresh()
    assert page.verdicts() == {"0": "✎ becomes cat", "1": "✓ stays dog"}
