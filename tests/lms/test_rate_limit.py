"""What a server's limits are learnt from, over a simulated clock, and how real calls wait."""

from __future__ import annotations

import heapq
import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import dspy
import pytest

from ragbench.errors import LMSetupError
from ragbench.lms import make_lm
from ragbench.lms.calls.rate_headers import quotas
from ragbench.lms.calls.rate_limit import Rate, Started
from tests.fake_server import FakeServer, Fault, Hit, plausible

#: Whether a request at this moment, with so many others open, is taken.
Admits = Callable[[float, int], bool]


def bucket(rate: Callable[[float], float]) -> Admits:
    """A token bucket that holds a second's worth, as hosted providers have."""
    level, before = rate(0.0), 0.0

    def admits(now: float, others: int) -> bool:
        nonlocal level, before
        level, before = min(rate(now), level + (now - before) * rate(now)), now
        if level < 1:
            return False
        level -= 1
        return True

    return admits


def simulate(
    admits: Admits, *, seconds: float, latency_s: float, callers: int = 128
) -> list[tuple[float, bool]]:
    """When each call came to its end, and whether it was answered; callers never rest."""
    rng, rate = random.Random(0), Rate()
    now, order, taken, waiting = 0.0, 0, 0, callers
    ends: list[tuple[float, int, bool, Started]] = []
    log: list[tuple[float, bool]] = []
    while now < seconds:
        next_start = float("inf")
        while waiting:
            call = Started(at=now)
            wait = rate.wait_s(now, call)
            if wait is None or wait > 0:
                next_start = now + wait if wait else next_start
                break
            rate.start(now, call, waited=waiting > 0)
            ok = admits(now, taken)
            taken += ok
            took = latency_s * rng.lognormvariate(0, 0.3) if ok else 0.005
            order, waiting = order + 1, waiting - 1
            heapq.heappush(ends, (now + took, order, ok, call))
        # A thread wakes up a little late.
        now = min(next_start + rng.random() * 0.002, ends[0][0] if ends else float("inf"))
        while ends and ends[0][0] <= now:
            at, _, ok, call = heapq.heappop(ends)
            waiting += 1
            taken -= ok
            rate.answer(call, tokens=0) if ok else rate.reject(now, call)
            log.append((at, ok))
    return log


def share_rejected(log: list[tuple[float, bool]], since: float = 60.0) -> float:
    later = [ok for at, ok in log if at > since]
    return 1 - sum(later) / len(later)


@pytest.mark.parametrize("latency_s", [0.05, 0.5, 2.0])
def test_a_rate_that_changes_is_used_to_nine_tenths_with_few_rejections(latency_s: float) -> None:
    rates = [20, 50, 10, 30, 30]
    log = simulate(bucket(lambda now: rates[min(int(now / 60), 4)]), seconds=300,
                   latency_s=latency_s)  # fmt: skip
    assert sum(ok for _, ok in log) / (60 * sum(rates)) >= 0.9
    assert share_rejected(log) < 0.05


def test_rejections_by_chance_do_not_stop_the_callers() -> None:
    chance = random.Random(0)
    log = simulate(
        lambda now, others: chance.random() > 0.05, seconds=120, latency_s=0.3, callers=32
    )
    assert sum(ok for _, ok in log) > 0.2 * 120 * 32 / 0.314


def test_a_crowd_finds_a_high_rate_without_a_flood_of_rejections() -> None:
    log = simulate(bucket(lambda now: 200.0), seconds=60, latency_s=0.3, callers=256)
    assert share_rejected(log, since=0.0) < 0.05
    assert share_rejected(log, since=20.0) < 0.02
    assert sum(ok for _, ok in log) > 0.9 * 60 * 200


def test_a_server_that_takes_few_calls_at_once_is_not_flooded() -> None:
    log = simulate(lambda now, others: others < 4, seconds=300, latency_s=0.5)
    assert share_rejected(log) < 0.04
    assert sum(ok for _, ok in log) > 0.5 * 300 * 4 / 0.52


def test_without_a_rejection_nothing_holds_the_callers_back() -> None:
    log = simulate(lambda now, others: True, seconds=30, latency_s=0.5)
    assert sum(ok for _, ok in log) > 0.9 * 30 * 128 / 0.52


def test_one_burst_of_rejections_is_one_cut_and_retry_after_is_kept_to() -> None:
    rate = Rate()
    calls = [Started() for _ in range(8)]
    for call in calls:
        rate.start(1.0, call)
    for call in calls[:5]:
        rate.reject(1.1, call, retry_after=7.0)
    assert rate.decreases == 1
    assert rate.wait_s(1.1, Started()) == pytest.approx(7.0)
    assert rate.wait_s(8.2, Started()) == 0.0


def test_pauses_grow_while_every_call_is_rejected_and_never_beyond_a_minute() -> None:
    rate, now, pauses = Rate(), 0.0, []
    for _ in range(12):
        call = Started()
        rate.start(now, call)
        rate.reject(now, call)
        pauses.append(rate.wait_s(now, Started()) or 0.0)
        now += pauses[-1] + 0.1
    assert all(b == pytest.approx(min(2 * a, 60)) for a, b in pairwise(pauses[2:]))
    assert max(pauses) == pytest.approx(60)


