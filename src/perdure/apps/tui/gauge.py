"""The last lines of the screen: one with model, cost, tokens and used context, one with keys."""

from __future__ import annotations

from pathlib import Path

import msgspec
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Footer, Static
from textual.widgets._footer import FooterKey  # no public name; a Footer consists of them

from perdure.apps.terminal.costs import rounded_dollars
from perdure.apps.terminal.text import one_line
from perdure.apps.tui.text import plain
from perdure.events.types import AnyEvent, Event
from perdure.session.ledger import Spending

_CELLS = 10
_NARROW = 100


class Numbers(msgspec.Struct, frozen=True):
    """The numbers that the gauge shows. None means unknown. Units: tokens and micro-cents.

    `uncounted` is the part of the cost that `cost_microcents` and `unpriced` do not include: the
    cost of imported messages, and of calls whose price became known later; None before this part
    has been computed.
    """

    model: str = ""
    thinking: str | None = None
    folder: str = ""
    cost_microcents: int = 0
    unpriced: int = 0
    sent: int = 0
    received: int = 0
    context: int | None = None
    window: int | None = None
    state: str = ""
    uncounted: Spending | None = Spending()


def numbers_after(known: Numbers, event: AnyEvent) -> Numbers:
    """Return `known` updated by `event`: the tokens, the cost and the turn's state can change."""
    if not isinstance(event, Event):
        return known
    if known.state and (state := _state_after(event)):
        return msgspec.structs.replace(known, state=state)
    if event.type != "cost:updated":
        return known
    payload = event.payload
    count = {name: value if isinstance(value := payload.get(name), int) else 0 for name in _COUNTS}
    fresh = count["inputTokens"] + count["cacheReadTokens"] + count["cacheWriteTokens"]
    return msgspec.structs.replace(
        known,
        model=str(payload.get("model") or known.model),
        cost_microcents=count["cumulativeCostMicrocents"],
        unpriced=count["unpricedCalls"],
        sent=known.sent + fresh,
        received=known.received + count["outputTokens"],
        context=fresh + count["outputTokens"],
    )


def _state_after(event: Event) -> str | None:
    """Return the state of a running turn after `event`; None if the state does not change."""
    wait_s = event.payload.get("waitS")
    if event.type == "agent:model_finished" and isinstance(wait_s, int | float):
        return f"call failed, retry in {wait_s:.0f} s"
    return "running" if event.type == "agent:model_called" else None


_COUNTS = (
    "inputTokens",
    "outputTokens",
    "cacheReadTokens",
    "cacheWriteTokens",
    "cumulativeCostMicrocents",
    "unpricedCalls",
)


def gauge_line(numbers: Numbers, width: int) -> str:
    """Return the line, at most `width` cells wide; the least important parts are left out first."""
    thinking = f" ({numbers.thinking})" if numbers.thinking not in (None, "off") else ""
    parts = [numbers.state, f"{numbers.model}{thinking}", _price(numbers)]
    if (share := _share(numbers, is_wide=width >= _NARROW)) is not None:
        parts.append(share)
    parts.append(f"↑{numbers.sent:,} ↓{numbers.received:,} tokens")
    parts.append(_home(numbers.folder))
    parts = [part for part in parts if part]
    while len(parts) > 1 and len("  ·  ".join(parts)) > width:
        parts.pop()
    return one_line(" · ".join(parts) if width < _NARROW else "  ·  ".join(parts), width)


def _price(numbers: Numbers) -> str:
    if numbers.uncounted is None:
        return "$…"
    spent = Spending(numbers.cost_microcents, numbers.unpriced) + numbers.uncounted
    if spent.unpriced_calls and not spent.cost_microcents:
        return "$?"
    return rounded_dollars(spent.cost_microcents) + ("+?" if spent.unpriced_calls else "")


def _share(numbers: Numbers, *, is_wide: bool) -> str | None:
    if numbers.context is None:
        return None
    if not numbers.window:
        return f"context {numbers.context:,}"
    share = min(numbers.context / numbers.window, 1.0)
    filled = round(share * _CELLS)
    bar = f" {'█' * filled}{'░' * (_CELLS - filled)}" if is_wide else ""
    return f"context {share:.0%} of {numbers.window // 1000:,}k{bar}"


def _home(folder: str) -> str:
    home = str(Path.home())
    return f"~{folder[len(home) :]}" if folder.startswith(f"{home}/") else folder


class Gauge(Static):
    """The line below the text field."""

    def __init__(self) -> None:
        super().__init__("", id="gauge", markup=False)
        self.numbers = Numbers()
        self._hint = ""
        self._ending: Timer | None = None

    def show(self, numbers: Numbers) -> None:
        """Show `numbers`; if a hint is shown now, show them after the hint disappears."""
        self.numbers = numbers
        width = (self.size.width or 80) - 2
        line = one_line(self._hint, width) if self._hint else gauge_line(numbers, width)
        self.update(plain(line))

    def hint(self, text: str, seconds: float = 0.0) -> None:
        """Show `text` instead of the numbers for `seconds`; the hint does not cover any message."""
        self._hint = text
        if self._ending is not None:
            self._ending.stop()
        self._ending = self.set_timer(seconds, lambda: self.hint("")) if text else None
        self.show(self.numbers)

    def on_resize(self) -> None:
        """Fit the line to the new width."""
        self.show(self.numbers)


class KeyFooter(Footer):
    """A footer that replaces its keys only if they change.

    Textual's own footer replaces its keys after each change of the focus, and this took a third of
    the start time of the chat.
    """

    def __init__(self) -> None:
        super().__init__(compact=True, show_command_palette=False)

    async def recompose(self) -> None:
        """Replace the keys if the screen has other keys now."""
        shown = [
            (key.key, key.action, key.description, key.has_class("-disabled"))
            for key in self.query_children(FooterKey)
        ]
        if self.is_attached and shown != _keys_of(self.screen):
            await super().recompose()


def _keys_of(screen: Screen[object]) -> list[tuple[str, str, str, bool]]:
    """Return the keys that a footer of `screen` shows: the first key of each action."""
    keys: dict[str, tuple[str, str, str, bool]] = {}
    for _, binding, is_enabled, _ in screen.active_bindings.values():
        if binding.show:
            key = (binding.key, binding.action, binding.description, not is_enabled)
            keys.setdefault(binding.action, key)
    return list(keys.values())
