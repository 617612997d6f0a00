"""Replies in the form that programs read, and the typed values of their fields.

Servers split a model's text differently. Here it is split once, before an adapter, a judge or the
cache reads it: thoughts become the reasoning of the reply, marks of a chat template are removed,
and a tool call left as text becomes a call (`text_tool_calls`). In the other direction, `escaped`
neutralizes marks in text that a prompt quotes: a passage with `[[ ## answer ## ]]` or `</think>`
could otherwise write the answer.

A value is read as in DSPy. A value that DSPy refuses is repaired only if it has one clear meaning
("**Full.**", "85%", a bulleted list). Anything else stays an error.
"""

import ast
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from enum import EnumMeta
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import dspy
import json_repair
from dspy import AdapterParseError
from dspy.lm15 import Request, Response, TextPart, ThinkingPart, ToolCallPart
from pydantic import BaseModel, TypeAdapter, ValidationError

from ragbench.lms.text_tool_calls import read_calls
from ragbench.redact import each_text, encodable

#: Words in the names of tags around thoughts. A quoted tag is text.
_THINKING = r"[\w:]{0,20}(?:think|thought|reason|scratchpad)\w{0,20}"
_THOUGHTS_END = re.compile(rf"(?<![`\"'])</({_THINKING})>(?![`\"'])", re.I)
_THOUGHTS_BEGIN = re.compile(rf"<({_THINKING})>\s*", re.I)
#: Tags in other forms: `[X]`, `\u25c1x\u25b7`, `<|START_X|>` and `<|begin_of_x|>`, with their ends.
_OTHER_TAGS = re.compile(
    r"[\[\u25c1](/?)(THINK|think|(?<=\u25c1/)\w+|(?<=\u25c1)\w+)[\]\u25b7]"
    r"|<\|(?:START_|begin_of_|(END_|end_of_))(?!OF_|text\b)(\w{1,40})\|>"
)
#: A block of thoughts by its place: in one pair of tags, or in front of an end without a begin.
_BLOCK = re.compile(
    r"\s*(?:<(?!\w*(?:answer|response|final|result|output|call|tool|func|action))(\w+)>(.*)</\1>"
    r"(?=\s*\n\s*\S|\s*\[\[ ?#)|([^<>]*)\n</\w+>(?=\n\s*\S))",
    re.S | re.I,
)
#: A single pair of tags around a whole answer.
_WRAPPED = re.compile(r"\s*<(\w+)>([^<>]*)</\1>\s*\Z")
#: A channel: `<|channel|>final<|message|>` of OpenAI's open models, `<|channel>thought` of Gemma.
_CHANNEL = re.compile(
    r"<\|channel\|?>\s{0,9}(\w{1,40})[^<\n]{0,200}(?:<\|constrain\|>\w{0,40})?(?:<\|message\|>|\n|)"
)
_CHANNEL_END = re.compile(r"<\|(?:end|return|call)\|>|<channel\|>")
#: Marks of chat templates with which a text ends that the server did not cut there.
_END = r"<\|\w{1,40}\|>|<\w{1,40}\|>|<\uff5c[^<>\n]{1,40}\uff5c>|<end_of_turn>|<eos>|\[EOS\]"
_END_MARK = re.compile(rf"(?:{_END})\Z")
#: Characters at the end of a text in which a mark is looked for. No mark is longer.
_LONGEST_MARK = 44
#: A further turn that the model wrote, which ends its own.
_NEXT_TURN = re.compile(
    rf"(?:{_END}|</s>)\s*(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|"
    r"<\|start\|>(?!assistant<\|channel)|<s>|\[INST\])"
)
#: The head of the model's turn, if the template left it in the reply.
_BEGIN_MARKS = re.compile(
    r"\A\s*(?:(?!<\|\w*(?:tool|call|action|python|channel))<\|\w{1,40}\|>|<start_of_turn>)"
    r"(?:(?:assistant|model)\b(?!<\|channel))?(?:<\|end_header_id\|>)?\s*"
)
#: Marks of a protocol, and what they are without their meaning: field headers, special tokens, tags
#: of thoughts and of calls.
MARKS = (
    (re.compile(r"\[\[(\s{0,9}#{1,9}[^\[\]\n]{0,200}#{1,9}\s{0,9})\]\]"), r"[ [\1] ]"),
    (re.compile(r"<\|(\w{1,60})\|?>"), r"< |\1| >"),
    (re.compile(rf"(?i)<(/?\w{{0,20}}:?\w{{0,20}}(?:{_THINKING}|_calls?)\w{{0,20}})>"), r"< \1 >"),
)
#: The mark of a next field at the end of a value, also one that was cut off.
_MARK = re.compile(r"\[\[\s*#+\s*\w*\s*#*\s*\]*\**$")
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)]|\[\d+\])\s+")
#: A longer text is neither a label nor a number.
_LONGEST_VALUE = 1_000
#: Maximum number of characters of broken JSON to repair, because repair can take quadratic time.
_LONGEST_MENDED = 40_000
#: JSON with more open brackets than this is not repaired.
_MOST_OPEN = 100
_NOTHING = {"none", "null", "n a", "na", "nil", "empty", "nothing"}
#: Texts that mean None in an optional field. "Nothing" may be an answer.
_NONE = {"none", "null"}
_TRUTH = {"yes": True, "true": True, "no": False, "false": False}
_NO_VALUE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


