"""A reply as a program may read it: what a server leaves in a text that is not part of the answer.

Servers differ in what they split off a model's text. Here it is split once, before an adapter, a
judge or the cache sees it: thoughts become the reasoning of the reply, marks of a chat template go,
and a tool call that was left as text becomes a call (`written_calls`).

The other way round, `escaped` makes marks harmless that stand in what a prompt quotes: a passage
that holds `[[ ## answer ## ]]` or `</think>` could otherwise write the answer.
"""

import json
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dspy.lm15 import Request, Response, TextPart, ThinkingPart, ToolCallPart
from pydantic import BaseModel

from ragbench.lms.written_calls import read_calls
from ragbench.redact import each_text

#: Names of the tags around thoughts: of DeepSeek, Qwen and most others; Seed; older templates.
_TAG = r"(?:seed:)?think(?:ing)?|thoughts?|reasoning|scratchpad"
#: Ends of thoughts. Quoted ones are none. Kimi, Magistral, Cohere and OpenThinker have their own.
_THOUGHTS_END = re.compile(
    rf"(?<![`\"'])(?:</(?:{_TAG})>|◁/think▷|\[/THINK\]|<\|END_THINKING\|>|"
    r"<\|end_of_thought\|>)(?![`\"'])",
    re.I,
)
_THOUGHTS_BEGIN = re.compile(
    rf"(?:<(?:{_TAG})>|◁think▷|\[THINK\]|<\|START_THINKING\|>|<\|begin_of_thought\|>)\s*", re.I
)
#: Channels of OpenAI's open models (the harmony format): `<|channel|>final<|message|>`.
_CHANNEL = re.compile(
    r"<\|channel\|>\s{0,9}(\w{1,40})[^<]{0,200}(?:<\|constrain\|>\w{0,40})?<\|message\|>"
)
_CHANNEL_END = re.compile(r"<\|(?:end|return|call)\|>")
#: Marks of chat templates with which a text ends that the server did not cut there.
_END = (
    r"<\|(?:im_end|end|eot_id|eom_id|endoftext|end_of_text|eot|return|eos|END_OF_TURN_TOKEN|"
    r"END_RESPONSE|assistant_end|user)\|>|<end_of_turn>|<turn\|>|<eos>|<\uff5cend\u2581of\u2581sentence\uff5c>|\[EOS\]"
)
_END_MARK = re.compile(rf"(?:{_END})\Z")
#: Characters at the end of a text in which a mark is looked for; no mark is longer.
_LONGEST_MARK = 40
#: A further turn that a model wrote by itself, and with it the end of its own.
_NEXT_TURN = re.compile(
    rf"(?:{_END}|</s>)\s*(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|"
    r"<\|start\|>(?!assistant<\|channel)|<s>|\[INST\])"
)
#: The head of the turn that the reply is, where a template left it in.
_BEGIN_MARKS = re.compile(
    r"\A\s*(?:<\|im_start\|>(?:assistant)?|<\|start_header_id\|>assistant<\|end_header_id\|>|"
    r"<start_of_turn>(?:model)?|<\|start\|>assistant(?!<\|channel)|"
    r"<\|START_RESPONSE\|>)\s*"
)
#: Marks of a protocol, and what they are without their meaning: field headers, special tokens, tags
#: of thoughts and of calls.
MARKS = (
    (re.compile(r"\[\[(\s{0,9}#{1,9}[^\[\]\n]{0,200}#{1,9}\s{0,9})\]\]"), r"[ [\1] ]"),
    (re.compile(r"<\|(\w{1,60})\|>"), r"< |\1| >"),
    (re.compile(rf"(?i)<(/?(?:{_TAG}|tool_calls?|function_calls?))>"), r"< \1 >"),
)


def read_reply(response: Response, request: Request) -> Response:
    """Returns `response` with thoughts as reasoning, no marks, and calls in texts as calls."""
    message = response.message
    ended = response.finish_reason
    called = any(isinstance(piece, ToolCallPart) for piece in message.parts)
    tool_names = {tool.name for tool in request.tools}
    pieces: list[Any] = []
    number = 0
    for piece in message.parts:
        if not isinstance(piece, TextPart):
            pieces.append(piece)
            continue
        thoughts, text = split_thoughts(piece.text, cut=ended == "length")
        if thoughts:
            pieces.append(ThinkingPart(thoughts))
        calls = None
        if tool_names and not called:
            calls = read_calls(text, tool_names)
        if calls is not None:
            text = calls.text
        if text or not (thoughts or calls):
            pieces.append(replace(piece, text=text))
        for name, arguments in calls.calls if calls else ():
            number += 1
            pieces.append(ToolCallPart(f"written_{number}", name, arguments))
    if number and ended == "stop":
        ended = "tool_call"
    return replace(response, message=replace(message, parts=tuple(pieces)), finish_reason=ended)


def is_empty(response: Response) -> bool:
    """Returns whether a reply has neither a text nor a call; thoughts alone are none."""
    for piece in response.message.parts:
        if isinstance(piece, ThinkingPart):
            continue
        if not isinstance(piece, TextPart) or piece.text.strip():
            return False
    return True


def split_thoughts(text: str, *, cut: bool = False) -> tuple[str, str]:
    """Returns the thoughts in `text` and the rest of it, both without marks of a chat template.

    `cut` says that the reply ended at its limit: then thoughts without an end are thoughts.
    """
    if not any(mark in text for mark in ("<", "◁/think", "THINK]", "[EOS]")):
        return "", text
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(text), dict):
            return "", text  # a mark in one of its strings is quoted
    turn = _NEXT_TURN.search(text, 1)
    if turn:
        text = text[: turn.start()]
    thoughts, answer = _by_channel(text)
    before, answer = _by_tag(answer, cut=cut)
    joined = "\n".join(piece.strip() for piece in (thoughts, before) if piece.strip())
    return joined, without_marks(answer)


def _by_channel(text: str) -> tuple[str, str]:
    """Thoughts and answer of a text in channels: the answer is the last one called final."""
    heads = list(_CHANNEL.finditer(text))
    if not heads or heads[-1].group(1) == "commentary":
        return "", text  # a call is read from it as it is
    for head in reversed(heads):
        if head.group(1) == "final":
            return _CHANNEL_END.sub("\n", text[: head.start()]), text[head.end() :]
    return text[heads[0].end() :], text[: heads[0].start()]


def _by_tag(text: str, *, cut: bool) -> tuple[str, str]:
    """Thoughts and answer of a text with tags: the answer stands behind the last end of thoughts.

    Where nothing stands behind it, the answer is what is outside of the tags.
    """
    ends = list(_THOUGHTS_END.finditer(text))
    if not ends:
        begin = _THOUGHTS_BEGIN.match(text.lstrip())
        if begin is None:
            return "", text
        inside = text.lstrip()[begin.end() :]
        if cut:
            return inside, ""
        return "", inside
    end = ends[-1]
    if without_marks(text[end.end() :]).strip():
        return _THOUGHTS_BEGIN.sub("", text[: end.start()]), text[end.end() :].lstrip()
    begin = _THOUGHTS_BEGIN.search(text)
    if begin is None or begin.start() > end.start():
        return text[: end.start()], ""
    return text[begin.end() : end.start()], text[: begin.start()]


def without_marks(text: str) -> str:
    """Returns `text` without the marks of a chat template at its beginning and its end."""
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
    """Returns `value` with each protocol mark in its texts broken up by blanks."""
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
