"""A real MCP server, over standard input and output or HTTP on loopback; run as a program.

``python mcp_server.py [--http PORT] [--die-at-start]``. The file ``$MCP_DEEDS`` lists the effects
of the server's tools, one line each, so that a test sees the effects.
"""

from __future__ import annotations

import base64
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp_types import AudioContent, ImageContent, TextContent, ToolAnnotations

PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 40

server = MCPServer("fake")


def done(deed: str) -> None:
    with Path(os.environ["MCP_DEEDS"]).open("a") as deeds:
        deeds.write(f"{deed}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def send(to: str) -> str:
    """Send something."""
    done(f"sent to {to}")
    return f"sent to {to}"


@server.tool()
def die(after: bool = True) -> str:
    """Kill the process with SIGKILL during the call, after the effect or before."""
    if after:
        done("died")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
def hang() -> str:
    """Report the process id, then never answer."""
    done(f"pid {os.getpid()}")
    time.sleep(600)
    return "never"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("that was too much")


@server.tool()
def show() -> list[Any]:
    """Return a picture, a sound and a text."""
    return [
        ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png"),
        AudioContent(data=base64.b64encode(b"la" * 50).decode(), mime_type="audio/wav"),
        TextContent(text="and words"),
    ]


@server.tool()
def environment() -> str:
    """Return all environment variables of the server."""
    return "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items()))


@server.tool()
def long() -> str:
    """A long text."""
    return "words " * 40_000


@server.tool(name="odd/name.here")
def odd() -> str:
    """It has an odd name."""
    return "odd"


@server.tool(name="odd_name_here")
def odd_too() -> str:
    """A tool whose name equals another one in the form that models accept."""
    return "odd, too"


@server.tool()
def shapeless(anything: Any) -> str:
    """A tool whose input has no schema."""
    return "ok"


def main(arguments: list[str]) -> None:
    if "--die-at-start" in arguments:
        sys.stderr.write("I lack a file called settings.toml\n")
        sys.exit(3)
    if "--http" in arguments:
        port = int(arguments[arguments.index("--http") + 1])
        server.run("streamable-http", host="127.0.0.1", port=port)
    else:
        done(f"pid {os.getpid()}")
        server.run("stdio")


def serve_http(deeds: str, port: int) -> None:
    """Serve on loopback at `port`, and write the effects to `deeds`."""
    os.environ["MCP_DEEDS"] = deeds
    main(["--http", str(port)])


if __name__ == "__main__":
    main(sys.argv[1:])
