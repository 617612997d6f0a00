"""IRCoT: interleave retrieval with the sentences of a chain of thought.

Trivedi et al. 2023 (arXiv:2212.10509). Each round writes one sentence of reasoning from all
passages so far, then searches with it. Variants:

- `seed`: the simplified specification. No first search (the first sentence comes from memory; turn
on   `initial_retrieval` to see what that costs), k=3, at most 5 sentences, the chain itself
answers.
- `paper`: a first search with the question, one sentence a round, a query from the last sentence
that   is not a mere inference, at most 15 paragraphs and 10 sentences, and a separate reader that
sees the   paragraphs but not the chain. The published few-shot demonstrations are left to
`compile`; a typed   `done` replaces the answer-phrase regular expression.
- `flash`: as FlashRAG and HippoRAG run it. Few rounds, whole thoughts, every passage ranked by the
  best score it ever had, the chain answers.
"""

from __future__ import annotations

import re
from typing import Literal

import dspy
from pydantic import Field

from ragbench.programs.base import (
    PROGRAMS,
    Autonomy,
    ProgramKnobs,
    RAGProgram,
    chain_of_thought,
    predict,
)
from ragbench.programs.trace import StopReason, Trace, render
from ragbench.retrievers.base import Passage, Retriever
from ragbench.signatures.answering import AnswerFromContext, AnswerWithHints
from ragbench.signatures.reasoning import CoTStep

_INFERENCE = re.compile(r"^(thus|so|therefore|hence|that is)\b|\d\s*[-+*/=]\s*\d", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[a-z0-9)\"'][.!?])\s+(?=[A-Z\"'(])")


class IRCoTKnobs(ProgramKnobs):
    """Knobs of `ircot`."""

    k: int = Field(3, ge=1, le=100, description="passages per search")
    max_steps: int = Field(5, ge=1, le=50, description="sentences at the most")
    max_passages: int = Field(15, ge=1, le=1000, description="passages kept; later ones drop out")
    initial_retrieval: bool = Field(False, description="search with the question first")
    query_from: Literal["last_thought", "non_reasoning"] = Field(
        "last_thought", description="which sentence becomes the next query"
    )
    one_sentence: bool = Field(True, description="cut each thought to its first sentence")
    keep: Literal["first", "best"] = Field("first", description="which passages survive the cap")
    separate_reader: bool = Field(False, description="a second reader answers from the passages")


@PROGRAMS.register("ircot")
class IRCoT(RAGProgram):
    """Think one sentence, search with it, and repeat until the answer follows."""

    name = "ircot"
    family = "agentic"
    paper = "arXiv:2212.10509"
    calls = "steps (<= max_steps) + 1 forced or reader call"
    autonomy = Autonomy("no", "yes", "partly")
    Knobs = IRCoTKnobs
    variants = {  # noqa: RUF012
        "seed": {},
        "paper": {
            "k": 4,
            "max_steps": 10,
            "initial_retrieval": True,
            "query_from": "non_reasoning",
            "separate_reader": True,
        },
        "flash": {
            "k": 5,
            "max_steps": 5,
            "initial_retrieval": True,
            "one_sentence": False,
            "keep": "best",
        },
    }

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.think = predict(CoTStep)
        if self.knobs.separate_reader:
            self.read = chain_of_thought(AnswerFromContext)
        else:
            self.conclude = predict(AnswerWithHints)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Rounds of one thought and one search, then an answer."""
        answer, reason = self._chain(trace)
        if self.knobs.separate_reader or not answer:
            answer = self.force(trace)
        return trace.prediction(answer, reason)

    def force(self, trace: Trace) -> str:
        """The reader's answer from the passages, or a forced one that also sees the chain."""
        context = self._context(trace)
        if self.knobs.separate_reader:
            return trace.answer(self.read, last=True, context=context, question=trace.question)
        return trace.answer(
            self.conclude,
            last=True,
            context=context,
            notes=_thoughts(trace),
            question=trace.question,
        )

    def _chain(self, trace: Trace) -> tuple[str, StopReason]:
        if self.knobs.initial_retrieval:
            trace.search(trace.question, k=self.knobs.k)
        for _ in range(self.knobs.max_steps):
            thoughts = _thoughts(trace)
            step = trace.ask(
                self.think,
                otherwise={"thought": "", "done": False, "answer": ""},
                context=self._context(trace),
                question=trace.question,
                thoughts=thoughts,
            )
            thought = step.thought.strip()
            if self.knobs.one_sentence:
                thought = first_sentence(thought)
            answer = step.answer.strip() if step.done else ""
            if answer:
                trace.step("think", thought=thought, observation=answer, notes={"done": True})
                return answer, "answered"
            if not thought or thought in thoughts:
                return "", "no_progress"
            query = self._query(trace.question, [*thoughts, thought])
            found = trace.search(query, k=self.knobs.k)
            trace.step("think", thought=thought, input=query, pids=tuple(p.pid for p in found))
        return "", "max_steps"

    def _query(self, question: str, thoughts: list[str]) -> str:
        if self.knobs.query_from == "last_thought":
            return thoughts[-1]
        facts = [t for t in thoughts if not _INFERENCE.search(t)]
        return facts[-1] if facts else question

    def _context(self, trace: Trace) -> list[str]:
        passages = trace.passages
        if self.knobs.keep == "best":
            passages = _by_best_score(trace)
        return render(passages[: self.knobs.max_passages], max_tokens=self.knobs.context_tokens)


def first_sentence(text: str) -> str:
    """The first sentence of `text`, by its first end mark before a capital; all of it if none."""
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0].strip()


def _thoughts(trace: Trace) -> list[str]:
    return [step.thought for step in trace.steps if step.action == "think"]


def _by_best_score(trace: Trace) -> list[Passage]:
    best: dict[str, float] = {}
    for search in trace.searches:
        for pid, score in search.hits:
            best[pid] = max(score, best.get(pid, score))
    return sorted(trace.passages, key=lambda p: -best[p.pid])
