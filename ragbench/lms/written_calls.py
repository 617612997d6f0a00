"""Tool calls that a server left as text, in the forms in which models are trained to write them.

A call is read only where its name is one of the tools that were offered, so that an answer which
happens to be an object stays an answer.
"""

import ast
import json
import re
from collections.abc import Iterator, Set
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

Call = tuple[str, dict[str, Any]]

_NAMES = ("name", "tool_name", "tool", "function", "action", "recipient_name")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input")
#: Calls are few; more are a model that repeats itself.
_MOST = 64
#: Characters and marks of a longer text are no call: to look through it takes more than in
#: proportion.
_LONGEST, _MOST_MARKS = 40_000, 256

#: Of each form the pattern, whose group is what the call is written in. Hermes and Qwen; Granite;
#: Llama; Mistral; Phi; models that learned from API documents.
_OBJECTS = (
    re.compile(r"<tool_calls?>\s*([\[{].*?[\]}])\s*(?:</tool_calls?>|(?=<tool_call)|\Z)", re.S),
    re.compile(r"<\|tool_calls?\|>\s*([\[{].*)", re.S),
    re.compile(r"<\|python_tag\|>\s*(\{.*)", re.S),
    re.compile(r"\[TOOL_CALLS\]\s*([\[{].*)", re.S),
    re.compile(r"\Afunctools\s*(\[.*)", re.S),
    re.compile(r"\A\s*```(?:json|tool_call|tool_code)?\s*\n?([\[{].*?[\]}])\s*```\s*\Z", re.S),
    re.compile(r"\A\s*([\[{].*[\]}])\s*\Z", re.S),
)
#: A name and then its arguments as JSON. Mistral's later models; Kimi; DeepSeek; Llama; harmony.
_NAMED = (
    re.compile(
        r"\[TOOL_CALLS\]\s*([\w.-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*"
        r"(\{.*?\})\s*(?=\[TOOL_CALLS\]|\Z)",
        re.S,
    ),
    re.compile(
        r"<\|tool_call_begin\|>\s*(?:functions\.)?([\w-]+)(?::\d+)?\s*"
        r"<\|tool_call_argument_begin\|>\s*(\{.*?\})\s*<\|tool_call_end\|>",
        re.S,
    ),
    re.compile(
        r"<\uff5ctool\u2581call\u2581begin\uff5c>(?:function<\uff5ctool\u2581sep\uff5c>)?\s*"
        r"([\w.-]+)\s*(?:<\uff5ctool\u2581sep\uff5c>)?\s*(?:```json)?\s*"
        r"(\{.*?\})\s*(?:```)?\s*<\uff5ctool\u2581call\u2581end\uff5c>",
        re.S,
    ),
    re.compile(r"<function=([\w.-]+)>\s*(\{.*?\})\s*(?:</function>|\Z)", re.S),
    re.compile(
        r"to=(?:functions\.)?([\w-]+)[^<]{0,99}(?:<\|channel\|>\w+)?[^<]{0,99}"
        r"(?:<\|constrain\|>\s*\w+\s*)?<\|message\|>\s*"
        r"(\{.*?\})\s*(?:<\|call\|>|<\|end\|>|\Z)",
        re.S,
    ),
)
#: A name, and its arguments one by one. Qwen's coders; MiniMax and Claude; GLM.
_TAGGED = (
    (re.compile(r"<function=([\w.-]+)>(.*?)(?:</function>|\Z)", re.S),
     re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.S)),
    (re.compile(r"<invoke name=\"([\w.-]+)\">(.*?)</invoke>", re.S),
     re.compile(r"<parameter name=\"([\w.-]+)\">(.*?)</parameter>", re.S)),
    (re.compile(r"<tool_call>\s*([\w.-]+)\s*\n?(.*?)(?:</tool_call>|\Z)", re.S),
     re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.S)),
)  # fmt: skip
#: Written as Python: Llama 3 and 4, and Gemma.
_PYTHON = (
    re.compile(r"\A\s*<\|python_tag\|>\s*(.+?)\s*\Z", re.S),
    re.compile(r"\A\s*```(?:python|tool_code)\s*\n(.+?)\n?```\s*\Z", re.S),
    re.compile(
        r"\A\s*(?:<\|python_start\|>)?\s*(\[\s*\w+\(.*\)\s*\])\s*(?:<\|python_end\|>)?\s*\Z",
        re.S,
    ),
)
#: The first mark of a call: what stands before it is a text.
_FIRST_MARK = re.compile(
    r"<\||<\uff5c|<tool_call|<function|<invoke|<minimax|\[TOOL_CALLS\]|```|\Afunctools"
)


