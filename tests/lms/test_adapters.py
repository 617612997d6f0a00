"""Adapters: what is read, mended, counted, and asked for again."""

from collections import Counter
from dataclasses import replace
from typing import Literal

import dspy
import pytest

from ragbench.context import current, use
from ragbench.errors import UnknownNameError
from ragbench.ledger import open_ledger
from ragbench.lms import make_adapter, make_lm
from ragbench.lms.adapters.lenient import bound_lists
from ragbench.lms.factory import MAX_ITEMS
from ragbench.signatures import DraftPlanGraph
from ragbench.signatures.types import SubTask
from tests.fake_server import FakeServer
from tests.fakes import Asked, Reply, ScriptedLM, never_parses


class Grade(dspy.Signature):
    """Grade the passage."""

    passage: str = dspy.InputField()
    support: Literal["full", "partial", "none"] = dspy.OutputField()
    useful: bool = dspy.OutputField()
    score: float = dspy.OutputField()
    queries: list[str] = dspy.OutputField()
    note: str | None = dspy.OutputField()
    answer: str = dspy.OutputField()


GRADE = dspy.Predict(Grade)
ALMOST = {
    "support": "Fully supported.",
    "useful": "The answer is True",
    "score": "85%",
    "queries": "- one\n- two",
    "note": "None",
    "answer": "Paris",
}


def graded(lm: dspy.LM, adapter: str) -> tuple[dspy.Prediction, Counter[str]]:
    counts: Counter[str] = Counter()
    with use(replace(current(), counts=counts), lm=lm, adapter=make_adapter(adapter)):
        return GRADE(passage="p"), counts


@pytest.mark.parametrize("name", ["json", "chat"])
def test_almost_right_values_are_mended_and_each_is_counted(name: str) -> None:
    out, counts = graded(ScriptedLM(lambda asked: ALMOST), name)
    assert (out.support, out.useful, out.score) == ("full", True, 0.85)
    assert (out.queries, out.note, out.answer) == (["one", "two"], None, "Paris")
    assert counts["label_repair"] == 5
    assert counts["adapter_fallback"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "**[[ ## answer ## ]]** Paris [[ ## completed ## ]]",
        "[[## answer ##]]\nParis\n[[ ## completed ## ]]",
        "Sure!\n\n[[ ## answer ## ]]\nParis\n\n[[ ## completed ##",
        "[[ ## answer ## ]] Paris\n[[ ## answer ## ]] London",
    ],
)
def test_sections_of_a_chat_answer_are_found_where_they_are(text: str) -> None:
    with dspy.context(lm=ScriptedLM(lambda asked: text), adapter=make_adapter("chat")):
        assert dspy.Predict("question -> answer")(question="x").answer == "Paris"


def test_a_missing_label_is_never_made_up() -> None:
    def script(asked: Asked) -> Reply:
        return {name: value for name, value in ALMOST.items() if name != "support"}

    for missing in (script, lambda asked: {**ALMOST, "support": ""}):
        with pytest.raises(dspy.AdapterParseError, match="support"):
            graded(ScriptedLM(missing), "json")


def test_a_chat_answer_that_cannot_be_read_is_asked_for_again_as_json() -> None:
    lm = ScriptedLM(lambda asked: "nonsense" if asked.number == 1 else ALMOST)
    with open_ledger() as ledger:
        out, counts = graded(lm, "chat")
    assert out.answer == "Paris"
    assert [call.fallback for call in ledger.calls] == [False, True]
    assert (ledger.billed.calls, ledger.billed.fallbacks) == (2, 1)
    assert counts["adapter_fallback"] == 1
    assert lm.asked[1].request.config.response_format is not None


def test_a_fallback_that_fails_too_is_a_parse_error_after_two_calls() -> None:
    with open_ledger() as ledger, pytest.raises(dspy.AdapterParseError):
        graded(ScriptedLM(never_parses), "chat")
    assert len(ledger.calls) == 2
    with open_ledger() as ledger, pytest.raises(dspy.AdapterParseError):
        graded(ScriptedLM(never_parses), "json")
    assert len(ledger.calls) == 1