def read_reply(response: Response, request: Request) -> Response:
    """Return `response` with thoughts as reasoning, no marks, and calls in texts as calls."""
    message = response.message
    ended = response.finish_reason
    called = any(isinstance(piece, ToolCallPart) for piece in message.parts)
    tool_names = {tool.name for tool in request.tools}
    prompt = ""
    if "<" in (response.text or ""):
        prompt = "\n".join([str(request.system or ""), *(m.text or "" for m in request.messages)])
    pieces: list[Any] = []
    number = 0
    for piece in message.parts:
        if not isinstance(piece, TextPart):
            pieces.append(piece)
            continue
        thoughts, text = split_thoughts(piece.text, cut=ended == "length", prompt=prompt)
        if thoughts:
            pieces.append(ThinkingPart(thoughts))
        calls: list[tuple[str, Any]] = []
        if tool_names and not called:
            calls, text = read_calls(text, tool_names)
        if text == piece.text:
            pieces.append(piece)
        elif text or not (thoughts or calls):
            pieces.append(replace(piece, text=text))
        for name, arguments in calls:
            number += 1
            pieces.append(ToolCallPart(f"written_{number}", name, arguments))
    if number and ended == "stop":
        ended = "tool_call"
    if pieces == list(message.parts):
        return response
    return replace(response, message=replace(message, parts=tuple(pieces)), finish_reason=ended)


def is_empty(response: Response) -> bool:
    """Return True if a reply has neither text nor call. Thoughts do not count."""
    for piece in response.message.parts:
        if isinstance(piece, ThinkingPart):
            continue
        if not isinstance(piece, TextPart) or piece.text.strip():
            return False
    return True


def split_thoughts(text: str, *, cut: bool = False, prompt: str = "") -> tuple[str, str]:
    """Split a text into thoughts and answer, both without marks of a chat template.

    Args:
        text: Text of the reply.
        cut: Whether the reply ended at its limit: then thoughts without an end are thoughts.
        prompt: Text of the prompt. A tag that it names is a field, and part of the answer.

    Returns:
        The thoughts and the answer. Either may be empty.
    """
    if not any(mark in text for mark in ("<", "\u25c1", "THINK]", "[EOS]")):
        return "", text
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(text), dict):
            return "", text  # a mark in one of its strings is quoted
    turn = _NEXT_TURN.search(text, 1)
    if turn:
        text = text[: turn.start()]
    thoughts, answer = _by_channel(text)
    before, answer = _by_tag(answer, cut=cut, prompt=prompt)
    joined = "\n".join(piece.strip() for piece in (thoughts, before) if piece.strip())
    answer = without_marks(answer)
    wrapped = _WRAPPED.match(answer)
    if wrapped and not _is_field(wrapped[1], prompt):
        answer = wrapped[2].strip()
    return joined, answer


