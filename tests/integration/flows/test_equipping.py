"""The configuration of a role: skills from files, or a person's choice before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.flows.flows import Flows
from perdure.errors import ConfigError, FlowRefusal, InvalidEntry, WrongArgument
from perdure.models.router import ModelRouter
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.run import RoleConfiguration
from tests.fakes.flow_stage import MODEL, FlowStage, ends, hands

LINE = Graph(
    "a change",
    (
        FlowNode("owner-intake", "owner"),
        FlowNode("build", "developer"),
        FlowNode("end", "owner"),
    ),
    (FlowEdge("owner-intake", "build"), FlowEdge("build", "end")),
)
RULES = (
    *hands("Node `owner-intake`", "record", "plan.md", "build"),
    *hands("Node `build`", "record", "done.md", "end"),
    ends("Node `end`", "forward-pass-closed"),
)


def project(folder: Path) -> Path:
    """Return a project with two skills, one of which is the developer's."""
    for name, told in (("tests", "Run them all."), ("prose", "Be plain.")):
        place = folder / "a-docs" / "skills" / name
        place.mkdir(parents=True)
        head = f"---\nname: {name}\ndescription: How we do {name}.\n---\n"
        (place / "SKILL.md").write_text(head + told)
    role = folder / "a-docs" / "roles" / "developer"
    role.mkdir(parents=True)
    (role / "skills.yaml").write_text("skills: [tests]\n")
    return folder


async def prompt_of(stage: FlowStage, role: str) -> str:
    """Return the system prompt of a role's session, from its log."""
    (started,) = await stage.memory.notes(
        await stage.memory.find(f"f__{role}"), ("session_started",)
    )
    return started.body.decode()


async def test_role_gets_skills_of_its_file(tmp_path: Path) -> None:
    stage = FlowStage(project(tmp_path), *RULES)
    flow = await stage.flows("owner", "developer").start(
        LINE, workspace=tmp_path, record_folder="record", consent="full-access", id="f"
    )
    assert (await flow.run()).status == "awaiting_improvement_choice"
    assert "Run them all." in await prompt_of(stage, "developer")
    assert "# Skill" not in await prompt_of(stage, "owner")
    for file in (tmp_path / "a-docs" / "skills").rglob("SKILL.md"):
        file.write_text("changed")
    assert "Run them all." in await prompt_of(stage, "developer")  # it is in the log


async def test_skills_chosen_for_a_role_replace_the_skills_of_its_file(tmp_path: Path) -> None:
    stage = FlowStage(project(tmp_path), *RULES)
    flow = await stage.flows("owner", "developer").start(
        LINE,
        workspace=tmp_path,
        record_folder="record",
        consent="full-access",
        id="f",
        roles={"developer": RoleConfiguration(skills=("prose",))},
    )
    await flow.configure("owner", skills=["tests", "prose"])
    with pytest.raises(ConfigError, match="there is no skill 'magic'"):
        await flow.configure("owner", skills=["magic"])
    (tmp_path / "a-docs" / "skills" / "tests" / "SKILL.md").unlink()  # removed after it was chosen
    await flow.run()
    assert "Be plain." in await prompt_of(stage, "developer")
    assert "Run them all." not in await prompt_of(stage, "developer")
    assert (await prompt_of(stage, "owner")).count("# Skill") == 1
    with pytest.raises(FlowRefusal, match="was told its skills then"):
        await flow.configure("developer", skills=[])


@pytest.mark.parametrize(
    ("roles", "told"),
    [
        ({"developer": RoleConfiguration(skills=("magic",))}, "there is no skill 'magic'"),
        ({"ghost": RoleConfiguration(model="p:m")}, "no role 'ghost' to configure"),
        ({"owner": RoleConfiguration(tools=("magic",))}, "owner has no tool magic; it has: read"),
        (
            {"owner": RoleConfiguration(model="nobody:x")},
            "unknown model provider 'nobody'",
        ),
        ({"owner": RoleConfiguration(model="x")}, "'x' names no provider and model"),
    ],
)
async def test_unknown_choice_for_flow_is_rejected(
    tmp_path: Path, roles: dict[str, RoleConfiguration], told: str
) -> None:
    stage = FlowStage(project(tmp_path), *RULES)
    runtime = Runtime(
        stage.store,
        [Agent(role, model=MODEL, tools=["read_file"]) for role in ("owner", "developer")],
        models=ModelRouter({"scripted": stage.models, "p": stage.models}),
    )
    with pytest.raises((ConfigError, WrongArgument), match=told):
        await Flows(runtime).start(LINE, workspace=tmp_path, record_folder="record", roles=roles)
    assert not (tmp_path / "record").exists()
    models = [each.model for each in roles.values() if each.model not in {None, "p:m"}]
    for model in models:
        with pytest.raises((ConfigError, WrongArgument), match=told):
            Flows(runtime, offered_models=("scripted:flow", model or ""))


