"""The same request from several threads at once: sent once, billed once, right in the ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import dspy
import pytest

from ragbench.ledger import OpenLedger, open_ledger
from ragbench.lms import RagbenchLM, make_lm
from tests.fake_server import FakeServer, Fault, Hit

N = 8


def ask_at_once(ask: Callable[[int], object]) -> OpenLedger:
    """The ledger of `N` threads that call `ask` at the same moment."""
    together = threading.Barrier(N, timeout=60)

    def one(number: int) -> object:
        together.wait()
        return ask(number)

    with open_ledger() as ledger, ThreadPoolExecutor(N) as pool:
        futures = [pool.submit(copy_context().run, one, number) for number in range(N)]
        for future in futures:
            future.result()
    return ledger


@pytest.fixture
def lm_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RagbenchLM]:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return lambda server, **settings: make_lm("openai/fake", api_base=server.url, **settings)


def test_the_same_request_is_sent_once_and_every_question_has_its_call(
    lm_of: Callable[..., RagbenchLM],
) -> None:
    with FakeServer(lambda hit: "Oslo", latency_s=0.5) as server:
        lm = lm_of(server)
        ledger = ask_at_once(lambda number: lm("Where?"))
    assert len(server.hits) == 1
    assert ledger.billed.calls == 1
    assert ledger.as_if.calls == N
    first = next(call for call in ledger.calls if not call.cached)
    assert {call.latency_s for call in ledger.calls} == {first.latency_s}
    # What they waited for the first is no time that the cache saved.
    assert ledger.path.cached_s < (N - 1) * first.latency_s


def test_other_requests_are_sent_each(lm_of: Callable[..., RagbenchLM]) -> None:
    with FakeServer(lambda hit: "Oslo", latency_s=0.2) as server:
        lm = lm_of(server, temperature=1.0)
        ask_at_once(lambda number: lm("Where?", rollout_id=number + 1))
        assert len(server.hits) == N
        uncached = lm_of(server, cache=False)
        ask_at_once(lambda number: uncached("Where?"))
        assert len(server.hits) == 2 * N


def test_where_the_first_fails_the_others_are_sent_themselves(
    lm_of: Callable[..., RagbenchLM],
) -> None:
    def script(hit: Hit) -> str | Fault:
        time.sleep(0.3)
        return Fault("400") if hit.number == 1 else "Oslo"

    failed = []

    with FakeServer(script) as server:
        lm = lm_of(server)

        def ask(number: int) -> None:
            try:
                lm("Where?")
            except dspy.LMError as error:
                failed.append(error)

        ledger = ask_at_once(ask)
    assert len(failed) == 1
    assert ledger.as_if.calls == N
    assert ledger.as_if.failed == 1
