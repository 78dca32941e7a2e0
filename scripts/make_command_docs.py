"""Write the documents and the table of all commands from the commands themselves.

Run `python scripts/make_command_docs.py` after a change to a command, its options or its help;
`--check` only reports whether the files are out of date (`make check` uses it). The HTML page is
one file without external resources.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import typer

from perdure.apps.cli.program import shape_of, whole_program
from perdure.apps.cli.surface.shape import EXIT_CODES, Command, Parameter, facts, spelt, synopsis
from perdure.apps.cli.surface.table import FILE, encode_table

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
STYLE = Path(__file__).with_name("command_docs.css")
SCRIPT = Path(__file__).with_name("command_docs.js")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[a-zA-Z])(?![\w-])")
BY = "scripts/make_command_docs.py"


def main(arguments: Sequence[str]) -> int:
    """Write the documents, or with --check compare them; return the exit code."""
    program = shape_of(typer.main.get_command(whole_program()))
    texts = {
        DOCS / "commands.md": markdown(program),
        DOCS / "commands.html": page(program),
        FILE: encode_table(program),
    }
    is_check = "--check" in arguments
    stale = [file for file, text in texts.items() if text_in(file) != text]
    for file in stale:
        if is_check:
            print(f"{file.relative_to(ROOT)} is not what {BY} writes: run it")
        else:
            file.write_text(texts[file], encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}")
    return 1 if is_check and stale else 0


def text_in(file: Path) -> str | None:
    """Return the content of `file`; None if the file does not exist."""
    return file.read_text(encoding="utf-8") if file.exists() else None


def commands_of(program: Command) -> list[Command]:
    """Return every command and group, without the program itself."""
    return [command for command in program.walk() if command.words]


def common_of(program: Command) -> list[Parameter]:
    """Return the options that most commands share, each once."""
    found = {p.name: p for command in program.walk() for p in command.common}
    return [found[name] for name in sorted(found, key=list(found).index)]


def anchor(command: Command) -> str:
    """Return the anchor of the command on a page."""
    return "-".join(command.words)


def _common_line(names: Sequence[str]) -> str:
    word = "option" if len(names) == 1 else "options"
    return f"This command also accepts the common {word} {', '.join(names)}."


# Markdown ---------------------------------------------------------------------------------------


def markdown(program: Command) -> str:
    """Return all commands as one Markdown document."""
    return "\n".join(_markdown(program)).rstrip() + "\n"


def _markdown(program: Command) -> Iterator[str]:
    yield f"<!-- Written by {BY}; change the commands, not this file. -->"
    yield "# Commands"
    yield ""
    for paragraph in (program.summary, *program.description):
        yield from (paragraph, "")
    yield (
        "[One HTML page](commands.html) has the same content. "
        "[The guide](guides/command-line.md) shows how to use the commands."
    )
    yield ""
    yield from ("| Command | |", "|---|---|")
    for command in commands_of(program):
        if not command.commands:
            yield f"| [`{command.line}`](#{anchor(command)}) | {cell(command.summary)} |"
    yield ""
    yield "## Exit codes"
    yield ""
    yield from ("| Code | |", "|---|---|")
    yield from (f"| {code} | {cell(meaning)} |" for code, meaning in EXIT_CODES.items())
    yield ""
    yield "## Options of most commands"
    yield ""
    yield from _table(common_of(program))
    yield ""
    yield "## Options of perdure alone"
    yield ""
    yield from _table(program.parameters)
    yield ""
    for command in commands_of(program):
        yield from _section(command)


def _section(command: Command) -> Iterator[str]:
    level = "##" if len(command.words) == 1 else "###"
    yield f'<a id="{anchor(command)}"></a>'
    yield ""
    yield f"{level} {command.line}"
    yield ""
    yield from ("```", synopsis(command), "```", "")
    for paragraph in (command.summary, *command.description):
        yield from (paragraph, "")
    if command.commands:
        names = (f"[`{each.words[-1]}`](#{anchor(each)})" for each in command.commands)
        yield from (f"Commands: {', '.join(names)}.", "")
    rows = (*command.arguments, *command.options)
    if rows:
        yield from _table(rows)
        yield ""
    if command.common:
        names = [f"`{each.spellings[0]}`" for each in command.common]
        yield _common_line(names)
        yield ""
    if command.exits:
        told = "; ".join(f"{code}: {meaning}" for code, meaning in command.exits)
        yield from (f"Exit codes: {told}.", "")
    if command.examples:
        yield "```sh"
        yield from _lines(command)
        yield from ("```", "")


def _table(parameters: Sequence[Parameter]) -> Iterator[str]:
    yield from ("| | |", "|---|---|")
    for each in parameters:
        yield f"| `{spelt(each).replace('|', chr(92) + '|')}` | {cell(_told(each))} |"


def _told(parameter: Parameter) -> str:
    known = "; ".join(facts(parameter))
    return f"{parameter.help} ({known})" if known else parameter.help


def _lines(command: Command) -> Iterator[str]:
    longest = max(len(each.line) for each in command.examples)
    for each in command.examples:
        yield f"{each.line.ljust(longest)}  # {each.note}" if each.note else each.line


def cell(text: str) -> str:
    """Return `text` in the form for a table cell."""
    return text.replace("|", "\\|")


# HTML -------------------------------------------------------------------------------------------


def page(program: Command) -> str:
    """Return all commands as one HTML page."""
    return "\n".join(_page(program)) + "\n"


def _page(program: Command) -> Iterator[str]:
    yield "<!doctype html>"
    yield f"<!-- Written by {BY}; change the commands, not this file. -->"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield "<title>Commands of perdure</title>"
    yield f"<style>\n{STYLE.read_text(encoding='utf-8').rstrip()}\n</style></head><body>"
    yield from _sidebar(program)
    yield "<main>"
    yield from _introduction(program)
    for command in commands_of(program):
        yield from _article(command)
    yield "</main>"
    yield f"<script>\n{SCRIPT.read_text(encoding='utf-8').rstrip()}\n</script>"
    yield "</body></html>"


def _sidebar(program: Command) -> Iterator[str]:
    yield '<nav aria-label="Commands"><a class="name" href="#top">perdure</a>'
    yield '<input id="filter" type="search" placeholder="Filter: press /" aria-label="Filter">'
    yield '<ul id="commands">'
    for command in commands_of(program):
        inner = "inner" if len(command.words) > 1 else "outer"
        name = command.line.rpartition(" ")[2]
        yield (
            f'<li class="{inner}" data-text="{escape(_searched(command))}">'
            f'<a href="#{anchor(command)}">{escape(name)}</a></li>'
        )
    yield "</ul></nav>"


def _searched(command: Command) -> str:
    spellings = " ".join(name for each in command.parameters for name in each.spellings)
    return f"{command.line} {command.summary} {spellings}".lower()


def _introduction(program: Command) -> Iterator[str]:
    yield '<header id="top"><h1>Commands of perdure</h1>'
    yield from _paragraphs((program.summary, *program.description))
    yield from _examples(program)
    yield "<h2>Exit codes</h2>"
    yield from _definitions([(str(code), meaning) for code, meaning in EXIT_CODES.items()])
    yield "<h2>Options of most commands</h2>"
    yield from _parameters(common_of(program))
    yield "<h2>Options of perdure alone</h2>"
    yield from _parameters(program.parameters)
    yield "</header>"


def _article(command: Command) -> Iterator[str]:
    heading = "h2" if len(command.words) == 1 else "h3"
    yield f'<article id="{anchor(command)}">'
    yield f'<{heading}><a href="#{anchor(command)}">{escape(command.line)}</a></{heading}>'
    yield from _paragraphs((command.summary,), "summary")
    yield f'<pre class="synopsis">{escape(synopsis(command))}</pre>'
    yield from _paragraphs(command.description)
    if command.commands:
        yield "<dl>"
        for each in command.commands:
            link = f'<a href="#{anchor(each)}">{escape(each.words[-1])}</a>'
            yield f"<dt><code>{link}</code></dt><dd>{_prose(each.summary)}</dd>"
        yield "</dl>"
    yield from _parameters((*command.arguments, *command.options))
    if command.common:
        names = [f"<code>{escape(each.spellings[0])}</code>" for each in command.common]
        yield f'<p class="common">{_common_line(names)}</p>'
    if command.exits:
        yield "<h4>Exit codes</h4>"
        yield from _definitions([(str(code), meaning) for code, meaning in command.exits])
    yield from _examples(command)
    yield "</article>"


def _paragraphs(texts: Sequence[str], style: str = "") -> Iterator[str]:
    mark = f' class="{style}"' if style else ""
    return (f"<p{mark}>{_prose(text)}</p>" for text in texts)


def _prose(text: str) -> str:
    """Return `text` with options and texts between backticks marked as code."""
    parts = escape(text, quote=False).split("`")
    return "".join(
        f"<code>{part}</code>" if n % 2 else OPTION.sub(r"<code>\1</code>", part)
        for n, part in enumerate(parts)
    )


def _parameters(parameters: Sequence[Parameter]) -> Iterator[str]:
    if not parameters:
        return
    yield "<dl>"
    for each in parameters:
        known = "".join(f'<span class="fact">{escape(fact)}</span>' for fact in facts(each))
        yield f"<dt><code>{escape(spelt(each))}</code></dt><dd>{_prose(each.help)}{known}</dd>"
    yield "</dl>"


def _definitions(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield '<dl class="codes">'
    yield from (f"<dt><code>{term}</code></dt><dd>{_prose(text)}</dd>" for term, text in rows)
    yield "</dl>"


def _examples(command: Command) -> Iterator[str]:
    if not command.examples:
        return
    longest = max(len(each.line) for each in command.examples)
    lines = [
        escape(each.line, quote=False)
        + (
            f'{" " * (longest - len(each.line))}  <span class="note"># {escape(each.note)}</span>'
            if each.note
            else ""
        )
        for each in command.examples
    ]
    yield f'<pre class="examples">{chr(10).join(lines)}</pre>'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
