"""Each client warms up with a prepared answer, and sends no request to a server."""

from __future__ import annotations

import logging
from typing import Any

import httpx2
import pytest

from perdure.models.providers.anthropic_messages import AnthropicMessages
from perdure.models.providers.google_generative import GoogleGenerative
from perdure.models.providers.openai_compatible import OpenAICompatible
from perdure.models.providers.openai_responses import OpenAIResponses
from perdure.models.providers.rehearsal import ADDRESS, rehearse

CLIENTS = [OpenAICompatible, OpenAIResponses, AnthropicMessages, GoogleGenerative]


@pytest.mark.parametrize("kind", CLIENTS)
def test_failed_rehearsal_of_a_client_is_logged(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def twin(transport: httpx2.AsyncBaseTransport) -> Any:
        return kind(base_url=ADDRESS, api_key="none", transport=transport)

    with caplog.at_level(logging.DEBUG, "perdure"):
        rehearse(twin, "provider:model", kind.rehearsal)
        assert caplog.text == ""
        rehearse(twin, "provider:model", kind.rehearsal[:1] if kind is AnthropicMessages else ())
    assert "the rehearsal of provider:model failed" in caplog.text
