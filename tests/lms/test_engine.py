"""The metered engine over a real HTTP server: what is retried, filed, priced and refused."""

import asyncio
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.errors import LMSetupError
from ragbench.ledger import fan_out, open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.lms.calls import Caller, Scope
from ragbench.lms.factory import make_lm
from ragbench.lms.reply_cache import configure_cache
from ragbench.record import Ledger
from tests.fake_server import FakeServer, Fault, Script, plausible
from tests.wire import ask, lm_at


def fails_first(kind: str, times: int = 1, **details: Any) -> Script:
    return lambda hit: Fault(kind, **details) if hit.number <= times else plausible(hit)


PASSING = ["429", "500", "reset", "truncated", "html", "empty", "wrong"]


@pytest.mark.parametrize("kind", [*PASSING, "408", "409", "425", "498", "529"])
def test_a_passing_fault_is_tried_again_and_the_attempts_are_filed(kind: str) -> None:
    with FakeServer(fails_first(kind, 2)) as server, open_ledger() as ledger:
        assert ask(lm_at(server, retries=0 if kind == "429" else 4)) == "some answer"
    call = ledger.calls[0]
    assert (len(ledger.calls), call.attempts, call.error) == (1, 3, None)
    assert len(server.hits) == 3
    last = server.hits[-1]
    counted = (call.prompt_tokens, call.completion_tokens)
    assert counted == (last.prompt_tokens, last.completion_tokens)


@pytest.mark.parametrize(
    ("kind", "error", "attempts"),
    [
        ("503", dspy.LMServerError, 3),
        ("reset", dspy.LMTransportError, 3),
        ("hang", dspy.LMTimeoutError, 2),  # costs one time limit twice at most
        ("400", dspy.LMInvalidRequestError, 1),
        ("401", dspy.LMAuthError, 1),
        ("402", dspy.LMBillingError, 1),
        ("overflow", dspy.ContextWindowExceededError, 1),
    ],
)
def test_a_lasting_fault_is_filed_with_its_class(
    kind: str, error: type[Exception], attempts: int
) -> None:
    failing = pytest.raises(error)
    with FakeServer(lambda hit: Fault(kind)) as server, open_ledger() as ledger, failing:
        ask(lm_at(server, retries=2, timeout=0.3 if kind == "hang" else 60.0))
    call = ledger.calls[0]
    assert (call.error, call.attempts, call.prompt_tokens) == (error.__name__, attempts, 0)
    assert len(server.hits) == attempts
    assert ledger.as_if.failed == 1


def test_retry_after_is_kept_to_and_other_waits_grow_with_seeded_jitter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(Scope, "sleep", lambda scope, seconds: slept.append(seconds))
    monkeypatch.setattr(Caller, "base_s", 1.0)

    def waits(script: Script, seed: int = 0) -> list[float]:
        slept.clear()
        with FakeServer(script) as server:
            ask(make_lm("openai/fake", api_base=server.url, cache=False, seed=seed))
        return slept.copy()

    told = waits(fails_first("503", retry_after=7))
    assert 7 <= told[0] < 7.3
    grown = waits(fails_first("500", 4))
    assert all(2**n * 0.5 <= wait <= 2**n for n, wait in enumerate(grown))
    assert waits(fails_first("500", 4)) == grown != waits(fails_first("500", 4), seed=1)


def test_a_cached_re_run_bills_nothing_and_shows_the_same_as_if(tmp_path: Path) -> None:
    def work() -> Ledger:
        configure_cache(tmp_path)  # as in a new process: the memory is gone, the disk is not
        lm = lm_at(server, cache=True, price="in=1,out=2")
        with open_ledger() as ledger:
            fan_out(lambda number: ask(lm, str(number)), range(96))
        return ledger

    with FakeServer(fails_first("500", 3), latency_s=0.005) as server:
        first, again = work(), work()
    assert len(server.hits) == 96 + 3
    assert first.billed == first.as_if
    assert again.billed.calls == again.billed.tokens == again.billed.cost_usd == 0
    assert (again.as_if.calls, again.as_if.attempts) == (96, 96 + 3)

    def bill(ledger: Ledger) -> list[tuple[Any, ...]]:
        return sorted(
            (c.prompt_tokens, c.completion_tokens, c.cost_usd, c.latency_s) for c in ledger.calls
        )

    assert bill(again) == bill(first)
    ok = [hit for hit in server.hits if hit.outcome == "ok"]
    sent, got = (sum(getattr(h, f"{x}_tokens") for h in ok) for x in ("prompt", "completion"))
    assert (first.billed.prompt_tokens, first.billed.completion_tokens) == (sent, got)
    assert first.billed.cost_usd == pytest.approx((sent + 2 * got) / 1e6)


def test_the_check_names_the_models_that_there_are() -> None:
    with FakeServer(models=("fake",)) as server:
        with pytest.raises(LMSetupError, match=r"has no model 'other'; it has fake$"):
            make_lm("openai/other", api_base=server.url).check()
        make_lm("openai/fake", api_base=server.url).check()


def test_calls_of_async_code_are_filed_and_rollouts_have_seeds_of_their_own() -> None:
    async def main(predict: dspy.Predict) -> None:
        await asyncio.gather(*(predict.acall(question=str(n)) for n in range(5)))

    with FakeServer() as server, open_ledger() as ledger:
        lm = lm_at(server, seed=5)
        ask(lm.copy(rollout_id=2, temperature=1.0))
        with dspy.context(lm=lm, adapter=make_adapter("chat")):
            dspy.Predict("question -> answer", rollout_id=3, temperature=1.0)(question="x")
            asyncio.run(main(dspy.Predict("question -> answer")))
        assert [hit.body.get("seed") for hit in server.hits] == [7, 8, *[5] * 5]
    assert [call.error for call in ledger.calls] == [None] * 7
