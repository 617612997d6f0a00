"""Self-RAG by prompting: a gate, a critique of each candidate, and the best candidate's answer.

Asai et al. 2023 (arXiv:2310.11511) train reflection tokens into the model; here each token is a
typed label asked of any LM, so a run of this is not a reproduction of the paper's numbers.
Variants:

- `combined`: one call per passage grades its relevance, answers from it, and grades the answer's
  support and usefulness; the first `candidates` of the k passages; score = usefulness + 2 support +
  0.5 relevance.
- `per_passage`: relevance of all k passages first, as a filter; each relevant one is then answered
  from, and graded for support and usefulness.
- `scored`: the paper's short form. Retrieval where its probability is above `threshold`; every
  passage is answered from and graded, and the grades count by their probabilities: 1.0 relevance,
  1.0 support, 0.5 usefulness. `joint` answers and grades in one call, whose labels count as
  certain.
- `beam`: the paper's long form, see `ragbench.programs.self_rag.beam`.

Usefulness counts 1 to 5 in the first two and -1 to 1 in the others. Where no passage alone holds
the answer, as in most questions of several hops, those graded relevant by the calls that answered
from them are read at once in one more call; with no relevant passage the model answers from memory.
The reference script forms the gate's ratio from raw log-probabilities,
which inverts it, and maps usefulness to the wrong tokens; neither is copied. A reader of single
passages cannot join two paragraphs: expect weak multi-hop results. `reader=joint`, which is no part
of Self-RAG, reads all passages graded relevant at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.errors import KnobError
from ragbench.programs.core import (
    PROGRAMS,
    Autonomy,
    ProgramKnobs,
    RAGProgram,
    Trace,
    Weighing,
    ask_probabilities,
    grader,
    is_answer,
    labels_of,
    predict,
    render,
)
from ragbench.programs.self_rag.beam import Beam, Draft
from ragbench.programs.self_rag.grades import (
    UNREADABLE,
    Candidate,
    Grades,
    Probabilities,
    is_backed,
    select,
    shown,
    wants_passages,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import (
    AnswerFromContext,
    AnswerWithHints,
    ContinueRetrieval,
    CritiquedAnswer,
    CritiquedSegment,
    DirectAnswer,
    IsRel,
    IsSup,
    IsUse,
    RetrievalDecision,
)

_PAPER = {
    "confidence_source": "verbal",
    "signed_utility": True,
    "support_threshold": "none",
    "w_relevance": 1.0,
    "w_support": 1.0,
    "w_utility": 0.5,
}


class SelfRAGKnobs(ProgramKnobs):
    """Knobs of `self_rag`."""

    gate: Literal["ask", "always", "never"] = Field("ask", description="retrieve: ask, or decide")
    threshold: float = Field(0.2, ge=0, le=1, description="retrieve above this probability")
    confidence_source: Weighing = Field(
        "label", description="where probabilities come from; label: what is named is certain"
    )
    reader: Literal["each", "joint"] = Field(
        "each", description="answer from each passage, or once from all relevant ones"
    )
    candidates: int = Field(3, ge=1, le=50, description="passages critiqued (combined)")
    joint: bool = Field(False, description="answer and grade in one call (scored)")
    relevance_threshold: float = Field(
        0.5, ge=0, le=1, description="a passage less likely relevant is not read (per_passage)"
    )
    support_threshold: Literal["none", "partial", "full"] = Field(
        "partial", description="answers of less support rank below those of at least this much"
    )
    w_utility: float = Field(1.0, ge=0, le=10, description="weight of usefulness")
    w_support: float = Field(2.0, ge=0, le=10, description="weight of support: 1, 0.5 or 0")
    w_relevance: float = Field(0.5, ge=0, le=10, description="weight of relevance: 1 or 0")
    signed_utility: bool = Field(False, description="usefulness from -1 to 1, else from 1 to 5")
    select: Literal["best", "vote"] = Field("best", description="best score, or sum per answer")
    width: int = Field(2, ge=1, le=10, description="drafts kept (beam)")
    depth: int = Field(2, ge=1, le=10, description="sentences of a draft (beam)")
    drop_unsupported: bool = Field(
        True, description="drop sentences without support if others have it (beam)"
    )


@PROGRAMS.register("self_rag")
class SelfRAG(RAGProgram):
    """Decide whether to search, answer from each passage, grade the answers, and keep the best."""

    name = "self_rag"
    family = "agentic"
    paper = "arXiv:2310.11511"
    calls = (
        "2 if direct; combined: 1 + candidates, + 1 if no passage answers; "
        "per_passage: 1 + k + 3 per relevant passage; "
        "scored: 1 + 4 k, joint 1 + k; reader=joint: 2 + k; "
        "beam: 2 + k + (depth - 1) width (1 + k) at the most"
    )
    autonomy = Autonomy("no", "yes", "yes")
    Knobs = SelfRAGKnobs
    variants = {"combined": {}, "per_passage": {}, "scored": _PAPER, "beam": _PAPER}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        variant, source = self.knobs.variant, self.knobs.confidence_source
        all_at_once = self.knobs.reader == "joint"
        if all_at_once and variant == "beam":
            raise KnobError(
                "self_rag: reader='joint' has no meaning for a beam; use another variant"
            )
        self.decide = grader(RetrievalDecision, "retrieve", source)
        self.direct = predict(DirectAnswer)
        if variant == "beam":
            self.proceed = grader(ContinueRetrieval, "retrieve", source)
            self.write = predict(CritiquedSegment)
            self.conclude = predict(AnswerWithHints)
        elif not all_at_once and (variant == "combined" or self.knobs.joint):
            self.critique = predict(CritiquedAnswer)
            self.answer = predict(AnswerFromContext)
        else:
            self.is_relevant = grader(IsRel, "relevance", source)
            self.answer = predict(AnswerFromContext)
            if not all_at_once:
                self.is_supported = grader(IsSup, "support", source)
                self.is_useful = grader(IsUse, "utility", source)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Gate, critique, select; where there is nothing to select, from what is relevant."""
        if not self._retrieve(trace):
            return trace.prediction(self.force(trace), "direct")
        makers: dict[str, Callable[[Trace], list[Candidate]]] = {
            "combined": self._combined,
            "per_passage": self._per_passage,
            "scored": self._scored,
            "beam": self._beam,
        }
        make = self._joint_reader if self.knobs.reader == "joint" else makers[self.knobs.variant]
        made = make(trace)
        candidates = [c for c in made if is_answer(c.answer)]
        if candidates:
            return trace.prediction(select(candidates, self.knobs.select), "answered")
        if relevant := [c.relevant for c in made if c.relevant]:
            trace.count("no_passage_answered")
            return trace.prediction(self._answer(trace, relevant, last=True), "answered")
        trace.count("no_relevant_passage")
        return trace.prediction(self.force(trace), "direct")

    def force(self, trace: Trace) -> str:
        """The model's own answer."""
        return trace.answer(self.direct, last=True, question=trace.question)

    def _retrieve(self, trace: Trace) -> bool:
        if self.knobs.gate != "ask":
            return bool(self.knobs.gate == "always")
        return wants_passages(trace, self.decide, self.knobs)

    # -- the forms

    def _combined(self, trace: Trace) -> list[Candidate]:
        passages = trace.search(trace.question, k=self.knobs.k)[: self.knobs.candidates]
        return trace.fan_out(lambda p: self._critiqued(trace, p), passages)

    def _per_passage(self, trace: Trace) -> list[Candidate]:
        def one(passage: Passage) -> Candidate:
            return self._graded(
                trace, passage, self._answer(trace, [passage]), _certain("relevant")
            )

        return trace.fan_out(one, self._relevant(trace), calls_each=3)

    def _joint_reader(self, trace: Trace) -> list[Candidate]:
        relevant = self._relevant(trace)
        return [Candidate(self._answer(trace, relevant, last=True), 0.0)] if relevant else []

    def _scored(self, trace: Trace) -> list[Candidate]:
        passages = trace.search(trace.question, k=self.knobs.k)
        if self.knobs.joint:
            return trace.fan_out(lambda p: self._critiqued(trace, p), passages)

        def one(passage: Passage) -> Candidate:
            relevance, answer = _at_once(
                trace,
                lambda: self._relevance(trace, passage),
                lambda: self._answer(trace, [passage]),
            )
            return self._graded(trace, passage, answer, relevance)

        return trace.fan_out(one, passages, calls_each=4)

    def _beam(self, trace: Trace) -> list[Candidate]:
        beam = Beam(trace, self.knobs, proceed=self.proceed, write=self.write)
        drafts = beam.search()
        if self.knobs.select == "vote" and trace.budget.calls_left:
            return trace.fan_out(lambda draft: self._concluded(trace, draft), drafts)
        return [self._concluded(trace, draft, last=True) for draft in drafts[:1]]

    # -- their parts

    def _critiqued(self, trace: Trace, passage: Passage) -> Candidate:
        reply = trace.ask(
            self.critique,
            otherwise={"answer": "", **UNREADABLE},
            question=trace.question,
            passage=shown(passage, self.knobs),
        )
        answer, grades = str(reply.answer or "").strip(), Grades.of(reply)
        made = self._candidate(trace, passage, answer, grades)
        likely = grades.likely["relevance"] == "relevant"
        return replace(made, relevant=passage if likely else None)

    def _relevant(self, trace: Trace) -> list[Passage]:
        """The passages found that are likely enough relevant."""
        passages = trace.search(trace.question, k=self.knobs.k)
        marks = trace.fan_out(lambda p: self._relevance(trace, p), passages)
        least = self.knobs.relevance_threshold
        rated = zip(passages, (mark.get("relevant", 0.0) for mark in marks), strict=False)
        return [p for p, likely in rated if likely >= least and likely > 0]

    def _relevance(self, trace: Trace, passage: Passage) -> Probabilities:
        text = shown(passage, self.knobs)
        return self._grade(trace, self.is_relevant, IsRel, "relevance", passage=text)

    def _answer(self, trace: Trace, passages: list[Passage], *, last: bool = False) -> str:
        context = render(passages, max_tokens=self.knobs.context_tokens)
        return trace.answer(self.answer, last=last, context=context, question=trace.question)

    def _graded(
        self, trace: Trace, passage: Passage, answer: str, relevance: Probabilities
    ) -> Candidate:
        """The candidate `answer`; a refusal is graded by no call."""
        if not is_answer(answer):
            return Candidate("", 0.0)
        text = shown(passage, self.knobs)
        support, use = _at_once(
            trace,
            lambda: self._grade(
                trace, self.is_supported, IsSup, "support", passage=text, answer=answer
            ),
            lambda: self._grade(trace, self.is_useful, IsUse, "utility", answer=answer),
        )
        return self._candidate(trace, passage, answer, Grades(relevance, support, use))

    def _grade(
        self,
        trace: Trace,
        predictor: dspy.Module,
        signature: type[dspy.Signature],
        field: str,
        **inputs: str,
    ) -> Probabilities:
        """Probabilities of the labels of `field`."""
        return ask_probabilities(
            trace,
            predictor,
            field,
            labels_of(signature, field),
            source=self.knobs.confidence_source,
            question=trace.question,
            **inputs,
        ) or _certain(UNREADABLE[field])

    def _candidate(self, trace: Trace, passage: Passage, answer: str, grades: Grades) -> Candidate:
        score = grades.score(self.knobs)
        trace.step(
            "critique",
            observation=answer,
            pids=(passage.pid,),
            notes={**grades.likely, "score": round(score, 4)},
        )
        backed = is_backed(grades.support, self.knobs.support_threshold)
        return Candidate(answer, score, backed)

    def _concluded(self, trace: Trace, draft: Draft, *, last: bool = False) -> Candidate:
        answer = trace.answer(
            self.conclude,
            last=last,
            context=render(draft.passages, max_tokens=self.knobs.context_tokens),
            notes=list(draft.segments),
            question=trace.question,
        )
        return Candidate(answer, draft.score)


def _certain(label: Any) -> Probabilities:
    return {label: 1.0}


def _at_once(trace: Trace, *thunks: Callable[[], Any]) -> list[Any]:
    """The results of independent calls, one each, in order."""
    return trace.fan_out(lambda thunk: thunk(), thunks)
