"""The type of an agent's answers: the JSON Schema that the model gets, and the check of answers.

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
    """The type `of` of an agent's answers, and the type's JSON Schema of type object."""

    of: Any
    schema: Schema

    def value(self, text: str) -> Any:
        """Return the value of an answer; it may be in a Markdown code block.

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
        """Return the problem of an answer; None if the answer is valid."""
        try:
            self.value(text)
        except ValueError as error:
            return str(error)
        return None

    @property
    def instruction(self) -> str:
        """The instruction to answer in this type, for models that do not accept a schema."""
        return (
            "When you give your answer, give it as one JSON object without any text around it. "
            f"It must fit this JSON Schema:\n{json.dumps(self.schema, ensure_ascii=False)}"
        )


def output_of(of: Any) -> Output | None:
    """Return the output definition for the type `of`; None means any text.

    Raises: WrongArgument for a type without fields, or without a portable schema.
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
    """Return the message of msgspec's or pydantic's `error`, with the place of each error first."""
    if isinstance(error, msgspec.ValidationError):
        return where_first(str(error))
    if isinstance(error, msgspec.DecodeError):
        return f"it is not JSON: {error}"
    return pydantic_reason(error)


def _name(of: Any) -> str:
    return str(getattr(of, "__name__", None) or repr(of))
