"""A page of help."""

from __future__ import annotations

from perdure.apps.cli.surface.shape import Command, Example, Parameter, page_lines, spelt, synopsis
from perdure.apps.terminal.style import Style

WHAT = Parameter("what", ("WHAT",), None, "This.", is_argument=True, is_required=True)
MORE = Parameter("more", ("MORE",), None, "And.", is_argument=True, is_repeated=True)
LOUD = Parameter("loud", ("-l", "--loud"), None, "Noise.", opposites=("--quiet",))
COUNT = Parameter("count", ("--count",), "N", "Many.", default="5", limits="1 to 9", variable="X_N")
STORE = Parameter("store", ("--store",), "ADDRESS", "Where.")
COMMAND = Command(
    ("run",),
    "Run it.",
    ("A word " * 30 + "more.",),
    (Example("perdure run x", "once"), Example("perdure run x y z")),
    ((1, "it failed"),),
    (WHAT, MORE, LOUD, COUNT, STORE),
)


def test_help_page_has_all_sections_in_order() -> None:
    assert list(page_lines(COMMAND, 72, Style())) == [
        "Usage: perdure run [OPTIONS] WHAT [MORE...]",
        "",
        "Run it.",
        "",
        "A word A word A word A word A word A word A word A word A word A word A",
        "word A word A word A word A word A word A word A word A word A word A",
        "word A word A word A word A word A word A word A word A word A word",
        "more.",
        "",
        "Arguments:",
        "  WHAT     This.",
        "  MORE...  And.",
        "",
        "Options:",
        "  -l, --loud / --quiet  Noise.",
        "  --count N             Many. (default: 5; 1 to 9; or $X_N)",
        "  --store ADDRESS       Where.",
        "  --help                Show this page.",
        "",
        "Exit codes:",
        "  1  it failed",
        "",
        "Examples:",
        "  perdure run x      # once",
        "  perdure run x y z",
    ]


def test_help_prints_a_long_name_on_a_separate_line() -> None:
    long = Parameter("long", ("--format",), "|".join(["choice"] * 6), "Which.")
    lines = list(page_lines(Command(("x",), "X.", parameters=(long,)), 80, Style()))
    place = lines.index(f"  {spelt(long)}")
    assert lines[place + 1].strip() == "Which."


def test_group_shows_its_commands() -> None:
    group = Command(("g",), "G.", commands=(Command(("g", "a"), "Do a."),))
    assert synopsis(group) == "perdure g COMMAND [OPTIONS]"
    assert "  a  Do a." in list(page_lines(group, 80, Style()))


def test_first_page_explains_all_exit_codes() -> None:
    assert "  130  interrupted" in list(page_lines(Command((), "P."), 80, Style()))
