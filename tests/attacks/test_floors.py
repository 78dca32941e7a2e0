"""No tool accesses a person's own files: files of perdure, other programs and shells, and keys.

The working directory is the home folder, which is the most dangerous choice. Each of the three file
scopes is tested. A file fails the test if a tool shows it, changes it, or creates it where it is
missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.workspace import Workspace
from perdure.models.scenario import CallTools, ScriptedCall
from perdure.tools.builtin.edits import edit_file, write_file
from perdure.tools.builtin.files import list_directory, read_file
from perdure.tools.builtin.search import search_files
from perdure.tools.execution import run_tool
from perdure.tools.permissions import SCOPES, Permissions, Scope
from tests.fakes.chats import MODEL, Stage, says, until
from tests.fakes.clock import ManualClock
from tests.fakes.samples import ALL_ONLY, case
from tests.fakes.tool_calls import Tools, tool_call_of

SECRET = "text-on-the-floor"

PERDURE = (
    ".config/perdure/config.toml",
    ".config/perdure/agents/helper.agent.yaml",
    ".local/share/perdure/perdure.db",
    ".local/share/perdure/perdure.db-wal",
    ".local/share/perdure/trust.key",
    ".perdure/config.toml",
    ".perdure/agents/helper.agent.yaml",
    "project/.perdure/config.toml",
    "project/.perdure/agents/x.agent.yaml",
    "project/.perdure/records/another-flow/a.md",
)
CHOSEN = (
    "settings/perdure/config.toml",
    "settings/perdure/agents/x.agent.yaml",
    "data/perdure/perdure.db",
    "stores/agents.db",
    "stores/agents.db-wal",
    "stores/agents.db-shm",
    "keys/store-key",
    "claude-home/settings.json",
    "claude-home/.credentials.json",
    "codex-home/auth.json",
    "codex-home/config.toml",
    "pi-home/auth.json",
    "opencode-home/opencode.json",
)
VARIABLES = {
    "XDG_CONFIG_HOME": "settings",
    "XDG_DATA_HOME": "data",
    "PERDURE_STORE": "sqlite:///{home}/stores/agents.db",
    "PERDURE_KEY_FILE": "keys/store-key",
    "CLAUDE_CONFIG_DIR": "claude-home",
    "CODEX_HOME": "codex-home",
    "PI_CODING_AGENT_DIR": "pi-home",
    "OPENCODE_CONFIG_DIR": "opencode-home",
}
PROGRAMS = (
    ".claude/settings.json",
    ".claude/.credentials.json",
    ".claude/projects/x/session.jsonl",
    ".claude.json",
    "project/.claude/settings.local.json",
    "project/.mcp.json",
    ".codex/auth.json",
    ".codex/config.toml",
    ".pi/agent/auth.json",
    ".pi/agent/settings.json",
    ".config/opencode/opencode.json",
    ".local/share/opencode/auth.json",
    "project/opencode.json",
    "project/opencode.jsonc",
    ".opencode/agent/x.md",
    ".operator/config.json",
    ".config/operator/auth.json",
    ".a-society/settings.json",
    ".relavium/config.yaml",
    ".portal/credentials",
)
SHELLS = (
    ".bashrc",
    ".bash_profile",
    ".bash_history",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zsh_history",
    ".config/fish/config.fish",
    ".config/zsh/.zshrc",
    ".inputrc",
    ".kshrc",
    ".xprofile",
    ".envrc",
    "project/.BASHRC",
    ".config/powershell/profile.ps1",
    ".config/nushell/config.nu",
)
KEYS = (
    ".ssh/config",
    ".ssh/known_hosts",
    ".gnupg/pubring.kbx",
    ".aws/config",
    "project/server.pem",
    "project/server.key",
    "project/store.p12",
    "project/store.PFX",
    "project/android.jks",
    "project/android.keystore",
    "project/passwords.kdbx",
    "project/putty.ppk",
    "project/id_ed25519",
    "project/id_ed25519_work",
    "project/id_ecdsa_sk",
    ".config/age/keys.txt",
    ".config/sops/age/keys.txt",
    ".local/share/keyrings/login.keyring",
    ".pgpass",
    ".kube/config",
)
BROWSERS = (
    ".mozilla/firefox/x.default/logins.json",
    ".thunderbird/x.default/key4.db",
    ".config/google-chrome/Default/Cookies",
    ".config/chromium/Default/Login Data",
    ".config/BraveSoftware/Brave-Browser/Default/Cookies",
    ".config/microsoft-edge/Default/Cookies",
    ".config/vivaldi/Default/Cookies",
    ".config/opera/Cookies",
    "snap/firefox/common/.mozilla/firefox/x/logins.json",
    "snap/chromium/common/chromium/Default/Cookies",
    ".var/app/com.google.Chrome/config/google-chrome/Default/Cookies",
    "Library/Application Support/Google/Chrome/Default/Cookies",
    "Library/Application Support/Firefox/Profiles/x/logins.json",
    "Library/Keychains/login.keychain-db",
    "Library/Cookies/Cookies.binarycookies",
    "AppData/Roaming/Mozilla/Firefox/Profiles/x/logins.json",
    "AppData/Local/Google/Chrome/User Data/Default/Cookies",
)
FILES = (*PERDURE, *CHOSEN, *PROGRAMS, *SHELLS, *KEYS, *BROWSERS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return home_in(tmp_path / "home", monkeypatch)


def home_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the new `folder` the home folder."""
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return folder