def test_calls_wait_for_the_reset_that_a_reply_announced() -> None:
    rate = Rate()
    first = Started(prompt_tokens=100, reply_tokens=50)
    rate.start(0.0, first)
    rate.answer(first, tokens=150)
    rate.told(1.0, {
        "x-ratelimit-remaining-requests": ["1"], "x-ratelimit-reset-requests": ["6s"],
        "x-ratelimit-remaining-tokens": ["1000"], "x-ratelimit-reset-tokens": ["2s"],
    })  # fmt: skip
    assert rate.wait_s(1.0, first) == 0.0
    rate.start(1.0, first)
    assert rate.wait_s(1.0, Started()) == pytest.approx(6.0)
    assert rate.wait_s(1.0, Started(prompt_tokens=2000)) == pytest.approx(6.0)
    assert rate.wait_s(7.1, Started()) == 0.0


def test_headers_of_both_families_are_read_and_nonsense_is_not() -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    found = quotas({
        "x-ratelimit-remaining-requests": ["59"], "x-ratelimit-reset-requests": ["1m3.5s"],
        "x-ratelimit-remaining-tokens": ["many"], "x-ratelimit-reset-tokens": ["20ms"],
        "anthropic-ratelimit-input-tokens-remaining": ["7"],
        "anthropic-ratelimit-input-tokens-reset": [soon.replace("+00:00", "Z")],
        "anthropic-ratelimit-output-tokens-remaining": ["7"],
        "anthropic-ratelimit-output-tokens-reset": ["tomorrow"],
    })  # fmt: skip
    assert found["requests"] == (59, 63.5)
    assert found["input-tokens"] == (7, pytest.approx(30, abs=2))
    assert set(found) == {"requests", "input-tokens"}


def test_fixed_limits_are_kept_and_tokens_are_corrected_when_known() -> None:
    rate = Rate()
    rate.limit("requests", 60)
    rate.limit("tokens", 6000)
    rate.limit("tokens", 9000)  # the lower one counts
    call = Started(prompt_tokens=100, reply_tokens=500)
    rate.start(0.0, call)
    assert rate.wait_s(0.0, call) == pytest.approx(6.0)
    rate.answer(call, tokens=120)
    assert rate.wait_s(0.0, call) == pytest.approx(1.2)
    assert rate.wait_s(1.3, call) == 0.0


def call_often(lm: dspy.LM, n: int, workers: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda number: lm(f"prompt {number}"), range(n)))


def test_real_calls_wait_their_turn_and_all_are_answered() -> None:
    lock, start = threading.Lock(), time.monotonic()
    admits = bucket(lambda now: 20.0)

    def script(hit: Hit) -> str | Fault:
        with lock:
            return plausible(hit) if admits(time.monotonic() - start, 0) else Fault("429")

    with FakeServer(script) as server:
        lm = make_lm("openai/fake", api_base=server.url, cache=False, retries=0)
        call_often(lm, 60, workers=16)
        answered = [hit for hit in server.hits if hit.outcome == "ok"]
    assert len(answered) == len({hit.prompt for hit in answered}) == 60
    assert len(server.hits) > 60


def test_a_server_given_by_its_address_gets_all_calls_at_once() -> None:
    together = threading.Barrier(40, timeout=60)

    def script(hit: Hit) -> str:
        together.wait()  # answers nothing before all have come
        return plausible(hit)

    with FakeServer(script) as server, ThreadPoolExecutor(40) as pool:
        lm = make_lm("openai/fake", api_base=server.url, cache=False)
        list(pool.map(lambda number: lm(f"prompt {number}"), range(40)))
        assert server.at_once == 40


def test_the_first_rejection_halves_what_was_open_without_a_limit() -> None:
    rate = Rate(most_open=math.inf)
    calls = [Started() for _ in range(100)]
    for call in calls:
        assert rate.wait_s(0.0, call) == 0.0
        rate.start(0.0, call)
    for call in calls:
        rate.reject(1.0, call)
    assert rate.most_open == 50
    assert rate.decreases == 1


def test_requests_a_minute_hold_for_all_lms_of_one_server() -> None:
    with FakeServer() as server:
        first, second = (
            make_lm(f"openai/{name}", api_base=server.url, cache=False, rpm=rpm)
            for name, rpm in (("a", 1200), ("b", None))
        )
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda lm: call_often(lm, 10, 4), (first, second)))
        times = [hit.at for hit in server.hits]
    assert len(times) == 20
    assert max(times) - min(times) >= 19 * 0.05 - 0.1


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(LMSetupError, match="rpm=0 must be above 0"):
        make_lm("openai/fake", api_base="http://127.0.0.1:1/v1", rpm=0)
    with pytest.raises(LMSetupError, match="leave out rpm"):
        make_lm("local", rpm=10)
