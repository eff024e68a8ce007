"""The review page in a real browser."""

import json

import pytest

from experiments.harness.browser import CHROMIUM, DRIVER, MISSING

pytest.importorskip("selenium", reason="needs selenium: pip install spr_jax[dev]")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

in_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING),
]


class Page:
    """The page as a person uses and sees it."""

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
        """Press keys in whatever has the focus, which each key may move."""
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
