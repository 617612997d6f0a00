"""Self-RAG by prompting: a gate, a critique of each candidate, and the best candidate's answer.

Asai et al. 2023 (arXiv:2310.11511) train reflection tokens into the model. Here, any LM gives each
token as a typed label.

- `combined`: for each of the first `num_candidates` passages, one call grades its relevance,
answers
  from it and grades the support. A second call grades how useful the answer is.
- `per_passage`: grades the relevance of all passages first. Each relevant passage gives an answer,
  which is graded.
- `beam`: the paper's long form, a beam search over sentences (`beam.py`).

`combined` and `per_passage` answer from one passage at a time. The program answers from memory only
if the gate decides so: a question whose candidates are all blank has no answer.

An answer's score is the weighted sum of its grades, with the specification's weights. See
docs/programs.md for the paper's weights and the differences from the paper.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import dspy

from ragbench import signatures
from ragbench.metrics import normalise_answer
from ragbench.programs.core import (
    PROGRAMS,
    BudgetSpentError,
    Passages,
    RAGProgram,
    Trace,
    each_once,
    is_answer,
    predict,
)
from ragbench.programs.core.confidence import Label, ask_probabilities, grader
from ragbench.programs.core.program import NO_ANSWER
from ragbench.programs.self_rag.beam import Beam
from ragbench.programs.self_rag.grades import Grades, Probabilities, SelfRAGKnobs
from ragbench.retrievers import Passage

#: Labels of an unreadable reply.
UNREADABLE: dict[str, Label] = {"relevance": "relevant", "support": "partial", "utility": 3}
_LABELS: Mapping[str, Sequence[Label]] = {
    "retrieve": (True, False),
    "relevance": get_args(signatures.Relevance),
    "support": get_args(signatures.Support),
    "utility": get_args(signatures.Utility),
}
#: Grades of support, in ascending order.
_SUPPORTED: Sequence[Label] = ("none", "partial", "full")


class Candidate(NamedTuple):
    """An answer from one passage, blank if it has none, its score, and the passage if relevant."""

    answer: str
    score: float = 0.0
    relevant: Passage | None = None
    support: Label = "none"


def select(candidates: Sequence[Candidate], selection: str) -> str:
    """Return the best answer. A refusal ranks below any answer.

    If scores tie, the answer of more candidates wins, then the one of the better ranked passage.

    Args:
        candidates: Candidates in the order of their passages.
        selection: `best` uses the score of a candidate, `vote` the sum over equal answers.
    """
    shared = Counter(normalise_answer(c.answer) for c in candidates)
    votes: dict[str, float] = dict.fromkeys(shared, 0.0)
    for candidate in candidates:
        votes[normalise_answer(candidate.answer)] += candidate.score

    def worth(candidate: Candidate) -> tuple[bool, float, int]:
        key = normalise_answer(candidate.answer)
        score = votes[key] if selection == "vote" else candidate.score
        return is_answer(candidate.answer), score, shared[key]

    return max(candidates, key=worth).answer  # the first one wins a tie


@PROGRAMS.register("self_rag")
class SelfRAG(RAGProgram[SelfRAGKnobs]):
    """Decide whether to search, answer from each passage, grade the answers, and keep the best."""

    variants = {  # noqa: RUF012
        "combined": {},
        "per_passage": {},
        "beam": {"max_calls": 100},
    }
    single_passage = ("combined", "per_passage")

    def make_predictors(self) -> None:
        source = self.knobs.confidence_source
        self.decide = grader(signatures.RetrievalDecision, source)
        if self.knobs.variant == "beam":
            self.decide = predict(signatures.SegmentDecision)
            self.critique = predict(signatures.CritiquedSentence)
            self.conclude = predict(signatures.SynthesizeAnswer)
            return
        self.direct = predict(signatures.DirectAnswer)
        self.is_useful = predict(signatures.IsUse)
        if self._combined:
            self.critique = predict(signatures.CritiquedAnswer)
        else:
            self.is_relevant = grader(signatures.IsRel, source)
            self.is_supported = grader(signatures.IsSup, source)
            self.answer = predict(signatures.AnswerFromContext)

    @property
    def _combined(self) -> bool:
        return self.knobs.variant != "per_passage"

    def solve(self, trace: Trace) -> dspy.Prediction:
        if self.knobs.variant == "beam":
            return self._long_form(trace)
        if not self.wants_passages(trace):
            return trace.prediction(trace.answer(self.direct, last=True), "direct")
        passages = trace.search(trace.question, k=self.knobs.k)
        if self._combined:
            shortlist = passages[: self.knobs.num_candidates]
            candidates = trace.fan_out(lambda p: self._critiqued(trace, p), shortlist, calls_each=2)
        else:
            candidates = self._by_passage(trace, passages)
        least = _SUPPORTED.index(self.knobs.support_threshold)
        answers = []
        for candidate in candidates:
            if is_answer(candidate.answer) and _SUPPORTED.index(candidate.support) >= least:
                answers.append(candidate)
        if answers:
            return trace.prediction(select(answers, self.knobs.select), "answered")
        relevant = any(candidate.relevant for candidate in candidates)
        trace.count("no_passage_answered" if relevant else "no_relevant_passage")
        trace.step("answer", observation="no passage answered")
        return trace.prediction(NO_ANSWER, "no_answer")

    def _long_form(self, trace: Trace) -> dspy.Prediction:
        """Search for sentences that end in the answer, or answer from the best path."""
        beam = Beam(trace, self.knobs, self.decide, self.critique)
        try:
            reason = beam.search()
        except BudgetSpentError:
            reason = "budget"
        answer = beam.best.answer
        if answer:
            trace.step("answer", observation=answer, of=beam.best.passages)
        elif beam.best.sentences:
            answer = trace.answer(self.conclude, last=True, notes=list(beam.best.sentences))
        else:
            answer = NO_ANSWER
        passages = each_once([*beam.best.passages, *trace.passages])
        return trace.prediction(answer, reason, passages=passages)

    def _by_passage(self, trace: Trace, passages: Passages) -> list[Candidate]:
        """Return a candidate for each sufficiently relevant passage."""
        fields = [{"passage": self.as_context_line(passage)} for passage in passages]
        marks = trace.fan_out(
            lambda inputs: self._grade(trace, self.is_relevant, "relevance", inputs), fields
        )
        least = self.knobs.relevance_threshold
        relevant = []
        for passage, mark in zip(passages, marks, strict=False):
            if mark.get("relevant", 0.0) >= least:
                relevant.append((passage, mark))
        return trace.fan_out(lambda pair: self._graded(trace, *pair), relevant, calls_each=3)

    def force(self, trace: Trace) -> str:
        return NO_ANSWER  # only the gate selects memory

    def wants_passages(self, trace: Trace) -> bool:
        """Return the gate's decision to retrieve. True if it cannot be read."""
        if self.knobs.gate != "ask":
            return self.knobs.gate == "always"
        likely = self._grade(trace, self.decide, "retrieve", {})[True]
        retrieve = likely > self.knobs.threshold
        stated = self.knobs.confidence_source == "verbal"
        notes = {"probability": round(likely, 4)} if stated else {}
        observation = "retrieve" if retrieve else "answer from memory"
        trace.step("gate", observation=observation, notes=notes)
        return retrieve

    def _critiqued(self, trace: Trace, passage: Passage) -> Candidate:
        """Return the candidate of one passage. Labels of the critique count as certain."""
        nothing = {"relevance": "relevant", "support": "partial"}
        reply = trace.ask(self.critique, otherwise=nothing, passage=self.as_context_line(passage))
        answer = reply.answer
        relevance = {reply.relevance: 1.0}
        if not is_answer(answer):
            return self._blank(trace, passage, answer, relevance)
        use = self._grade(trace, self.is_useful, "utility", {"answer": answer})
        return self._candidate(trace, passage, answer, Grades(relevance, {reply.support: 1.0}, use))

    def _blank(
        self, trace: Trace, passage: Passage, answer: str, relevance: Probabilities
    ) -> Candidate:
        """Return the candidate of a passage without an answer, which gets no other grade."""
        likely = max(relevance, key=lambda label: relevance[label])
        notes = {"relevance": likely, "answer": "none", "support": "none"}
        trace.step("critique", observation=answer, of=[passage], notes=notes)
        return Candidate("", relevant=passage if likely == "relevant" else None)

    def _graded(self, trace: Trace, passage: Passage, relevance: Probabilities) -> Candidate:
        """Return the candidate of a relevant passage. Grade its answer, but not a refusal."""
        text = self.as_context_line(passage)
        answer = trace.answer(self.answer, context=[text])
        if not is_answer(answer):
            return self._blank(trace, passage, answer, relevance)
        asks = [
            (self.is_supported, "support", {"passage": text, "answer": answer}),
            (self.is_useful, "utility", {"answer": answer}),
        ]
        support, use = trace.fan_out(lambda ask: self._grade(trace, *ask), asks)
        return self._candidate(trace, passage, answer, Grades(relevance, support, use))

    def _grade(
        self, trace: Trace, predictor: dspy.Module, field: str, inputs: Mapping[str, Any]
    ) -> Probabilities:
        labels = _LABELS[field]
        source = self.knobs.confidence_source
        fields = {"question": trace.question, **inputs}
        probabilities = ask_probabilities(trace, predictor, field, labels, source=source, **fields)
        return probabilities or {UNREADABLE.get(field, True): 1.0}

    def _candidate(self, trace: Trace, passage: Passage, answer: str, grades: Grades) -> Candidate:
        score = grades.score(self.knobs)
        likely = grades.likely
        trace.step(
            "critique",
            observation=answer,
            of=[passage],
            notes={**likely, "score": round(score, 4)},
        )
        relevant = passage if likely["relevance"] == "relevant" else None
        return Candidate(answer, score, relevant, likely["support"])
