"""Tool calls as a tool sees them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perdure.secrets.vault import Taint, Vault
from perdure.tools.execution import ToolRun, run_tool
from perdure.tools.permissions import Permissions
from perdure.tools.spec import ReadMedia, ToolCall, ToolSpec
from tests.fakes.clock import ManualClock


def tool_call_of(tool: str, working_dir: Path | None = None, /, **args: object) -> ToolCall:
    """Return a call of `tool` with `args` on its first attempt."""
    return ToolCall(
        id="c1",
        tool=tool,
        args=args,
        session_id="s1",
        idempotency_key="key-1",
        attempt=1,
        working_dir=working_dir or Path("nowhere"),
    )


class Tools:
    """A runner of tools in one working directory, with permissions and secrets."""

    def __init__(
        self,
        working_dir: Path,
        permissions: Permissions | None = None,
        secrets: dict[str, str] | None = None,
        read_media: ReadMedia | None = None,
    ) -> None:
        self.working_dir = working_dir
        self.permissions = permissions or Permissions()
        variables = {f"PERDURE_SECRET_{name}": value for name, value in (secrets or {}).items()}
        self._vault = Vault(variables, lambda account: None)
        self._read_media = read_media

    async def run(self, spec: ToolSpec, /, **args: object) -> ToolRun:
        """Return the result of a call of `spec`."""
        call = msgspec.structs.replace(
            tool_call_of(spec.name, self.working_dir, **args),
            permissions=self.permissions,
            secrets=Taint(self._vault),
            read_media=self._read_media,
        )
        return await run_tool(spec, call, clock=ManualClock())
