"""IRCoT: interleave retrieval with the sentences of a chain of thought.

Trivedi et al. 2023 (arXiv:2212.10509). Each round writes one sentence of reasoning from all
passages so far, then searches with it. `spec`: at most 5 sentences, told how many are left; the
chain answers, or else an answer is forced from it and all that was found. `paper`: at most 10; a
query from the last sentence that is no mere inference, without question words; paragraphs of at
most 600 words (chunks of any length), shown up to 350, at most 15, near-duplicates dropped; and a
reader that sees no chain. `flash`, as FlashRAG runs it: every passage ranked by the best score it
ever had and, from the second search on, shown worst first.
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

# IRCoT's own rule: how a sentence of mere inference begins, or a sum with blanks in it.
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
    max_steps: int = bounded(5, 1, 50, "sentences at the most")
    max_passages: int = bounded(15, 1, 1000, "passages kept; later ones drop out")
    initial_retrieval: bool = Field(True, description="search with the question first")
    skip_inferences: bool = Field(False, description="no inferences nor question words as query")
    keep: Literal["first", "first_distinct", "best"] = Field(
        "first", description="which passages survive the cap; best: shown worst first"
    )
    passage_words: int = Field(
        0, ge=0, description="longest paragraph shown, never a chunk; 0: any"
    )
    shown_words: int = Field(0, ge=0, description="words shown of a passage; 0: all")
    separate_reader: bool = Field(False, description="a reader that sees no chain answers")
    reader: Reader = Field("cot", description="does that reader reason before the answer?")
    last_search: bool = Field(True, description="search with the last sentence of all too")
    tell_left: bool = Field(True, description="say how many sentences are left")


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
        """Rounds of one sentence and one search, then an answer."""
        chain = Chain(trace, self.knobs)
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

    def _think_and_search(self, trace: Trace, chain: Chain) -> tuple[str, core.StopReason]:
        """The chain's answer, blank if it gives none, and why it ended."""
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
            if repeated and not done:  # with an answer beside it, it has nothing else to add
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


class Chain:
    """One question's sentences, and the passages found with the best score each ever had."""

    def __init__(self, trace: Trace, knobs: IRCoTKnobs) -> None:
        self.trace = trace
        self.knobs = knobs
        self.thoughts: list[str] = []
        self.passages: dict[str, Passage] = {}
        self.best: dict[str, float] = {}
        self.searches = 0

    def search(self, query: str) -> tuple[str, ...]:
        """The pids found for `query`, whose passages are taken."""
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
        """What is searched with next: the last sentence, or the last that states a fact."""
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
    """Whether `sentence` only concludes or adds up, by IRCoT's rule."""
    return bool(_INFERENCE.search(sentence))


def ending(step: dspy.Prediction, thought: str) -> tuple[bool, str]:
    """Whether the chain ends with `step`, and the answer it gives, which may be blank."""
    phrase = _ANSWER_PHRASE.search(thought)
    stated = phrase[1].strip() if phrase else ""
    answer = next(filter(is_answer, (step.answer, stated)), "")
    if step.next_step:
        return step.next_step == "answer", answer if step.next_step == "answer" else ""
    return is_answer(stated), stated if is_answer(stated) else ""


def first_words(passage: Passage, words: int) -> Passage:
    """`passage` cut after so many words of its text; 0: whole."""
    tokens = passage.text.split()
    if not words or len(tokens) <= words:
        return passage
    return replace(passage, text=" ".join(tokens[:words]) + " ...")


def _alike(a: str, b: str) -> bool:
    """Whether so many characters stand in the same order in both that they are near-duplicates."""
    least = _NEAR_DUPLICATE * (len(a) + len(b)) / 2
    return min(len(a), len(b)) >= least and _in_common(a, b) >= least


def _in_common(a: str, b: str) -> int:
    """Length of the longest common subsequence, by a bit for each character of `a` (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, character in enumerate(a):
        places[character] = places.get(character, 0) | 1 << place
    free = full = (1 << len(a)) - 1
    for character in b:
        taken = free & places.get(character, 0)
        free = (free + taken) | (free - taken)
    return len(a) - (free & full).bit_count()
