"""The data that is read from a program built with typer."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from perdure.apps.cli.surface.shape import Command, Example, describe_program


def program() -> Command:
    made = typer.Typer(add_completion=False)
    group = typer.Typer(help="A group.\n\nExamples:\n    perdure group run x")

    @group.command("run")
    def run(
        what: Annotated[list[str], typer.Argument(metavar="WHAT", help="This.")],
        *,
        kind: Annotated[Literal["a", "b"], typer.Option(help="Which.")] = "a",
        count: Annotated[int, typer.Option(min=1, max=2000, metavar="N", help="Many.")] = 1500,
        is_loud: Annotated[bool, typer.Option("--loud/--quiet", "-l", help="Noise.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="JSON.")] = False,
        secret: Annotated[bool, typer.Option("--secret", hidden=True)] = False,
    ) -> None:
        """Run it.

        More about
        it.

        Examples:
            perdure group run x     # once
            perdure group run x y

        Exit codes:
            1    it failed
            130  it was stopped

        And a last word.
        """

    @made.command("alone")
    def alone() -> None:
        """Alone."""

    made.add_typer(group, name="group")
    return describe_program(typer.main.get_command(made), ("group", "alone"))


def test_commands_are_in_the_requested_order() -> None:
    assert [command.line for command in program().walk()] == [
        "perdure",
        "perdure group",
        "perdure group run",
        "perdure alone",
    ]


def test_command_is_found_by_group_and_command_name() -> None:
    shape = program()
    assert shape.at(["group", "run", "x"]).words == ("group", "run")
    assert shape.at(["group", "--help"]).words == ("group",)
    assert shape.at(["nonsense"]) == shape


def test_docstring_is_split_into_summary_description_and_sections() -> None:
    run = program().at(["group", "run"])
    assert run.summary == "Run it."
    assert run.description == ("More about it.", "And a last word.")
    assert run.examples == (
        Example("perdure group run x", "once"),
        Example("perdure group run x y"),
    )
    assert run.exits == ((1, "it failed"), (130, "it was stopped"))


def test_parameters_of_a_command_are_described() -> None:
    run = program().at(["group", "run"])
    what, kind, count, is_loud, as_json = run.parameters
    assert (what.spellings, what.is_argument, what.is_required, what.is_repeated) == (
        ("WHAT",),
        True,
        True,
        True,
    )
    assert (kind.value, kind.choices, kind.default) == ("a|b", ("a", "b"), "a")
    assert (count.value, count.default, count.limits) == ("N", "1,500", "1 to 2,000")
    assert (is_loud.value, is_loud.default, is_loud.opposites) == (None, None, ("--quiet",))
    assert is_loud.spellings == ("-l", "--loud")
    assert (run.arguments, run.options, run.common) == (
        (what,),
        (kind, count, is_loud),
        (as_json,),
    )
