"""IRCoT: interleave retrieval with the sentences of a chain of thought.

Trivedi et al. 2023 (arXiv:2212.10509). Each round writes one sentence of reasoning from all
passages so far, then searches with it.

- `spec`: at most 5 sentences. The model sees the number of remaining sentences. The chain answers,
  or else a forced answer uses it and all passages.
- `paper`: at most 10 sentences. The query is the last sentence that is not an inference, without
  question words. Paragraphs have at most 600 words (chunks have any length), of which 350 are
  shown. At most 15 passages are kept, without near-duplicates. A reader without the chain answers.
- `flash`: the FlashRAG version. The best score so far ranks each passage. From the second search
on,
  the worst passage comes first.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.metrics import normalise_answer
from ragbench.programs import core
from ragbench.programs.core import (
    PROGRAMS,
    Passages,
    ProgramKnobs,
    RAGProgram,
    Trace,
    bounded,
    is_answer,
    predict,
)
from ragbench.programs.core.program import Reader, reading, refuses
from ragbench.retrievers import Passage
from ragbench.signatures import AnswerFromContext, AnswerWithHints, CoTStep

# IRCoT's rule: beginnings of sentences that only infer, or a sum with spaces.
_NUMBER = r"\d(?:[\d,]*\d)?(?:\.\d+)?"
_INFERENCE = re.compile(
    rf"^(?:thus[ ,]|so[ ,]|that is,|therefore|hence)|{_NUMBER} [+-] {_NUMBER} = {_NUMBER}",
    re.IGNORECASE,
)
_QUESTION_WORDS = frozenset(["who", "what", "when", "where", "why", "which", "how", "does", "is"])
_NEAR_DUPLICATE = 0.9
_ANSWER_PHRASE = re.compile(r"^(?:.*\b)?answer is:?\s+(.+?)\.?$", re.IGNORECASE | re.DOTALL)


class AllLeftOutError(Exception):
    """Every passage that a question found was too long to be shown."""


class IRCoTKnobs(ProgramKnobs):
    """Knobs of `ircot`."""

    k: int = bounded(3, 1, 100, "passages per search")
    max_steps: int = bounded(5, 1, 50, "maximum number of sentences")
    max_passages: int = bounded(15, 1, 1000, "maximum number of passages kept")
    initial_retrieval: bool = Field(True, description="search with the question first")
    skip_inferences: bool = Field(False, description="no inferences or question words in queries")
    keep: Literal["first", "first_distinct", "best"] = Field(
        "first", description="passages kept at the maximum (best: shown worst first)"
    )
    passage_words: int = Field(
        0, ge=0, description="words of the longest paragraph shown, not for chunks (0: any)"
    )
    shown_words: int = Field(0, ge=0, description="words shown of a passage (0: all)")
    separate_reader: bool = Field(False, description="answer without the chain")
    reader: Reader = Field("cot", description="reasoning of that reader before the answer")
    last_search: bool = Field(True, description="also search with the final sentence")
    tell_left: bool = Field(True, description="show the number of remaining sentences")


@PROGRAMS.register("ircot")
class IRCoT(RAGProgram[IRCoTKnobs]):
    """Think one sentence, search with it, and repeat until the answer follows."""

    variants = {  # noqa: RUF012
        "spec": {},
        "paper": {
            "k": 4,
            "max_steps": 10,
            "skip_inferences": True,
            "keep": "first_distinct",
            "passage_words": 600,
            "shown_words": 350,
            "separate_reader": True,
            "last_search": False,
            "tell_left": False,
        },
        "flash": {
            "k": 5,
            "max_passages": 1000,
            "keep": "best",
            "tell_left": False,
            "last_search": False,
        },
    }

    def make_predictors(self) -> None:
        if self.knobs.tell_left:
            step = CoTStep
        else:
            step = CoTStep.delete("sentences_left")
        self.think = predict(step, like=CoTStep)
        if self.knobs.separate_reader:
            self.read = reading(AnswerFromContext, self.knobs.reader)
        else:
            self.conclude = predict(AnswerWithHints)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Alternate between sentences and searches, then answer."""
        chain = ReasoningChain(trace, self.knobs)
        answer, reason = trace.until_spent(lambda: self._think_and_search(trace, chain))
        passages = chain.kept()
        if chain.passages and not passages:
            raise AllLeftOutError(
                f"all {len(chain.passages)} passages found have more than "
                f"{self.knobs.passage_words} words; raise passage_words"
            )
        inputs = {"context": chain.context()}
        if self.knobs.separate_reader and not refuses(answer):
            answer = trace.answer(self.read, last=True, **inputs) or answer
        elif not answer:
            answer = trace.answer(self.conclude, last=True, notes=list(chain.thoughts), **inputs)
        return trace.prediction(answer, reason, passages=passages)

    def _think_and_search(self, trace: Trace, chain: ReasoningChain) -> tuple[str, core.StopReason]:
        """Return the chain's answer, blank if it has none, and the stop reason."""
        knobs = self.knobs
        if knobs.initial_retrieval:
            chain.search(trace.question)
        for sentences_left in range(knobs.max_steps, 0, -1):
            limits: dict[str, Any] = {"sentences_left": sentences_left} if knobs.tell_left else {}
            step = trace.ask(
                self.think,
                context=chain.context(),
                thoughts="\n".join(
                    f"{n}. {sentence}" for n, sentence in enumerate(chain.thoughts, 1)
                ),
                **limits,
            )
            thought = core.first_sentence(step.thought)
            said_before = map(normalise_answer, [*chain.thoughts, trace.question])
            repeated = bool(thought) and normalise_answer(thought) in said_before
            done, answer = ending(step, thought)
            if repeated and not done:  # a repeated sentence with an answer ends the chain
                answer = step.answer
                done = is_answer(answer)
            if done:
                trace.step("think", thought=thought, observation=answer)
                return answer or trace.closing(step), "answered"
            if repeated or not thought:
                return "", core.stalled(step)
            chain.thoughts.append(thought)
            if sentences_left == 1 and not knobs.last_search:
                trace.step("think", thought=thought)
                continue
            query = chain.query()
            trace.step("think", thought=thought, input=query, pids=chain.search(query))
        return "", "max_steps"


