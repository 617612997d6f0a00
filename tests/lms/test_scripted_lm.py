"""The scripted LM that other tests rest on."""

from typing import Literal, cast

import dspy
import pytest

from ragbench.ledger import open_ledger
from ragbench.programs.core.program import chain_of_thought, predict
from ragbench.programs.core.trace import Budget, Trace
from ragbench.retrievers.base import Retriever
from tests.fakes import Asked, Reply, ScriptedLM, blank, never_parses, plausible, rate_limited


class Judge(dspy.Signature):
    """Judge the claim."""

    claim: str = dspy.InputField()
    verdict: Literal["yes", "no"] = dspy.OutputField()
    score: int = dspy.OutputField()
    notes: list[str] = dspy.OutputField()


ADAPTERS = [dspy.JSONAdapter(), dspy.ChatAdapter(use_json_adapter_fallback=False)]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_script_sees_what_was_asked_and_is_answered_in_the_adapters_format(
    adapter: dspy.Adapter,
) -> None:
    seen: list[Asked] = []

    def script(asked: Asked) -> Reply:
        seen.append(asked)
        return {"verdict": "no", "score": 3, "notes": ["a", "b"]}

    with dspy.context(lm=ScriptedLM(script), adapter=adapter):
        out = dspy.Predict(Judge)(claim="Rome is in France.\n\nReally.")
    assert (out.verdict, out.score, out.notes) == ("no", 3, ["a", "b"])
    assert seen[0].signature == "Judge"
    assert seen[0].inputs["claim"].startswith("Rome is in France.\n\nReally.")
    assert list(seen[0].fields) == ["verdict", "score", "notes"]
    assert "Judge the claim." in seen[0].prompt


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_by_default_every_field_gets_a_plausible_value(adapter: dspy.Adapter) -> None:
    with dspy.context(lm=ScriptedLM(), adapter=adapter):
        out = dspy.ChainOfThought(Judge)(claim="x")
    assert (out.verdict, out.score, out.notes) == ("yes", 1, ["some notes"])


def test_calls_are_filed_with_tokens_price_signature_and_role() -> None:
    lm = ScriptedLM(price="in=1,out=2")
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()), open_ledger() as ledger:
        trace = Trace("q", cast(Retriever, None), Budget(10, 10))
        trace.ask(predict(Judge), claim="x")
        trace.ask(chain_of_thought(Judge), claim="y")
    first = ledger.calls[0]
    assert (first.signature, first.model) == ("Judge", "scripted/lm")
    assert first.prompt_tokens > 20
    assert first.cost_usd == pytest.approx(
        (first.prompt_tokens + 2 * first.completion_tokens) / 1e6
    )
    assert lm.signatures == ["Judge", "Judge"]
    assert ledger.billed.calls == 2


def test_an_unknown_price_is_unknown() -> None:
    with dspy.context(lm=ScriptedLM(price=None)), open_ledger() as ledger:
        dspy.Predict(Judge)(claim="x")
    assert ledger.as_if.cost_usd is None


def test_replies_can_fail_to_parse_be_blank_or_be_errors() -> None:
    with dspy.context(adapter=dspy.JSONAdapter()):
        with dspy.context(lm=ScriptedLM(never_parses)), pytest.raises(dspy.AdapterParseError):
            dspy.Predict(Judge)(claim="x")
        with dspy.context(lm=ScriptedLM(blank)):
            assert dspy.Predict("question -> answer")(question="x").answer == ""
        with (
            dspy.context(lm=ScriptedLM(lambda asked: rate_limited())),
            open_ledger() as ledger,
            pytest.raises(dspy.LMRateLimitError),
        ):
            dspy.Predict(Judge)(claim="x")
    assert [(c.error, c.attempts) for c in ledger.calls] == [("LMRateLimitError", 1)]


def test_a_failed_attempt_is_made_again_where_retries_are_allowed() -> None:
    lm = ScriptedLM(lambda a: rate_limited() if a.number < 3 else plausible(a), retries=2)
    with dspy.context(lm=lm), open_ledger() as ledger:
        dspy.Predict(Judge)(claim="x")
    assert [(c.error, c.attempts) for c in ledger.calls] == [(None, 3)]
