from pathlib import Path
from typing import Any

import pytest

from perdure.apps.settings.document import BUILT_IN, OF_PROJECTS
from perdure.apps.settings.layers import Configuration, Said
from perdure.bounds.limits import InputLimits
from perdure.errors import ConfigError, InvalidSettings


class Files:
    def __init__(self, folder: Path) -> None:
        self.user = folder / "home" / ".config" / "perdure" / "config.toml"
        self.project = folder / "work" / ".perdure" / "config.toml"
        for file in (self.user, self.project):
            file.parent.mkdir(parents=True)
        self.environment = {"HOME": str(folder / "home")}

    def read(self, user: str = "", project: str = "", **environment: str) -> Configuration:
        self.user.write_text(user, encoding="utf-8")
        self.project.write_text(project, encoding="utf-8")
        start = self.project.parent.parent
        return Configuration(start, {**self.environment, **environment})

    def faults(self, user: str = "", project: str = "") -> tuple[str, ...]:
        with pytest.raises(InvalidSettings) as caught:
            self.read(user, project)
        return caught.value.faults


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_settings_without_files_have_their_built_in_values(tmp_path: Path) -> None:
    configuration = Configuration(tmp_path, {"HOME": str(tmp_path)})
    for key, value in BUILT_IN.items():
        assert configuration.explain(key).said == Said(value, "built-in")
        assert not configuration.is_set(key)


def test_nearest_source_of_a_setting_overrides_the_other_sources(files: Files) -> None:
    user, project = '[store]\nnamespace = "mine"\n', '\n[store]\nnamespace = "theirs"\n'
    found = files.read(user, project, PERDURE_NAMESPACE="env")
    explained = found.explain("store.namespace", "typed", "--namespace")
    assert explained.said == Said("typed", "command line", "--namespace")
    assert explained.overrides == (
        Said("env", "environment", "$PERDURE_NAMESPACE"),
        Said("theirs", "project", f"{files.project}:3"),
        Said("mine", "user", f"{files.user}:2"),
        Said("default", "built-in"),
    )
    assert found.value("store.namespace") == "env"


@pytest.mark.parametrize(
    ("key", "mine", "theirs", "counts"),
    [
        ("fs_scope", '"sandboxed"', '"full"', "sandboxed"),
        ("fs_scope", '"full"', '"sandboxed"', "sandboxed"),
        ("approval", '"ask"', '"auto"', "ask"),
        ("approval", '"auto"', '"plan"', "plan"),
        ("turn_cap", "9", "99", 9),
        ("turn_cap", "99", "9", 9),
        ("max_cost_microcents", "0", "5", 5),
        ("max_cost_microcents", "5", "0", 5),
    ],
)
def test_project_can_only_reduce_limits_of_user(
    files: Files, key: str, mine: str, theirs: str, counts: Any
) -> None:
    found = files.read(f"[chat]\n{key} = {mine}\n", f"[chat]\n{key} = {theirs}\n")
    explained = found.explain(f"chat.{key}")
    assert explained.said.value == counts
    if explained.said.source == "user":
        assert explained.overrides[0].note == "a project cannot widen what you allow"


def test_project_cannot_set_settings_that_are_reserved_for_the_user(files: Files) -> None:
    values = {
        "chat.model": '"openai:x"',
        "chat.agent": '"x"',
        "chat.thinking_level": '"high"',
        "chat.allowed_commands": '["rm *"]',
        "chat.allowed_domains": '["example.org"]',
        "chat.on_exceed": '"warn"',
        "chat.max_messages": "4",
        "chat.auto_compact": "false",
        "chat.compact_threshold": "0.5",
        "chat.first_byte_timeout_s": "9",
        "chat.stream_idle_timeout_s": "9",
        "chat.display": '"lines"',
        "chat.theme": '"light"',
        "store.address": '"postgresql://example.org/x"',
        "store.lock_timeout_s": "0.1",
        "tools.search_endpoint": '"https://example.org"',
        "models.prices": "{}",
        "chat.mcp_servers": '["x"]',
        "mcp.servers": "{}",
        **{f"limits.{name}": "9" for name in InputLimits.__struct_fields__},
    }
    assert values.keys() == BUILT_IN.keys() - OF_PROJECTS.keys()
    for key, value in values.items():
        table, _, name = key.partition(".")
        (fault,) = files.faults(project=f"[{table}]\n{name} = {value}\n")
        assert fault.startswith(f"line 2: a project cannot set {key}")
        assert files.read(user=f"[{table}]\n{name} = {value}\n").is_set(key)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x=", "line 1: invalid TOML"),
        ('a = 1\nb = "x\n', "line 2: invalid TOML"),
        ('store = "x"', "line 1: expected a mapping"),
        ("[store]\nnamespace = 5", "line 2: expected text"),
        ('[store]\n\nnamespace = " "', "line 3: ' ' is blank: write a text"),
        ("[chat]\nmodle = 'x'", "line 2: 'modle' is unknown here"),
        ("[cat]\nmodel = 'x'", "line 1: 'cat' is unknown here"),
        ("[chat]\nturn_cap = 0", "line 2: 0 is less than 1"),
        ("[chat]\nfs_scope = 'all'", "line 2: 'all' is not one of"),
        ("[chat]\nallowed_commands = ['ls', 'a | b']", "line 2: 'a | b' is no rule"),
        ("[chat]\nallowed_commands = [\n'ls',\n'a | b',\n]", "line 4: 'a | b' is no rule"),
        ("[chat]\nallowed_domains = ['a b']", "line 2: 'a b' is no domain"),
        ("[models.prices.'a:b']\ninput = 1", "line 1: 'output' is missing"),
        ("[models]\n[models.prices.gpt]\ninput = 1\noutput = 1", "line 2: 'gpt' is no model"),
        ("[models.prices.'a:b']\ninput = inf\noutput = 1", "line 2: inf cannot be written"),
        ("[tools]\n\nsearch_endpoint = 'ftp://a.org'", "line 3: search_endpoint cannot be used"),
        ("[chat]\n\nmodel = 'gpt-5'", "line 3: 'gpt-5' names no provider and model: write"),
        ("[chat]\nmax_messages = 99999999999999999999", "line 2: 99999999999999999999 is more"),
        ("[chat]\nturn_cap = 1" + "0" * 5000, "line 2: invalid TOML"),
    ],
)
def test_unknown_setting_is_reported_with_its_line(files: Files, text: str, fault: str) -> None:
    faults = files.faults(user=text)
    assert any(found.startswith(fault) for found in faults), faults


def test_all_errors_of_settings_file_are_reported(files: Files) -> None:
    assert len(files.faults(user="[chat]\nturn_cap = 0\nx = 1\n[y]\n")) == 3


def test_byte_order_mark_causes_no_error(files: Files) -> None:
    found = files.read(user="\ufeff[chat]\nmodel = 'a:b'\n")
    assert found.explain("chat.model").said == Said("a:b", "user", f"{files.user}:2")


def test_binary_settings_file_is_rejected(files: Files) -> None:
    files.user.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSettings, match=r"config\.toml:1: it is not UTF-8"):
        Configuration(files.user.parent, files.environment)


def test_unknown_key_error_lists_the_valid_keys(files: Files) -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'chat\.x'; there are: chat\.model"):
        files.read().explain("chat.x")
