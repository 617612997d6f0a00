"""The threads that answer the questions of a run."""

from __future__ import annotations

import threading

import dspy
import pytest

from ragbench.context import Context, current, use
from ragbench.experiments.runs.workers import for_each


def test_every_item_is_called_once_and_as_many_at_once_as_threads() -> None:
    together = threading.Barrier(4, timeout=60)
    seen: list[int] = []

    def call(item: int) -> None:
        together.wait()
        seen.append(item)

    for_each(call, range(20), threads=4)
    assert sorted(seen) == list(range(20))


def test_one_thread_keeps_the_order() -> None:
    seen: list[int] = []
    for_each(seen.append, range(50), threads=1)
    assert seen == list(range(50))


def test_threads_see_the_settings_of_the_caller_and_keep_their_own_changes() -> None:
    seen: list[str | None] = []

    def call(item: int) -> None:
        seen.append(current().qid)
        with use(Context(qid=str(item))):
            assert current().qid == str(item)
        assert dspy.settings.num_threads == 7

    with use(Context(qid="of the caller"), num_threads=7):
        for_each(call, range(20), threads=4)
    assert seen == ["of the caller"] * 20


def test_an_error_is_raised_when_those_under_way_have_ended_and_nothing_more_begins() -> None:
    both, late = threading.Barrier(2, timeout=60), threading.Event()
    begun: list[int] = []
    ended: list[int] = []

    def call(item: int) -> None:
        begun.append(item)
        both.wait()
        if item == 0:
            raise ValueError("of the first")
        assert late.wait(60)
        ended.append(item)

    releasing = threading.Timer(0.2, late.set)
    releasing.start()
    with pytest.raises(ValueError, match="of the first"):
        for_each(call, range(100), threads=2)
    releasing.join()
    assert sorted(begun) == [0, 1]
    assert ended == [1]
