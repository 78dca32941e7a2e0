"""A command line for every command, on the store of `marked_log`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import typer

from perdure.apps.cli.program import shape_of, whole_program
from perdure.session.memory.kinds import memory_stream
from tests.fakes.marked_log import FLOW, MARK, SESSION

SKIPPED = {
    "completion": "prints a script of its own",
    "cluster limit": "needs PostgreSQL; prints the subject that it is given",
    "cluster status": "needs PostgreSQL; prints names of workers and counts",
    "demo": "runs on the bundled sample, and is tested as a whole elsewhere",
    "flow run": "reads a workflow file, and starts roles",
    "flow init": "writes files of its own text",
    "init": "writes files of its own text",
    "sessions pick": "needs a terminal of its own; its screen is tested in apps/picker",
    "schedule cancel": "needs the id of a waiting message, which is random",
    "store rekey": "needs an encrypted store; prints only addresses",
    "models remove-key": "removes a key, which no store has",
    "models set-key": "keeps a key, which no store has",
    "models test": "calls a model of the settings",
    "mcp test": "starts a server of the settings",
    "serve": "serves until it is stopped; tested with real requests elsewhere",
    "worker": "needs PostgreSQL, and runs until it is stopped",
    "token revoke": "needs the id of a token, which is random",
    "mcp serve": "speaks to a client until its stdin ends; tested with a real client elsewhere",
}
S, F, FACTS = str(SESSION), str(FLOW), str(memory_stream(None))
_SCENARIO = ("--scenario", "SCENARIO")
"""A scenario whose model wants to write a file with a marker; the call waits for an approval."""

LINES: dict[str, list[str]] = {
    "activity": [],
    "agents list": [],
    "agents show": ["marked"],
    "agents validate": [],
    "chat": ["-p", f"hello {MARK.replace(chr(0), '')}", "-m", "scripted:asks", *_SCENARIO],
    "config explain": [],
    "config path": [],
    "continue-in": [S, "codex", "--folder", "FRESH"],
    "doctor": [],
    "edits": [],
    "export": [S, "--format", "markdown", "--all-branches"],
    "flow approve": [F],
    "flow compact": [F, "owner"],
    "flow configure": [F, "owner", "-m", "scripted:echo"],
    "flow consent": [F, "no-access"],
    "flow delete": [F, "--yes"],
    "flow export": [F, "-o", "FRESH"],
    "flow feedback": [F, "deny"],
    "flow graph": [F],
    "flow improve": [F, "none"],
    "flow list": [],
    "flow reply": [F, f"go {MARK.replace(chr(0), '')}"],
    "flow resume": [F],
    "flow show": [F],
    "flow stop": [F, "build"],
    "flow validate": ["WORKFLOW"],
    "grants list": [S],
    "grants revoke": [S, "nothing"],
    "import": ["RECORDING"],
    "inbox answer": ["marked/24", "yes"],
    "inbox list": [],
    "inbox show": ["marked/23"],
    "mcp list": [],
    "memory correct": [f"{FACTS}/0", f"again {MARK.replace(chr(0), '')}"],
    "memory episodes": ["--all"],
    "memory facts": ["--all", "--past"],
    "memory forget": [f"{FACTS}/1", "--yes"],
    "memory import": ["."],
    "memory index": [],
    "memory search": ["what was said?", "--all"],
    "memory remember": [f"more {MARK.replace(chr(0), '')}"],
    "models": [],
    "schedule add": [S, f"later {MARK.replace(chr(0), '')}", "--at", "2h"],
    "schedule list": [],
    "sessions abandon": [S],
    "sessions branch": [S, "0"],
    "sessions compact": [S, "-m", "scripted:echo"],
    "sessions context": [S],
    "sessions diff": [S, "2", "1"],
    "sessions end": [S, "--reason", "done"],
    "sessions erase": [S, "--yes"],
    "sessions erasures": [],
    "sessions fork": [S],
    "sessions label": [S, "0", "here"],
    "sessions list": ["--all"],
    "sessions read": [S],
    "sessions resume": [S],
    "sessions pin": [S, "0"],
    "sessions rename": [S, f"again {MARK.replace(chr(0), '')}"],
    "sessions search": ["Hello"],
    "sessions show": [S],
    "sessions tools": [S],
    "sessions tree": [S, "--all"],
    "sessions uncompact": [S],
    "sessions unpin": [S, "0"],
    "store backup": ["FRESH"],
    "store copy": ["sqlite:///FRESH"],
    "store info": [],
    "store migrate": [],
    "store quota set": ["--max-sessions", "900"],
    "store quota show": [],
    "store reindex": [],
    "store repair": [],
    "store restore": ["BACKUP", "--store", "sqlite:///FRESH"],
    "store retention apply": [],
    "store retention set": ["--max-idle", "9000d"],
    "store retention show": [],
    "store stats": [],
    "store trust": [],
    "store vacuum": [],
    "token create": ["--name", MARK.replace(chr(0), "")],
    "token list": [],
    "store verify": [],
    "usage": [],
}
FIRST = ("export", "sessions show", "sessions tree", "sessions context", "sessions list")
LAST = ("sessions end", "flow delete", "sessions erase", "sessions erasures")


def commands() -> Iterator[str]:
    """Yield the words of every command."""
    rooms = [shape_of(typer.main.get_command(whole_program()))]
    while rooms:
        room = rooms.pop()
        rooms += room.commands
        if not room.commands or room.words == ("models",):  # a command that has others below it
            yield " ".join(room.words)


def ordered() -> list[str]:
    """Return the commands in an order in which each command's target still exists."""
    return [*FIRST, *(name for name in LINES if name not in FIRST + LAST), *LAST]


def line_of(command: str, folder: Path, number: int) -> list[str]:
    """Return the arguments of `command`, with existing and new files filled in."""
    backups = sorted(folder.glob("fresh*/manifest.json"))
    recording = next(folder.glob("recording*.jsonl"))
    asks = folder / "asks.yaml"
    args = {"path": "odd.txt", "content": f"one {MARK}"}
    calls = [{"name": "write_file", "args": args}]
    asks.write_text(json.dumps({"name": "asks", "sequence": [{"text": MARK, "calls": calls}]}))
    values = {
        "SCENARIO": str(asks),
        "FRESH": str(folder / f"fresh{number}"),
        "WORKFLOW": str(folder / "workflow.yaml"),
        "RECORDING": str(recording),
        "BACKUP": str(backups[0].parent) if backups else "nowhere",
    }
    words = command.split()
    named = re.compile("|".join(values))
    return words + [named.sub(lambda found: values[found[0]], word) for word in LINES[command]]
