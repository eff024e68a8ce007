"""A headless browser from the system's packages, for tests and pictures of pages."""

import contextlib
import shutil
from collections.abc import Iterator

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "needs a browser: apt-get install chromium chromium-driver"
FLAGS = (
    "--headless",
    "--no-sandbox",  # useless in a container, and refused to root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)


@contextlib.contextmanager
def open_browser() -> Iterator:
    """A Selenium driver of Chromium that logs the console and the requests of its pages."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
