"""Prices compared with the list that they come from."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import genai_prices
import pytest

from perdure.models.price_list import PriceList, kept_prices
from perdure.session.messages import MICROCENTS_PER_DOLLAR, Usage

MODELS = (
    "anthropic:claude-opus-4-5-20251101",
    "anthropic:claude-sonnet-4-5",  # dearer above 200,000 tokens
    "openai:gpt-5",
    "openai:gpt-5-codex",
    "google:gemini-2.5-pro",  # dearer above 200,000 tokens
    "openrouter:anthropic/claude-sonnet-4.5",
)


@pytest.mark.parametrize("model", MODELS)
def test_cost_equals_list_price_for_any_usage(model: str) -> None:
    dice = random.Random(model)
    provider, _, name = model.partition(":")
    for size in (10, 1_000, 100_000, 200_000, 1_000_000):
        for _ in range(5):
            fresh, read, written, out = (dice.randrange(size) for _ in range(4))
            used = genai_prices.Usage(
                input_tokens=fresh + read + written,
                cache_read_tokens=read,
                cache_write_tokens=written,
                output_tokens=out,
            )
            listed = genai_prices.calc_price(used, name, provider_id=provider).total_price
            cost = PriceList().cost_microcents(model, Usage(fresh, out, read, written))
            assert cost is not None
            assert abs(cost - listed * MICROCENTS_PER_DOLLAR) <= 1


@pytest.mark.parametrize("model", ["scripted:echo", "anthropic:nothing", "nobody:claude", "x", ""])
def test_unlisted_model_has_no_price(model: str) -> None:
    assert PriceList().cost_microcents(model, Usage(10, 10)) is None


@pytest.mark.full_only
def test_cached_prices_are_used_without_reading_the_list_again(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "prices.json"
    calls = [Usage(900, 40, 7, 3), Usage(400_000, 10)]  # the second is of a dearer tier
    names = [*MODELS, "scripted:echo"]
    costs = {model: [PriceList().cost_microcents(model, each) for each in calls] for model in names}
    with kept_prices(file, "2026-11-24"):
        for model in names:
            assert [PriceList().cost_microcents(model, each) for each in calls] == costs[model]
    assert sorted(json.loads(file.read_bytes())["models"]) == sorted(names)
    code = (
        "import sys; from pathlib import Path\n"
        "from perdure.models.price_list import PriceList, kept_prices\n"
        "from perdure.session.messages import Usage\n"
        "with kept_prices(Path(sys.argv[1]), sys.argv[2]):\n"
        "    print([PriceList().cost_microcents(m, Usage(900, 40, 7, 3)) for m in sys.argv[3:]])\n"
        "print('genai_prices' in sys.modules)\n"
    )
    for day, is_loaded in (("2026-11-24", False), ("2026-11-25", True)):
        done = subprocess.run(
            [sys.executable, "-c", code, str(file), day, *names], capture_output=True, check=True
        )
        told = f"{[costs[model][0] for model in names]}\n{is_loaded}\n"
        assert done.stdout.decode() == told


def test_damaged_or_unwritable_price_file_raises_no_error(tmp_path: Path) -> None:
    model, used = MODELS[0], Usage(10, 10)
    cost = PriceList().cost_microcents(model, used)
    for content in (b"", b"{", b'{"package":1}', b"\xff"):
        file = tmp_path / "prices.json"
        file.write_bytes(content)
        with kept_prices(file, "2026-11-24"):
            assert PriceList().cost_microcents(model, used) == cost
    with kept_prices(file / "below" / "a-file", "2026-11-24"):
        assert PriceList().cost_microcents(model, used) == cost