class WrittenCalls(NamedTuple):
    """Calls, as (name, arguments), and the text that stands before them."""

    calls: list[Call]
    text: str


def read_calls(text: str, tool_names: Set[str]) -> WrittenCalls | None:
    """Returns the calls of `tool_names` that `text` consists of; None for any other text."""
    if len(text) > _LONGEST or len(_FIRST_MARK.findall(text)) > _MOST_MARKS:
        return None
    if not any(name in text for name in tool_names):
        return None
    for read in (_from_objects, _from_named, _from_tagged, _from_python):
        calls: list[Call] = []
        start = len(text)
        for place, name, arguments in read(text):
            tool = name.removeprefix("functions.")
            if tool in tool_names and len(calls) < _MOST:
                calls.append((tool, arguments))
                start = min(start, place)
        if calls:
            mark = _FIRST_MARK.search(text)
            if mark:
                start = min(start, mark.start())
            return WrittenCalls(calls, text[:start].strip())
    return None


Found = Iterator[tuple[int, str, dict[str, Any]]]


def _from_objects(text: str) -> Found:
    for pattern in _OBJECTS:
        has_call = False
        for match in pattern.finditer(text):
            for call in _calls_in(_json(match.group(1))):
                has_call = True
                yield match.start(), *call
        if has_call:
            return


def _from_named(text: str) -> Found:
    for pattern in _NAMED:
        for match in pattern.finditer(text):
            arguments = _json(match.group(2))
            if isinstance(arguments, dict):
                yield match.start(), match.group(1), arguments


def _from_tagged(text: str) -> Found:
    for call, argument in _TAGGED:
        for match in call.finditer(text):
            arguments: dict[str, Any] = {}
            for key, value in argument.findall(match.group(2)):
                arguments[key.strip()] = _value(value.strip())
            if arguments:
                yield match.start(), match.group(1), arguments


def _from_python(text: str) -> Found:
    for pattern in _PYTHON:
        match = pattern.match(text)
        if match is None:
            continue
        try:
            tree = ast.parse(match.group(1).strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for call in tree.elts if isinstance(tree, ast.List) else [tree]:
            read = _python_call(call)
            if read is not None:
                yield 0, *read


def _python_call(node: ast.expr) -> Call | None:
    """Returns the name and arguments of `search(query="x")` or `search.call(query="x")`."""
    if not isinstance(node, ast.Call) or node.args:
        return None
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr == "call":
        function = function.value
    if not isinstance(function, ast.Name):
        return None
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            return None
        with suppress(ValueError):
            arguments[keyword.arg] = ast.literal_eval(keyword.value)
    return function.id, arguments


def _calls_in(value: Any) -> list[Call]:
    """Returns the calls that an object, or a list of objects, says."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list):
        calls = [_calls_in(item) for item in value if isinstance(item, dict)]
        return list(chain.from_iterable(calls))
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    arguments = next((value[key] for key in _ARGUMENTS if key in value), None)
    if isinstance(arguments, str):
        arguments = _json(arguments)
    if name is None or not isinstance(arguments, dict):
        return []
    return [(name, arguments)]


def _json(text: str) -> Any:
    """Returns the JSON with which `text` begins; None where it begins with none."""
    text = text.strip()
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)[0]
    except (ValueError, RecursionError):
        pass
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.literal_eval(text)
    return None


def _value(text: str) -> Any:
    """Returns an argument that is written alone: JSON where it is one, else the text."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return text
