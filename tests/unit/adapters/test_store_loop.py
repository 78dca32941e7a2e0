"""The values that adapters accept as the argument `store`."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.adapters.openai_agents import PerdureSession
from perdure.adapters.store_loop import StoreLoop
from perdure.errors import WrongArgument


@pytest.mark.parametrize("given", ["sqlite:///s.db", None, perdure.open("memory:")])
def test_error_for_an_invalid_store_argument_shows_the_correct_argument(given: Any) -> None:
    with pytest.raises(WrongArgument, match=r"what perdure\.open\(\.\.\.\) or perdure\.blocking"):
        StoreLoop(given)


@pytest.mark.parametrize("session_id", [3, "", None])
async def test_openai_session_without_an_id_is_refused(session_id: Any) -> None:
    async with perdure.open("memory:") as store:
        with pytest.raises(WrongArgument, match="session_id is"):
            PerdureSession(session_id, store)
