"""An MCP server, written by hand, over standard input and output.

``python handwritten_mcp_server.py KIND``. The kind ``honest`` has one good tool. The kind
``several`` has, in addition, some tools of `mcp_server`, with the same effects. Every other kind is
hostile: the name of a listing in `LISTINGS`, or a misbehaviour such as ``silent``. If
``$MCP_DEEDS`` is set, the server creates that file at its start.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def tool(name: str, schema: Any, description: str = "x") -> dict[str, Any]:
    """A tool of a listing."""
    return {"name": name, "description": description, "inputSchema": schema}


def obj(**members: Any) -> dict[str, Any]:
    """A schema of type object."""
    return {"type": "object", "properties": members}


def deep(levels: int) -> dict[str, Any]:
    """A schema of nested objects."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = obj(a=schema)
    return schema


def chain(links: int) -> dict[str, Any]:
    """Return references that lead to references."""
    named: dict[str, Any] = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(links)}
    named[f"d{links}"] = {"type": "string"}
    return {**obj(a={"$ref": "#/$defs/d0"}), "$defs": named}


def bomb() -> dict[str, Any]:
    """A schema in which each part contains the next part twice."""
    named: dict[str, Any] = {
        f"d{n}": obj(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"})
        for n in range(40)
    }
    named["d40"] = {"type": "string"}
    return {**obj(a={"$ref": "#/$defs/d0"}), "$defs": named}


def wide(members: int) -> dict[str, Any]:
    """A schema with many members."""
    return obj(**{f"p{n}": {"type": "string"} for n in range(members)})


LONG = "x" * 2_000_000
GOOD = tool("good", obj(a={"type": "string"}))
RECURSIVE = {**obj(a={"$ref": "#/$defs/n"}), "$defs": {"n": obj(next={"$ref": "#/$defs/n"})}}
SEVERAL = (
    tool("send", {**obj(to={"type": "string"}), "required": ["to"]}),
    tool("environment", obj()),
    tool("odd/name.here", obj()),
    tool("odd_name_here", obj()),
    tool("shapeless", obj(anything={})),
)
LISTINGS: dict[str, Any] = {
    "several": lambda: SEVERAL,
    "recursive": lambda: [tool("bad", RECURSIVE)],
    "itself": lambda: [tool("bad", {**obj(a={"$ref": "#"}), "type": "object"})],
    "chain": lambda: [tool("bad", chain(5_000))],
    "bomb": lambda: [tool("bad", bomb())],
    "deep": lambda: [tool("bad", deep(60))],
    "wide": lambda: [tool("bad", wide(20_000))],
    "enum": lambda: [tool("bad", obj(a={"enum": [str(n) for n in range(50_000)]}))],
    "pattern": lambda: [tool("patterned", obj(a={"type": "string", "pattern": "^(a+)+$"}))],
    "texts": lambda: [tool("long", obj(a={"type": "string", "description": LONG}), LONG)],
    "many": lambda: [tool(f"t{n}", obj(a={"type": "string"})) for n in range(3_000)],
    "heavy": lambda: [tool(f"t{n}", wide(1_500)) for n in range(40)],
}  # fmt: skip


def main() -> None:
    """Answer requests until the end of the input."""
    kind = sys.argv[1]
    if "MCP_DEEDS" in os.environ:
        Path(os.environ["MCP_DEEDS"]).write_text(f"pid {os.getpid()}\n")
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        if kind == "silent" or (kind == "silent-list" and asked["method"] == "tools/list"):
            time.sleep(600)
        if kind == "endless-line" and asked["method"] == "tools/list":
            while True:
                sys.stdout.write("x" * 65_536)
        answer(asked, kind)


def answer(asked: dict[str, Any], kind: str) -> None:
    """Answer one request."""
    result: dict[str, Any] = {}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        about = {"name": "hostile", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    elif asked["method"] == "tools/list":
        result = {"tools": [*LISTINGS.get(kind, list)(), GOOD]}
    elif asked["method"] == "tools/call":
        if kind == "silent-call":
            time.sleep(600)
        result = {"content": [{"type": "text", "text": told(asked["params"])}]}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + "\n")
    sys.stdout.flush()


def told(call: dict[str, Any]) -> str:
    """Execute a call of a tool; return the answer."""
    if call["name"] == "environment":
        return "\n".join(f"{name}={value}" for name, value in os.environ.items())
    if call["name"] == "send":
        with Path(os.environ["MCP_DEEDS"]).open("a") as deeds:
            deeds.write("sent\n")
    return "done"


if __name__ == "__main__":
    main()
