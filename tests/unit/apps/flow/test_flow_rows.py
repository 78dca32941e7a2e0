"""A list of flows loads no agent, no model and no YAML."""

from __future__ import annotations

import subprocess
import sys

HEAVY = frozenset(
    {"perdure.client.agents.runtime", "perdure.apps.wiring", "ruamel.yaml", "rich.live"}
)


def test_list_of_flows_loads_no_runtime() -> None:
    program = "import sys, perdure.apps.flow.flow_rows; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(output.stdout.split())
