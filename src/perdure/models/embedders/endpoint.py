"""An embedder behind an endpoint with OpenAI's protocol; requests go through `egress`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.egress.destinations import Destination, destination_of
from perdure.egress.http_types import HttpRequest, HttpResponse, fetch_pinned
from perdure.errors import ConfigError, EgressError, EmbedderUnavailable
from perdure.models.keys import ApiKey
from perdure.secrets.mask import mask_part

_MOST_BYTES = 64_000_000
_OK = 200

_REFUSED = (400, 413, 422)
"""Statuses with which endpoints refuse a text that is too long for their model."""

_SHORT = 1_000
"""Length of a text, in characters, that nearly every model accepts."""

_SHOWN = 200
"""Number of characters of an error's text that are shown."""

_SEARCHED = 2_000
"""Number of bytes of an error's text that are searched for secrets."""


class _Vector(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Vector]


class EmbeddingEndpoint:
    """An `Embedder` that sends requests to ``{address}/embeddings``.

    If `is_local_open` is True, the address can be in the local network. Set `is_local_open` for an
    address that the user configured, and for the default address of a local server.

    Raises: ConfigError if the address is not allowed.
    """

    def __init__(
        self,
        model: str,
        *,
        provider: str,
        address: str,
        key: ApiKey | None,
        is_local_open: bool,
    ) -> None:
        self.model = f"{provider}:{model}"
        self._name = model
        self._key = key
        self._is_local_open = is_local_open
        self._destination = _destination(address, is_local_open=is_local_open)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of the endpoint's answer, in the order of `texts`.

        If the endpoint rejects long texts, the request is repeated with the beginnings of the
        texts.
        """
        try:
            response = await self._answer(texts)
            if response.status in _REFUSED and any(len(text) > _SHORT for text in texts):
                response = await self._answer([text[:_SHORT] for text in texts])
        except EgressError as error:
            raise EmbedderUnavailable(self.model, str(error)) from error
        return self._vectors(response, len(texts))

    async def _answer(self, texts: Sequence[str]) -> HttpResponse:
        """Send one request.

        Raises: EgressError if the request fails.
        """
        body = {"model": self._name, "input": list(texts), "encoding_format": "float"}
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key.value}"
        request = HttpRequest(
            destination=self._destination,
            method="POST",
            headers=headers,
            body=msgspec.json.encode(body),
            max_answer_bytes=_MOST_BYTES,
            is_local_open=self._is_local_open,
        )
        return await fetch_pinned(request)

    def _vectors(self, response: HttpResponse, count: int) -> list[list[float]]:
        if response.status != _OK:
            text = response.body[:_SEARCHED].decode(errors="replace")
            said = mask_part(text, 0, _SHOWN)  # masked before it is cut: a key may cross the end
            raise EmbedderUnavailable(self.model, f"status {response.status}: {said}")
        if response.is_cut:
            raise EmbedderUnavailable(self.model, f"the answer exceeds {_MOST_BYTES:,} bytes")
        try:
            found = msgspec.json.decode(response.body, type=_Answer).data
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise EmbedderUnavailable(self.model, "the answer has no vectors") from None
        if sorted(each.index for each in found) != list(range(count)):
            raise EmbedderUnavailable(self.model, "the answer has not one vector for each text")
        return [each.embedding for each in sorted(found, key=lambda each: each.index)]


def _destination(address: str, *, is_local_open: bool) -> Destination:
    try:
        return destination_of(f"{address.rstrip('/')}/embeddings", is_local_open=is_local_open)
    except EgressError as error:
        raise ConfigError(f"the address of the embedder is not allowed: {error}") from error
