from __future__ import annotations

import pytest

from perdure.events.bus import LiveBus
from perdure.events.envelope import EventDraft, head_of
from perdure.session.ids import StreamId

S, F = StreamId("s"), StreamId("f")


def test_event_contains_the_id_of_its_session_or_flow() -> None:
    moment = "1970-01-01T00:00:00.005Z"
    assert head_of(S, "session", "x", 5) == {"sessionId": "s", "type": "x", "timestamp": moment}
    assert head_of(F, "flow", "x", 5) == {"flowId": "f", "type": "x", "timestamp": moment}


def test_stream_of_an_event_is_its_session_or_flow() -> None:
    assert EventDraft("agent:token", 1, "a", session_id=S).stream == S
    assert EventDraft("agent:token", 1, "a", flow_id=F).stream == F


@pytest.mark.parametrize(
    "draft",
    [EventDraft("agent:token", 1, "a"), EventDraft("agent:token", 1, "a", session_id=S, flow_id=F)],
)
def test_event_of_both_a_session_and_a_flow_is_rejected(
    draft: EventDraft,
) -> None:
    bus = LiveBus()
    first = bus.tell(EventDraft("agent:token", 1, "a", session_id=S), 5)
    with pytest.raises(ValueError, match="exactly one"):
        bus.tell(draft, 6)
    second = bus.tell(EventDraft("agent:token", 1, "b", session_id=S), 7)
    assert (first.n, second.n) == (1, 2)
    assert [snapshot.stream for snapshot in bus.snapshots()] == [S]
