"""Hypothesis strategies for all bodies of a log, built from the declarations of their classes.

The strategies include a new kind, field or part as soon as it is declared.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as of

from perdure.session.codec import BODIES, Body, encode
from perdure.session.messages import Message

Strategy = st.SearchStrategy[Any]

# Characters that other readers split lines at, escape, or count as two.
_AWKWARD = ["\n", "\r", "\r\n", "\u2028", "\u0085", "\x00", '"', "\\", "😀", "\ufeff", "</s>", ""]

texts: st.SearchStrategy[str] = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20), st.sampled_from(_AWKWARD)
)
integers = st.one_of(st.integers(), st.sampled_from([2**63, -(2**63) - 1, 2**64, 10**40]))
small_integers = st.integers(min_value=-(2**63), max_value=2**64 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
json_values: Strategy = st.recursive(
    st.one_of(st.none(), st.booleans(), integers, floats, texts),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(texts, below, max_size=4),
    max_leaves=8,
)


def _values_of(kind: of.Type) -> Strategy:
    """Return a strategy for values of a type that `msgspec.inspect` describes."""
    simple: dict[type[of.Type], Strategy] = {
        of.StrType: texts,
        of.IntType: integers,
        of.FloatType: floats,
        of.BoolType: st.booleans(),
        of.NoneType: st.none(),
        of.CustomType: json_values,  # declared as `object`: any JSON
        of.RawType: json_values.map(lambda value: msgspec.Raw(encode(value))),
    }
    if type(kind) in simple:
        return simple[type(kind)]
    match kind:
        case of.LiteralType(values=values):
            return st.sampled_from(values)
        case of.UnionType(types=types):
            return st.one_of([_values_of(choice) for choice in types])
        case of.VarTupleType(item_type=item):
            return st.lists(_values_of(item), max_size=3).map(tuple)
        case of.TupleType(item_types=items):
            return st.tuples(*(_values_of(item) for item in items))
        case of.DictType(key_type=key, value_type=value):
            return st.dictionaries(_values_of(key), _values_of(value), max_size=3)
        case of.StructType():
            return _structs_of(kind)
        case _:
            raise TypeError(f"no strategy for {kind}")


def _structs_of(kind: of.StructType) -> Strategy:
    required = {f.name: _values_of(f.type) for f in kind.fields if f.required}
    optional = {f.name: _values_of(f.type) for f in kind.fields if not f.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: kind.cls(**given))


def bodies_of(known: type[msgspec.Struct]) -> Strategy:
    """Return a strategy for the bodies of one class."""
    return _structs_of(cast("of.StructType", of.type_info(known)))


messages: st.SearchStrategy[Message] = bodies_of(Message)
bodies: st.SearchStrategy[Body] = st.one_of(
    messages, *(bodies_of(known) for known in BODIES.values())
)