def _by_channel(text: str) -> tuple[str, str]:
    """Return thoughts and answer of a text in channels. The last final channel is the answer."""
    before, closed, after = text.rpartition("<channel|>")
    if closed and _CHANNEL.search(before):
        return _CHANNEL_END.sub("\n", _CHANNEL.sub("", before)), after
    heads = list(_CHANNEL.finditer(text))
    if not heads or heads[-1].group(1) == "commentary":
        return "", text  # `read_calls` needs the unchanged text
    for head in reversed(heads):
        if head.group(1) == "final":
            return _CHANNEL_END.sub("\n", text[: head.start()]), text[head.end() :]
    return text[heads[0].end() :], text[: heads[0].start()]


def _by_tag(text: str, *, cut: bool, prompt: str) -> tuple[str, str]:
    """Split a text with tags: the answer is behind the last end of thoughts.

    If nothing is behind it, the answer is the text outside of the tags.
    """
    text = _OTHER_TAGS.sub(_plain_tag, text)
    ends = [end for end in _THOUGHTS_END.finditer(text) if not _is_field(end[1], prompt)]
    begin = _THOUGHTS_BEGIN.search(text)
    if ends and without_marks(text[ends[-1].end() :]).strip():
        inside = _THOUGHTS_BEGIN.sub("", text[: ends[-1].start()])
        return inside, text[ends[-1].end() :].lstrip()
    if ends and begin and begin.start() < ends[-1].start():
        return text[begin.end() : ends[-1].start()], text[: begin.start()]
    if ends:
        return text[: ends[-1].start()], ""
    if begin and not text[: begin.start()].strip() and not _is_field(begin[1], prompt):
        inside = text[begin.end() :]
        return (inside, "") if cut else ("", inside)
    block = _BLOCK.match(text)
    if block and not _is_field(block[1] or "", prompt):
        return block[2] or block[3], text[block.end() :].lstrip()
    return "", text


def _plain_tag(tag: re.Match[str]) -> str:
    """Write a tag of another form as `<name>` or `</name>`."""
    ends = "/" if tag[1] or tag[3] else ""
    return f"<{ends}{tag[2] or tag[4]}>"


def _is_field(name: str, prompt: str) -> bool:
    """Return True if the prompt names a tag, so that it is a field. `think` is never a field."""
    return f"<{name}>" in prompt and not name.lower().startswith("think")


def without_marks(text: str) -> str:
    """Return `text` without the marks of a chat template at its beginning and its end."""
    text = _BEGIN_MARKS.sub("", text)
    end = text.rstrip()
    if end.endswith("</s>") and end.count("</s>") > end.count("<s>") - end.startswith("<s>"):
        end = end.removesuffix("</s>").rstrip().removeprefix("<s>")
        text = end
    while mark := _END_MARK.search(end, max(0, len(end) - _LONGEST_MARK)):
        end = end[: mark.start()].rstrip()
        text = end
    return text


def escaped(value: Any) -> Any:
    """Return `value` with each protocol mark in its texts broken up by blanks."""
    if isinstance(value, BaseModel):
        with suppress(ValueError, TypeError):
            text = value.model_dump_json()
            if _escaped(text) != text:
                return each_text(_escaped, value.model_dump(mode="json"))
        return value
    if isinstance(value, list | tuple) and any(isinstance(item, BaseModel) for item in value):
        return type(value)(map(escaped, value))
    return each_text(_escaped, value)


