"""Parse the signal at the end of a turn, which is YAML in a fenced block tagged ``handoff``.

Only the last block tagged ``handoff`` is used, because an agent can quote an example of the block
before the real one. An invalid block is a `Fault` whose message tells the agent how to correct it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

import msgspec

from perdure.session.flows.kinds import HandoffTarget, RepairCode
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.yaml import parser
else:
    parser = Later("perdure.yaml.parser")

_OPENING = re.compile(r"(?P<fence>`{3,}+|~{3,}+)[ \t]*+handoff[ \t]*+", re.IGNORECASE)
_CLOSING = re.compile(r"(?P<fence>`{3,}+|~{3,}+)[`~]*+[ \t]*+")

LONGEST = 100_000
"""Maximum characters of a block that is parsed; real signals are shorter."""

SHOWN = 60
"""Maximum characters of the agent's text quoted in a fault."""

FORM = """Write exactly one fenced block tagged `handoff` as the last thing in your answer, such as

```handoff
target_node_id: ID OF A NEIGHBOURING NODE
artifact_path: PATH OF THE FILE YOU WROTE
```

(a list of such mappings hands over to several nodes), or a mapping with one of
`type: prompt-human`, `type: await-handoff`, `type: forward-pass-closed`."""


class Handover(msgspec.Struct, frozen=True):
    """The signal that hands artifacts over to neighboring nodes.

    Shape: `targets` has at least one target, with the names as the agent wrote them.
    """

    targets: tuple[HandoffTarget, ...]


class Plain(msgspec.Struct, frozen=True):
    """A signal without fields."""

    type: Literal["prompt-human", "await-handoff", "forward-pass-closed"]


class MetaAnalysisComplete(msgspec.Struct, frozen=True):
    """The signal that a role has reviewed the flow; `findings` is the file with its findings."""

    findings: str


class FeedbackComplete(msgspec.Struct, frozen=True):
    """The signal that the feedback is written to the file `artifact`."""

    artifact: str


Signal = Handover | Plain | MetaAnalysisComplete | FeedbackComplete


class Fault(msgspec.Struct, frozen=True):
    """Why the end of a turn is unusable.

    `summary` is the text for people; `message` is the text for the agent.
    """

    code: RepairCode
    summary: str
    message: str


@lru_cache(maxsize=64)  # the text is parsed twice: for its paths, and for its signal
def signal_in(text: str) -> Signal | Fault:
    """Parse the signal in the answer `text` of a turn."""
    block = _last_block(text)
    if block is None:
        return Fault(
            "missing_block",
            "the answer has no handoff block",
            f"Your answer ended without a handoff block, so nothing was handed over. {FORM}",
        )
    if len(block) > LONGEST:
        return _broken("it is too long")
    try:
        data: object = _yaml(block)
    except (parser.YAMLError, ValueError, RecursionError) as error:
        return _broken(_first_line(error))
    return _signal(data)


def _last_block(text: str) -> str | None:
    """Return the lines of the last block that is opened and closed; None if there is none.

    The running time is proportional to the length of `text`, because `_longest_closings` finds in
    advance which blocks are closed.
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    longest = _longest_closings(lines)
    begin, fence, block = 0, "", None
    for number, line in enumerate(lines):
        if fence:
            if (closing := _CLOSING.fullmatch(line)) and closing["fence"].startswith(fence):
                block, fence = (begin, number), ""
        elif (opening := _OPENING.fullmatch(line)) is not None:
            marks = opening["fence"]
            if len(marks) <= longest[number][marks[0]]:
                begin, fence = number + 1, marks
    return None if block is None else "".join(f"{line}\n" for line in lines[block[0] : block[1]])


def _longest_closings(lines: list[str]) -> list[dict[str, int]]:
    """Return for each line, by fence character, the length of the longest closing line after it.

    The fence characters are the backtick and the tilde.
    """
    found: list[dict[str, int]] = []
    behind = {"`": 0, "~": 0}
    for line in reversed(lines):
        found.append(behind)
        if (closing := _CLOSING.fullmatch(line)) is not None:
            marks = closing["fence"]
            if len(marks) > behind[marks[0]]:
                behind = {**behind, marks[0]: len(marks)}
    return found[::-1]


_SIMPLE = re.compile(
    r"(?:[a-z_]+: (?!(?i:null|true|false|y|n|yes|no|on|off)\n)[A-Za-z](?:[\w./-]*\w)?\n)+",
    re.ASCII,
)
"""Matches lines of a key and a word that YAML reads as text; nearly all blocks have this form."""


def _yaml(text: str) -> object:
    if _SIMPLE.fullmatch(text):
        pairs = [line.split(": ", 1) for line in text.splitlines()]
        if len(dict(pairs)) == len(pairs):
            return dict(pairs)
    reader: Any = parser.PlainYaml()  # its annotations leave parts unknown
    return reader.load(text)


def _signal(data: object) -> Signal | Fault:
    if isinstance(data, list):
        return _handover(cast("list[object]", data))
    if not _is_mapping(data):
        return _shape("it is neither a mapping nor a list of mappings")
    if "type" not in data:
        return _handover([data])
    kind = data["type"]
    if kind in ("prompt-human", "await-handoff", "forward-pass-closed"):
        return Plain(kind)
    if kind == "meta-analysis-complete":
        path = _text(data, "findings_path")
        return _missing("findings_path") if path is None else MetaAnalysisComplete(path)
    if kind == "backward-pass-complete":
        path = _text(data, "artifact_path")
        return _missing("artifact_path") if path is None else FeedbackComplete(path)
    return Fault(
        "unknown_signal_type",
        f"there is no signal of type {_quote(kind)}",
        f"Your handoff block says `type: {_quote(kind)}`, which is no signal. {FORM}",
    )


def _handover(items: list[object]) -> Signal | Fault:
    if not items:
        return _shape("its list is empty")
    targets: list[HandoffTarget] = []
    for item in items:
        if not _is_mapping(item):
            return _shape("its list holds something that is not a mapping")
        for name in ("target_node_id", "artifact_path"):
            if _text(item, name) is None:
                return _missing(name)
        targets.append(HandoffTarget(item["target_node_id"], item["artifact_path"]))
    return Handover(tuple(targets))


def _is_mapping(data: object) -> TypeGuard[Mapping[str, str]]:
    return isinstance(data, Mapping)


def _text(data: Mapping[str, object], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) and value.strip() else None


def _quote(value: object) -> str:
    # A YAML value can be so large that writing it out would fill the memory.
    text = " ".join(value.split()) if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _first_line(error: BaseException) -> str:
    problem = str(getattr(error, "problem", None) or error)
    return _quote(problem) if problem else type(error).__name__


def _broken(why: str) -> Fault:
    return Fault(
        "yaml_parse",
        f"the handoff block is not YAML: {why}",
        f"Your handoff block could not be read as YAML: {why}. {FORM}",
    )


def _shape(why: str) -> Fault:
    return Fault(
        "invalid_target_shape",
        f"the handoff block has another form: {why}",
        f"Your handoff block was understood as YAML, but {why}. {FORM}",
    )


def _missing(name: str) -> Fault:
    return Fault(
        "missing_required_field",
        f"the handoff block lacks {name}",
        f"Your handoff block needs `{name}`, as text. {FORM}",
    )
