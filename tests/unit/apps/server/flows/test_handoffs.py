"""The files of a handoff that waits for approval."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.served_flows import begun, flow_until, serving_flows, waits_for


async def test_staged_handoff_file_has_content_but_no_diff(tmp_path: Path) -> None:
    async with serving_flows(tmp_path) as server:
        flow = await begun(server, tmp_path)
        await flow_until(server, flow, waits_for("prompt-human"))
        url = f"/v1/flows/{flow}/handoffs/write"
        assert (await server.http.get(url)).json()["items"] == []
        await server.http.post(f"/v1/flows/{flow}/reply", json={"text": "The night train"})
        await flow_until(server, flow, waits_for("handoff-approval"))
        (file,) = (await server.http.get(url)).json()["items"]
        assert file["text"] == (tmp_path / "record" / "page.md").read_text()
        assert (file["path"], file["to"], file["diff"]) == ("page.md", ["close"], None)
