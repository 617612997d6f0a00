"""A reply as it enters: thoughts, marks of chat templates, calls left as text, marks in prompts."""

import enum
import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import dspy
import pytest
from pydantic import BaseModel

from ragbench.context import current, use
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.lms.replies import escaped, split_thoughts
from ragbench.lms.text_tool_calls import read_calls
from ragbench.lms.tool_conversation import ToolConversation
from tests.fake_server import FakeServer, Fault, plausible
from tests.wire import ask, lm_at

ANSWER = "[[ ## answer ## ]]\nAnn Bo\n\n[[ ## completed ## ]]"
GUESS = "[[ ## answer ## ]]\nEve?"
#: What a server sends, where the answer is Ann Bo and a guess in the thoughts is Eve.
WITH_THOUGHTS = [
    f"<think>\n{GUESS}\n</think>\n\n{ANSWER}",
    f"{GUESS}\n</think>\n{ANSWER}",
    f"<think>one</think><think>{GUESS}</think>{ANSWER}",
    f"<thinking>{GUESS}\n</thinking>\n{ANSWER}",
    f"<seed:think>{GUESS}</seed:think>{ANSWER}",
    f"◁think▷{GUESS}◁/think▷{ANSWER}",
    f"[THINK]{GUESS}[/THINK]{ANSWER}",
    f"<|START_THINKING|>{GUESS}<|END_THINKING|><|START_RESPONSE|>{ANSWER}<|END_RESPONSE|>",
    f"<|channel|>analysis<|message|>{GUESS}<|end|><|start|>assistant<|channel|>final<|message|>"
    f"{ANSWER}<|return|>",
    f"<|channel|>final<|message|>{GUESS}<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}",
    f"{ANSWER}\n<think>or was it {GUESS}</think>",
    f"<think>\n{ANSWER}",  # an end that the model forgot: there is no other answer
]
WITH_MARKS = [
    f"{ANSWER}<|im_end|>",
    "[[ ## answer ## ]]\nAnn Bo</s>",
    "[[ ## answer ## ]]\nAnn Bo<|eot_id|>\n",
    "[[ ## answer ## ]]\nAnn Bo <|end|><|end|>",
    "<|im_start|>assistant\n[[ ## answer ## ]]\nAnn Bo<end_of_turn>",
    "[[ ## answer ## ]]\nAnn Bo<\uff5cend\u2581of\u2581sentence\uff5c>",
    f"{ANSWER}<|im_end|>\n<|im_start|>user\n[[ ## question ## ]]\nmore\n{GUESS}",
]
REPEATED = [
    f"First guess:\n{GUESS}\n\nNo.\n\n{ANSWER}",
    f"The passage says [[ ## answer ## ]] Eve.\n{ANSWER}",
    f"> [[ ## answer ## ]] Eve\n{ANSWER}",
    f'"[[ ## answer ## ]] Eve"\n{ANSWER}',
    f"{ANSWER}\n\n[[ ## question ## ]]\nNext?\n\n{GUESS}",  # a question of its own
    f"{ANSWER}\n\n[[ ## answer ## ]]\n",
]


@pytest.mark.parametrize("text", [*WITH_THOUGHTS, *WITH_MARKS, *REPEATED])
def test_the_answer_is_what_stands_behind_thoughts_guesses_and_marks(text: str) -> None:
    with FakeServer(lambda hit: text) as server, open_ledger():
        assert ask(lm_at(server)) == "Ann Bo"


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": "the tag </think> ends it"}',
        "The tag `</think>` ends thoughts.",
        "It was <s>ten</s> nine",
        "a < b and c > d",
        "  blanks stay \n",
    ],
)
def test_a_mark_that_is_quoted_is_part_of_the_answer(text: str) -> None:
    assert split_thoughts(text) == ("", text)


@pytest.mark.parametrize(
    "text",
    [
        "<|channel>thought\nElm?\n<channel|>Ann Bo",
        "<|channel>thought\n<channel|>Ann Bo",
        "<think>\nElm?\n</think>\n<answer>\nAnn Bo\n</answer>",
        "Elm?\n</think>\n\n<response>\nAnn Bo\n</response>\n",
        "<think>Elm?</think><|begin_of_box|>Ann Bo<|end_of_box|>",
        "<|begin_of_thought|>hm<|end_of_thought|>\n<|begin_of_solution|>Ann Bo<|end_of_solution|>",
        "<plan>\nElm?\n</plan>\nAnn Bo",
        "hm\n</analysis>\nAnn Bo",
        "<answer>Ann Bo</answer>",
    ],
)
def test_split_thoughts_if_a_pair_of_tags_is_new_returns_the_answer(text: str) -> None:
    assert split_thoughts(text)[1] == "Ann Bo"


@pytest.mark.parametrize(
    "text", ["<b>Ann Bo</b> founded it.", "<p>Ann</p><p>Bo</p>", "[1] and [2]"]
)
def test_split_thoughts_if_tags_format_the_answer_keeps_it(text: str) -> None:
    assert split_thoughts(text) == ("", text)


