"""Take a picture of every view of the console: light and dark, 1280 and 390 pixels wide.

python -m scripts.make_console_pictures FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fakes.console import browsing
from tests.fakes.console_store import ANSWERS, DESK, furnished, places
from tests.fakes.served import served

SIZES = ((1280, 800), (390, 844))
SCHEMES = ("light", "dark")


async def pictures(folder: Path, chromium: str) -> None:
    """Write the pictures into `folder`."""
    with TemporaryDirectory() as scratch:
        async with served(Path(scratch), ANSWERS, agents=[DESK]) as server:
            session = await furnished(server)
            for size in SIZES:
                for scheme in SCHEMES:
                    async with browsing(chromium, server, size, scheme) as browser:
                        for place in places(session):
                            await browser.open(place)
                            await browser.settle()
                            name = re.sub(r"\W+", "-", place.replace(session, "one"))
                            target = folder / f"{name}-{size[0]}-{scheme}.png"
                            await browser.page.screenshot(path=target)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    chromium = shutil.which("chromium")
    if chromium is None:
        print("there is no chromium (apt-get install chromium)", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(pictures(folder, chromium))
    return 0


if __name__ == "__main__":
    sys.exit(main())
