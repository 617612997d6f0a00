"""The DSPy adapter of native tool calls: one conversation per question."""

import copy
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import dspy

from ragbench.ledger import count
from ragbench.lms.adapters import HEADER, Fields, SignatureType, sections_of
from ragbench.lms.replies import escaped
from ragbench.logs import get

#: A message of a chat as DSPy sends it.
Message = dict[str, Any]
#: Key of a history message with the user's last text, when no tool is left.
CLOSING = "closing"

_log = get(__name__)


class ToolConversation(dspy.Adapter):
    """Native tool calls, for a signature with `question`, `history`, `tools` and output `answer`.

    The messages are the system message and the question. For each turn, they have the model's text
    with its calls, and one message per result. There are no field marks. The user sends another
    message only at the end, when no tool is left.

    A message of the history is `{"text": str, "calls": [(name, arguments, result), ...]}` for each
    turn, or `{CLOSING: str}` at the end. A reply without a call is the answer. In a reply with
    calls, `answer` is the text next to them. `parallel` states whether a reply may have several
    calls. None does not state it.
    """

    def __init__(self, *, parallel: bool | None) -> None:
        super().__init__(use_native_function_calling=True, parallel_tool_calls=parallel)

    def __call__(self, lm: dspy.LM, *args: Any, **kwargs: Any) -> list[Fields]:
        """Call like any adapter. The tools are sent even if the LM may not support them."""
        return list(super().__call__(_tool_caller(lm), *args, **kwargs))

    def format(
        self,
        signature: SignatureType,
        demos: Sequence[Mapping[str, Any]],
        inputs: Mapping[str, Any],
    ) -> list[Message]:
        """Return the messages of one call, without demonstrations that lack question or answer.

        Args:
            signature: Signature with `question`, `history`, `tools` and `answer`.
            demos: Demonstrations.
            inputs: Values of the input fields.
        """
        described = signature.output_fields["answer"].json_schema_extra["desc"].rstrip(".")
        form = f"Form of the final answer: {described}."
        messages = [_said("system", f"{signature.instructions}\n\n{form}")]
        for demo in demos:
            if demo.get("question") and demo.get("answer"):
                messages += [_said("user", demo["question"]), _said("assistant", demo["answer"])]
        messages.append(_said("user", inputs["question"]))
        for number, turn in enumerate(inputs["history"].messages):
            if CLOSING in turn:
                messages.append(_said("user", turn[CLOSING]))
                continue
            calls: list[Message] = []
            message: Message = {"role": "assistant", "tool_calls": calls}
            message["content"] = escaped(turn["text"]) or None
            messages.append(message)
            for place, (name, arguments, seen) in enumerate(turn["calls"]):
                id = f"call_{number}_{place}"
                function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
                calls.append({"id": id, "type": "function", "function": function})
                result = {"role": "tool", "tool_call_id": id, "name": name}
                result["content"] = escaped(seen)
                messages.append(result)
        return messages

    def parse(self, signature: SignatureType, completion: str) -> Fields:
        """Return the answer: the full text, or the section marked as the answer.

        Args:
            signature: Signature of the call.
            completion: Text of the reply.
        """
        answer = sections_of(completion, HEADER).get("answer") or completion.strip()
        if answer.startswith("<"):
            count("unread_mark")
            _log.warning("The final answer begins with a mark: %s", answer[:80])
        return {"answer": answer}


def _tool_caller(lm: dspy.LM) -> dspy.LM:
    """Return `lm`, which says of itself that it can call tools."""
    if lm.supports_function_calling:
        return lm
    able = copy.copy(lm)
    able.__class__ = _able(type(lm))  # type: ignore[arg-type]  # a class is hashable
    return able


@lru_cache(maxsize=16)
def _able(kind: type[dspy.LM]) -> type[dspy.LM]:
    return type(kind.__name__, (kind,), {"supports_function_calling": True})


def _said(role: str, content: str) -> Message:
    if role != "system":
        content = escaped(content)
    return {"role": role, "content": content}