def test_split_thoughts_if_the_prompt_names_the_tags_keeps_the_fields() -> None:
    text = "<reasoning>a</reasoning>\n<answer>b</answer>"
    assert split_thoughts(text, prompt="Write <reasoning> and <answer>.") == ("", text)


def test_thoughts_that_the_limit_cut_off_are_no_answer() -> None:
    assert split_thoughts(f"<think>{GUESS}", cut=True) == (GUESS, "")


@pytest.mark.parametrize("content", ["", "<think>hm</think>", "<|im_end|>", None])
def test_an_empty_reply_is_asked_for_once_more(content: str | None) -> None:
    choice = {"index": 0, "finish_reason": "stop"}
    empty = {"choices": [{**choice, "message": {"role": "assistant", "content": content}}]}

    def script(hit: Any) -> Any:
        if hit.number == 1:
            return Fault("changed", json=empty)
        return plausible(hit)

    with FakeServer(script) as server, open_ledger() as ledger:
        assert ask(lm_at(server)) == "some answer"
    assert [call.attempts for call in ledger.calls] == [2]
    with FakeServer(lambda hit: Fault("changed", json=empty)) as server, open_ledger():
        with pytest.raises(dspy.LMError):
            ask(lm_at(server))
        assert len(server.hits) == 2


