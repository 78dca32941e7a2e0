"""Library errors suggest Python calls; the command line replaces the calls with commands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from perdure import errors
from perdure.apps.chat.session import ModelMissing, ModelNotHere
from perdure.apps.terminal.advice import ADVICE, chat_message_of, message_of, with_commands
from perdure.client.agents.runtime import Runtime
from perdure.client.cluster.runner import cluster_of
from perdure.errors import PerdureError
from tests.fakes.chats import Stage
from tests.fakes.samples import case

SOURCE = Path(errors.__file__).parents[1]
COMMANDS = re.compile(r"`perdure |(?<![\w-])--(force|workspace|with|keep|to|record)\b")
WORDS = re.compile(r"`perdure|--(force|workspace|with|keep|to|record)")
"""Prefilter: only modules that match are parsed, because parsing all would take seconds."""


def text_of(node: ast.AST) -> str | None:
    """Return the text of `node`, with {} for each inserted value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    return None


def texts_in(tree: ast.AST) -> Iterator[str]:
    """Return every text in `tree` except docstrings and names of types."""
    nodes = list(ast.walk(tree))
    documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        text = None if id(node) in documented else text_of(node)
        if text is not None:
            yield text


@cache
def library() -> dict[str, str]:
    """Return the code of each module of the library, without `apps`."""
    files = {str(file.relative_to(SOURCE)): file for file in sorted(SOURCE.rglob("*.py"))}
    return {
        name: file.read_text("utf-8")
        for name, file in files.items()
        if not name.startswith(("apps/", "__main__"))
    }


@cache
def texts_of(name: str) -> tuple[str, ...]:
    return tuple(texts_in(ast.parse(library()[name])))


@pytest.mark.full_only
def test_library_error_texts_contain_no_command() -> None:
    suspects = [name for name, code in library().items() if WORDS.search(code)]
    found = [(name, text) for name in suspects for text in texts_of(name) if COMMANDS.search(text)]
    assert found == []


@pytest.mark.full_only
def test_command_line_replaces_only_texts_that_the_library_contains() -> None:
    for call in ADVICE:
        with case(call):
            literal = re.sub(r"\{[^}]*\}", "{}", call)  # as `text_of` writes inserted values
            words = re.split(r"\W+", literal.replace("{}", " "))
            named = [n for n, code in library().items() if all(word in code for word in words)]
            assert any(literal in text for name in named for text in texts_of(name))


@pytest.mark.parametrize(
    ("error", "call", "command"),
    [
        (errors.SessionNotFound("a"), "Store.recent", "`perdure sessions list --all` shows them"),
        (errors.EntryNotFound("e", "s"), "Session.tree", "`perdure sessions tree s` lists them"),
        (errors.TurnOpen("s", 3), "Runtime.resume", "with `perdure chat --session s`, or give"),
        (errors.TurnOpen("s", 3), "Session.abandon_turn", "with `perdure sessions abandon s`"),
        (errors.QuestionNotFound("q"), "Store.questions", "`perdure inbox` lists"),
        (errors.FlowNotFound("f"), "Flows.list", "`perdure flow list` lists"),
        (errors.FlowExists("f"), "Flows.open", "`perdure flow resume f` continues it"),
        (
            errors.FlowRefusal("f", "no", is_waiting=True),
            "Flow.waiting",
            "(`perdure flow show f` says what",
        ),
        (errors.Erased("s"), "Store.erasures", "`perdure sessions erase s` shows the certificate"),
        (errors.SessionHasForks("s", ("a",)), 'forks="erase"', "or --with-forks to erase them"),
        (
            errors.SessionHasForks("s", ("a",), is_all_shared=True),
            'forks="erase"',
            "--keep-for-forks keeps shared entries; use --with-forks to erase them",
        ),
        (errors.CorruptLog("s", 1, "x"), "Store.verify", "run `perdure store verify` for all"),
        (errors.StoreCorrupt("f", "x"), "Store.verify", "then run `perdure store verify`, and"),
        (errors.StoreCorrupt("f", "x"), "Store.verify", "and `perdure store repair` to keep"),
        (
            errors.StoreLocked("f", "p", "end it", 2),
            "(lock_timeout_s)",
            "2 s (store.lock_timeout_s",
        ),
        (
            errors.QueueFull("n", 2, 1, 5, has_worker=False),
            "start a worker;",
            "start `perdure worker MODULE:FACTORY`; try again in 5 s",
        ),
        (errors.SearchIndexDamaged("f"), "Store.reindex", "`perdure store reindex` rebuilds"),
    ],
)
def test_command_line_replaces_calls_in_error_texts_with_commands(
    error: PerdureError, call: str, command: str
) -> None:
    assert call in str(error)
    assert "perdure " not in str(error).replace("perdure's", "")
    assert command in message_of(error)
    assert call not in message_of(error)


def test_advice_is_unchanged_if_no_command_replaces_the_call() -> None:
    assert with_commands("x; Session.tree lists them") == "x; Session.tree lists them"


def test_remedy_printed_in_a_chat_can_be_typed_in_that_chat() -> None:
    for error, advice in (
        (
            ModelNotHere("a:b", "no key"),
            "no key; /model NAME chooses another (/model scripted:echo",
        ),
        (
            ModelNotHere("scripted:b", "no"),
            "no; start the chat with --scenario FILE for a scenario; ",
        ),
        (ModelNotHere("a:b", "no", "s1"), "abandon s1`, then /resume s1 and /model NAME"),
        (
            ModelMissing("a new session", "x"),
            "/new and /model PROVIDER:NAME choose one; there are x",
        ),
    ):
        with case(advice):
            told = chat_message_of(error)
            assert advice in told
            assert "perdure chat" not in told
            assert "-m " not in told


def test_only_runtime_errors_suggest_to_unset_perdure_runner() -> None:
    store = Stage().store
    remedy = "is none: name one with --store postgresql://USER@HOST/DATABASE"
    with pytest.raises(errors.ConfigError) as refused:
        Runtime(store, runner="workers")
    assert f"{remedy}, or unset PERDURE_RUNNER to run turns" in message_of(refused.value)
    with pytest.raises(errors.ConfigError) as refused:
        cluster_of(store.backend)
    assert message_of(refused.value).endswith(remedy)
