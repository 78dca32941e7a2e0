"""Questions of flows, answered in the inbox by other processes, and the configuration of roles."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, Ended, World
from tests.acceptance.flows.test_commands import FIRST, flow, until

ACTED = ("--scenario", "scenario.yaml")
TOOLS = ("--tool", "read_file", "--tool", "write_file")


@pytest.fixture
def project(world: World) -> World:
    """A project that `flow init` created."""
    flow(world, "init")
    return world


def answered(world: World, *words: str, code: int = 0) -> Ended:
    ended = world.run("inbox", "answer", *words)
    assert ended.code == code, (words, ended.out, ended.err)
    return ended


def test_role_continues_after_another_process_answers_its_question(project: World) -> None:
    flow(project, "run", *FIRST, "--json", code=1)
    (asked,) = project.run("inbox", "--json").json
    assert asked["choices"] == ["allow", "allow-flow", "deny"]
    assert asked["answer"] == f"perdure inbox answer {asked['id']} allow|allow-flow|deny"
    told = answered(project, asked["id"], "allow-flow").out
    resume = "If no process runs the flow, `perdure flow resume f` continues it."
    assert told == f"Answered 'allow-flow'. {resume}\n"
    assert answered(project, asked["id"], "deny", code=4).err
    state = flow(project, "show", "f", "--json").json
    assert state["consentState"]["mode"] == "partial-access"
    resumed = flow(project, "resume", "f", *ACTED, "--json", code=1).json
    assert [each["topic"] for each in resumed["waiting"]] == ["improvement-choice"]
    (closed,) = project.run("inbox", "--json").json
    assert (closed["flow"], closed["topic"]) == ("f", "improvement-choice")
    assert answered(project, "f", "all", "--json", code=2).error["code"] == "invalid_entry"
    answered(project, "f", "none")
    assert project.run("inbox").out == "Nothing waits for you.\n"
    first = answered(project, closed["id"], "parallel", "--json", code=4).error
    assert (first["code"], first["choice"]) == ("already_answered", "none")
    flow(project, "resume", "f", *ACTED)


def test_answer_to_a_node_that_does_not_wait_is_rejected(project: World) -> None:
    flow(project, "run", *FIRST, "--consent", "full-access", code=1)
    for question, code, error in (
        ("f/1", 3, "question_not_found"),
        ("f/9999", 3, "question_not_found"),
        ("g/1", 3, "question_not_found"),
        ("g", 3, "question_not_found"),
    ):
        assert answered(project, question, "none", "--json", code=code).error["code"] == error


def test_run_with_the_option_configure_ask_lets_a_person_configure_each_role(
    project: World,
) -> None:
    skill = project.folder / "a-docs" / "skills" / "careful"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: careful\ndescription: Look twice.\n---\nDo.\n")
    options = ("--configure", "ask", "--consent", "partial-access")
    flow(project, "run", *FIRST, *options, code=1)
    shown = flow(project, "show", "f").out
    assert "choose from skills: careful (Look twice.)" in shown
    assert "perdure flow configure f owner --model MODEL" in shown
    for role, answer in (("owner", "skills=careful"), ("developer", "default")):
        (asked,) = project.run("inbox", "--json").json
        assert asked["topic"] == "role-configuration"
        answered(project, asked["id"], *answer.split())
        flow(project, "resume", "f", *ACTED, code=1)
        session = flow(project, "show", "f", "--role", role, "--json").json
        assert ("# Skill careful" in session["systemPrompt"]) == (role == "owner")
    flow(project, "configure", "f", "reviewer", "--skill", "magic", code=2)
    for words in (("--tool", "raed_file"), ("-m", "opnai:gpt-5"), ("-m", "gpt-5")):
        for role in ("reviewer", "owner"):  # who has not begun, and who has
            flow(project, "configure", "f", role, *words, code=2)
    flow(project, "configure", "f", "reviewer", "--skill", "careful", *TOOLS)
    assert "no question" in answered(project, "f", "default", code=3).err
    ended = flow(project, "resume", "f", *ACTED, "--json", code=1).json
    assert ended["status"] == "awaiting_improvement_choice"


def test_run_with_skills_auto_lets_a_model_choose_the_skills(project: World) -> None:
    skill = project.folder / "a-docs" / "skills" / "careful"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: careful\ndescription: Look twice.\n---\nDo.\n")
    scenario = project.folder / "scenario.yaml"
    rule = "rules:\n  - when: {user_contains: Role instance}\n    text: skills=careful\n"
    scenario.write_text(scenario.read_text().replace("rules:\n", rule))
    flow(project, "run", *FIRST, "--configure", "auto=1", code=2)
    options = ("--configure", "model=ask,skills=auto", "--consent", "partial-access")
    flow(project, "run", *FIRST, *options, code=1)
    session = flow(project, "show", "f", "--role", "owner", "--json").json
    assert "# Skill careful" in session["systemPrompt"]
    flow(project, "export", "f", "-o", "out")
    assert (project.folder / "out" / "selectors" / "owner-1.json").is_file()
    assert flow(project, "delete", "f", "--yes", "--json").json["sessions"] == 6


def test_only_one_of_concurrent_answers_is_accepted(project: World) -> None:
    flow(project, "run", *FIRST, "--consent", "partial-access", code=1)
    modes = ("graph-based", "parallel", "none")
    with ExitStack() as stack:
        words = [("inbox", "answer", "f", mode, "--json") for mode in modes]
        processes = [stack.enter_context(project.fork(*each)) for each in words]
        ended = [process.ended() for process in processes]
    codes = [each.code for each in ended]
    for each in ended:
        told = {"already_answered", "question_not_found"}  # or it came when nothing waited
        assert each.code == 0 or json.loads(each.err)["error"]["code"] in told
    assert codes.count(0) == 1
    chosen = flow(project, "show", "f", "--json").json["improvementPhase"]["mode"]
    assert chosen == modes[codes.index(0)]


def test_unknown_skill_is_an_error_of_the_workflow(project: World) -> None:
    role = project.folder / "a-docs" / "roles" / "developer"
    (role / "skills.yaml").write_text("skills: [magic]\n")
    (fault,) = flow(project, "validate", "workflow.yaml", "--json", code=2).json["faults"]
    assert "a-docs/roles/developer/skills.yaml, line 1: there is no skill 'magic'" in fault
    assert "magic" in flow(project, "run", *FIRST, code=2).err


def test_flow_without_a_model_is_not_started(project: World) -> None:
    project = World(project.folder, {**project.extra, "PERDURE_MODEL": ""})
    ended = flow(project, "run", "workflow.yaml", "--id", "f", code=2)
    assert "say which model the roles use: -m PROVIDER:NAME" in ended.err
    assert "scripted:echo (offline, no language model)" in ended.err
    assert "there is no store" in flow(project, "list", code=3).err
    options = ("--role", "owner model=scripted:echo", "-m", "scripted:echo")
    flow(project, "run", *FIRST[:1], "--id", "f", *options, code=1)
    assert flow(project, "run", *FIRST, "--json", code=4).error["code"] == "session_exists"


def test_ctrl_c_suspends_flow_and_prints_the_resume_command(project: World) -> None:
    hanging = project.scenario("name: s\nrules:\n  - steps: [{text: Wait.}, hang]\n")
    running = project.start("flow", "run", *FIRST[:1], "--scenario", hanging, "--id", "f")
    try:
        words = ("flow", "show", "f", "--json")
        until(lambda: '"runningNodes":["owner-intake"]' in project.run(*words).out)
        assert "flow stop f owner` ends" in flow(project, "delete", "f", "--yes", code=4).err
        running.send_signal(signal.SIGINT)
        _, problem = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 130
        assert "suspended; `perdure flow resume f` continues it" in problem.decode()
    finally:
        running.kill()
        running.communicate()
    assert json.loads(project.run(*words).out)["runningNodes"] == ["owner-intake"]
    assert "deleted f" in flow(project, "delete", "f", "--yes").out  # no role is at work any more
