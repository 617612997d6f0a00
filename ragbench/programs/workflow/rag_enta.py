"""RAGentA: answers from single passages, a judge that keeps passages, a cited draft, an audit.

Besrour et al. 2025 (arXiv:2506.16988). Agent 1 answers from each passage alone; agent 2 says how
sure it is that the answer holds, as log p(yes) - log p(no), and passages of less than mean - n
standard deviations are dropped; agent 3 writes claims with citations and an answer; agent 4 drops
claims that do not bear on the question and names what is unanswered, for which more is searched,
answered and worked in. Variants:

- `official`: the authors' k = 20. Their retriever is this package's `hybrid` with
  `fusion=minmax,dense_weight=0.65,depth=3`.
- `arag`: as A-RAG's table ran it (Du et al. 2026), k = 5.

Departures: the probabilities are stated ones by default (`confidence_source=logprob` where the LM
gives token probabilities), so that scores are bounded; claims are typed, where the authors split a
text at its citations; an answer whose claims were dropped is written again from those left, since a
short answer has no claims to cut; with none left the draft stands (`refuse=true`: as published).
The audit is one call of claims and gaps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

import dspy
from pydantic import Field

from ragbench.programs.core import (
    NO_ANSWER,
    PROGRAMS,
    Autonomy,
    ProgramKnobs,
    RAGProgram,
    Trace,
    Weighing,
    ask_probabilities,
    distinct,
    grader,
    is_answer,
    predict,
    render,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import (
    AnswerFromContext,
    AuditClaims,
    CitedAnswer,
    CritiquedAnswer,
    HoldsAnswer,
    RefineAnswer,
    SynthesizeAnswer,
)

#: A stated certainty of 0 or 1 counts as this much less.
_LEAST = 0.001
#: What the grades of one call count as the probability that the answer holds (`joint`).
_SUPPORT = {"full": 1.0, "partial": 0.5, "none": 0.0}


class RAGentAKnobs(ProgramKnobs):
    """Knobs of `rag_enta`."""

    k: int = Field(20, ge=1, le=100, description="passages per search")
    max_calls: int = Field(60, ge=1, le=10_000, description="LM calls per question at the most")
    n: float = Field(
        0.5, ge=-3, le=3, description="passages this many deviations below the mean are kept"
    )
    confidence_source: Weighing = Field(
        "verbal", description="where the judge's probabilities come from"
    )
    joint: bool = Field(False, description="answer and judge a passage in one call")
    max_follow_ups: int = Field(3, ge=0, le=20, description="follow-up questions at the most")
    refuse: bool = Field(False, description="no answer where the audit drops all claims")


@dataclass(frozen=True)
class Judged:
    """A passage, the answer from it alone, and the judge's log-odds that it holds."""

    passage: Passage
    answer: str
    score: float


