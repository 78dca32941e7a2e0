"""A headless Chromium on a local file, controlled over a pipe: no driver, port or network.

Each message of the DevTools protocol on file descriptors 3 and 4 is JSON with a zero byte at its
end."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60

ONE_RENDERER = ("--disable-site-isolation-trials", "--renderer-process-limit=1")
"""Flags with which all pages share one renderer process.

Otherwise, each navigation to another site starts a process, which takes a quarter of the time of
the tests. Even so, a page cannot read a page of another origin.
"""

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    *ONE_RENDERER,
)


_REPLACED = ("Inspected target navigated", "Cannot find context", "Execution context was destroyed")


class Replaced(AssertionError):
    """Raised if another page replaced the page during the call."""


class Page:
    """One tab of the browser."""

    def __init__(self, send: int, receive: int) -> None:
        self._send = send
        self._receive = receive
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: object) -> Any:
        """Call `method` of the protocol; return its result."""
        return self._call(method, params, self._session)

    def _call(self, method: str, params: dict[str, object], session: str | None) -> Any:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                error = answer.get("error")
                if error is not None and any(each in error["message"] for each in _REPLACED):
                    raise Replaced(method, error)
                assert error is None, (method, error)
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._receive, 1 << 20)
            assert piece, "the browser has gone"
            self._buffer += piece
        raw, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(raw)

    def cpu_s(self) -> dict[int, float]:
        """Return the CPU time of each page process so far."""
        processes = self._call("SystemInfo.getProcessInfo", {}, None)["processInfo"]
        return {each["id"]: each["cpuTime"] for each in processes if each["type"] == "renderer"}

    def sized(self, width: int, height: int, *, is_dark: bool = False, scale: float = 1) -> None:
        """Change the size of the window and the colour scheme of the system."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def show(self, file: Path, fragment: str = "") -> None:
        """Open the page in `file` and wait until its script has run."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=file.as_uri() + fragment)
        self.until("document.documentElement?.dataset.ready === 'yes'")

    def value(self, expression: str) -> Any:
        """Return the value of the JavaScript `expression`."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until `expression` is true, on this page or on the page that replaces this one."""

        def holds() -> bool:
            try:
                return bool(self.value(expression))
            except Replaced:
                return False

        wait(holds, expression)

    def press(self, key: str) -> None:
        """Press and release `key`."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9}.get(key, 0)
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def write(self, text: str) -> None:
        """Type `text` into the element that has the focus."""
        self.call("Input.insertText", text=text)

    def picture(self) -> bytes:
        """The window as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def requested(self) -> list[str]:
        """Return every address requested so far."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return the errors and warnings of the console and the browser."""
        found: list[str] = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
        return found


def wait(is_true: Callable[[], bool], what: str) -> None:
    """Wait until `is_true`, at most `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)


@contextmanager
def browsing(program: str) -> Generator[Page]:
    """Open a tab in a separate browser for the duration of a ``with`` block."""
    to_browser, ours_out = os.pipe()
    ours_in, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # A shell moves the pipes to 3 and 4: Popen keeps the numbers it is given.
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        browser = subprocess.Popen(
            ["bash", "-c", script, program, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Page(ours_out, ours_in)
        finally:
            os.close(ours_out)
            os.close(ours_in)
            browser.kill()
            browser.wait()
