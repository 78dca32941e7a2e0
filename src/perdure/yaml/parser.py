"""The YAML library's parser, with a depth limit. Importing this module loads the library."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner, ScannerError

from perdure.yaml.nodes import MAX_DEPTH

__all__ = ["MarkedYAMLError", "PlainYaml", "ReaderError", "YAMLError"]


class _ShallowScanner(Scanner):
    """Limits the depth of nested brackets, because the library needs seconds for 2,000 levels."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:  # noqa: N803 - the library's name
        library: Any = super()  # it is untyped
        if len(library.__self__.flow_context) > MAX_DEPTH:
            raise ScannerError(None, None, "nested too deep", library.__self__.reader.get_mark())
        library.fetch_flow_collection_start(TokenClass, to_push)


class PlainYaml(YAML):
    """The YAML library's own safe reader; it does not scan the library's folder for plugins.

    If brackets are nested deeper than `MAX_DEPTH`, a `ScannerError` is raised.
    """

    def __init__(self) -> None:
        super().__init__(typ="safe", pure=True)
        self.Scanner = _ShallowScanner

    def official_plug_ins(self) -> list[str]:
        return []
