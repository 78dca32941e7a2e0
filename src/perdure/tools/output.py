"""The type of an agent's answers: make the JSON Schema that a model gets, and check answers.

The types can be msgspec structs, dataclasses, TypedDicts and pydantic models; perdure does not
import pydantic for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors.usage import WrongArgument
from perdure.tools.schema import (
    Schema,
    is_pydantic,
    pydantic_reason,
    pydantic_schema,
    schema_of,
    where_first,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=Any)
    OutputType = type[OutputT] | None
else:  # typing has no defaults before Python 3.13; `output_of` checks the type
    from typing import TypeVar

    OutputT = TypeVar("OutputT")
    OutputType = OutputT | None

_FENCE = re.compile(r"\A```[\w-]*[ \t]*\n(.*?)\n?```\Z", re.DOTALL)
"""A Markdown code block, in which models often send JSON."""


_REASON_CHARACTERS = 500


class Output(msgspec.Struct, frozen=True):
    """The Python type `of` of an agent's answers, and the JSON Schema of this type."""

    of: Any
    schema: Schema

    def value(self, text: str) -> Any:
        """Convert the answer `text` to a value; the JSON can be in a Markdown code block.

        Raises: ValueError with a reason that helps a model to correct its answer.
        """
        fenced = _FENCE.match(text.strip())
        answer = fenced.group(1) if fenced else text
        try:
            if is_pydantic(self.of):
                return self.of.model_validate_json(answer)
            return msgspec.json.decode(answer, type=self.of)
        except ValueError as error:
            raise ValueError(_reason(error)[:_REASON_CHARACTERS]) from error

    def problem(self, text: str) -> str | None:
        """Return the reason why the answer `text` is invalid; None if it is valid."""
        try:
            self.value(text)
        except ValueError as error:
            return str(error)
        return None

    @property
    def instruction(self) -> str:
        """The text that asks for an answer of this type, for models that do not accept a schema."""
        return (
            "When you give your answer, give it as one JSON object without any text around it. "
            f"It must fit this JSON Schema:\n{json.dumps(self.schema, ensure_ascii=False)}"
        )


def output_of(of: Any) -> Output | None:
    """Return the output definition for the type `of`; None if answers can be any text.

    Raises: WrongArgument if the type has no fields or no portable schema.
    """
    if of is None:
        return None
    if not isinstance(of, Hashable):
        told = f"output is a class with fields, such as a dataclass, not a {type(of).__name__}"
        raise WrongArgument(told, argument="output")
    return _output_of(of)


@lru_cache(maxsize=256)
def _output_of(of: Any) -> Output:
    try:
        schema = pydantic_schema(of) if is_pydantic(of) else schema_of(of)
    except TypeError as error:
        raise WrongArgument(f"output {_name(of)}: {error}", argument="output") from error
    if schema.get("type") != "object" or "properties" not in schema:
        raise WrongArgument(
            f"output {_name(of)} has no fields: give a dataclass, msgspec.Struct, TypedDict or "
            "pydantic model; a list can be its only field",
            argument="output",
        )
    return Output(of, schema)


def _reason(error: ValueError) -> str:
    """Return the message of a msgspec or pydantic `error`; each problem begins with its place."""
    if isinstance(error, msgspec.ValidationError):
        return where_first(str(error))
    if isinstance(error, msgspec.DecodeError):
        return f"it is not JSON: {error}"
    return pydantic_reason(error)


def _name(of: Any) -> str:
    return str(getattr(of, "__name__", None) or repr(of))
