"""Replies in the form that programs read, without the markup that servers leave in a text.

Servers split a model's text differently. Here it is split once, before an adapter, a judge or the
cache reads it: thoughts become the reasoning of the reply, marks of a chat template are removed,
and a tool call left as text becomes a call (`text_tool_calls`).

In the other direction, `escaped` neutralizes marks in text that a prompt quotes: a passage with `[[
## answer ## ]]` or `</think>` could otherwise write the answer.
"""

import json
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dspy.lm15 import Request, Response, TextPart, ThinkingPart, ToolCallPart
from pydantic import BaseModel

from ragbench.lms.text_tool_calls import read_calls
from ragbench.redact import each_text

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
