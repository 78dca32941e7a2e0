from __future__ import annotations

from perdure.engine.flows.files.contracts import contracts
from perdure.engine.flows.prompts.entry import Contracts


def test_every_contract_text_is_in_the_package() -> None:
    told = contracts()
    assert all(getattr(told, name).strip() for name in Contracts.__struct_fields__)
    assert "```handoff" in told.handoff
    assert "{findings_path}" in told.meta_analysis
    assert "{artifact_path}" in told.feedback
    assert "{focus}" in told.feedback
