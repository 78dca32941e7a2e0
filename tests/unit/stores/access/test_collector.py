"""Only one task pauses the garbage collector at a time, and the collector is always resumed."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Generator

import pytest

from perdure.stores.access.collector import collector_paused, collector_paused_to_load


def test_garbage_collector_is_resumed_after_an_error_in_the_block() -> None:
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collector_paused():
        assert 1 / int(gc.isenabled())
    assert gc.isenabled()


def test_disabled_garbage_collector_stays_disabled() -> None:
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_overlapping_pauses_of_threads_leave_collector_enabled() -> None:
    meeting = threading.Barrier(4)

    def work() -> None:
        for _ in range(200):
            meeting.wait()
            with collector_paused():
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_garbage_collector_is_enabled_in_a_forked_child() -> None:
    with collector_paused():
        child = os.fork()
        if child == 0:
            with collector_paused():
                is_paused = not gc.isenabled()
            os._exit(0 if is_paused and gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def thawed() -> Generator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_loaded_objects_are_moved_to_the_oldest_generation() -> None:
    with collector_paused_to_load():
        loaded = [[None] for _ in range(1000)]
    oldest = {id(each) for each in gc.get_objects(generation=2)}
    assert all(id(each) in oldest for each in loaded)
    assert gc.isenabled()


@pytest.mark.usefixtures("thawed")
def test_objects_frozen_by_the_program_stay_frozen() -> None:
    kept = [None]
    gc.freeze()
    with collector_paused_to_load():
        loaded = [[None] for _ in range(1000)]
    assert len(loaded) == 1000
    assert id(kept) not in {id(each) for each in gc.get_objects()}


@pytest.mark.usefixtures("thawed")
def test_frozen_objects_are_not_counted_if_nothing_was_loaded() -> None:
    called: list[object] = []
    sys.setprofile(lambda _, event, which: called.append(which) if event == "c_call" else None)
    try:
        with collector_paused_to_load():
            pass
        idle, called[:] = list(called), []
        with collector_paused_to_load():
            loaded = [[None] for _ in range(1000)]
    finally:
        sys.setprofile(None)
    assert len(loaded) == 1000
    assert gc.get_freeze_count in called
    assert gc.get_freeze_count not in idle
