"""Write the reference of the library as HTML pages with a search, from the docstrings.

Run `python -m scripts.make_reference FOLDER` (`make reference` does) and open its index.html. The
pages need neither a server nor the internet.
"""

from __future__ import annotations

import importlib
import re
import sys
import typing
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeAlias, cast

import msgspec
from pdoc import doc, render
from pdoc.doc_types import empty

from scripts.make_event_docs import fields_of_payloads

ADAPTERS = ("google_adk", "langgraph", "openai_agents", "pydantic_ai")
MODULES = (
    "perdure",
    *(f"perdure.{name}" for name in ("blocking", "errors", "event_types", "server", "testing")),
    "perdure.types",
    *(f"perdure.adapters.{name}" for name in ADAPTERS),
)
"""The public modules. Other modules of perdure are no part of its interface."""

Documented: TypeAlias = "doc.Doc[Any]"
CONTRACT = re.compile(r"(?<=[.;)`])\s+(Shape|Units|Durable|Raises|Source): |^(Shape|Units): ", re.M)


def main(arguments: Sequence[str]) -> int:
    """Write the reference into the given folder; return the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m scripts.make_reference FOLDER")
        return 2
    folder = Path(arguments[0])
    write(folder)
    print(f"wrote {folder / 'index.html'}")
    return 0


def write(folder: Path) -> None:
    """Write the pages of all public modules, and the index of the search, into `folder`."""
    with warnings.catch_warnings():
        # If a module imports a type only for type checkers, the type is shown as it is written.
        warnings.filterwarnings("ignore", "Error parsing type annotation", UserWarning)
        _write(folder)


def _write(folder: Path) -> None:
    modules = reference()
    render.configure(docformat="markdown", show_source=False, footer_text="perdure")
    for name, module in modules.items():
        page = folder / f"{name.replace('.', '/')}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render.html_module(module, modules), encoding="utf-8")
    (folder / "index.html").write_text(render.html_index(modules), encoding="utf-8")
    (folder / "search.js").write_text(render.search_index(modules), encoding="utf-8")


def reference() -> Mapping[str, doc.Module]:
    """Return the documentation of each public module by its name."""
    modules = {name: documented(name) for name in MODULES}
    modules["perdure"].submodules = [modules[name] for name in MODULES[1:]]
    return modules


def documented(name: str) -> doc.Module:
    """Return the documentation of the public names of module `name`, in alphabetical order."""
    module = importlib.import_module(name)
    with _listed(module):
        found = doc.Module(module)
        for member in members(found):
            if isinstance(member, doc.Class):
                _complete(member)
                if name == "perdure.event_types":
                    member.docstring += _payload_text(member.name)
            _adapt(member, is_blocking=name == "perdure.blocking")
    found.docstring = _with_paragraphs(module.__doc__ or "")  # not the docstring of its stub
    return found


@contextmanager
def _listed(module: ModuleType) -> Generator[None]:
    """List the public names of `module` in `__all__`, which pdoc reads."""
    before = vars(module).get("__all__")
    names = sorted(_public_names(module), key=str.lower)
    for name in names:  # some are imported at their first use, where pdoc does not look
        setattr(module, name, getattr(module, name))
    vars(module)["__all__"] = [name for name in names if not _is_module(getattr(module, name))]
    try:
        yield
    finally:
        if before is None:
            del vars(module)["__all__"]
        else:
            vars(module)["__all__"] = before


def _public_names(module: ModuleType) -> Iterator[str]:
    listed: Sequence[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        yield from listed
        return
    for name, value in vars(module).items():
        home: object = getattr(value, "__module__", "perdure")
        if not name.startswith("_") and not _is_module(value) and str(home).startswith("perdure"):
            yield name


def _is_module(value: object) -> bool:
    return isinstance(value, ModuleType)


def members(found: doc.Module | doc.Class) -> list[Documented]:
    """Return the members of `found` that the reference shows."""
    return cast("list[Documented]", found.own_members)


def _complete(found: doc.Class) -> None:
    """Show inherited fields and methods of private bases, with the defaults of fields."""
    own = {member.name: member for member in members(found)}
    inherited = cast("dict[tuple[str, str], list[Documented]]", found.inherited_members)
    for (home, _), taken in inherited.items():
        if home.startswith("perdure."):
            own = {**{member.name: member for member in taken}, **own}
    defaults = _defaults(cast("type[Any]", found.obj))
    for name, member in own.items():
        if isinstance(member, doc.Variable) and name in defaults:
            member.default_value = defaults[name]
    order = list(defaults)
    place = {name: order.index(name) if name in defaults else len(order) for name in own}
    found.own_members = [own[name] for name in sorted(own, key=lambda name: place[name])]
    found.inherited_members = {}
    found.bases = [each for each in found.bases if each[0] in MODULES]


def _payload_text(name: str) -> str:
    """Return the fields of the payload of the event class `name` as a list; "" if it has none."""
    lines = [f"- `{field}`" for field in fields_of_payloads().get(name, ())]
    return "\n\n".join(["", "Its payload has:", "\n".join(lines)]) if lines else ""


def _defaults(of: type[Any]) -> dict[str, Any]:
    """Return the fields of a struct in their order, with their defaults."""
    if not issubclass(of, msgspec.Struct):
        return {}
    return {
        field.name: empty if field.default is msgspec.NODEFAULT else field.default
        for field in msgspec.structs.fields(of)
    }


def _adapt(found: Documented, *, is_blocking: bool) -> None:
    """Write each contract of the docstrings, such as ``Raises:``, as a separate paragraph.

    If a variable has no docstring, use the descriptions in its type as the docstring.
    """
    found.docstring = _with_paragraphs(found.docstring)
    if isinstance(found, doc.Class):
        for member in members(found):
            _adapt(member, is_blocking=is_blocking)
    elif isinstance(found, doc.Variable):
        _without_notes(found)
    elif isinstance(found, doc.Function) and is_blocking:
        found.funcdef = "def"


def _without_notes(found: doc.Variable) -> None:
    annotation = cast("Any", found.annotation)
    if typing.get_origin(annotation) is Annotated:
        notes = [note for note in typing.get_args(annotation) if isinstance(note, msgspec.Meta)]
        said = " ".join(note.description for note in notes if note.description)
        found.docstring = found.docstring or said
    if annotation is not empty:
        holder = type("_", (), {"__annotations__": {"it": annotation}})
        found.annotation = typing.get_type_hints(holder)["it"]  # without the notes at any depth


def _with_paragraphs(docstring: str) -> str:
    return CONTRACT.sub(lambda match: f"\n\n**{match[1] or match[2]}:** ", docstring)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
