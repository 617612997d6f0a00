"""Tool calls that a server left in the text of a reply, read by their shape.

A call is a mark (a tag, a word in brackets, a fence) or the beginning of the text, and behind it
the name of an offered tool with its arguments: as a JSON object, as `NAME(key="value")`, or in
tags. A list of model families would be out of date each quarter.
"""

import json
import re
from collections.abc import Set
from contextlib import suppress
from itertools import islice
from typing import Any

import json_repair

Calls = list[tuple[str, Any]]

#: A longer list of calls means that the model is looping.
_MOST = 64
#: Characters of a text, and of arguments that are not JSON: longer ones take too much time.
_LONGEST, _LONGEST_BROKEN = 40_000, 2_000

_MARK = re.compile(r"<[^<>\s][^<>\n]{0,80}>|\[/?[A-Z_]{3,20}\]|```\w{0,12}")
_BARE = re.compile(r"\s*(?:functools\s*)?(?:[\[{]|[\w.]{1,64}\().*[\]})]\s*\Z", re.S)
#: Text between a name and the JSON of its arguments: marks, a key, a number, a word.
_GAP = re.compile(r"(?:<[^<>]{0,80}>|\[\w{1,20}\]|```|[\s:>\"',]{1,20}+|\w{1,12}+){0,12}+\"?(?=\{)")
_ARGUMENTS_FIRST = re.compile(
    r"(\"(?:arg|param)\w*\"\s*:\s*\{.{0,2000}?\})\s*,\s*(\"name\"\s*:\s*\"\w+\")", re.S
)
#: Forms of an argument: a tag that contains its name, two tags, and Python.
_PAIRS = (
    re.compile(r"[\s\">]*<[^\s<>=/]+[= ](?:name=)?\"?([\w.-]+)[^<>]*>(.*?)(?:</[^<>]*>|\Z)", re.S),
    re.compile(r"\s*<\w*key\w*>\s*([\w.-]+)\s*</\w+>\s*<\w+>(.*?)(?:</\w+>|\Z)", re.S),
    re.compile(r"""[\s(,]*(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^,()]+)"""),
)


def read_calls(text: str, tool_names: Set[str]) -> tuple[Calls, str]:
    """Return the calls of `tool_names` in `text`, and the text in front of them.

    Args:
        text: Text of the reply.
        tool_names: Names of the offered tools.
    """
    calls: Calls = []
    mark = _BARE.match(text) or _MARK.search(text)
    if mark:
        body = text[mark.start() : _LONGEST].replace('<|"|>', '"')
        body = _ARGUMENTS_FIRST.sub(r"\2, \1", body)
        name = rf"(?:(?<![\w ])|(?<=, ))({'|'.join(map(re.escape, tool_names))})\b(?:\.call)?"
        at = 0
        for match in islice(re.finditer(name, body), _MOST):
            if match.start() >= at:
                arguments, at = _arguments(body, match.end())
                if isinstance(arguments, dict):
                    calls.append((match[1], arguments))
        if calls:
            text = text[: mark.start()].strip()
    return calls, text


def _arguments(body: str, at: int) -> tuple[Any, int]:
    """Return the arguments that follow a name, and the place behind them."""
    if gap := _GAP.match(body, at):
        at = gap.end()
        with suppress(ValueError, RecursionError):
            return json.JSONDecoder(strict=False).raw_decode(body, at)
        end = body.rfind("}", at, at + _LONGEST_BROKEN) + 1
        with suppress(ValueError, RecursionError):
            return json_repair.loads(body[at:end]), max(at, end)
    arguments: dict[str, Any] = {}
    while pair := next(filter(None, (form.match(body, at) for form in _PAIRS)), None):
        arguments[pair[1]] = value = pair[2].strip("' \n")
        with suppress(ValueError, RecursionError):
            arguments[pair[1]] = json.loads(value)
        at = pair.end()
    return arguments or None, at