@PROGRAMS.register("rag_enta")
class RAGentA(RAGProgram):
    """Judge passages by the answers from each, answer with claims, audit them, fill the gaps."""

    name = "rag_enta"
    family = "workflow"
    paper = "arXiv:2506.16988"
    calls = "2 k + 2 + 2 per follow-up question, 1 more where claims are dropped; joint: k for 2 k"
    autonomy = Autonomy("partly", "yes", "partly")
    Knobs = RAGentAKnobs
    variants = {"official": {}, "arag": {"k": 5}}  # noqa: RUF012

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        if self.knobs.joint:
            self.critique = predict(CritiquedAnswer)
        else:
            self.answer_each = predict(AnswerFromContext)
            self.judge = grader(HoldsAnswer, "holds", self.knobs.confidence_source)
        self.cite = predict(CitedAnswer)
        self.audit = predict(AuditClaims)
        self.rewrite = predict(SynthesizeAnswer)
        # A search for what is left may find nothing.
        maybe_none = RefineAnswer.with_updated_fields("context", desc="passages; may be empty")
        self.integrate = predict(maybe_none, like=RefineAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Four agents, then follow-up questions."""
        passages = trace.search(trace.question, k=self.knobs.k)
        judged = trace.fan_out(
            lambda p: self._judged(trace, p), passages, calls_each=1 if self.knobs.joint else 2
        )
        kept = self._kept(trace, judged)
        answer, claims = self._cited(trace, trace.question, kept)
        answer, gaps = self._audited(trace, answer, claims)
        answer = self._filled(trace, answer, gaps, kept)
        seen = {p.pid: p for p in (*kept, *trace.passages)}
        return trace.prediction(answer, "answered", passages=list(seen.values()))

    def force(self, trace: Trace) -> str:
        """The last draft, or one from all passages."""
        drafts = [
            step.observation
            for step in trace.steps
            if step.action in ("cite", "answer") and step.input == trace.question
        ]
        if drafts and is_answer(drafts[-1]):
            return drafts[-1]
        context = render(trace.passages, max_tokens=self.knobs.context_tokens)
        inputs = {"context": context, "notes": [], "question": trace.question, "draft": ""}
        return trace.answer(self.integrate, last=True, **inputs)

    def _judged(self, trace: Trace, passage: Passage) -> Judged:
        """Agents 1 and 2 on one passage."""
        context = render([passage], max_tokens=self.knobs.context_tokens)
        if self.knobs.joint:
            reply = trace.ask(
                self.critique,
                otherwise={"answer": "", "support": "none", "relevance": "irrelevant"},
                question=trace.question,
                passage=context[0].removeprefix("[1] "),
            )
            answer, likely = str(reply.answer or "").strip(), _SUPPORT[reply.support]
        else:
            reply = trace.ask(
                self.answer_each,
                otherwise={"answer": ""},
                context=context,
                question=trace.question,
            )
            answer = str(reply.answer or "").strip()
            likely = self._likely(trace, context[0].removeprefix("[1] "), answer)
        likely = min(max(likely, _LEAST), 1 - _LEAST)
        judged = Judged(passage, answer, math.log(likely) - math.log(1 - likely))
        notes = {"score": round(judged.score, 4)}
        trace.step("judge", observation=answer, pids=(passage.pid,), notes=notes)
        return judged

    def _likely(self, trace: Trace, passage: str, answer: str) -> float:
        said = ask_probabilities(
            trace,
            self.judge,
            "holds",
            (True, False),
            source=self.knobs.confidence_source,
            question=trace.question,
            passage=passage,
            answer=answer or "not stated",
        )
        return 0.5 if said is None else said[True]

    def _kept(self, trace: Trace, judged: Sequence[Judged]) -> list[Passage]:
        """The passages that pass, best first; all where none does."""
        if not judged:
            return []
        scores = [one.score for one in judged]
        least = fmean(scores) - self.knobs.n * pstdev(scores)
        best = sorted(judged, key=lambda one: -one.score)  # stable
        # A difference in the last digit is none: equal scores all pass.
        kept = [one.passage for one in best if one.score >= least - 1e-9]
        kept = kept or [one.passage for one in best]
        trace.step("filter", pids=tuple(p.pid for p in kept), notes={"threshold": round(least, 4)})
        return kept

    def _cited(
        self, trace: Trace, question: str, passages: Sequence[Passage]
    ) -> tuple[str, list[str]]:
        """Agent 3: an answer to `question`, and its claims with the numbers of passages."""
        context = render(passages, max_tokens=self.knobs.context_tokens)
        reply = trace.ask(
            self.cite, otherwise={"answer": "", "claims": []}, context=context, question=question
        )
        known = range(1, len(context) + 1)
        claims = []
        for claim in reply.claims:
            marks = "".join(f"[{n}]" for n in dict.fromkeys(claim.evidence) if n in known)
            claims.append(f"{claim.statement.strip()} {marks}".strip())
        answer = str(reply.answer or "").strip()
        trace.step(
            "cite",
            input=question,
            observation=answer,
            pids=tuple(p.pid for p in passages[: len(context)]),
            notes={"claims": claims},
        )
        return answer, [claim for claim in claims if claim]

    def _audited(self, trace: Trace, answer: str, claims: list[str]) -> tuple[str, list[str]]:
        """Agent 4: the answer without the claims that it drops, and the follow-up questions."""
        reply = trace.ask(
            self.audit,
            otherwise={"drop": [], "unanswered": [], "follow_ups": []},
            question=trace.question,
            claims=[f"[{n}] {claim}" for n, claim in enumerate(claims, start=1)],
            answer=answer,
        )
        dropped = {n for n in reply.drop if 0 < n <= len(claims)}
        left = [claim for n, claim in enumerate(claims, start=1) if n not in dropped]
        # Only where a part is unanswered; one without a question of its own is asked as it stands.
        gaps = distinct(reply.follow_ups or reply.unanswered) if reply.unanswered else []
        gaps = gaps[: self.knobs.max_follow_ups]
        trace.step("audit", observation="\n".join(gaps), notes={"dropped": sorted(dropped)})
        if dropped and left:
            answer = trace.answer(self.rewrite, notes=left, question=trace.question, instruction="")
        elif dropped:
            trace.count("all_claims_dropped")
            answer = NO_ANSWER if self.knobs.refuse else answer
        return answer, gaps

    def _filled(
        self, trace: Trace, answer: str, gaps: Sequence[str], kept: Sequence[Passage]
    ) -> str:
        """The answer with those of the follow-up questions worked in."""
        for gap in gaps:
            passages = self._unseen(trace, gap, kept)
            part, claims = self._cited(trace, gap, passages)
            if is_answer(part):
                answer = trace.answer(
                    self.integrate,
                    context=render(passages, max_tokens=self.knobs.context_tokens),
                    notes=[f"{gap.rstrip(' ?')}: {part}", *claims],
                    question=trace.question,
                    draft=answer,
                )
        return answer

    def _unseen(self, trace: Trace, query: str, kept: Sequence[Passage]) -> list[Passage]:
        """The k best passages for `query` that were not kept; rejected ones may come back."""
        known = {passage.pid for passage in kept}
        passages = trace.search(query, k=self.knobs.k + len(known))
        return [passage for passage in passages if passage.pid not in known][: self.knobs.k]
