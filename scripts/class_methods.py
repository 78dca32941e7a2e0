"""The public methods and base classes of a class, as far as the repository defines them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple


class Module(NamedTuple):
    """A file, with its syntax tree if it is valid Python."""

    path: PurePosixPath
    tree: ast.Module | None


class Classes:
    """The classes of modules, found by the names that a module uses for its base classes."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self._found: dict[tuple[str, str], tuple[Module, ast.ClassDef]] = {}
        self._imported: dict[tuple[PurePosixPath, str], str] = {}
        for source in modules:
            for node in () if source.tree is None else statements(source.tree):
                if isinstance(node, ast.ClassDef):
                    self._found.setdefault((module_name(source.path), node.name), (source, node))
                elif isinstance(node, ast.ImportFrom):
                    for name in node.names:
                        whole = f"{node.module}.{name.name}"
                        self._imported[source.path, name.asname or name.name] = whole
                elif isinstance(node, ast.Import):
                    for name in node.names:
                        self._imported[source.path, name.asname or name.name] = name.name

    def public_methods(self, source: Module, node: ast.ClassDef) -> set[str]:
        """Return the names of the public methods of a class, inherited ones included."""
        names = {
            child.name
            for child in node.body
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            and not child.name.startswith("_")
        }
        for base in node.bases:
            parent = self._base(source, base)
            if parent is not None and parent[1] is not node:
                names |= self.public_methods(*parent)
        return names

    def chain(self, source: Module, node: ast.ClassDef) -> list[str]:
        """Return the names of a class and of its bases, along the longest inheritance path."""
        parents = [self._base(source, base) for base in node.bases]
        lines = [self.chain(*each) for each in parents if each is not None and each[1] is not node]
        return [node.name, *(max(lines, key=len) if lines else ())]

    def _base(self, source: Module, base: ast.expr) -> tuple[Module, ast.ClassDef] | None:
        """Return the class that `base` names: ``B``, ``module.B`` or ``B[int]``."""
        if isinstance(base, ast.Subscript):
            return self._base(source, base.value)
        if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
            module = self._imported.get((source.path, base.value.id), "")
            return self._found.get((module, base.attr))
        if not isinstance(base, ast.Name):
            return None
        module, _, name = self._imported.get((source.path, base.id), "").rpartition(".")
        return self._found.get((module, name) if module else (module_name(source.path), base.id))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every statement, at any depth, outer ones first, without visiting expressions."""
    found: list[ast.AST] = [tree]
    for node in found:  # grows meanwhile
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, block, ())
    return iter(found)


def module_name(path: PurePosixPath) -> str:
    """Return the name by which the module at `path` is imported."""
    parts = path.with_suffix("").parts
    return ".".join(parts[1:] if parts[0] == "src" else parts)