async def test_invalid_configuration_chosen_by_a_person_is_rejected(
    tmp_path: Path,
) -> None:
    stage = FlowStage(project(tmp_path), *RULES)
    flow = await stage.flows("owner", "developer", offered=("mine:a", MODEL)).start(
        LINE,
        workspace=tmp_path,
        record_folder="record",
        consent="full-access",
        configuring={"model": "ask"},
    )
    await flow.run()
    # A person in another process decides, without the agents and models of those who run it.
    router = ModelRouter({"scripted": stage.models})
    elsewhere = await Flows(Runtime(stage.store, models=router)).open(flow.id)
    head = (await elsewhere.state()).head
    with pytest.raises(WrongArgument, match="'flow' names no provider"):
        await elsewhere.configure("owner", model="flow")
    with pytest.raises(ConfigError, match="unknown model provider 'nobody'"):
        await elsewhere.configure("owner", model="nobody:x")
    with pytest.raises(ConfigError, match="unknown model provider 'mine'"):
        await elsewhere.configure("developer", model="mine:a")  # without an offer of it
    with pytest.raises(ConfigError, match="owner has no tool magic"):
        await flow.configure("owner", tools=["read_file", "magic"])
    assert (await elsewhere.state()).head == head
    await elsewhere.configure("owner", model="mine:a", tools=["write_file", "theirs"])
    await flow.configure("owner", model=MODEL, tools=["write_file"])
    await flow.run()
    with pytest.raises(ConfigError, match="owner has no tool theirs; it has: read_file"):
        await elsewhere.configure("owner", tools=["theirs"])
    await elsewhere.configure("owner", tools=["read_file"])


async def test_role_waits_until_a_person_configures_the_role(tmp_path: Path) -> None:
    stage = FlowStage(project(tmp_path), *RULES)
    models = ("scripted:flow", "scripted:other")

    def flows() -> Flows:
        """Return the flows as seen by another process."""
        return stage.flows("owner", "developer", offered=models)

    flow = await flows().start(
        LINE,
        workspace=tmp_path,
        record_folder="record",
        consent="full-access",
        id="f",
        configuring="ask",
    )
    assert (await flow.run()).awaiting_human_nodes["owner-intake"].reason == "role-configuration"
    (asked,) = await stage.store.questions()
    assert asked.question.choices == (
        *("default", "model=scripted:flow", "model=scripted:other", "skills=prose", "skills=tests"),
    )
    assert "tests (How we do tests.)" in asked.question.text
    with pytest.raises(InvalidEntry, match="there is no model 'p:m' to choose"):
        await stage.store.answer(asked.id, "model=p:m", by="ana")
    await stage.store.answer(asked.id, "model=scripted:flow skills=prose", by="ana")
    run = await (await flows().open("f")).run()
    assert run.visited_node_ids == ("owner-intake",)
    assert "Be plain." in await prompt_of(stage, "owner")
    (asked,) = await stage.store.questions()
    assert asked.target == "build"
    await stage.store.answer(asked.id, "default", by="ana")
    run = await (await flows().open("f")).run()
    assert run.status == "awaiting_improvement_choice"
    assert "Run them all." in await prompt_of(stage, "developer")


async def test_withdrawn_model_causes_a_new_question_about_the_model(
    tmp_path: Path,
) -> None:
    stage = FlowStage(tmp_path, *RULES)
    flows = stage.flows("owner", "developer", offered=("scripted:flow", "p:new"))
    flow = await flows.start(
        LINE,
        workspace=tmp_path,
        record_folder="record",
        consent="full-access",
        id="f",
        configuring="ask",
        roles={
            "owner": RoleConfiguration("p:old"),
            "developer": RoleConfiguration("scripted:flow"),
        },
    )
    await flow.run()
    (asked,) = await stage.store.questions()
    assert "its model p:old is not offered any more" in asked.question.text
    await stage.store.answer(asked.id, "model=scripted:flow", by="ana")
    assert (await flow.run()).status == "awaiting_improvement_choice"


async def test_role_without_choices_starts_without_a_question(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, *RULES)
    flow = await stage.flows("owner", "developer", offered=("scripted:flow",)).start(
        LINE, workspace=tmp_path, record_folder="record", consent="full-access", configuring="ask"
    )
    assert (await flow.run()).status == "awaiting_improvement_choice"
