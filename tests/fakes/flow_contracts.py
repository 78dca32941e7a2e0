"""Contract texts that tests can distinguish."""

from perdure.engine.flows.prompts.entry import Contracts

CONTRACTS = Contracts(
    handoff="HANDOFF CONTRACT",
    records="RECORDS CONTRACT",
    workflow="WORKFLOW CONTRACT",
    collaboration="COLLABORATION DIRECTIVE",
    meta_analysis="LOOK BACK TO {findings_path}",
    feedback="FEEDBACK TO {artifact_path}. {focus}",
)
