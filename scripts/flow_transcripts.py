"""Compare the transcripts in docs/flows.md with a new run, or rewrite them.

`python -m scripts.flow_transcripts` reports differences between the document and the real output;
`--write` updates the document. The rules of `readme_transcript` apply. The folder in which the
commands run contains the projects of examples/flows. Everything runs offline.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from scripts.readme_transcript import REPOSITORY, Place, main

FLOWS = REPOSITORY / "docs" / "flows.md"
EXAMPLES = REPOSITORY / "examples" / "flows"


def fill(home: Path) -> None:
    """Copy the examples into `home`."""
    shutil.copytree(EXAMPLES, home, dirs_exist_ok=True)


PLACE = Place(fill, home="/home/ana")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], FLOWS, PLACE))