def _escaped(text: str) -> str:
    if "[[" in text or "<" in text:
        for mark, replacement in MARKS:
            text = mark.sub(replacement, text)
    return text


class UnreadableError(ValueError):
    """A value without a clear meaning for the type of its field."""


def read_value(raw: Any, annotation: Any) -> tuple[Any, bool]:
    """Return `raw` as a value of `annotation`, and True if it had to be repaired.

    Raises:
        UnreadableError: It has no clear meaning.
    """
    if raw is None and annotation is str:
        raise UnreadableError("missing")
    value = raw
    if isinstance(raw, str):
        mark = _MARK.search(raw.rstrip(), max(0, len(raw) - 200))
        if mark:
            value = raw[: mark.start()].rstrip("* \n")
    if annotation == (str | None) and isinstance(value, str) and _plain(value) in _NONE:
        return None, True
    try:
        return _strict(value, annotation), value is not raw
    except _NO_VALUE as error:
        items = _readable_objects(value, annotation)
        if items:
            return items, True
        if not isinstance(value, str) or not value.strip():
            raise UnreadableError(str(error)) from error
        return _mended(value, annotation), True


def repaired_json(text: str) -> Any:
    """Return the JSON in `text`, repaired if necessary. "" if there is none."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    text = text[:_LONGEST_MENDED]
    if _too_open(text):
        return ""
    with suppress(ValueError, RecursionError):  # nested too deeply
        return json_repair.loads(text)
    return ""


def _too_open(text: str) -> bool:
    return text.count("{") - text.count("}") + text.count("[") - text.count("]") > _MOST_OPEN


def _strict(value: Any, annotation: Any) -> Any:
    if annotation is str:
        return str(value)
    if isinstance(value, str):
        if get_origin(annotation) is Literal:
            return _choice(value, annotation)
        if annotation in (bool, int, float):
            value = value.strip()
        elif get_args(annotation) in ((str,), (int,)) and get_origin(annotation) is list:
            # DSPy would guess at broken JSON here, and read "[1] and [3]" as [3].
            value = _parsed(value)
        else:
            return encodable(_as_dspy(value, annotation))
    elif isinstance(annotation, EnumMeta):
        return _as_dspy(value, annotation)
    read = TypeAdapter(annotation).validate_python(value)
    if isinstance(read, float) and not math.isfinite(read):
        raise UnreadableError(f"{read} is not finite")
    return read


def _choice(text: str, annotation: Any) -> Any:
    """Return the choice of a Literal that `text` equals, as text, quoted, or as `Literal[text]`."""
    choices = get_args(annotation)
    written = {str(choice): choice for choice in choices}  # a 4 is written "4"
    label = text.strip()
    if label.startswith(("Literal[", "str[")) and label.endswith("]"):
        label = label[label.find("[") + 1 : -1]
    for form in (text, label, label.strip("\"'")):
        if form in written:
            return written[form]
    raise UnreadableError(f"{text[:80]!r} is none of {choices}")


def _as_dspy(value: Any, annotation: Any) -> Any:
    """Return `value` as DSPy's own adapter reads the field. Raises ValueError if it cannot."""
    if isinstance(value, str) and (len(value) > _LONGEST_MENDED or _too_open(value)):
        value = _parsed(value)  # its repair takes more than linear time
        return TypeAdapter(annotation).validate_python(value)
    try:
        if isinstance(value, str):
            reader: Any = dspy.ChatAdapter()
            fields = reader.parse(_one_field(annotation), f"[[ ## value ## ]]\n{value}")
        else:
            reader = dspy.JSONAdapter()
            fields = reader.parse(_one_field(annotation), json.dumps({"value": value}))
    except AdapterParseError as error:
        raise ValueError(str(error).partition("Error message: ")[2] or "not read") from None
    return fields["value"]


@lru_cache(maxsize=512)
def _one_field(annotation: Any) -> type[dspy.Signature]:
    fields: Any = {"value": (annotation, dspy.OutputField())}
    signature: type[dspy.Signature] = dspy.Signature(fields, "Read.")
    return signature


