"""Adapters: what is read, mended, counted, and asked for again."""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import dspy
import pytest
from pydantic import BaseModel, Field

from ragbench.context import current, use
from ragbench.errors import RagbenchError, UnknownNameError
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import LenientChat, LenientJSON, _trimmed, calls_of_reply, make_adapter
from ragbench.lms.factory import MAX_ITEMS, make_lm
from ragbench.lms.replies import UnreadableError, read_value, split_thoughts
from ragbench.lms.text_tool_calls import read_calls
from ragbench.signatures.types import SubTask
from ragbench.user_code import allow
from tests.fake_server import FakeServer
from tests.fakes import ScriptedLM, never_parses

Support = Literal["full", "partial", "none"]
Relevance = Literal["relevant", "irrelevant"]
Utility = Literal[1, 2, 3, 4, 5]
Step = Literal["accept_partial", "reword", "restructure"]


class Grade(dspy.Signature):
    """Grade the passage."""

    passage: str = dspy.InputField()
    support: Support = dspy.OutputField()
    useful: bool = dspy.OutputField()
    score: float = dspy.OutputField()
    queries: list[str] = dspy.OutputField()
    note: str | None = dspy.OutputField()
    answer: str = dspy.OutputField()


ALMOST = {
    "support": "**Full.**",
    "useful": "True, it is",
    "score": "85%",
    "queries": "- one\n- two",
    "note": "None",
    "answer": "Paris",
}


def graded(lm: dspy.LM, adapter: str) -> tuple[dspy.Prediction, Counter[str]]:
    counts: Counter[str] = Counter()
    with use(replace(current(), counts=counts), lm=lm, adapter=make_adapter(adapter)):
        return dspy.Predict(Grade)(passage="p"), counts


@pytest.mark.parametrize("name", ["json", "chat"])
def test_almost_right_values_are_mended_and_each_is_counted(name: str) -> None:
    out, counts = graded(ScriptedLM(lambda asked: ALMOST), name)
    assert (out.support, out.useful, out.score) == ("full", True, 0.85)
    assert (out.queries, out.note, out.answer) == (["one", "two"], None, "Paris")
    assert (counts["label_repair"], counts["adapter_fallback"]) == (5, 0)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("chat", "**[[ ## answer ## ]]** Paris [[ ## completed ## ]]"),
        ("chat", "[[## answer ##]]\nParis\n[[ ## completed ## ]]"),
        ("chat", "Sure!\n\n[[ ## answer ## ]]\nParis\n\n[[ ## completed ##"),
        ("json", '```json\n{"answer": "Paris"}\n```'),
        ("json", 'Sure! {"answer": "Paris", } as asked'),
    ],
)
def test_an_answer_is_found_where_it_is(kind: str, text: str) -> None:
    with dspy.context(lm=ScriptedLM(lambda asked: text), adapter=make_adapter(kind)):
        assert dspy.Predict("question -> answer")(question="x").answer == "Paris"


def test_a_chat_answer_that_cannot_be_read_is_asked_for_again_as_json() -> None:
    lm = ScriptedLM(lambda asked: "nonsense" if asked.number == 1 else ALMOST)
    with open_ledger() as ledger:
        out, counts = graded(lm, "chat")
    assert out.answer == "Paris"
    assert [call.fallback for call in ledger.calls] == [False, True]
    assert (ledger.billed.calls, ledger.billed.fallbacks) == (2, 1)
    assert counts["adapter_fallback"] == 1
    assert lm.asked[1].request.config.response_format is not None


@pytest.mark.parametrize(("name", "calls"), [("chat", 2), ("json", 1)])
def test_a_reply_that_never_parses_is_an_error(name: str, calls: int) -> None:
    assert calls_of_reply(make_adapter(name)) == (1, calls)
    with open_ledger() as ledger, pytest.raises(dspy.AdapterParseError):
        graded(ScriptedLM(never_parses), name)
    assert len(ledger.calls) == calls