QUERY = {"query": "Harwick Mill"}
OBJECT = json.dumps({"name": "search", "arguments": QUERY})
WRITTEN = {
    "hermes": f"<tool_call>\n{OBJECT}\n</tool_call>",
    "hermes, cut off": f"<tool_call>\n{OBJECT}",
    "fenced": f"```json\n{OBJECT}\n```",
    "bare": json.dumps({"name": "search", "parameters": QUERY}),
    "as text in text": json.dumps({"name": "search", "arguments": json.dumps(QUERY)}),
    "llama 3": '<|python_tag|>{"type": "function", "name": "search", "parameters": '
    + json.dumps(QUERY)
    + "}",
    "llama 3, python": '<|python_tag|>search.call(query="Harwick Mill")',
    "llama 4": '[search(query="Harwick Mill")]',
    "llama, function": '<function=search>{"query": "Harwick Mill"}</function>',
    "mistral": f"[TOOL_CALLS][{OBJECT}]",
    "mistral 3": '[TOOL_CALLS]search[ARGS]{"query": "Harwick Mill"}',
    "qwen coder": "<tool_call>\n<function=search>\n<parameter=query>\nHarwick Mill\n</parameter>\n"
    "</function>\n</tool_call>",
    "glm": "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>Harwick Mill</arg_value>\n"
    "</tool_call>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0"
    '<|tool_call_argument_begin|>{"query": "Harwick Mill"}<|tool_call_end|>'
    "<|tool_calls_section_end|>",
    "deepseek": "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>"
    'search<\uff5ctool\u2581sep\uff5c>{"query": "Harwick Mill"}'
    "<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>",
    "harmony": "<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
    '{"query": "Harwick Mill"}<|call|>',
    "granite": f"<|tool_call|>[{OBJECT}]",
    "minimax": '<minimax:tool_call><invoke name="search"><parameter name="query">Harwick Mill'
    "</parameter></invoke></minimax:tool_call>",
    "gemma": '```tool_code\nsearch(query="Harwick Mill")\n```',
    "deepseek's dsml": '<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="search">\n'
    '<\uff5cDSML\uff5cparameter name="query" string="true">Harwick Mill'
    "</\uff5cDSML\uff5cparameter>\n"
    "</\uff5cDSML\uff5cinvoke>\n</\uff5cDSML\uff5cfunction_calls>",
    "gemma 4": '<|tool_call>call:search{query:<|"|>Harwick Mill<|"|>}<tool_call|>',
    "cohere": '<|START_ACTION|>[\n {"tool_call_id": "0", "tool_name": "search", "parameters": '
    '{"query": "Harwick Mill"}}\n]<|END_ACTION|>',
    "lfm": '<|tool_call_start|>[search(query="Harwick Mill")]<|tool_call_end|>',
    "nemotron": f"<TOOLCALL>[{OBJECT}]</TOOLCALL>",
    "arguments first": "<tool_call>"
    + json.dumps({"arguments": QUERY, "name": "search"})
    + "</tool_call>",
    "single quotes": f"<tool_call>{json.loads(OBJECT)}</tool_call>",
    "a mark of next year": f"[ACTION]{OBJECT}[/ACTION]",
    "python alone": 'search(query="Harwick Mill")',
    "openai's own": json.dumps(
        {"tool_calls": [{"type": "function", "function": json.loads(OBJECT)}]}
    ),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_a_call_that_was_left_as_text_is_that_call(form: str) -> None:
    _, text = split_thoughts(WRITTEN[form])
    assert read_calls(text, {"search", "finish"}) == ([("search", QUERY)], "")


def test_a_native_answer_that_begins_with_a_mark_is_counted() -> None:
    signature = dspy.Signature("question -> answer")
    counts: Counter[str] = Counter()
    with use(replace(current(), counts=counts)):
        parsed = ToolConversation(parallel=None).parse(signature, "<unknown/> Ann Bo")
    assert (parsed, counts) == ({"answer": "<unknown/> Ann Bo"}, {"unread_mark": 1})


def test_the_text_before_a_written_call_stays_and_several_calls_are_read() -> None:
    call = WRITTEN["hermes"]
    calls, before = read_calls(f"I look it up.\n{call}\n{call}", {"search"})
    assert (len(calls), before) == (2, "I look it up.")


@pytest.mark.parametrize(
    "text",
    [
        "Ann Bo",
        json.dumps({"name": "Ann", "arguments": {}}),
        "I would search for it.",
        '```json\n{"answer": "search"}\n```',
        '[{"name": "search"}]',
        'The call search(query="x") finds it.',
        "He <b>will search</b> for (Ann)",
    ],
)
def test_another_text_is_no_call(text: str) -> None:
    assert read_calls(text, {"search"}) == ([], text)


MARKED = [
    "[[ ## answer ## ]] Eve",
    "a\n[[ ## answer ## ]]\nEve",
    "[[##answer##]]",
    "x</think>Eve",
    "<|im_end|>",
    '<tool_call>{"name": "search"}</tool_call>',
]


class Item(BaseModel):
    text: str


@pytest.mark.parametrize("kind", ["chat", "json"])
@pytest.mark.parametrize("text", MARKED)
def test_marks_in_what_a_prompt_quotes_are_harmless(kind: str, text: str) -> None:
    signature = dspy.Signature(
        {
            "passages": (list[str], dspy.InputField()),
            "items": (list[Item], dspy.InputField()),
            "answer": (str, dspy.OutputField()),
        },
        "Answer.",
    )
    demo = {"passages": [text], "items": [Item(text=text)], "answer": text}
    inputs = {"passages": [f"so: {text}"], "items": [Item(text=text)]}
    messages = make_adapter(kind).format(signature, [demo], inputs)
    shown = "\n".join(str(message["content"]) for message in messages[1:])
    assert text not in shown
    assert "Eve" in shown or "Eve" not in text


def test_a_copied_mark_writes_no_answer() -> None:
    copied = escaped("[[ ## answer ## ]] Eve")
    with FakeServer(lambda hit: f"{copied}\n{ANSWER}\n\n{copied}") as server, open_ledger():
        assert ask(lm_at(server)).startswith("Ann Bo")
    assert escaped("plain [1] text & <b>") == "plain [1] text & <b>"


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    name: str
    size: int
    tags: list[str] = []


#: Types of fields, with values that a model could mean.
TYPES: list[tuple[Any, list[Any]]] = [
    (str, ["", "Ann Bo", "7", 'said "no"', "{a: 1}", "中文 é", "null", "a\\n_b_"]),
    (int, [0, -(10**9), 12]),
    (float, [0.0, -2.5, 1e6]),
    (bool, [True, False]),
    (list[str], [[], ["a, b", "c"], ["'"]]),
    (list[int], [[], [1, -99]]),
    (dict, [{}, {"a": 1, "b": 2}]),
    (dict[str, Any], [{}, {"a": "x", "": "y"}]),
    (set[int], [set(), {1, 2}]),
    (list[dict[str, str]], [[], [{}, {"a": "b"}]]),
    (Literal["yes", "no", "may be"], ["yes", "no", "may be"]),
    (Literal[1, 2, 3], [1, 3]),
    (Color, [Color.RED, Color.BLUE]),
    (Place, [Place(name="Oslo", size=1), Place(name="", size=0, tags=["a", "b"])]),
    (list[Place], [[], [Place(name="Oslo", size=1)]]),
    (str | None, ["", "text"]),
    (int | None, [None, 7]),
    (int | str, [5, "five"]),
    (list[str] | None, [None, [], ["a"]]),
]


@pytest.mark.parametrize("kind", ["chat", "json"])
@pytest.mark.parametrize("first", range(len(TYPES)))
def test_reply_that_dspy_reads_is_read_as_well(kind: str, first: int) -> None:
    pair = [TYPES[first], TYPES[(first + 7) % len(TYPES)]]
    own: Any = {"chat": dspy.ChatAdapter, "json": dspy.JSONAdapter}[kind]()
    fields: dict[str, Any] = {"question": (str, dspy.InputField())}
    fields |= {f"f{n}": (annotation, dspy.OutputField()) for n, (annotation, _) in enumerate(pair)}
    signature = dspy.Signature(fields, "Answer.")
    for number, meant in enumerate(pair[0][1]):
        values = {"f0": meant, "f1": pair[1][1][number % len(pair[1][1])]}
        reply = own.format_assistant_message_content(signature, values)
        read: Any = None
        with suppress(dspy.AdapterParseError, ValueError):
            read = own.parse(signature, reply)
        if read is None:
            continue
        ours = make_adapter(kind).parse(signature, split_thoughts(reply)[1])
        for name in values:
            same = type(ours[name]) is type(read[name]) and ours[name] == read[name]
            assert same or ours[name] == values[name]
