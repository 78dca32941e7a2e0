"""Request vectors from an embedder within a time limit, and check the embedder's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.bounds.callbacks import run_guarded
from perdure.errors import EmbedderUnavailable, PerdureError
from perdure.models.embedders.protocol import Embedder
from perdure.secrets.mask import mask_secrets

MOST_CHARACTERS = 4_000
"""Texts are cut to this length, because small models read no more of a text."""

MOST_NUMBERS = 8_192
"""Maximum count of numbers in a vector; no known model has more."""

MOST_NUMBER = 1e9
"""Largest number in a vector, so that the length (norm) of every vector fits into a float."""


async def vectors_of(
    embedder: Embedder, texts: Sequence[str], timeout_s: float
) -> list[list[float]]:
    """Return the vector of each of `texts`.

    Raises: EmbedderUnavailable if the embedder fails, returns a malformed answer, or needs longer
    than `timeout_s` seconds.
    """
    name = embedder.model
    cut = [text[:MOST_CHARACTERS] for text in texts]
    try:
        async with asyncio.timeout(timeout_s):
            answer = await run_guarded(embedder.embed(cut))
        found = [list(map(float, vector)) for vector in answer]
    except EmbedderUnavailable:
        raise
    except TimeoutError:
        raise EmbedderUnavailable(name, f"no vectors within {timeout_s:g} s") from None
    except Exception as error:
        text = str(error) if isinstance(error, PerdureError) else repr(error)
        raise EmbedderUnavailable(name, mask_secrets(text)[:300]) from error
    sizes = {len(vector) for vector in found}
    if len(found) != len(texts) or len(sizes) > 1 or not sizes <= set(range(1, MOST_NUMBERS + 1)):
        reason = f"{len(texts)} texts got {len(found)} vectors with {sorted(sizes)[:3]} numbers"
        raise EmbedderUnavailable(name, reason)
    if not all(abs(number) <= MOST_NUMBER for vector in found for number in vector):
        raise EmbedderUnavailable(name, "a vector has a number that is not finite, or too large")
    return found
