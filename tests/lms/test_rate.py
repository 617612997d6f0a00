"""Rate control: chance rejections cost little, a true limit few calls; in time that is made up."""

import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ragbench.lms.calls.rate import Rate, Started, quotas

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


def window(limit: int) -> Takes:
    """A server that takes `limit` calls in each second of the clock."""
    taken: dict[int, int] = {}

    def takes(now: float) -> bool:
        taken[int(now)] = taken.get(int(now), 0) + 1
        return taken[int(now)] <= limit

    return takes


def by_chance(share: float, seed: int) -> Takes:
    """A server that rejects this share of calls."""
    chance = random.Random(seed)
    return lambda now: chance.random() >= share


@dataclass
class Outcome:
    seconds: float
    answered: int
    rejected: int
    rate: Rate


def played(
    takes: Takes, n: int, *, workers: int = 64, latency: float = 0.1, rate: Rate | None = None
) -> Outcome:
    """`n` calls of so many workers, each rejection after 10 ms, in time that is made up."""
    rate = rate or Rate(math.inf)
    jitter, order = random.Random(0), itertools.count()
    events: list[tuple[float, int, Callable[[float], None]]] = []
    left, answered, rejected, now = n, 0, 0, 0.0

    def later(at: float, do: Any) -> None:
        heapq.heappush(events, (at, next(order), do))

    def begin(now: float, tries: int) -> None:
        call = Started()
        at, epoch = rate.turn(now, call), rate.epoch
        waits(now, call, tries, at, epoch)

    def waits(now: float, call: Started, tries: int, at: float, epoch: int) -> None:
        if call.waited and epoch != rate.epoch:
            begin(now, tries)
        elif now < at:
            later(min(at, now + 0.25), lambda t: waits(t, call, tries, at, epoch))
        else:
            rate.start(now, call)
            if takes(now):
                later(now + latency * jitter.uniform(0.8, 1.2), lambda t: answer(t, call))
            else:
                later(now + 0.01, lambda t: reject(t, call, tries))

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
    return Outcome(now, answered, rejected, rate)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("latency", [0.1, 0.3, 1.0])
def test_chance_rejections_cost_less_than_twice_the_time(share: float, latency: float) -> None:
    without = played(by_chance(0.0, 0), 1000, latency=latency).seconds
    outcomes = [played(by_chance(share, seed), 1000, latency=latency) for seed in range(20)]
    assert {one.answered for one in outcomes} == {1000}
    assert [one.rate.per_second for one in outcomes] == [None] * 20  # none took it for a limit
    assert sum(one.seconds for one in outcomes) / 20 < 2 * without


@pytest.mark.parametrize(
    "takes", [lambda: bucket(50, 50), lambda: bucket(50, 5), lambda: window(50)]
)
@pytest.mark.parametrize("latency", [0.02, 0.3, 1.0])
def test_a_true_limit_rejects_few_calls_and_is_used(
    takes: Callable[[], Takes], latency: float
) -> None:
    outcome = played(takes(), 1500, latency=latency)
    assert outcome.answered == 1500
    assert outcome.rejected < 150
    assert outcome.seconds < 1.5 * 30


def test_a_few_calls_a_minute_are_found_too() -> None:
    outcome = played(bucket(10 / 60, 10), 60, workers=16)
    assert outcome.answered == 60
    assert outcome.rejected < 60
    assert outcome.seconds < 1.2 * 300


def test_a_lower_and_a_higher_limit_are_found_soon() -> None:
    low, high = bucket(10, 10), bucket(200, 200)
    fast = bucket(50, 50)
    takes = lambda now: (fast if now < 20 else low if now < 60 else high)(now)  # noqa: E731
    outcome = played(takes, 3000, latency=0.3)
    assert outcome.answered == 3000
    assert outcome.rejected < 300
    assert outcome.seconds < 100


def test_the_calls_open_at_once_grow_with_answers() -> None:
    rate = Rate(2)
    calls = [Started(), Started()]
    for call in calls:
        assert not rate.full()
        rate.turn(0.0, call)
        rate.start(0.0, call)
    assert rate.full()
    rate.answer(1.0, calls[0], tokens=1)
    assert not rate.full()
    assert rate.most_open == 3


def test_limits_that_a_person_sets_space_the_calls() -> None:
    rate = Rate(math.inf)
    rate.limit("requests", 60)
    rate.limit("requests", 120)  # of another LM of the same server: the lower one counts
    rate.limit("tokens", 600)
    turns = []
    for _ in range(3):
        call = Started(prompt_tokens=5, reply_tokens=15)
        turns.append(rate.turn(0.0, call))
    assert turns == [0.0, 2.0, 4.0]
    rate.answer(0.0, call, tokens=10)  # fewer tokens than it might have taken
    assert rate.turn(0.0, Started(5, 15)) == 5.0


def test_what_replies_say_of_a_quota_is_kept_to() -> None:
    rate = Rate(math.inf)
    rate.told(0.0, {"x-ratelimit-remaining-requests": ["1"], "x-ratelimit-reset-requests": ["30s"]})
    assert rate.turn(0.0, Started()) == 0.0
    assert rate.turn(0.0, Started()) == 30.0
    assert rate.turn(31.0, Started()) == 31.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {"x-ratelimit-remaining-tokens": ["100"], "x-ratelimit-reset-tokens": ["1m3.5s"]},
            {"tokens": (100.0, 63.5)},
        ),
        (
            {"x-ratelimit-remaining-requests": ["7"], "x-ratelimit-reset-requests": ["20ms"]},
            {"requests": (7.0, 0.02)},
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": ["5"],
                "anthropic-ratelimit-input-tokens-reset": ["2000-01-01T00:00:00Z"],
            },
            {"input-tokens": (5.0, 0.0)},
        ),
        ({"x-ratelimit-remaining-tokens": ["many"], "x-ratelimit-reset-tokens": ["1s"]}, {}),
        ({"x-ratelimit-remaining-tokens": ["1"], "x-ratelimit-reset-tokens": ["soon"]}, {}),
        ({}, {}),
    ],
)
def test_headers_of_providers_are_read(
    headers: dict[str, list[str]], expected: dict[str, tuple[float, float]]
) -> None:
    assert quotas(headers) == expected
