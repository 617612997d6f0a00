"""Self-RAG by prompting: a gate, a critique of each candidate, and the best candidate's answer.

Asai et al. 2023 (arXiv:2310.11511) train reflection tokens into the model; here each token is a
typed label asked of any LM, so a run of this is not a reproduction of the paper's numbers.
Variants:

- `combined`: one call answers from a passage and grades it, one more grades usefulness; the first
  `candidates` of the k passages; score = usefulness + 2 support + 0.5 relevance.
- `per_passage`: relevance of all k passages first, as a filter; each relevant one is then answered
  from, and graded for support and usefulness.
- `scored`: the paper's short form. Retrieval where its probability is above `threshold`; every
  passage is answered from and graded, and the grades count by their probabilities: 1.0 relevance,
  1.0 support, 0.5 usefulness. `joint` answers and grades in one call, whose labels count as
  certain.
- `beam`: the paper's long form, see `ragbench.programs.self_rag_beam`.

Usefulness counts 1 to 5 in the first two and -1 to 1 in the others. With no relevant passage the
model answers from memory. The reference script forms the gate's ratio from raw log-probabilities,
which inverts it, and maps usefulness to the wrong tokens; neither is copied. A reader of single
passages cannot join two paragraphs: expect weak multi-hop results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.metrics.text import normalise_answer
from ragbench.programs import self_rag_beam
from ragbench.programs.base import PROGRAMS, Autonomy, ProgramKnobs, RAGProgram, predict
from ragbench.programs.confidence import (
    Label,
    Source,
    Weighing,
    ask_probabilities,
    grader,
    labels_of,
)
from ragbench.programs.trace import Trace, render
from ragbench.retrievers.base import Passage, Retriever
from ragbench.signatures.answering import AnswerFromContext, AnswerWithHints, DirectAnswer
from ragbench.signatures.judging import (
    ContinueRetrieval,
    CritiquedAnswer,
    CritiquedSegment,
    IsRel,
    IsSup,
    IsUse,
    RetrievalDecision,
)

Probabilities = dict[Label, float]

#: The label taken where a reply cannot be read.
UNREADABLE: dict[str, Label] = {"relevance": "relevant", "support": "partial", "utility": 3}
_PAPER = {"w_relevance": 1.0, "w_support": 1.0, "w_utility": 0.5}


class SelfRAGKnobs(ProgramKnobs):
    """Knobs of `self_rag`."""

    gate: Literal["ask", "always", "never"] = Field("ask", description="retrieve: ask, or decide")
    threshold: float = Field(
        0.2, ge=0, le=1, description="retrieve above this probability (scored, beam)"
    )
    confidence_source: Source = Field(
        "verbal", description="where probabilities come from (scored, beam)"
    )
    candidates: int = Field(3, ge=1, le=50, description="passages critiqued (combined)")
    joint: bool = Field(False, description="answer and grade in one call (scored)")
    w_utility: float = Field(1.0, ge=0, le=10, description="weight of usefulness")
    w_support: float = Field(2.0, ge=0, le=10, description="weight of support: 1, 0.5 or 0")
    w_relevance: float = Field(0.5, ge=0, le=10, description="weight of relevance: 1 or 0")
    select: Literal["best", "vote"] = Field("best", description="best score, or sum per answer")
    width: int = Field(2, ge=1, le=10, description="drafts kept (beam)")
    depth: int = Field(2, ge=1, le=10, description="sentences of a draft (beam)")
    drop_unsupported: bool = Field(
        True, description="drop sentences without support if others have it (beam)"
    )


@dataclass(frozen=True)
class Candidate:
    """An answer from one passage, or from the passages of one draft, with its score."""

    answer: str
    pids: tuple[str, ...]
    score: float


@PROGRAMS.register("self_rag")
class SelfRAG(RAGProgram):
    """Decide whether to search, answer from each passage, grade the answers, and keep the best."""

    name = "self_rag"
    family = "agentic"
    paper = "arXiv:2310.11511"
    calls = (
        "2 if direct; combined: 1 + 2 candidates; per_passage: 1 + k + 3 per relevant passage; "
        "scored: 1 + 4 k, joint 1 + 2 k; beam: 2 + 2 k + (depth - 1) width (1 + 2 k) at the most"
    )
    autonomy = Autonomy("no", "yes", "yes")
    Knobs = SelfRAGKnobs
    variants = {"combined": {}, "per_passage": {}, "scored": _PAPER, "beam": _PAPER}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.weighs = self.knobs.variant in ("scored", "beam")
        source: Weighing = self.knobs.confidence_source if self.weighs else "label"
        self.source = source
        self.decide = grader(RetrievalDecision, "retrieve", source)
        self.direct = predict(DirectAnswer)
        if self.knobs.variant == "beam":
            self.proceed = grader(ContinueRetrieval, "retrieve", source)
            self.write = predict(CritiquedSegment)
            self.conclude = predict(AnswerWithHints)
        elif self.knobs.variant == "combined" or self.knobs.joint:
            self.critique = predict(CritiquedAnswer)
        else:
            self.is_relevant = grader(IsRel, "relevance", source)
            self.answer = predict(AnswerFromContext)
            self.is_supported = grader(IsSup, "support", source)
        self.is_useful = grader(IsUse, "utility", source)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Gate, critique, select; from memory where there is nothing to select."""
        if not self._retrieve(trace):
            return trace.prediction(self.force(trace), "direct")
        makers: dict[str, Callable[[Trace], list[Candidate]]] = {
            "combined": self._combined,
            "per_passage": self._per_passage,
            "scored": self._scored,
            "beam": self._beam,
        }
        candidates = [c for c in makers[self.knobs.variant](trace) if c.answer]
        if not candidates:
            trace.count("no_relevant_passage")
            return trace.prediction(self.force(trace), "direct")
        return trace.prediction(select(candidates, self.knobs.select), "answered")

    def force(self, trace: Trace) -> str:
        """The model's own answer."""
        return trace.answer(self.direct, last=True, question=trace.question)

    def wants_passages(self, trace: Trace, gate: dspy.Module, **inputs: Any) -> bool:
        """What `gate` says of retrieval; yes where it cannot be read."""
        said = ask_probabilities(
            trace,
            gate,
            "retrieve",
            (True, False),
            source=self.source,
            question=trace.question,
            **inputs,
        )
        probability = 1.0 if said is None else said[True]
        retrieve = bool(probability > self.knobs.threshold)
        trace.step(
            "gate",
            observation="retrieve" if retrieve else "answer from memory",
            notes={"probability": round(probability, 4)},
        )
        return retrieve

    def grade(
        self, trace: Trace, predictor: dspy.Module, field: str, **inputs: Any
    ) -> Probabilities:
        """Probabilities of the labels of `field`; certainty where the variant weighs none."""
        labels = labels_of({"relevance": IsRel, "support": IsSup, "utility": IsUse}[field], field)
        return ask_probabilities(
            trace, predictor, field, labels, source=self.source, question=trace.question, **inputs
        ) or certain(UNREADABLE[field])

    def usefulness(self, trace: Trace, answer: str) -> Probabilities:
        """Probabilities of 1 to 5 for `answer`."""
        return self.grade(trace, self.is_useful, "utility", answer=answer)

    def score(self, relevance: Probabilities, support: Probabilities, use: Probabilities) -> float:
        """The weighted sum of the three grades."""
        # The paper's values of usefulness are -1, -0.5, 0, 0.5, 1; the specification's its grade.
        value = sum(p * ((int(u) - 3) / 2 if self.weighs else int(u)) for u, p in use.items())
        backed = support.get("full", 0.0) + 0.5 * support.get("partial", 0.0)
        total = self.knobs.w_utility * value + self.knobs.w_support * backed
        return float(total + self.knobs.w_relevance * relevance.get("relevant", 0.0))

    def show(self, passage: Passage) -> str:
        """`passage` as a prompt shows it, without a number."""
        return render([passage], max_tokens=self.knobs.context_tokens)[0].removeprefix("[1] ")

    def _retrieve(self, trace: Trace) -> bool:
        if self.knobs.gate != "ask":
            return bool(self.knobs.gate == "always")
        return self.wants_passages(trace, self.decide)

    def _combined(self, trace: Trace) -> list[Candidate]:
        passages = trace.search(trace.question, k=self.knobs.k)[: self.knobs.candidates]
        return trace.fan_out(lambda p: self._jointly(trace, p), passages, calls_each=2)

    def _per_passage(self, trace: Trace) -> list[Candidate]:
        passages = trace.search(trace.question, k=self.knobs.k)
        marks = trace.fan_out(lambda p: self._relevance(trace, p), passages)
        kept = [p for p, mark in zip(passages, marks, strict=False) if mark.get("relevant")]

        def one(passage: Passage) -> Candidate:
            return self._graded(trace, passage, self._answer(trace, passage), certain("relevant"))

        return trace.fan_out(one, kept, calls_each=3)

    def _scored(self, trace: Trace) -> list[Candidate]:
        passages = trace.search(trace.question, k=self.knobs.k)
        if self.knobs.joint:
            return trace.fan_out(lambda p: self._jointly(trace, p), passages, calls_each=2)

        def one(passage: Passage) -> Candidate:
            relevance, answer = at_once(
                trace,
                lambda: self._relevance(trace, passage),
                lambda: self._answer(trace, passage),
            )
            return self._graded(trace, passage, answer, relevance)

        return trace.fan_out(one, passages, calls_each=4)

    def _beam(self, trace: Trace) -> list[Candidate]:
        paths = self_rag_beam.search(self, trace)
        if self.knobs.select == "vote" and trace.budget.calls_left:
            return trace.fan_out(lambda path: self._concluded(trace, path), paths)
        return [self._concluded(trace, path, last=True) for path in paths[:1]]

    def _concluded(
        self, trace: Trace, path: self_rag_beam.Path, *, last: bool = False
    ) -> Candidate:
        answer = trace.answer(
            self.conclude,
            last=last,
            context=render(path.passages, max_tokens=self.knobs.context_tokens),
            notes=list(path.segments),
            question=trace.question,
        )
        return Candidate(answer, tuple(p.pid for p in path.passages), path.score)

    def _jointly(self, trace: Trace, passage: Passage) -> Candidate:
        reply = trace.ask(
            self.critique,
            otherwise={"answer": "", **UNREADABLE},
            question=trace.question,
            passage=self.show(passage),
        )
        answer = reply.answer.strip()
        if not answer:
            return Candidate("", (passage.pid,), 0.0)
        use = self.usefulness(trace, answer)
        relevance, support = certain(reply.relevance), certain(reply.support)
        return self._candidate(trace, passage, answer, (relevance, support, use))

    def _relevance(self, trace: Trace, passage: Passage) -> Probabilities:
        return self.grade(trace, self.is_relevant, "relevance", passage=self.show(passage))

    def _answer(self, trace: Trace, passage: Passage) -> str:
        context = [f"[1] {self.show(passage)}"]
        return trace.answer(self.answer, context=context, question=trace.question)

    def _graded(
        self, trace: Trace, passage: Passage, answer: str, relevance: Probabilities
    ) -> Candidate:
        if not answer:
            return Candidate("", (passage.pid,), 0.0)
        support, use = at_once(
            trace,
            lambda: self.grade(
                trace, self.is_supported, "support", passage=self.show(passage), answer=answer
            ),
            lambda: self.usefulness(trace, answer),
        )
        return self._candidate(trace, passage, answer, (relevance, support, use))

    def _candidate(
        self,
        trace: Trace,
        passage: Passage,
        answer: str,
        grades: tuple[Probabilities, Probabilities, Probabilities],
    ) -> Candidate:
        score = self.score(*grades)
        names = ("relevance", "support", "utility")
        likely = {n: max(g, key=lambda k: g[k]) for n, g in zip(names, grades, strict=True)}
        trace.step(
            "critique",
            observation=answer,
            pids=(passage.pid,),
            notes={**likely, "score": round(score, 4)},
        )
        return Candidate(answer, (passage.pid,), score)


def certain(label: Label) -> Probabilities:
    """All probability on one label."""
    return {label: 1.0}


def at_once(trace: Trace, *thunks: Callable[[], Any]) -> list[Any]:
    """The results of independent calls, one each, in order."""
    return trace.fan_out(lambda thunk: thunk(), thunks)


def select(candidates: Sequence[Candidate], how: str) -> str:
    """The answer with the best score, or with the highest sum over equal answers (`vote`)."""
    if how == "best":
        return max(candidates, key=lambda c: c.score).answer  # the first of equals
    votes: dict[str, float] = {}
    for candidate in candidates:
        key = normalise_answer(candidate.answer)
        votes[key] = votes.get(key, 0.0) + candidate.score
    winner = max(votes, key=lambda key: votes[key])
    return next(c.answer for c in candidates if normalise_answer(c.answer) == winner)
