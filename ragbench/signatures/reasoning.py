"""Signatures that think one step at a time."""

from typing import Literal

import dspy

from ragbench.signatures.types import ToolCall


# One step of interleaved reasoning and retrieval (Trivedi et al. 2023, arXiv:2212.10509). A choice
# between two named steps, because small models answer a bare "done?" with yes at once.
class CoTStep(dspy.Signature):
    """Write the next sentence of reasoning, then search for more facts or answer."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    thoughts: list[str] = dspy.InputField(desc="sentences written so far")
    thought: str = dspy.OutputField(desc="one new sentence")
    next_step: Literal["search", "answer"] = dspy.OutputField()
    answer: str = dspy.OutputField(desc="in as few words as possible; empty if search")


# One turn of a text-protocol tool loop (Yao et al. 2023, arXiv:2210.03629). A program narrows
# `tool` to the Literal of its own tools. One text argument, not a dict: a free-form object cannot
# be held to a schema, and small models then lose the other fields as well.
class ReActStep(dspy.Signature):
    """Think about what is still missing to answer the question, then use one tool."""

    tools: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    trajectory: list[ToolCall] = dspy.InputField(desc="steps so far")
    thought: str = dspy.OutputField()
    tool: str = dspy.OutputField()
    argument: str = dspy.OutputField(desc="what to search or look for; the answer if finish")


# ReActStep without its thought, for the act-only ablation.
class ActStep(dspy.Signature):
    """Use one tool to find what is still missing to answer the question."""

    tools: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    trajectory: list[ToolCall] = dspy.InputField(desc="steps so far")
    tool: str = dspy.OutputField()
    argument: str = dspy.OutputField(desc="what to search or look for; the answer if finish")


# One turn of native tool calling: the provider's own protocol carries tools and calls, and a turn
# without a call is the answer.
class ToolTurn(dspy.Signature):
    """Call tools to find what is missing, then answer the question in as few words as possible."""

    history: dspy.History = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()
    tool_calls: dspy.ToolCalls = dspy.OutputField()
