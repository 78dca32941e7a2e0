"""Pictures of the bundled sample's HTML export for the documentation, taken in Chromium.

After a change to the page, run the script from the repository:
`python -m scripts.make_screenshots`.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from tests.acceptance.export.conftest import SAMPLE, page_of
from tests.fakes.browser import Page, browsing

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
STILL = "new Promise(done => setTimeout(done, 400))"


def main() -> int:
    """Take every picture; return 1 if there is no browser."""
    program = shutil.which("chromium")
    if program is None:
        print("there is no chromium: apt-get install chromium")
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browsing(program) as page:
        file = asyncio.run(page_of(SAMPLE, Path(folder)))
        desk(page, file)
        phone(page, file)
    for image in sorted(IMAGES.glob("export-*.png")):
        print(f"{image.name}: {image.stat().st_size:,} bytes")
    return 0


def desk(page: Page, file: Path) -> None:
    """Take pictures of the page in a wide window, light and dark."""
    page.sized(1280, 860)
    page.show(file)
    keep(page, "export-light")
    page.sized(1280, 860, is_dark=True)
    page.show(file, "#e30")
    page.value("document.querySelectorAll('#e31 .fold.tool')[1].open = true")
    keep(page, "export-dark")
    page.sized(1280, 860)
    page.show(file, "#e6")
    page.press("/")
    page.write("tide table")
    page.until("document.querySelectorAll('.row.hit').length > 1")
    page.value("document.querySelector('.block.current .fold.tool').open = true")
    keep(page, "export-search")


def phone(page: Page, file: Path) -> None:
    """Take pictures of the page and its tree on a phone."""
    page.sized(390, 780, scale=2)
    page.show(file, "#e30")
    keep(page, "export-phone")


def keep(page: Page, name: str) -> None:
    """Save a picture of the window when its content no longer changes."""
    page.value(STILL)
    (IMAGES / f"{name}.png").write_bytes(page.picture())


if __name__ == "__main__":
    sys.exit(main())
