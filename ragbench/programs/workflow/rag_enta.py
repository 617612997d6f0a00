"""RAGentA: answers from single passages, a judge that selects passages, a cited draft, an audit.

Besrour et al. 2025 (arXiv:2506.16988). Agent 1 answers from each passage separately. Agent 2 gives
its confidence in the answer, as log p(yes) - log p(no). Passages below mean - n standard deviations
are dropped. Agent 3 writes claims with citations and an answer. Agent 4 drops claims that do not
help to answer the question and asks a follow-up question for an unanswered part. The program
searches for the follow-up question, answers it and includes the answer before the next audit. So a
later question can name the result of an earlier one. If claims were dropped, the answer is written
again from the remaining claims. A passage with an empty answer is dropped without a judge.
"""

from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import dspy
from pydantic import Field

from ragbench import signatures
from ragbench.programs import core
from ragbench.programs.core import PROGRAMS, Passages, Trace, bounded, is_answer, predict
from ragbench.programs.core.program import NO_ANSWER
from ragbench.programs.core.text import by_number, numbered
from ragbench.programs.workflow.judged import JudgedKnobs, JudgedPassages
from ragbench.retrievers import Passage
from ragbench.text_normalization import question_key

#: Maximum number of follow-up questions.
_MAX_FOLLOW_UPS = 3


class RAGentAKnobs(JudgedKnobs):
    """Knobs of `rag_enta`."""

    max_calls: int = bounded(60, 1, 10_000, "maximum number of LM calls per question")
    n: float = bounded(0.5, -3, 3, "threshold, in standard deviations below the mean")
    refuse: bool = Field(True, description="refuse to answer if the audit drops all claims")


class Claim(NamedTuple):
    """A statement and the passages that prove it."""

    text: str
    passages: tuple[Passage, ...]


@dataclass
class Draft:
    """The answer so far, its claims, and the answers of follow-up questions."""

    answer: str = ""
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def proofs(self) -> list[Passage]:
        return core.each_once(chain.from_iterable(claim.passages for claim in self.claims))

    def lines(self) -> list[str]:
        """Return the claims, each with the numbers of its passages among the proofs."""
        numbers = {p.pid: f"[{n}]" for n, p in enumerate(self.proofs(), start=1)}
        lines = []
        for claim in self.claims:
            labels = "".join(numbers[passage.pid] for passage in claim.passages)
            lines.append(f"{claim.text} {labels}".strip())
        return lines


@PROGRAMS.register("rag_enta")
class RAGentA(JudgedPassages[RAGentAKnobs]):
    """Judge passages by the answers from each, answer with claims, audit them, fill the gaps."""

    variants = {"official": {}, "arag": {"k": 5}}  # noqa: RUF012

    def make_predictors(self) -> None:
        super().make_predictors()
        self.cite = predict(signatures.CitedAnswer)
        self.cite_part = predict(signatures.CitedPart)
        self.audit = predict(signatures.AuditClaims)
        self.rewrite = predict(signatures.SynthesizeAnswer)
        self.integrate = predict(signatures.RefineAnswer)

    def solve(self, trace: Trace) -> dspy.Prediction:
        draft = Draft()
        passages_kept = list[Passage]()
        reason: core.StopReason = "answered"
        try:
            passages = trace.search(trace.question, k=self.knobs.k)
            passages_kept = self.kept(trace, passages)
            draft.answer, draft.claims = self._cited(
                trace, self.cite, trace.question, passages_kept
            )
            self._complete(trace, draft, passages_kept)
        except core.BudgetSpentError:
            reason = "budget"
            if not is_answer(draft.answer):
                draft.answer = self._integrated(trace, draft, trace.passages, last=True)
        passages = core.each_once([*passages_kept, *trace.passages])
        return trace.prediction(draft.answer, reason, passages=passages)

    def _cited(
        self, trace: Trace, predictor: dspy.Module, question: str, passages: Passages
    ) -> tuple[str, list[Claim]]:
        """Return an answer to `question`, and its claims with their passages (agent 3)."""
        context = self.as_context(passages)
        reply = trace.ask(predictor, context=context, question=question)
        read = passages[: len(context)]
        claims = []
        for claim in reply.claims:
            if statement := claim.statement.strip():
                claims.append(Claim(statement, tuple(by_number(read, claim.evidence))))
        answer = reply.answer
        notes = {"claims": [claim.text for claim in claims]}
        trace.step("cite", input=question, observation=answer, of=read, notes=notes)
        return answer, claims

    def _complete(self, trace: Trace, draft: Draft, context: Passages) -> None:
        """Audit `draft`, answer the follow-up question that the audit asks, and repeat."""
        pool = list(context)
        gaps_asked = set[str]()
        while len(gaps_asked) < _MAX_FOLLOW_UPS:
            gap = self._audited(trace, draft, context)
            if not gap or question_key(gap) in gaps_asked:
                return
            gaps_asked.add(question_key(gap))
            fresh = self._found(trace, gap, pool)
            answer = ""
            claims: list[Claim] = []
            if fresh:
                question = f"{gap} (needed for: {trace.question})"
                answer, claims = self._cited(trace, self.cite_part, question, fresh)
            if not is_answer(answer):
                draft.notes.append(f"{gap.rstrip(' ?')}: not found")
                continue
            draft.claims += claims
            draft.notes.append(f"{gap.rstrip(' ?')}: {answer}")
            draft.answer = self._integrated(trace, draft, fresh)

    def _found(self, trace: Trace, gap: str, pool: list[Passage]) -> list[Passage]:
        """Search for `gap` and return the passages that are not in `pool`, which receives them.

        Passages that the judge rejected may come back.
        """
        pids = {passage.pid for passage in pool}
        passages = trace.search(gap, k=self.knobs.k + len(pool))
        fresh = core.each_once(passages, pids)[: self.knobs.k]
        pool += fresh
        return fresh

    def _audited(self, trace: Trace, draft: Draft, context: Passages) -> str:
        """Run agent 4: drop claims that do not help, and return its follow-up question."""
        reply = trace.ask(
            self.audit,
            context=self.as_context(draft.proofs() or context),
            claims=numbered(draft.lines()),
            notes=draft.notes,
            answer=draft.answer,
        )
        dropped = by_number(range(1, len(draft.claims) + 1), sorted(reply.drop))
        remaining = [c for n, c in enumerate(draft.claims, start=1) if n not in dropped]
        gap = core.one_line(reply.follow_up)
        trace.step("audit", observation=gap, notes={"dropped": dropped})
        draft.claims = remaining
        if dropped and remaining:
            notes = [*draft.lines(), *draft.notes]
            draft.answer = trace.answer(self.rewrite, notes=notes)
        elif dropped:
            draft.answer = NO_ANSWER if self.knobs.refuse else draft.answer
        return gap

    def _integrated(
        self, trace: Trace, draft: Draft, passages: Passages, *, last: bool = False
    ) -> str:
        return trace.answer(
            self.integrate,
            last=last,
            context=self.as_context(passages),
            notes=[*draft.notes, *(claim.text for claim in draft.claims)],
            draft=draft.answer,
        )
