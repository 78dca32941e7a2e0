from perdure.client.agents.agent import AgentSettings
from perdure.client.agents.files.document import AgentFile, FiledDelegation
from perdure.workflow.reader import AGENT_KEYS

REFUSED = {"input_schema", "output_schema"}


def test_every_agent_key_of_a_workflow_document_is_read_or_rejected() -> None:
    assert set(AGENT_KEYS) - set(AgentFile.__struct_fields__) == REFUSED


def test_omitted_keys_get_default_values() -> None:
    settings, delegation = AgentSettings(), FiledDelegation()
    assert (delegation.max_agents, delegation.max_depth) == (
        settings.max_agents,
        settings.max_depth,
    )
    filed = AgentFile(id="a", model="scripted:echo", system_prompt="")
    for name in ("on_interrupt", "queue_mode", "restart_on_cut", "history", "on_pasted"):
        assert getattr(filed, name) == getattr(settings, name)