def choose_places(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        chosen = value.format(home=home) if "{" in value else str(home / value)
        monkeypatch.setenv(name, chosen)


def test_list_of_attacked_paths_has_enough_paths() -> None:
    assert len(set(FILES)) >= 90


@pytest.mark.parametrize(
    "turn",  # `make test` tries each path under one scope and with one of its names
    [0, *(pytest.param(turn, marks=ALL_ONLY) for turn in range(1, len(SCOPES) + 1))],
)
async def test_protected_file_is_neither_read_nor_written_with_any_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    for number, path in enumerate(FILES):
        scope = SCOPES[(turn - number) % len(SCOPES)]
        home = tmp_path / str(number)
        names = [path, f"./{path}", "link"] + ([str(home / path)] if scope == "full" else [])
        chosen = names if turn else [names[number // len(SCOPES) % len(names)]]
        with case((path, scope, chosen)), monkeypatch.context() as patch:
            await require_protected(home_in(home, patch), patch, path, scope, chosen)


async def require_protected(
    home: Path, monkeypatch: pytest.MonkeyPatch, path: str, scope: Scope, names: Sequence[str]
) -> None:
    if path in CHOSEN:
        choose_places(home, monkeypatch)
    place = home / path
    place.parent.mkdir(parents=True, exist_ok=True)
    (home / "link").symlink_to(place)
    tools = Tools(home, Permissions(scope=scope, approval="auto"))
    for name in names:  # missing files are not created
        run = await tools.run(write_file, path=name, content="x", create_dirs=True)
        assert run.outcome == "refused"
        assert not place.exists()
    place.write_text(SECRET)
    for name in names:
        for run in (
            await tools.run(read_file, path=name),
            await tools.run(write_file, path=name, content="x"),
            await tools.run(write_file, path=name, content="x", append=True),
            await tools.run(edit_file, path=name, old_text="text", new_text="x"),
            await tools.run(search_files, path=name, pattern="text"),
        ):
            assert run.outcome == "refused"
            assert SECRET not in run.output.text
    assert place.read_text() == SECRET
    for run in (
        await tools.run(read_file, path=".", glob="**/*"),
        await tools.run(search_files, pattern=SECRET[:8]),
    ):
        assert SECRET not in run.output.text
    await tools.run(list_directory, path=".", recursive=True)


@pytest.mark.parametrize(
    "path",
    [
        "project/src/main.py",
        "project/.github/workflows/ci.yml",
        "project/.gitignore",
        "project/config.toml",
        "project/id_rsa_notes.md.txt",
        "project/keys.py",
        "project/perdure/config.py",
        "project/docs/claude.md",
        "project/CLAUDE.md",
        "project/AGENTS.md",
        "project/.editorconfig",
    ],
)
async def test_file_in_a_project_can_be_read_and_written(home: Path, path: str) -> None:
    tools = Tools(home, Permissions(approval="auto"))
    run = await tools.run(write_file, path=path, content="x", create_dirs=True)
    assert run.outcome == "ok"
    assert (await tools.run(read_file, path=path)).output.text == "x"


# ---------------------------------------------------------------- names that begin with a dot

HIDDEN = (
    ".github/workflows/ci.yml",
    ".gitignore",
    ".dockerignore",
    ".circleci/config.yml",
    ".eslintrc.js",
    "src/.hidden/a.py",
    "a/../.tool.cfg",
    "link-to-hidden/a.yml",
    "./.pre-commit-config.yaml",
    ".github/../plain.txt",
    ".\u200btool",
)


def writes(path: str) -> CallTools:
    args = json.dumps({"path": path, "content": "x", "create_dirs": True})
    return CallTools((ScriptedCall("write_file", args, id="w"),))


def names_in(folder: Path) -> set[str]:
    return {str(place) for place in folder.rglob("*")}


@pytest.mark.parametrize("path", HIDDEN)
async def test_accept_edits_mode_still_asks_before_a_write_to_a_hidden_path(
    tmp_path: Path, path: str
) -> None:
    work = tmp_path / ".worktrees" / "project"
    for name in ("a", ".github", "src"):
        (work / name).mkdir(parents=True)
    (work / "link-to-hidden").symlink_to(".github")
    stage = Stage(says(writes(path)), says(writes("plain.py")), says("done"))
    permissions = Permissions(approval="accept-edits")
    agent = Agent("helper", model=MODEL, tools=("write_file",), permissions=permissions)
    place = Workspace(working_dir=str(work))
    chat = await stage.runtime(agent).start(agent, id="s", workspace=place)
    before = names_in(work)
    turn = chat.send("go")

    async def is_asked() -> bool:
        return bool(await chat.session.questions())

    await until(is_asked)
    (asked,) = await chat.session.questions()
    assert names_in(work) == before
    await chat.session.answer(asked.id, "deny", by="me")
    await turn
    assert (work / "plain.py").read_text() == "x"


# ---------------------------------------------------------------- a session's own store


@pytest.mark.parametrize("address", ["sqlite:///{}/agents.db", "jsonl:///{}/agents"])
async def test_store_in_the_working_directory_is_neither_read_nor_written(
    tmp_path: Path, address: str
) -> None:
    store = "agents.db" if address.startswith("sqlite") else "agents/x.jsonl"
    calls = [
        ScriptedCall("read_file", json.dumps({"path": store}), id="r"),
        ScriptedCall("search_files", json.dumps({"pattern": "said-before"}), id="f"),
        ScriptedCall("write_file", json.dumps({"path": store, "content": "x"}), id="w"),
        ScriptedCall("list_directory", json.dumps({"path": "agents"}), id="l"),
    ]
    stage = Stage(says(*(CallTools((call,)) for call in calls)), says("done"))
    permissions = Permissions(approval="auto")
    tools = ("read_file", "search_files", "write_file", "list_directory")
    agent = Agent("helper", model=MODEL, tools=tools, permissions=permissions)
    async with (
        perdure.open(address.format(tmp_path)) as opened,
        Runtime(opened, [agent], models=stage.models) as runtime,
    ):
        place = Workspace(working_dir=str(tmp_path))
        chat = await runtime.start(agent, id="s", workspace=place)
        await chat.send("said-before")
        results = [m.text for m in await chat.session.messages() if m.role == "tool"]
    assert len(results) == len(calls)
    assert "not read" in results[0]
    assert results[1] == "[not found]"
    assert "not written" in results[2]


# ---------------------------------------------------------------- the record folder of a flow


@pytest.mark.parametrize("scope", SCOPES)
async def test_record_folder_is_accessible_only_to_its_own_flow(
    tmp_path: Path, scope: Scope
) -> None:
    own, other = (tmp_path / ".perdure" / "records" / name for name in ("own", "other"))
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "a.md").write_text(SECRET)
    (own / "out").symlink_to(other)
    (tmp_path / ".perdure" / "config.toml").write_text(SECRET)

    async def read(path: str) -> str:
        call = msgspec.structs.replace(
            tool_call_of("read_file", tmp_path, path=path),
            permissions=Permissions(scope=scope),
            record=own,
        )
        return (await run_tool(read_file, call, clock=ManualClock())).output.text

    assert await read(".perdure/records/own/a.md") == SECRET
    for path in (
        ".perdure/records/other/a.md",
        ".perdure/records/own/../other/a.md",
        ".perdure/records/own/out/a.md",
        ".perdure/records/own/../../config.toml",
        ".perdure/config.toml",
        ".perdure/records/own/.env",
    ):
        assert SECRET not in await read(path)
    for folder in (".perdure", ".perdure/records", "."):
        listing = msgspec.structs.replace(
            tool_call_of("search_files", tmp_path, path=folder, pattern="text-on"),
            permissions=Permissions(scope=scope),
            record=own,
        )
        text = (await run_tool(search_files, listing, clock=ManualClock())).output.text
        assert "config.toml" not in text
        assert "other/a.md" not in text
