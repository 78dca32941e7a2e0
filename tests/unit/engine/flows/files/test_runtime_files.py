from __future__ import annotations

from pathlib import Path

import pytest

from perdure.engine.flows.files.runtime_files import write_improvement_file, write_record_file
from perdure.engine.flows.rules.improvement import order_by_graph
from perdure.errors import ConfigError
from tests.fakes.flow_log import graph

LINE = graph("a>b", "b>c", a="owner", b="dev_1", c="owner")


def test_file_record_yaml_contains_the_name_and_is_never_replaced(tmp_path: Path) -> None:
    write_record_file(tmp_path, 'A "page": trains', None)
    text = (tmp_path / "record.yaml").read_text()
    assert text == 'record:\n  name: "A \\"page\\": trains"\n  summary: null\n'
    write_record_file(tmp_path, "another", "more")
    assert (tmp_path / "record.yaml").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["record.yaml"]


def test_review_file_contains_the_order_of_the_roles(tmp_path: Path) -> None:
    write_improvement_file(tmp_path, order_by_graph(LINE))
    assert (tmp_path / "improvement.yaml").read_text() == (
        'workflow:\n  name: "improvement"\n  nodes:\n'
        '    - id: "owner"\n      role: "owner"\n    - id: "dev_1"\n      role: "dev_1"\n'
        '  edges:\n    - {from: "dev_1", to: "owner"}\n'
    )


def test_link_in_place_of_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "record").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "record" / "improvement.yaml").symlink_to(tmp_path / "mine")
    (tmp_path / "record" / "record.yaml").symlink_to(tmp_path / "nowhere")
    write_improvement_file(tmp_path / "record", order_by_graph(LINE))
    write_record_file(tmp_path / "record", "x", None)
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / "record" / "improvement.yaml").is_symlink()


def test_unwritable_folder_error_contains_its_path(tmp_path: Path) -> None:
    (tmp_path / "improvement.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"improvement\.yaml cannot be written"):
        write_improvement_file(tmp_path, order_by_graph(LINE))
    with pytest.raises(ConfigError, match=r"record\.yaml cannot be written: No such file"):
        write_record_file(tmp_path / "gone", "x", None)
