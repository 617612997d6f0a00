"""FLARE: draft the next sentence, search if the draft is uncertain, and write it again.

Jiang et al. 2023 (arXiv:2305.06983). The first search uses the question. Then each sentence is
drafted. A draft with less confidence than `theta` becomes a query, without its uncertain words. Its
results replace the passages, and the sentence is written again. By default the model states how
well the passages prove the draft, and which words they do not prove. One such word makes it
uncertain. The paper's trigger, `confidence_source=logprob`, needs an LM that returns token
probabilities: one token below `theta` makes it uncertain, and the query omits tokens below `beta`.
"""

import re
from typing import Literal

import dspy
from pydantic import Field

from ragbench.metrics import normalise_answer
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    one_line,
    predict,
)
from ragbench.programs.core.confidence import probability, token_probabilities
from ragbench.retrievers import Passage
from ragbench.signatures import AnswerWithHints, DraftSentence


class FLAREKnobs(ProgramKnobs):
    """Knobs of `flare`."""

    k: int = bounded(2, 1, 100, "passages per search")
    trigger: Literal["confidence", "always", "never"] = Field(
        "confidence", description="drafts that become queries"
    )
    confidence_source: Literal["verbal", "logprob"] = Field(
        "verbal", description="confidence of a draft: stated, or of its least likely token"
    )
    theta: float = bounded(0.8, 0, 1, "minimum confidence of a draft that is not searched")
    beta: float = bounded(0.4, 0, 1, "minimum probability of a token of the query (logprob)")
    query_from: Literal["masked", "draft", "previous"] = Field(
        "masked", description="draft without uncertain words, entire draft, or previous sentence"
    )
    max_steps: int = bounded(10, 1, 50, "maximum number of sentences")


@PROGRAMS.register("flare")
class FLARE(RAGProgram[FLAREKnobs]):
    """Draft a sentence, search for what is in doubt, write it again, until the answer follows."""

    variants = {  # noqa: RUF012
        "verbal": {},
        "always": {"trigger": "always"},
        "never": {"trigger": "never"},
    }

    def make_predictors(self) -> None:
        if self.knobs.trigger == "confidence" and self.knobs.confidence_source == "verbal":
            self.draft = predict(DraftSentence)
        else:
            bare = DraftSentence.delete("confidence").delete("uncertain_words")
            by_tokens = {"logprobs": True} if self.knobs.trigger == "confidence" else {}
            self.draft = predict(bare, like=DraftSentence, **by_tokens)
        self.conclude = predict(AnswerWithHints)

    def solve(self, trace: Trace) -> dspy.Prediction:
        written: list[str] = []
        passages: list[Passage] = []
        answer, reason = trace.until_spent(lambda: self._written(trace, written, passages))
        if not answer:
            context = self.as_context(passages)
            answer = trace.answer(self.conclude, last=True, context=context, notes=written)
        return trace.prediction(answer, reason)

    def _written(
        self, trace: Trace, written: list[str], context: list[Passage]
    ) -> tuple[str, core.StopReason]:
        """Return the answer or blank, and the stop reason. Extend `written` and `context`."""
        context[:] = trace.search(trace.question, k=self.knobs.k)
        for _ in range(self.knobs.max_steps):
            draft = self._draft(trace, context, written)
            query = ""
            if str(draft.thought).strip() and self._in_doubt(draft):
                query = self._query(trace.question, written, draft)
                context[:] = trace.search(query, k=self.knobs.k) or context
                draft = self._draft(trace, context, written)
            sentence = core.first_sentence(draft.thought)
            sentences_seen = map(normalise_answer, [*written, trace.question])
            repeated = not sentence or normalise_answer(sentence) in sentences_seen
            if repeated and draft.next_step != "answer":
                return "", core.stalled(draft)
            written.append(sentence)
            trace.step("think", thought=sentence, input=query, of=context if query else ())
            if draft.next_step == "answer":
                answer = draft.answer
                return answer if is_answer(answer) else "", "answered"
        return "", "max_steps"

    def _draft(self, trace: Trace, context: list[Passage], written: list[str]) -> dspy.Prediction:
        return trace.ask(
            self.draft,
            otherwise={"next_step": "continue"},
            context=self.as_context(context),
            thoughts="\n".join(written),
        )

    def _in_doubt(self, draft: dspy.Prediction) -> bool:
        if self.knobs.trigger != "confidence":
            return self.knobs.trigger == "always"
        if self.knobs.confidence_source == "verbal":
            named = any(map(str.strip, draft.uncertain_words))
            return named or probability(draft.confidence) < self.knobs.theta
        likely = [p for _, p in token_probabilities(draft, "thought")]
        return min(likely, default=1.0) < self.knobs.theta

    def _query(self, question: str, written: list[str], draft: dspy.Prediction) -> str:
        """Return the query: the masked draft, or the question if nothing is left of it."""
        if self.knobs.query_from == "previous":
            return [question, *written][-1]
        text = str(draft.thought)
        if self.knobs.query_from == "masked" and self.knobs.trigger == "confidence":
            if self.knobs.confidence_source == "logprob":
                tokens = token_probabilities(draft, "thought")
                text = "".join(t if p >= self.knobs.beta else " " for t, p in tokens)
            else:
                for words in filter(str.strip, draft.uncertain_words):
                    text = re.sub(re.escape(words.strip()), " ", text, flags=re.IGNORECASE)
        query = one_line(text)
        if any(map(str.isalnum, query)):
            return query
        return question
