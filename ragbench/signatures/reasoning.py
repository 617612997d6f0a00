"""Signatures that think one step at a time."""

from typing import Literal

import dspy

from ragbench.signatures.types import BRIEF, CERTAINTY, GUESS, NAMED, SPAN, OfPassages, OfQuestion

_MISSING = "while a fact is missing"
_SETTLED = "all facts are known, or more searches find nothing"


# One step of interleaved reasoning and retrieval (Trivedi et al. 2023, arXiv:2212.10509). A choice
# between two named steps, because small models answer a bare "done?" with yes at once.
class CoTStep(OfPassages):
    """Write the next sentence of a chain of thought that answers the question from the passages."""

    thoughts: str = dspy.InputField(desc="Previous sentences.")
    sentences_left: int = dspy.InputField(
        desc="Remaining sentences, this one included. At 1, answer unless a fact is missing."
    )
    thought: str = dspy.OutputField(
        desc="One new sentence: a statement of the passages or a conclusion. While a fact is "
        "missing, write about that fact only and name only its subject."
    )
    next_step: Literal["search", "answer"] = dspy.OutputField(
        desc=f"search: search with this sentence, {_MISSING}. answer: {_SETTLED}."
    )
    answer: str = dspy.OutputField(desc=f"Leave it empty if search. {SPAN}")


# FLARE's look-ahead (Jiang et al. 2023, arXiv:2305.06983): a sentence and its uncertain words.
class DraftSentence(OfPassages):
    """Write the next sentence of reasoning from the passages, or from memory if they lack it."""

    thoughts: str = dspy.InputField(desc="Previous sentences.")
    thought: str = dspy.OutputField(
        desc="One new sentence that states a fact. Do not write that a fact is unknown."
    )
    uncertain_words: list[str] = dspy.OutputField(
        desc="Names, dates and numbers of the sentence that the passages do not state. Leave it "
        "empty if none."
    )
    confidence: float = dspy.OutputField(desc=CERTAINTY)
    next_step: Literal["continue", "answer"] = dspy.OutputField(
        desc="answer: the reasoning settles the question. continue: it does not."
    )
    answer: str = dspy.OutputField(desc=f"Leave it empty if continue. {SPAN}")


# One turn of a text-protocol tool loop (Yao et al. 2023, arXiv:2210.03629): an answer, or the use
# of a tool. The answer is before the tool, because a small model does not choose to finish before
# it has written one. A program narrows `tool` to the Literal of its own tools. One text argument,
# not a dict: a free-form object cannot be held to a schema, and small models then lose the other
# fields as well.
class _Step(dspy.Signature):
    """Answer the question from the steps. Use a tool only for a fact that they lack."""

    tools: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="Previous steps.")
    steps_left: int = dspy.InputField(desc=f"At 0, answer. {GUESS}")
    thought: str = dspy.OutputField(desc="Findings of the steps, and the reason for the next one.")
    answer: str = dspy.OutputField(desc=f"{SPAN} Leave it empty if the steps do not settle it.")
    tool: str = dspy.OutputField(desc="finish if there is an answer, else the tool to use.")


class ReActStep(_Step):
    """Answer the question from the steps. Use a tool only for a fact that they lack."""

    argument: str = dspy.OutputField(desc="Argument of the tool. Leave it empty for finish.")


# For tools that take several texts.
class ToolStep(_Step):
    """Answer the question from the steps. Use a tool only for a fact that they lack."""

    arguments: list[str] = dspy.OutputField(
        desc="Arguments of the tool, one text each. Leave it empty for finish."
    )


# One turn of native tool calling: the provider's own protocol carries tools and calls, and a turn
# without a call is the answer.
class ToolTurn(dspy.Signature):
    """Answer the question from the steps. Use a tool only for a fact that they lack."""

    history: dspy.History = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc=BRIEF)
    tool_calls: dspy.ToolCalls = dspy.OutputField()


# A turn of Recursive Language Models (Zhang et al. 2025, arXiv:2512.24601).
class WriteCode(dspy.Signature):
    """Answer the question with Python code that explores the variable context, a block per turn.

    You see only what a block prints. Look at a few items first, then search them by code. Use
    llm_query to read text that code cannot interpret. Call SUBMIT(answer) with the answer.
    """

    environment: list[str] = dspy.InputField(desc="Variables, rules and functions.")
    question: str = dspy.InputField()
    trajectory: str = dspy.InputField(desc="Previous turns.")
    turns_left: int = dspy.InputField(desc="At 1, submit.")
    reasoning: str = dspy.OutputField(desc="Findings of the turns, and the next thing to look at.")
    code: str = dspy.OutputField(desc=f"One block of Python. Format of a submitted answer: {BRIEF}")


# Knowledge of the model before it reads (FaithfulRAG: Zhang et al. 2025, arXiv:2506.08938).
class RecallFacts(OfQuestion):
    """State from memory the facts that the question needs."""

    facts: list[str] = dspy.OutputField(
        desc="One short remembered statement each. Leave it empty if you remember none."
    )


class RecallPassage(OfQuestion):
    """Write from memory a passage that states the facts and answers the question."""

    facts: list[str] = dspy.InputField(desc="Required facts.")
    passage: str = dspy.OutputField(desc="About 100 words. Leave it empty if you remember nothing.")


# Self-Ask (Press et al. 2022, arXiv:2210.03350): the need of a follow-up question, and its text.
class FollowUpStep(OfQuestion):
    """Answer the question from the notes, or write the next follow-up question."""

    notes: list[str] = dspy.InputField(desc="Follow-up questions with their answers.")
    follow_ups_left: int = dspy.InputField(desc="At 0, answer.")
    next_step: Literal["follow_up", "answer"] = dspy.OutputField(
        desc=f"follow_up: ask, {_MISSING}. answer: {_SETTLED}."
    )
    follow_up: str = dspy.OutputField(
        desc=f"One self-contained question for one fact. Leave it empty if answer. {NAMED}"
    )
    answer: str = dspy.OutputField(desc=f"Leave it empty if follow_up. {SPAN}")


# A turn of Search-o1 (Li et al. 2025, arXiv:2501.05366), which ends in a search or in the answer.
class ReasonStep(OfQuestion):
    """Continue the reasoning about the question. Search if a fact is missing, else answer."""

    thoughts: list[str] = dspy.InputField(desc="Previous reasoning and results of searches.")
    searches_left: int = dspy.InputField(desc="At 0, answer.")
    thought: str = dspy.OutputField(desc="Conclusions from the reasoning, step by step.")
    next_step: Literal["search", "answer"] = dspy.OutputField(
        desc=f"search: search with the query, {_MISSING}. answer: {_SETTLED}."
    )
    query: str = dspy.OutputField(
        desc=f"One self-contained search query. Leave it empty if answer. {NAMED}"
    )
    answer: str = dspy.OutputField(desc=f"Leave it empty if search. {SPAN}")
