"""Signatures that think one step at a time."""

from typing import Literal

import dspy

from ragbench.signatures.wording import BRIEF, GUESS, SPAN


# One step of interleaved reasoning and retrieval (Trivedi et al. 2023, arXiv:2212.10509). A choice
# between two named steps, because small models answer a bare "done?" with yes at once. The thought
# is also the next query, so it must name what it looks for.
class CoTStep(dspy.Signature):
    """Write the next sentence of reasoning, then search with it or answer.

    State what the passages show, and name the one person, place or thing to look up next.
    """

    context: list[str] = dspy.InputField(desc="passages")
    question: str = dspy.InputField()
    thoughts: str = dspy.InputField(desc="reasoning so far")
    thought: str = dspy.OutputField(desc="one new sentence, which is searched with if facts lack")
    next_step: Literal["search", "answer"] = dspy.OutputField(
        desc="answer once the passages settle the question"
    )
    answer: str = dspy.OutputField(desc=f"{BRIEF}; empty if search")


# FLARE's look-ahead (Jiang et al. 2023, arXiv:2305.06983): a sentence, and what in it is in doubt.
class DraftSentence(dspy.Signature):
    """Write the next sentence of reasoning from the passages, or from memory where they lack it."""

    context: list[str] = dspy.InputField(desc="passages")
    question: str = dspy.InputField()
    thoughts: str = dspy.InputField(desc="reasoning so far")
    thought: str = dspy.OutputField(desc="one new sentence")
    uncertain_words: list[str] = dspy.OutputField(
        desc="names, dates and numbers of the sentence that the passages do not state"
    )
    confidence: float = dspy.OutputField(desc="0 to 1: how sure the sentence is")
    next_step: Literal["continue", "answer"] = dspy.OutputField(
        desc="answer once the reasoning settles the question"
    )
    answer: str = dspy.OutputField(desc=f"empty if continue, else {BRIEF}")


# One turn of a text-protocol tool loop (Yao et al. 2023, arXiv:2210.03629): an answer, or the use
# of a tool. The answer stands before the tool, since a small model does not choose to finish before
# it has written one. A program narrows `tool` to the Literal of its own tools. One text argument,
# not a dict: a free-form object cannot be held to a schema, and small models then lose the other
# fields as well.
class ReActStep(dspy.Signature):
    """Answer the question from what the steps show. Use a tool only for a fact that they lack."""

    tools: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="steps so far")
    steps_left: int = dspy.InputField(desc=f"at the last, answer: {GUESS}")
    thought: str = dspy.OutputField(desc="what the steps say that answers the question")
    answer: str = dspy.OutputField(desc=f"{SPAN}; empty if that does not settle the question")
    tool: str = dspy.OutputField(desc="finish if there is an answer, else the tool to use now")
    argument: str = dspy.OutputField(desc="what the tool is given")


# ReActStep without its thought, for the act-only ablation.
class ActStep(dspy.Signature):
    """Answer the question from what the steps show. Use a tool only for a fact that they lack."""

    tools: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="steps so far")
    steps_left: int = dspy.InputField(desc=f"at the last, answer: {GUESS}")
    answer: str = dspy.OutputField(desc=f"{SPAN}; empty if the steps do not settle the question")
    tool: str = dspy.OutputField(desc="finish if there is an answer, else the tool to use now")
    argument: str = dspy.OutputField(desc="what the tool is given")


# ReActStep for tools that take several texts.
class ToolStep(dspy.Signature):
    """Answer the question from what the steps show. Use a tool only for a fact that they lack."""

    tools: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="steps so far")
    steps_left: int = dspy.InputField(desc=f"at the last, answer: {GUESS}")
    thought: str = dspy.OutputField(desc="what the steps say that answers the question")
    answer: str = dspy.OutputField(desc=f"{SPAN}; empty if that does not settle the question")
    tool: str = dspy.OutputField(desc="finish if there is an answer, else the tool to use now")
    arguments: list[str] = dspy.OutputField(desc="what the tool is given, one text an item")


# One turn of native tool calling: the provider's own protocol carries tools and calls, and a turn
# without a call is the answer.
class ToolTurn(dspy.Signature):
    """Answer the question from what the steps show. Use a tool only for a fact that they lack."""

    history: dspy.History = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)
    tool_calls: dspy.ToolCalls = dspy.OutputField()


TOPICS = "the topic of each, not the fact itself, such as: the author of TITLE"


# What the model knows before it reads (FaithfulRAG: Zhang et al. 2025, arXiv:2506.08938).
class RecallFacts(dspy.Signature):
    """List the facts that must be known to answer the question."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.OutputField(desc=TOPICS)


class RecallPassage(dspy.Signature):
    """Write from memory a passage that states the facts and answers the question."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField(desc="what must be known")
    passage: str = dspy.OutputField(desc="about 100 words")


class RecallKnowledge(dspy.Signature):
    """List the facts that the question needs, then write from memory a passage that states them."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.OutputField(desc=TOPICS)
    passage: str = dspy.OutputField(desc="about 100 words, which answer the question")
