"""The embedder protocol, and the embedder names that a configuration can contain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from perdure.errors import ConfigError, WrongArgument
from perdure.models.catalogue import PROVIDERS

LOCAL = ("static", "minilm")
"""The embedders that run on this machine."""

WIRES = ("openai_chat", "openai_responses")
"""Wire formats of providers whose servers may offer embeddings."""

_LONGEST = 500
"""Maximum length of a model's name, in characters."""

EmbedderName = str
"""``static:FOLDER``, ``minilm:FOLDER`` or PROVIDER:MODEL."""


@runtime_checkable
class Embedder(Protocol):
    """Converts texts to vectors."""

    @property
    def model(self) -> str:
        """The name of the model. Only vectors with the same model name are compared."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each of `texts`; all vectors have the same length."""
        ...


def check_name(name: str) -> None:
    """Raise ConfigError unless `name` has the form of an embedder's name."""
    kind, _, rest = name.partition(":")
    provider = PROVIDERS.get(kind)
    if rest and (kind in LOCAL or (provider is not None and provider.wire in WIRES)):
        return
    names = sorted(each.name for each in PROVIDERS.values() if each.wire in WIRES)
    raise ConfigError(
        f"{name!r:.80} names no embedder: use static:FOLDER, minilm:FOLDER, or PROVIDER:MODEL "
        f"with one of {', '.join(names)}",
        argument="embedder",
    )


def check_embedder(embedder: object) -> None:
    """Raise ConfigError or WrongArgument unless `embedder` is an embedder or the name of one."""
    if isinstance(embedder, str):
        check_name(embedder)
    elif not isinstance(embedder, Embedder):
        raise WrongArgument(
            f"{embedder!r:.60} is no embedder: give a name such as static:FOLDER, or an object "
            "with `model` and the async method `embed`",
            argument="embedder",
        )
    else:
        _check_model(embedder.model)


def _check_model(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or not name.isprintable():
        raise WrongArgument(
            f"the embedder's `model` is {name!r:.60}: it must be a name of at most {_LONGEST} "
            "printable characters",
            argument="embedder",
        )
