"""Native tool calling: the provider's own protocol carries the tools, the calls and their results.

The messages are the system's, the question, and then turn by turn what the model said beside its
calls, the calls, and one message for each result. There are no field marks, and no further message
of the user but a last one that ends the tools.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ragbench.lms.adapters.lenient import section

#: Key of a history message that holds what the user says last, when no tool is left.
CLOSING = "closing"


class ToolConversation(dspy.Adapter):
    """An adapter for a signature with `question`, `history`, `tools` and the output `answer`.

    A message of the history is `{"text": str, "calls": [(name, arguments, result), ...]}`, one a
    turn, or `{CLOSING: str}` at the end. A reply without a call is the answer; with calls, `answer`
    is the text beside them. `parallel` says whether a reply may have several calls; None leaves it
    open.
    """

    def __init__(self, *, parallel: bool | None) -> None:
        super().__init__(use_native_function_calling=True, parallel_tool_calls=parallel)

    def format(
        self,
        signature: type[dspy.Signature],
        demos: Sequence[Mapping[str, Any]],
        inputs: Mapping[str, Any],
    ) -> list[dict[str, Any]]:
        """The messages of one call. Demonstrations without question and answer are left out."""
        described = signature.output_fields["answer"].json_schema_extra["desc"]
        messages = [_said("system", f"{signature.instructions}\n\nThen answer with {described}.")]
        for demo in demos:
            if demo.get("question") and demo.get("answer"):
                messages += [_said("user", demo["question"]), _said("assistant", demo["answer"])]
        messages.append(_said("user", inputs["question"]))
        for number, turn in enumerate(inputs["history"].messages):
            if CLOSING in turn:
                messages.append(_said("user", turn[CLOSING]))
            else:
                messages += _turn(number, turn)
        return messages

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """The answer: the whole text, or the section of that name where a model marks one."""
        return {"answer": section(completion, "answer") or completion.strip()}


def _said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _turn(number: int, turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the model said and called in one turn, and what each call gave."""
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for place, (name, arguments, seen) in enumerate(turn["calls"]):
        id = f"call_{number}_{place}"
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        calls.append({"id": id, "type": "function", "function": function})
        results.append({"role": "tool", "tool_call_id": id, "name": name, "content": seen})
    said = {"role": "assistant", "content": turn["text"] or None, "tool_calls": calls}
    return [said, *results]
