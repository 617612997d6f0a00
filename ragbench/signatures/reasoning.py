"""Signatures that think one step at a time."""

from typing import Literal

import dspy

from ragbench.signatures.types import BRIEF, GUESS, NAMED, SPAN, OfPassages, OfQuestion


# One step of interleaved reasoning and retrieval (Trivedi et al. 2023, arXiv:2212.10509). A choice
# between two named steps, because small models answer a bare "done?" with yes at once.
class CoTStep(OfPassages):
    """Write the next sentence of a chain of thought that answers the question from the passages."""

    thoughts: str = dspy.InputField(desc="reasoning so far")
    sentences_left: int = dspy.InputField(
        desc="this one counts; at 1, answer unless a fact is missing"
    )
    thought: str = dspy.OutputField(
        desc="one new sentence: what the passages state, or what follows from it"
    )
    next_step: Literal["search", "answer"] = dspy.OutputField(
        desc="search, by this sentence alone, while facts are missing; answer once none is, or "
        "once searching finds nothing more"
    )
    answer: str = dspy.OutputField(desc=f"empty if search, else {SPAN}")


# FLARE's look-ahead (Jiang et al. 2023, arXiv:2305.06983): a sentence, and what in it is in doubt.
class DraftSentence(OfPassages):
    """Write the next sentence of reasoning from the passages, or from memory where they lack it."""

    thoughts: str = dspy.InputField(desc="reasoning so far")
    thought: str = dspy.OutputField(
        desc="one new sentence that states a fact, not that one is unknown"
    )
    uncertain_words: list[str] = dspy.OutputField(
        desc="names, dates and numbers of the sentence that the passages do not state; empty if "
        "none"
    )
    confidence: float = dspy.OutputField(
        desc="0, the passages say nothing of it, to 1, they prove the sentence"
    )
    next_step: Literal["continue", "answer"] = dspy.OutputField(
        desc="answer once the reasoning settles the question"
    )
    answer: str = dspy.OutputField(desc=f"empty if continue, else {SPAN}")


# One turn of a text-protocol tool loop (Yao et al. 2023, arXiv:2210.03629): an answer, or the use
# of a tool. The answer stands before the tool, since a small model does not choose to finish before
# it has written one. A program narrows `tool` to the Literal of its own tools. One text argument,
# not a dict: a free-form object cannot be held to a schema, and small models then lose the other
# fields as well.
class _Step(dspy.Signature):
    """Answer the question from what the steps show. Use a tool only for a fact that they lack."""

    tools: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="steps so far")
    steps_left: int = dspy.InputField(desc=f"at the last, answer: {GUESS}")
    thought: str = dspy.OutputField(desc="what the steps show, and what to do next and why")
    answer: str = dspy.OutputField(desc=f"{SPAN}; empty if the steps do not settle the question")
    tool: str = dspy.OutputField(desc="finish if there is an answer, else the tool to use now")


class ReActStep(_Step):
    """Answer the question from what the steps show. Use a tool only for a fact that they lack."""

    argument: str = dspy.OutputField(desc="what the tool is given; empty for finish")


# For tools that take several texts.
class ToolStep(_Step):
    """Answer the question from what the steps show. Use a tool only for a fact that they lack."""

    arguments: list[str] = dspy.OutputField(
        desc="what the tool is given, one text an item; empty for finish"
    )


# One turn of native tool calling: the provider's own protocol carries tools and calls, and a turn
# without a call is the answer.
class ToolTurn(dspy.Signature):
    """Answer the question from what the steps show. Use a tool only for a fact that they lack."""

    history: dspy.History = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)
    tool_calls: dspy.ToolCalls = dspy.OutputField()


# A turn of Recursive Language Models (Zhang et al. 2025, arXiv:2512.24601).
class WriteCode(dspy.Signature):
    """Answer the question with Python that looks at the variable context, a block a turn.

    Only what a block prints is shown. Look at a few items first, then search them by code, and use
    llm_query to read what code cannot. Call SUBMIT(answer) once the answer is found.
    """

    environment: list[str] = dspy.InputField(desc="variables, rules and functions")
    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="turns so far")
    turns_left: int = dspy.InputField(desc="at the last, submit")
    reasoning: str = dspy.OutputField(desc="what the turns show, and what to look at next")
    code: str = dspy.OutputField(desc=f"one block of Python; what it submits: {BRIEF}")


# What the model knows before it reads (FaithfulRAG: Zhang et al. 2025, arXiv:2506.08938).
class RecallFacts(OfQuestion):
    """State from memory the facts that the question needs."""

    facts: list[str] = dspy.OutputField(
        desc="one short statement each, as far as it is remembered; empty if nothing is"
    )


class RecallPassage(OfQuestion):
    """Write from memory a passage that states the facts and answers the question."""

    facts: list[str] = dspy.InputField(desc="what must be known")
    passage: str = dspy.OutputField(desc="about 100 words; empty if nothing is remembered")


# Self-Ask (Press et al. 2022, arXiv:2210.03350): is a follow-up question needed, and which.
class FollowUpStep(OfQuestion):
    """Answer the question from the notes, or write the follow-up question to be answered first."""

    notes: list[str] = dspy.InputField(desc="follow-up questions with their answers; may be empty")
    follow_ups_left: int = dspy.InputField(desc="at 0, answer")
    next_step: Literal["follow_up", "answer"] = dspy.OutputField(
        desc="follow_up while a fact is missing; answer once none is, or once "
        "asking finds nothing more"
    )
    follow_up: str = dspy.OutputField(
        desc=f"of one fact, and such that it can be read alone; {NAMED}; empty if answer"
    )
    answer: str = dspy.OutputField(desc=f"empty if follow_up, else {SPAN}")


# A turn of Search-o1 (Li et al. 2025, arXiv:2501.05366), which ends in a search or in the answer.
class ReasonStep(OfQuestion):
    """Reason on about the question. Search where a fact is missing; answer once none is."""

    thoughts: list[str] = dspy.InputField(desc="reasoning and results of searches so far")
    searches_left: int = dspy.InputField(desc="at 0, answer")
    thought: str = dspy.OutputField(desc="what follows from the reasoning so far, step by step")
    next_step: Literal["search", "answer"] = dspy.OutputField(
        desc="search while a fact is missing; answer once none is, or once "
        "searching finds nothing more"
    )
    query: str = dspy.OutputField(
        desc=f"what to search for, such that it can be read alone; {NAMED}; empty if answer"
    )
    answer: str = dspy.OutputField(desc=f"empty if search, else {SPAN}")
