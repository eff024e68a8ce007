"""The review page in a browser, where there is one."""

import pytest
from detections import pets

from experiments.harness.browser import open_browser
from spr_jax.review.page import write_report


@pytest.fixture(scope="module")
def browser():
    with open_browser() as driver:
        yield driver


@pytest.fixture
def open_page(browser, tmp_path):
    from browser_page import Page  # needs selenium, which other tests of the page do not

    def open_it(found, features, labels, **options):
        path = tmp_path / "report.html"
        write_report(path, found, features, labels, **options)
        return Page(browser, path)

    return open_it


@pytest.fixture
def page(open_page):
    features, given, found, images = pets()
    return open_page(found, features, given, images=images, title="Pets")
