"""The metered engine over a real HTTP server: what is retried, filed, priced and refused."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import dspy
import pytest

from ragbench.errors import LMSetupError
from ragbench.ledger import calling, fan_out, open_ledger
from ragbench.lms import RagbenchLM, configure_cache, make_adapter, make_lm
from ragbench.lms.calls import Scope
from ragbench.record import Ledger
from tests.fake_server import FakeServer, Fault, Script, plausible
from tests.wire import ask, lm_at


def fails_first(kind: str, times: int = 1, **details: Any) -> Script:
    return lambda hit: Fault(kind, **details) if hit.number <= times else plausible(hit)


@pytest.mark.parametrize("kind", ["429", "500", "reset", "truncated", "html", "empty", "wrong"])
def test_a_passing_fault_is_tried_again_and_the_attempts_are_filed(kind: str) -> None:
    with FakeServer(fails_first(kind, 2)) as server, open_ledger() as ledger:
        assert ask(lm_at(server, retries=0 if kind == "429" else 4)) == "some answer"
    call = ledger.calls[0]
    assert (len(ledger.calls), call.attempts, call.error) == (1, 3, None)
    assert len(server.hits) == 3
    assert (call.prompt_tokens, call.completion_tokens) == (
        server.hits[-1].prompt_tokens,
        server.hits[-1].completion_tokens,
    )


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
    with (
        FakeServer(lambda hit: Fault(kind)) as server,
        open_ledger() as ledger,
        pytest.raises(error),
    ):
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


def _work(lm: dspy.LM) -> Ledger:
    """Eight workers, four questions each, each with an inner fan-out of three calls."""

    def question(number: int) -> None:
        def part(n: int) -> str:
            with calling(f"Part{n}", "answering"):
                return ask(lm, f"{number}.{n}")

        assert fan_out(part, [0, 1, 2]) == ["some answer"] * 3

    with open_ledger() as ledger, ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(copy_context().run, question, n) for n in range(32)]
        for job in jobs:
            job.result()
    return ledger


def test_a_cached_re_run_bills_nothing_and_shows_the_same_as_if(tmp_path: Path) -> None:
    with FakeServer(fails_first("500", 3), latency_s=0.005) as server:
        configure_cache(tmp_path)
        lm = lm_at(server, cache=True, price="in=1,out=2")
        first = _work(lm)
        assert len(server.hits) == 96 + 3
        configure_cache(tmp_path)  # a new process: the memory is gone, the disk is not
        again = _work(lm_at(server, cache=True, price="in=1,out=2"))
        assert len(server.hits) == 96 + 3
    assert first.billed == first.as_if
    assert again.billed.calls == again.billed.tokens == again.billed.cost_usd == 0
    assert again.as_if.calls == 96
    assert again.as_if.attempts == 96 + 3

    def bill(ledger: Ledger) -> list[tuple[Any, ...]]:
        return sorted(
            (c.signature, c.role, c.prompt_tokens, c.completion_tokens, c.cost_usd, c.latency_s)
            for c in ledger.calls
        )

    assert bill(again) == bill(first)
    ok = [hit for hit in server.hits if hit.outcome == "ok"]
    assert first.billed.prompt_tokens == sum(hit.prompt_tokens for hit in ok)
    assert first.billed.completion_tokens == sum(hit.completion_tokens for hit in ok)
    assert first.billed.cost_usd == pytest.approx(
        (first.billed.prompt_tokens + 2 * first.billed.completion_tokens) / 1e6
    )


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda s: make_lm("openai/fake", api_base="http://127.0.0.1:9/v1"), "cannot reach"),
        (lambda s: make_lm("openai/other", api_base=s.url), "has no model 'other'; it has fake"),
    ],
)
def test_check_names_the_cure(broken: Callable[[FakeServer], RagbenchLM], message: str) -> None:
    with FakeServer(models=("fake",)) as server:
        with pytest.raises(LMSetupError, match=message) as caught:
            broken(server).check()
        make_lm("openai/fake", api_base=server.url).check()
    assert "\n" not in str(caught.value)


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


def test_the_key_comes_from_the_environment_and_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with FakeServer(key="sk-very-secret") as server, open_ledger() as ledger:
        lm = lm_at(server)
        assert ask(lm) == "some answer"
    with (
        FakeServer(key="another") as server,
        open_ledger() as failed,
        pytest.raises(dspy.LMAuthError) as caught,
    ):
        ask(lm_at(server))
    shown = [str(caught.value), repr(lm), repr(vars(lm)), repr(vars(lm.metered.client))]
    shown += [repr(ledger), repr(failed), *capsys.readouterr()]
    assert not any("very-secret" in text for text in shown)