def test_the_schema_that_is_sent_stays_strict() -> None:
    lm = ScriptedLM()
    graded(lm, "json")
    sent = lm.asked[0].request.config.response_format
    assert sent is not None
    fields = sent["schema"]["properties"]
    assert fields["support"]["enum"] == ["full", "partial", "none"]
    assert (fields["useful"]["type"], fields["score"]["type"]) == ("boolean", "number")
    assert sent["schema"]["additionalProperties"] is False


def test_the_format_that_is_asked_for_is_dspys_own_for_each_signature_and_lm() -> None:
    narrow = Grade.with_updated_fields("support", type_=Literal["full", "none"])
    for signature in (Grade, narrow, Grade.with_instructions("Other."), Grade):
        for schema in (True, False, True):
            sent = []
            for adapter in (make_adapter("json"), dspy.JSONAdapter()):
                lm = ScriptedLM(schema=schema)
                with dspy.context(lm=lm, adapter=adapter):
                    dspy.Predict(signature)(passage="p")
                sent.append(lm.asked[0].request.config.response_format)
            assert sent[0] == sent[1]
            assert (sent[0] is not None) == schema


class Planned(dspy.Signature):
    """List the parts."""

    question: str = dspy.InputField()
    parts: list[str] = dspy.OutputField()
    tasks: list[SubTask] = dspy.OutputField()


@pytest.mark.parametrize("provider", ["hosted_vllm", "openai"])
def test_lists_are_bounded_for_local_models_alone(provider: str) -> None:
    with FakeServer() as server:
        lm = make_lm(f"{provider}/tiny", api_base=server.url, cache=False, schema=True)
        with dspy.context(lm=lm, adapter=make_adapter("json")):
            dspy.Predict(Planned)(question="x")
        schema = server.hits[0].body["response_format"]["json_schema"]["schema"]
    assert "maxItems" not in str(schema)
    bound_lists(schema, MAX_ITEMS)
    task = schema["$defs"]["SubTask"]["properties"]["depends_on"]
    for part in (schema["properties"]["parts"], schema["properties"]["tasks"], task):
        assert part["maxItems"] == MAX_ITEMS


def test_auto_is_json_where_the_lm_enforces_schemas() -> None:
    assert type(make_adapter("auto", ScriptedLM())) is type(make_adapter("json"))
    assert type(make_adapter("auto", ScriptedLM(schema=False))) is type(make_adapter("chat"))
    with pytest.raises(UnknownNameError, match="did you mean json"):
        make_adapter("jsn")


@pytest.mark.parametrize("name", ["json", "chat"])
def test_half_of_a_surrogate_pair_never_gets_into_the_next_prompt(name: str) -> None:
    half = '{"texts": ["a\\ud800b"], "note": "\\ud800"}'
    sections = '[[ ## texts ## ]]\n["a\\ud800b"]\n\n[[ ## note ## ]]\n\ud800'
    ask = dspy.Predict("question -> texts: list[str], note: str")
    lm = ScriptedLM(lambda asked: half if name == "json" else sections)
    with dspy.context(lm=lm, adapter=make_adapter(name)):
        out = ask(question="q")
        assert (out.texts, out.note) == (["a?b"], "?")
        ask(question=out.texts[0] + out.note)
    assert len(lm.signatures) == 2


@pytest.mark.parametrize("kind", ["json", "chat"])
def test_nested_types_are_shown_in_the_order_written_and_without_defaults(kind: str) -> None:
    adapter = make_adapter(kind, ScriptedLM())
    shown = adapter.format_system_message(DraftPlanGraph).replace('\\"', '"')
    schema = shown.partition('"properties": ')[2]
    names = ["id", "query", "op", "depends_on", "confidence", "cost", "produces"]
    assert [schema.index(f'"{name}": {{') for name in names] == sorted(
        schema.index(f'"{name}": {{') for name in names
    )
    assert '"default"' not in shown
