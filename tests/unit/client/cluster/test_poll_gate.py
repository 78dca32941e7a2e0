"""Threads that poll queues wait until there is work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager

from perdure.client.cluster.poll_gate import PollGate

LONG_S = 30


@contextmanager
def gate(ask: Callable[[Collection[str]], list[str]]) -> Generator[threading.Event]:
    event = threading.Event()
    made = PollGate(["a", "b"], ask, 0.001)
    made.start([event])
    try:
        yield event
    finally:
        event.set()
        made.stop()


def waits(event: threading.Event, queue: str) -> threading.Event:
    """Wait for `event` in a thread of `queue`; return an event that is set after the wait."""
    over = threading.Event()

    def wait() -> None:
        event.wait(0.001)
        over.set()

    threading.Thread(target=wait, name=f"queue-worker-{queue}", daemon=True).start()
    return over


def test_only_the_thread_whose_queue_has_work_wakes_up() -> None:
    asked = threading.Semaphore(0)

    def ask(queues: Collection[str]) -> list[str]:
        assert set(queues) == {"a", "b"}
        asked.release()
        return ["a"]

    with gate(ask) as event:
        for _ in range(2):  # the first answer is known once the second question is asked
            assert asked.acquire(timeout=LONG_S)
        idle = waits(event, "b")
        assert waits(event, "a").wait(LONG_S)
        for _ in range(3):
            assert asked.acquire(timeout=LONG_S)
        assert not idle.is_set()
        event.set()
        assert idle.wait(LONG_S)


def test_poll_threads_continue_if_the_query_for_work_fails() -> None:
    def ask(queues: Collection[str]) -> list[str]:
        raise OSError(str(queues))

    with gate(ask) as event:
        assert waits(event, "b").wait(LONG_S)


def test_event_wait_of_a_thread_without_a_queue_is_unchanged() -> None:
    with gate(list) as event:
        assert event.wait(0.001) is False
        event.set()
        assert event.wait() is True