class ReasoningChain:
    """The sentences of one question, and its passages with their best scores so far."""

    def __init__(self, trace: Trace, knobs: IRCoTKnobs) -> None:
        self.trace = trace
        self.knobs = knobs
        self.thoughts: list[str] = []
        self.passages: dict[str, Passage] = {}
        self.best: dict[str, float] = {}
        self.searches = 0

    def search(self, query: str) -> tuple[str, ...]:
        """Search for `query`, add the passages, and return their pids."""
        if self.knobs.skip_inferences:
            words = [word for word in query.split() if word.lower() not in _QUESTION_WORDS]
            query = " ".join(words) or query
        passages = self.trace.search(query, k=self.knobs.k)
        if long := sum(map(self._too_long, core.each_once(passages, self.passages))):
            self.trace.count("passage_left_out", long)
        self.add(passages)
        return tuple(passage.pid for passage in passages)

    def add(self, passages: Passages) -> None:
        self.searches += 1
        for passage in passages:
            self.passages.setdefault(passage.pid, passage)
            before = self.best.get(passage.pid, passage.score)
            self.best[passage.pid] = max(passage.score, before)

    def query(self) -> str:
        """Return the next query: the last sentence, or the last that states a fact."""
        if not self.knobs.skip_inferences:
            return self.thoughts[-1]
        facts = (thought for thought in reversed(self.thoughts) if not is_inference(thought))
        return next(facts, self.trace.question)

    def kept(self) -> list[Passage]:
        passages = [passage for passage in self.passages.values() if not self._too_long(passage)]
        if self.knobs.keep == "best":
            passages.sort(key=lambda passage: -self.best[passage.pid])
        chosen: list[Passage] = []
        for new in passages:
            twins = (_alike(new.title, p.title) and _alike(new.text, p.text) for p in chosen)
            if self.knobs.keep != "first_distinct" or not any(twins):
                chosen.append(new)
        return chosen[: self.knobs.max_passages]

    def _too_long(self, passage: Passage) -> bool:
        limit = self.knobs.passage_words
        paragraph = self.trace.retriever.corpus.view == "paragraph"
        return bool(limit) and paragraph and len(passage.text.split()) > limit

    def context(self) -> list[str]:
        tokens = self.knobs.context_tokens
        passages = [first_words(passage, self.knobs.shown_words) for passage in self.kept()]
        lines = core.render(passages, max_tokens=tokens)
        if self.knobs.keep == "best" and self.searches > 1:
            fitting = sorted(passages[: len(lines)], key=lambda passage: self.best[passage.pid])
            lines = core.render(fitting, max_tokens=tokens)
        return lines


def is_inference(sentence: str) -> bool:
    """Return True if `sentence` only concludes or adds numbers, by IRCoT's rule."""
    return bool(_INFERENCE.search(sentence))


def ending(step: dspy.Prediction, thought: str) -> tuple[bool, str]:
    """Return True if the chain ends with a step, and its answer.

    Args:
        step: Reply of the model.
        thought: Sentence of the reply.

    Returns:
        True at the end, and the answer, which may be blank.
    """
    phrase = _ANSWER_PHRASE.search(thought)
    stated = phrase[1].strip() if phrase else ""
    answer = next(filter(is_answer, (step.answer, stated)), "")
    if step.next_step:
        return step.next_step == "answer", answer if step.next_step == "answer" else ""
    return is_answer(stated), stated if is_answer(stated) else ""


def first_words(passage: Passage, words: int) -> Passage:
    """Cut the text of a passage.

    Args:
        passage: The passage.
        words: Maximum number of words. 0 keeps all.
    """
    tokens = passage.text.split()
    if not words or len(tokens) <= words:
        return passage
    return replace(passage, text=" ".join(tokens[:words]) + " ...")


def _alike(a: str, b: str) -> bool:
    """Return True if two texts share a subsequence long enough for near-duplicates."""
    least = _NEAR_DUPLICATE * (len(a) + len(b)) / 2
    return min(len(a), len(b)) >= least and _in_common(a, b) >= least


def _in_common(a: str, b: str) -> int:
    """Return the length of the longest common subsequence, bit-parallel (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, character in enumerate(a):
        places[character] = places.get(character, 0) | 1 << place
    free = full = (1 << len(a)) - 1
    for character in b:
        taken = free & places.get(character, 0)
        free = (free + taken) | (free - taken)
    return len(a) - (free & full).bit_count()