class Planned(dspy.Signature):
    """List the parts."""

    question: str = dspy.InputField()
    parts: list[str] = dspy.OutputField()
    tasks: list[SubTask] = dspy.OutputField()


def test_lists_are_bounded_for_local_models_alone() -> None:
    with FakeServer() as server:
        lm = make_lm("hosted_vllm/tiny", api_base=server.url, cache=False, schema=True)
        with dspy.context(lm=lm, adapter=make_adapter("json")):
            dspy.Predict(Planned)(question="x")
        schema = server.hits[0].body["response_format"]["json_schema"]["schema"]
    assert "maxItems" not in str(schema)
    _trimmed(schema, (), MAX_ITEMS)
    task = schema["$defs"]["SubTask"]["properties"]["depends_on"]
    for part in (schema["properties"]["parts"], schema["properties"]["tasks"], task):
        assert part["maxItems"] == MAX_ITEMS


@pytest.mark.parametrize(
    ("spec", "told"), [("openai/tiny", False), ("hosted_vllm/tiny", True), ("openai/other", True)]
)
def test_a_schema_stands_once_in_what_the_model_reads(
    spec: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    enforced = spec != "openai/other"
    with FakeServer() as server:
        lm = make_lm(spec, api_base=server.url, cache=False, schema=enforced)
        with (
            dspy.context(lm=lm, adapter=make_adapter("json")),
            contextlib.suppress(dspy.AdapterParseError),
        ):
            dspy.Predict(Planned)(question="x")
        body = server.hits[0].body
    message = body["messages"][0]["content"]
    assert ("depends_on" in message) == told
    assert "- `tasks` (list of objects)" in message  # the field itself stays
    schema = str(body.get("response_format"))
    assert ("depends_on" in schema) == enforced
    assert ("Ids of earlier ones" in schema) == (not told)


def test_auto_is_json_where_the_lm_enforces_schemas() -> None:
    assert type(make_adapter("auto", ScriptedLM())) is type(make_adapter("json"))
    assert type(make_adapter("auto", ScriptedLM(schema=False))) is type(make_adapter("chat"))
    with pytest.raises(UnknownNameError, match="did you mean json"):
        make_adapter("jsn")


@pytest.mark.parametrize("name", ["chat", "json"])
@pytest.mark.parametrize(
    "inputs",
    [
        {"question": "é x", "context": ["a", "b é"], "notes": "z"},
        {"question": "", "context": [], "notes": ["a", "b"]},
        {"question": "x", "context": ("a",), "extra": {"a": 1}},
        {"question": 5, "context": ["a", 1]},
    ],
)
def test_user_message_of_any_inputs_equals_that_of_dspy(name: str, inputs: dict[str, Any]) -> None:
    signature = dspy.Signature("question, context: list[str], notes, extra: dict -> answer")
    dspys = {"chat": dspy.ChatAdapter, "json": dspy.JSONAdapter}[name]()
    for wording in ({}, {"prefix": "before", "suffix": "after"}):
        message = make_adapter(name).format_user_message_content(signature, inputs, **wording)
        assert message == dspys.format_user_message_content(signature, inputs, **wording)


HALF = {
    "json": '{"texts": ["a\\ud800b"], "note": "\\ud800"}',
    "chat": '[[ ## texts ## ]]\n["a\\ud800b"]\n\n[[ ## note ## ]]\n\ud800',
}


@pytest.mark.parametrize("name", HALF)
def test_half_of_a_surrogate_pair_never_gets_into_the_next_prompt(name: str) -> None:
    with dspy.context(lm=ScriptedLM(lambda asked: HALF[name]), adapter=make_adapter(name)):
        out = dspy.Predict("question -> texts: list[str], note: str")(question="q")
    assert (out.texts, out.note) == (["a?b"], "?")


class Weight(BaseModel):
    """A type whose limits are a part of its schema."""

    grams: int = Field(ge=0)


class Branch(BaseModel):
    """A type that contains itself."""

    name: str
    branches: list["Branch"]


class Everything(dspy.Signature):
    """Fill every kind of field."""

    text: str = dspy.InputField(desc="A text.")
    plain: str = dspy.OutputField()
    sure: bool = dspy.OutputField(desc="True if sure.")
    level: Literal[1, 2] | None = dspy.OutputField()
    shares: list[float] = dspy.OutputField()
    labels: list[Support] = dspy.OutputField()
    weight: Weight = dspy.OutputField()
    tree: Branch = dspy.OutputField()
    counts: dict[str, int] = dspy.OutputField()


@pytest.mark.parametrize("layout", ["json", "chat"])
def test_system_message_states_each_field_once_in_words_or_as_a_schema(layout: Any) -> None:
    message = make_adapter(layout, ScriptedLM()).format_system_message(Everything)
    head, _, outputs = message.partition("\n\nOutputs, ")
    assert head == "Fill every kind of field.\n\nInputs:\n- `text`: A text."
    lines = outputs.splitlines()[1:]
    assert lines[:5] == [
        "- `plain`",
        "- `sure` (true or false): True if sure.",
        "- `level` (1 | 2 or null)",
        "- `shares` (list of numbers)",
        "- `labels` (list of full | partial | none)",
    ]
    assert "'minimum': 0" in str(read_schema(lines[5], "weight"))
    assert "Branch" in read_schema(lines[6], "tree")["$defs"]
    assert read_schema(lines[7], "counts")["type"] == "object"


def read_schema(line: str, name: str) -> Any:
    """The JSON schema of a line of a system message."""
    return json.loads(line.removeprefix(f"- `{name}` (JSON schema: ").removesuffix(")"))


class Node(BaseModel):
    id: str
    cost: int = 1


WHOLE, CUT = {"id": "n1", "cost": 2}, {"id": "n2", "cost": ", "}
READ = [Node(id="n1", cost=2)]
#: What was said, its type, and the value: as it is, mended, or refused.
RIGHT: list[tuple[Any, Any, Any]] = [
    ("full", Support, "full"), ('"full"', Support, "full"), ("3", int, 3), (4, Utility, 4),
    ("4", Utility, 4), (True, bool, True), ("Paris", str | None, "Paris"),
    ("['a', 'b']", list[str], ["a", "b"]),
    ("not [[ a marker", str, "not [[ a marker"),
]  # fmt: skip
ALMOST_RIGHT: list[tuple[Any, Any, Any]] = [
    ("**Full**", Support, "full"),
    ("Irrelevant: the passage is about another film", Relevance, "irrelevant"),
    ("Partial.", Support | None, "partial"), ("Accept partial", Step, "accept_partial"),
    ("No, that is false.", bool, False), ("**4**", Utility, 4),
    ("85%", float, 0.85), ("- a\n- b", list[str], ["a", "b"]),
    ("1. first\n2. second, with a comma", list[str], ["first", "second, with a comma"]),
    ("a, b", list[str], ["a", "b"]),
    ("None", list[str], []), ("[1] and [3]", list[int], [1, 3]), ("null", str | None, None),
    ("Paris\n[[ ## completed", str, "Paris"), ("full [[ ## completed ## ]]", Support, "full"),
    # Objects of a list that cannot be read are left out.
    ([CUT, WHOLE, None, []], list[Node], READ), (json.dumps([WHOLE, CUT]), list[Node], READ),
]  # fmt: skip
REFUSED: list[tuple[Any, Any]] = [
    (None, Support), (None, str), ("", int),
    ("[[ ## completed ## ]]", Support), ("full or partial", Support),
    ("relevant, not irrelevant", Relevance), ("relevant: not at all", Relevance),
    ("Is it relevant?", Relevance),
    ("The passage is full of detail but says little else", Support), ("yes and no", bool),
    ("maybe", bool), ("between 3 and 5", int), ("3.5", int),
    ("six", Utility), ("9", Utility), ("7/10", float),
    ("1-3", list[int]), ("nan", float), (float("inf"), float),
    ("anything", dict[str, int]), ([CUT], list[Node]), ({"id": "n1"}, list[Node]),
    ("n1 and n2", list[Node]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "annotation", "value", "mended"),
    [*((*row, False) for row in RIGHT), *((*row, True) for row in ALMOST_RIGHT)],
)
def test_a_value_is_read_as_it_is_or_mended_where_it_is_plain(
    raw: Any, annotation: Any, value: Any, mended: bool
) -> None:
    assert read_value(raw, annotation) == (value, mended)


@pytest.mark.parametrize(("raw", "annotation"), REFUSED)
def test_a_missing_or_ambiguous_value_stays_an_error(raw: Any, annotation: Any) -> None:
    with pytest.raises(UnreadableError):
        read_value(raw, annotation)


KINDS = [Support, Relevance, Utility, bool, int, float, list[str], list[int], str | None]


RAW = [
    "", " ", "0", "-1", "1e9", "nan", "1/0", "5 of 5", "[1, 2", "[]", '["a"]', "{}", "null", "True",
    "\x00", "\ud800", "٣", "½", "yes and no", "[[ ## x ## ]]", "```json\n1\n```", "a" * 5_000,
    None, 0, -7, 10**400,
]  # fmt: skip


@pytest.mark.parametrize("annotation", KINDS)
def test_any_text_is_read_or_refused_never_a_crash(annotation: Any) -> None:
    for raw in RAW:
        with contextlib.suppress(UnreadableError):
            value, _ = read_value(raw, annotation)
            assert read_value(value, annotation)[0] == value


PIECES = [" ", "\n", "*", "[", "#", "{", '"', "<", "7", "a", "[[ ## ", "no ", "<answer>", "1."]
SIZE = 30_000


def seconds(read: Callable[[str], Any], text: str) -> float:
    """Processor time of this thread alone: what else the machine does is not in it."""
    start = time.thread_time()
    with contextlib.suppress(ValueError, dspy.AdapterParseError):
        read(text)
    return time.thread_time() - start


@pytest.mark.parametrize("piece", PIECES)
def test_four_times_the_input_takes_about_four_times_the_time(piece: str) -> None:
    """A reply is read in time in proportion to its length, whatever it is made of.

    2.5 times for twice the input is 6.25 times for four times; a quadratic reader takes 16.
    """
    signature = dspy.Signature("question -> answer, ok: bool")
    readers: list[Callable[[str], Any]] = [
        *(lambda text, a=a: a.parse(signature, text) for a in (LenientChat(), LenientJSON())),
        *(lambda text, k=kind: read_value(text, k) for kind in (str, *KINDS)),
        split_thoughts,
        lambda text: read_calls(text, {"a"}),
    ]
    text = piece * (SIZE // len(piece))
    for read in readers:
        long = seconds(read, f"{text * 4}x")
        if long > 0.2:  # the machine is busy, or the reader is not linear
            once = min(seconds(read, f"{text}x") for _ in range(3))
            long = min(seconds(read, f"{text * 4}x") for _ in range(3))
            assert long < max(6.25 * once, 0.2)


OWN = """
import dspy

class Plain(dspy.ChatAdapter):
    def parse(self, signature, completion):
        return dict.fromkeys(signature.output_fields, completion.upper())

class Nothing:
    pass
"""


def test_make_adapter_of_a_users_file_uses_it_and_a_mistake_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    spec = f"{tmp_path / 'mine.py'}:"
    with pytest.raises(RagbenchError, match="give --adapter"):
        make_adapter(f"{spec}Plain")
    allow(f"{spec}Plain", f"{spec}Nothing")
    lm = ScriptedLM(lambda asked: "ann")
    with dspy.context(lm=lm, adapter=make_adapter(f"{spec}Plain", lm)):
        assert dspy.Predict("question -> answer")(question="x").answer == "ANN"
    with pytest.raises(RagbenchError, match=r"not a subclass of dspy\.Adapter"):
        make_adapter(f"{spec}Nothing")
    for removed in ("xml", "baml", "two_step"):
        with pytest.raises(RagbenchError, match="no adapter"):
            make_adapter(removed)
