"""Check the documents: links have valid targets, the map and the index are complete.

Run the script from any folder: `python -m scripts.check_documents [ROOT]`. The script prints each
violation as `path:line: rule: problem`. If it finds a violation, it exits with 1.

The map is the table "To change X, open Y" of ARCHITECTURE.md. A name in the map is a path relative
to `src/perdure` or to the repository. After another name in the same row, it can also be relative
to the folder of that name. A folder covers all files in it. The map must contain every module of
the package.

docs/README.md is the index of the documents: it links every other document below `docs`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from os.path import normpath
from pathlib import Path, PurePosixPath

from scripts.check_shape import PACKAGE, Violation, tracked_paths

MAP = "ARCHITECTURE.md"
TITLE = "## To change X, open Y"
INDEX = "docs/README.md"

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"#+ +(.*)")
_ANCHOR = re.compile(r'<a id="([^"]+)">')
_NAME = re.compile(r"`((?:[\w.]+/)*\w+(?:\.\w+)?)`")
_FENCE = "```"


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a document with their numbers, without its examples."""
    is_example = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(_FENCE):
            is_example = not is_example
        elif not is_example:
            yield number, line


def anchors(text: str) -> set[str]:
    """Return the valid link targets in a document: its headings in the form of URL fragments."""
    headings = [found[1].lower() for _, line in prose(text) if (found := _HEADING.match(line))]
    spelt = {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}
    return spelt | set(_ANCHOR.findall(text))


def broken_links(documents: Mapping[str, str], paths: Collection[str]) -> Iterator[Violation]:
    """Report each link to a missing file of the repository or to a missing heading."""
    for path, text in documents.items():
        for number, line in prose(text):
            for target in _LINK.findall(line):
                if ":" in target:
                    continue  # somewhere on the internet
                file, _, anchor = target.partition("#")
                there = normpath(PurePosixPath(path).parent / file) if file else path
                if there not in paths:
                    yield Violation(path, number, "link", f"`{target}` leads to no file")
                elif anchor and anchor not in anchors(documents.get(there, "")):
                    yield Violation(path, number, "link", f"`{target}` leads to no heading")


def missing_documents(text: str, paths: Collection[str]) -> Iterator[Violation]:
    """Report each document below the folder of the index that the index `text` does not link."""
    folder = PurePosixPath(INDEX).parent
    linked = {
        normpath(folder / target.partition("#")[0])
        for _, line in prose(text)
        for target in _LINK.findall(line)
    }
    for path in sorted(paths):
        document = PurePosixPath(path)
        is_document = document.suffix in {".md", ".html"} and document.is_relative_to(folder)
        if is_document and path not in linked and path != INDEX:
            name = document.relative_to(folder)
            message = f"`{name}` is missing: add a line that links it and says what it is about"
            yield Violation(INDEX, 1, "index", message)


def map_faults(text: str, paths: Collection[str]) -> Iterator[Violation]:
    """Report each missing path in the document, and each module that its map omits."""
    places = {PurePosixPath(path) for path in paths}
    places |= {folder for place in places for folder in place.parents}
    found: set[PurePosixPath] = set()
    is_map, first = False, 0
    for number, line in prose(text):
        if line.startswith("## "):
            is_map = line == TITLE
            first = number if is_map else first
        for name, place in _named(line, places):
            if place is None:
                yield Violation(MAP, number, "map", f"`{name}` is not there")
            elif is_map:
                found.add(place)
    for place in sorted(places if first else ()):
        is_module = place.suffix == ".py" and place.name != "__init__.py"
        if is_module and place.is_relative_to(PACKAGE) and not found & {place, *place.parents}:
            told = f"`{place.relative_to(PACKAGE)}` is not in it: say what is changed there"
            yield Violation(MAP, first, "map", told)


def _named(
    line: str, places: Collection[PurePosixPath]
) -> Iterator[tuple[str, PurePosixPath | None]]:
    """Yield each path that `line` names, or None if it is missing; other names are skipped."""
    beside = PACKAGE
    for name in _NAME.findall(line):
        near = (folder for folder in (beside, *beside.parents) if folder.is_relative_to(PACKAGE))
        tried = (folder / name for folder in (*near, PACKAGE.parent, PurePosixPath()))
        place = next((place for place in tried if place in places), None)
        if place is not None:
            beside = place.parent if place.suffix else place
        if place is not None or "/" in name or name.endswith(".py"):
            yield name, place


def violations(root: Path) -> list[Violation]:
    """Return all violations in the documents below `root`."""
    paths = {path for path in tracked_paths(root) if (root / path).is_file()}
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    documents = {
        path: (root / path).read_text(encoding="utf-8")
        for path in sorted(paths)
        if path.endswith(".md")
    }
    return sorted(
        [
            *broken_links(documents, paths | folders),
            *map_faults(documents.get(MAP, ""), paths),
            *missing_documents(documents.get(INDEX, ""), paths),
        ]
    )


def main(arguments: list[str]) -> int:
    """Check the repository at the given root, or this one; return the exit code."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    found = violations(root)
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
