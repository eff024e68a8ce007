"""Pictures of the page on which label errors are reviewed: CIFAR-10 with human labels.

    python -m experiments.screenshot --data_dir=DIR

Runs `spr_jax.detect` on CIFAR-10N without options (50,000 pictures through the encoder, about ten
minutes on two cores) and opens its page in Chromium: on a screen, in dark mode, and on a phone.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.harness.browser import CHROMIUM, DRIVER, MISSING, open_browser
from experiments.harness.provenance import REPORTS
from experiments.harness.study import new_parser
from spr_jax import detect
from spr_jax.devices import one_device_per_core
from spr_jax.io.atomic import replace_file


class Look(NamedTuple):
    """The window in which a page is shown."""

    width: int
    height: int
    scheme: str = "light"  # or "dark"
    is_phone: bool = False


LOOKS = {
    "screen": Look(1280, 1780),
    "dark": Look(1280, 1780, "dark"),
    "phone": Look(390, 1400, is_phone=True),
}


def picture(browser, page: Path, look: Look) -> bytes:
    """A picture of the top of a page, as a PNG."""
    size = {"width": look.width, "height": look.height, "deviceScaleFactor": 1}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size | {"mobile": look.is_phone})
    scheme = {"name": "prefers-color-scheme", "value": look.scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(page.absolute().as_uri())
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return base64.b64decode(taken["data"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--data_dir", default="", help="where data sets are kept")
    add("--dataset", default="cifar10n", help="data set to review [%(default)s]")
    add("--out", type=Path, default=Path("runs/screenshot"), help="of spr_jax.detect [%(default)s]")
    add("--reports", type=Path, default=REPORTS, help="folder to write the pictures to")
    options = parser.parse_args(arguments)
    if not (CHROMIUM and DRIVER):
        parser.error(f"A screenshot {MISSING}.")
    where = [f"--data_dir={options.data_dir}", f"--out={options.out}"]
    detect.main([f"--dataset={options.dataset}", *where])
    with open_browser() as browser:
        for name, look in LOOKS.items():
            with replace_file(options.reports / f"page_{name}.png", binary=True) as file:
                file.write(picture(browser, options.out / "report.html", look))


if __name__ == "__main__":
    one_device_per_core(batch_size=64)  # as in training, see `spr_jax/detection/features.py`
    main()
