"""Rate control: chance rejections cost little, a true limit few calls; in time that is made up."""

import heapq
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from ragbench.lms.calls.rate import Rate, Started

Takes = Callable[[float], bool]


def bucket(limit: float, holds: float) -> Takes:
    """A server that takes `limit` calls a second, and up to `holds` at once."""
    level, before = holds, 0.0

    def takes(now: float) -> bool:
        nonlocal level, before
        level, before = min(holds, level + (now - before) * limit), now
        if level < 1:
            return False
        level -= 1
        return True

    return takes


def by_chance(share: float, seed: int) -> Takes:
    """A server that rejects this share of calls."""
    chance = random.Random(seed)
    return lambda now: chance.random() >= share


def played(
    takes: Takes, n: int, *, workers: int = 64, latency: float = 0.1, no_after: float = 0.01
) -> tuple[float, int, Rate]:
    """How long `n` calls of so many workers take till all are answered, and how many rejections.

    A rejection comes after `no_after`; the time is made up.
    """
    rate, queue = Rate(math.inf), list[tuple[Started, int]]()
    jitter, order = random.Random(0), itertools.count()
    events: list[tuple[float, int, Callable[[float], None]]] = []
    left, answered, rejected, now = n, 0, 0, 0.0

    def later(at: float, do: Any) -> None:
        heapq.heappush(events, (at, next(order), do))

    def begin(now: float, tries: int) -> None:
        queue.append((Started(), tries))
        if len(queue) == 1:
            look(now)

    def look(now: float) -> None:
        """The first of the queue waits for its turn."""
        while queue:
            call, tries = queue[0]
            if (wait := rate.wait_s(now)) > 1e-9:
                call.waited = True
                later(now + min(wait, 0.25), look)
                return
            del queue[0]
            rate.start(now, call)
            if takes(now):
                took = latency * jitter.uniform(0.8, 1.2)
                later(now + took, lambda t, call=call: answer(t, call))
            else:
                later(now + no_after, lambda t, call=call, tries=tries: reject(t, call, tries))

    def answer(now: float, call: Started) -> None:
        nonlocal answered, left
        rate.answer(now, call, tokens=1)
        answered += 1
        if left:
            left -= 1
            begin(now, 0)

    def reject(now: float, call: Started, tries: int) -> None:
        nonlocal rejected
        rejected += 1
        rate.reject(now, call)
        wait = min(0.1 * 2.0**tries, 60.0) * jitter.uniform(0.5, 1.0)
        later(now + wait, lambda t: begin(t, tries + 1))

    for _ in range(min(workers, n)):
        left -= 1
        begin(0.0, 0)
    while events:
        now, _, do = heapq.heappop(events)
        do(now)
    assert answered == n
    return now, rejected, rate


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2])
@pytest.mark.parametrize("latency", [0.1, 1.0])
def test_chance_rejections_cost_less_than_twice_the_time(share: float, latency: float) -> None:
    without, _, _ = played(by_chance(0.0, 0), 1000, latency=latency)
    outcomes = [played(by_chance(share, seed), 1000, latency=latency) for seed in range(5)]
    assert [rate.per_second for _, _, rate in outcomes] == [None] * 5  # none took it for a limit
    assert sum(seconds for seconds, _, _ in outcomes) / 5 < 2 * without


@pytest.mark.parametrize("holds", [50, 5])
@pytest.mark.parametrize(("latency", "no_after"), [(0.02, 0.01), (1.0, 0.01), (0.3, 0.2)])
def test_a_true_limit_rejects_few_calls_and_is_used(
    holds: int, latency: float, no_after: float
) -> None:
    seconds, rejected, _ = played(bucket(50, holds), 1500, latency=latency, no_after=no_after)
    assert rejected < 150
    assert seconds < 1.5 * 30


def test_a_cluster_by_chance_is_got_over() -> None:
    without, *_ = played(by_chance(0.0, 0), 5000)
    seconds, *_ = played(by_chance(0.2, 9), 5000)  # it once took a thousand times the time
    assert seconds < 4 * without


def test_hours_of_peace_after_a_limit_are_no_error() -> None:
    rate = Rate()
    for at in range(60):
        rate.start(at / 100, call := Started(waited=True))
        rate.reject(at / 100, call)
    rate.start(1e6, call := Started(waited=True))
    before = rate.per_second
    rate.answer(1e6, call, tokens=1)
    assert before is not None
    assert rate.per_second is not None
    assert rate.per_second > before


def test_a_lower_and_a_higher_limit_are_found_soon() -> None:
    low, high = bucket(10, 10), bucket(200, 200)
    fast = bucket(50, 50)
    takes = lambda now: (fast if now < 20 else low if now < 60 else high)(now)  # noqa: E731
    seconds, rejected, _ = played(takes, 3000, latency=0.3)
    assert rejected < 300
    assert seconds < 100


def test_limits_that_a_person_sets_space_the_calls() -> None:
    rate = Rate(math.inf)
    rate.limit("calls", 60)
    rate.limit("calls", 120)  # of another LM of the same server: the lower one counts
    rate.limit("tokens", 600)
    turns, now = [], 0.0
    for _ in range(3):
        now += rate.wait_s(now)
        turns.append(now)
        rate.start(now, call := Started(tokens=20))
    assert turns == [0.0, 2.0, 4.0]
    rate.answer(now, call, tokens=10)  # fewer tokens than it might have taken
    assert now + rate.wait_s(now) == 5.0


def test_the_pause_that_a_server_asks_for_is_kept() -> None:
    rate = Rate(math.inf)
    calls = [Started() for _ in range(16)]
    for call in calls:
        rate.start(0.0, call)
    for call in calls:
        rate.reject(0.1, call, retry_after=7.0)
    assert rate.wait_s(0.1) == pytest.approx(7.0)