def _parsed(text: str) -> Any:
    try:
        return encodable(json.loads(text))
    except ValueError:
        return encodable(ast.literal_eval(text))


def _readable_objects(value: Any, annotation: Any) -> list[Any]:
    """Return the readable objects of a list. A truncated reply often ends inside an object."""
    kind = next(iter(get_args(annotation)), None)
    read: list[Any] = []
    if get_origin(annotation) is list and isinstance(kind, type) and issubclass(kind, BaseModel):
        if isinstance(value, str):
            with suppress(*_NO_VALUE):
                value = _parsed(value)
        for item in value if isinstance(value, list) else ():
            with suppress(ValidationError):
                read.append(kind.model_validate(item))
    return read


def _mended(text: str, annotation: Any) -> Any:
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    members = [member for member in arguments if member is not type(None)]
    if origin in (Union, UnionType) and len(members) == 1:
        if _plain(text) in _NOTHING:
            return None
        return read_value(text, members[0])[0]
    if origin is list and arguments in ((str,), (int,)):
        return _list(text, arguments[0])
    if len(text) <= _LONGEST_VALUE:
        if origin is Literal:
            return _label(text, {_plain(str(choice)): choice for choice in arguments})
        if annotation is bool:
            return _label(text, _TRUTH)
        if annotation in (int, float):
            number = _number(text, annotation)
            if number is not None:
                return number
    raise UnreadableError(f"{text[:80]!r} is not a {annotation}")


def _number(text: str, annotation: Any) -> Any:
    bare = text.strip(" \n*_`\"'[].")
    try:
        number = float(bare.removesuffix("%"))
    except ValueError:
        return None
    if annotation is float and bare.endswith("%"):
        number = number / 100
    if math.isfinite(number) and (annotation is float or number.is_integer()):
        return annotation(number)
    return None


def _label(text: str, labels: Mapping[str, Any]) -> Any:
    """Return the value of the one label that `text` names, at its beginning and unnegated."""
    plain = _plain(text)
    if plain in labels:
        return labels[plain]
    head, _, remainder = re.sub(r"[,.;:\n]", "\0", text.strip(), count=1).partition("\0")
    head = _plain(head)
    remainder = f" {_plain(remainder)} "
    same = all(labels[label] == labels.get(head) for label in labels if f" {label} " in remainder)
    denied = head not in _TRUTH and re.search(r" (not|no|never|\w+n t) ", remainder)
    if head not in labels or not same or denied:
        raise UnreadableError(f"{text[:80]!r} does not name exactly one label")
    return labels[head]


def _list(text: str, kind: type) -> list[Any]:
    if _plain(text) in _NOTHING:
        return []
    if kind is int:
        if re.sub(r"\d+|\band\b|[\s,;\[\]]", "", text.rstrip(". ")) or not re.search(r"\d", text):
            raise UnreadableError(f"{text[:80]!r} is not a list of whole numbers")
        return list(map(int, re.findall(r"\d+", text)))
    if re.match(r"\s*\[\s*[\"']", text):  # JSON that is broken: commas in quotes part nothing
        with suppress(*_NO_VALUE):
            items: list[str] = _as_dspy(text, list[str])
            return items
    lines = list(filter(str.strip, text.strip().splitlines()))
    if len(lines) > 1 or _BULLET.match(lines[0]):
        # A heading above bullets is not an item.
        lines = [_BULLET.sub("", line) for line in lines if _BULLET.match(line)] or lines
    else:
        lines = text.strip().strip("[]").split(";" if ";" in text else ",")
    return [line.strip(" \"'“”") for line in lines if line.strip()]


def _plain(text: str) -> str:
    """Return lower-case words, single-spaced: "**[Fully_Supported].**" is "fully supported"."""
    return " ".join(re.sub(r"[\W_]", " ", text.casefold()).split())
