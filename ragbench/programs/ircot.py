"""IRCoT: interleave retrieval with the sentences of a chain of thought.

Trivedi et al. 2023 (arXiv:2212.10509). Each round writes one sentence of reasoning from all
passages so far, then searches with it. Variants:

- `seed`: the simplified specification: k=3, at most 5 sentences, the chain itself answers. Its
  first sentence was to come from memory; here the question is searched first, and
  `initial_retrieval=false` is that start as an ablation.
- `paper`: a first search with the question; one sentence a round, at most 10; a query from the last
  sentence that is not a mere inference, without question words; paragraphs of at most 600 words,
  shown up to 350, at most 15, near-duplicates dropped; and a separate reader that sees the
  paragraphs but not the chain. The published demonstrations are left to `compile`.
- `flash`: as FlashRAG and HippoRAG run it: few rounds, every passage ranked by the best score it
  ever had and, from the second search on, shown worst first, and the chain answers.

A typed choice of the next step is the sign to stop; the answer phrase ("the answer is ...") counts
only where that could not be read, and a refusal ("the answer is not stated") is no answer. A
thought that repeats an earlier one or the question is asked for once more, at a higher temperature;
a second one ends the chain. One that repeats an earlier sentence and comes with an answer has
nothing to add: that answer is taken, whatever step it names. A chain that ends without an answer
leaves it to the reader of `paper`; where nothing was searched, as when the first sentence cannot
be read, the question is searched before.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import dspy
from pydantic import Field

from ragbench.metrics import normalise_answer
from ragbench.programs.core import (
    PROGRAMS,
    RESAMPLING_TEMPERATURE,
    Autonomy,
    ProgramKnobs,
    RAGProgram,
    StopReason,
    Trace,
    chain_of_thought,
    first_sentence,
    is_answer,
    predict,
    render,
)
from ragbench.retrievers import Passage, Retriever
from ragbench.signatures import AnswerFromContext, CoTStep

# IRCoT's own rule: how a sentence of mere inference begins, or a sum with blanks in it.
_NUMBER = r"\d(?:[\d,]*\d)?(?:\.\d+)?"
_INFERENCE = re.compile(
    rf"^(?:thus[ ,]|so[ ,]|that is,|therefore|hence)|{_NUMBER} [+-] {_NUMBER} = {_NUMBER}",
    re.IGNORECASE,
)
_QUESTION_WORDS = frozenset(["who", "what", "when", "where", "why", "which", "how", "does", "is"])
_NEAR_DUPLICATE = 0.9
_ANSWER_PHRASE = re.compile(r"^(?:.*\b)?answer is:?\s+(.+?)\.?$", re.IGNORECASE | re.DOTALL)


class IRCoTKnobs(ProgramKnobs):
    """Knobs of `ircot`."""

    k: int = Field(3, ge=1, le=100, description="passages per search")
    max_steps: int = Field(5, ge=1, le=50, description="sentences at the most")
    max_passages: int = Field(15, ge=1, le=1000, description="passages kept; later ones drop out")
    initial_retrieval: bool = Field(True, description="search with the question first")
    query_from: Literal["last_thought", "non_reasoning"] = Field(
        "last_thought", description="which sentence becomes the next query"
    )
    strip_question_words: bool = Field(False, description="leave who, what, ... out of queries")
    one_sentence: bool = Field(True, description="cut each thought to its first sentence")
    keep: Literal["first", "first_distinct", "best"] = Field(
        "first", description="which passages survive the cap"
    )
    shown_words: int = Field(100_000, ge=10, description="words shown of a passage")
    best_last: bool = Field(
        False, description="from the second search on, show the best passages last (keep=best)"
    )
    passage_words: int = Field(100_000, ge=10, description="longer passages are left out")
    separate_reader: bool = Field(False, description="the reader answers even where the chain did")


@PROGRAMS.register("ircot")
class IRCoT(RAGProgram):
    """Think one sentence, search with it, and repeat until the answer follows."""

    name = "ircot"
    family = "recursive"
    paper = "arXiv:2212.10509"
    calls = "steps (<= max_steps) + 1 forced or reader call"
    autonomy = Autonomy("no", "yes", "partly")
    Knobs = IRCoTKnobs
    variants = {  # noqa: RUF012
        "seed": {},
        "paper": {
            "k": 4,
            "max_steps": 10,
            "query_from": "non_reasoning",
            "strip_question_words": True,
            "keep": "first_distinct",
            "shown_words": 350,
            "passage_words": 600,
            "separate_reader": True,
        },
        "flash": {
            "k": 5,
            "max_steps": 5,
            "max_passages": 1000,
            "keep": "best",
            "best_last": True,
        },
    }

    def __init__(self, retriever: Retriever, **knobs: object) -> None:
        super().__init__(retriever, **knobs)
        self.think = predict(CoTStep)
        self.read = chain_of_thought(AnswerFromContext)

    def solve(self, trace: Trace) -> dspy.Prediction:
        """Rounds of one thought and one search, then an answer."""
        answer, reason = self._chain(trace)
        if self.knobs.separate_reader or not answer:
            if not trace.searches:
                self._search(trace, trace.question)
            answer = self.force(trace) or answer
        return trace.prediction(answer, reason, passages=self._kept(trace))

    def force(self, trace: Trace) -> str:
        """The reader's answer: it sees the passages, not the chain, which led to none."""
        context = self._context(trace)
        return trace.answer(self.read, last=True, context=context, question=trace.question)

    def _chain(self, trace: Trace) -> tuple[str, StopReason]:
        if self.knobs.initial_retrieval:
            self._search(trace, trace.question)
        for left in reversed(range(self.knobs.max_steps)):
            thoughts = _thoughts(trace)
            step, thought = self._think(trace, thoughts)
            settled = _is_copy(thought, thoughts) and is_answer(str(step.answer))
            if _is_copy(thought, [*thoughts, trace.question]) and not settled:
                trace.count("resampled")
                step, thought = self._think(trace, thoughts, copied=thought)
                settled = _is_copy(thought, thoughts) and is_answer(str(step.answer))
            done, answer = (True, str(step.answer)) if settled else _ending(step, thought)
            if done:
                trace.step("think", thought=thought, observation=answer, notes={"done": True})
                return answer, "answered"
            if not thought or _is_copy(thought, [*thoughts, trace.question]):
                return "", "parse_fallback" if step.get("parse_fallback") else "no_progress"
            self._follow(trace, [*thoughts, thought], last=not left)
        return "", "max_steps"

    def _think(
        self, trace: Trace, thoughts: list[str], *, copied: str = ""
    ) -> tuple[dspy.Prediction, str]:
        """The next step and its thought; `copied` is what an earlier reply repeated."""
        written = [f"{number}. {thought}" for number, thought in enumerate(thoughts, start=1)]
        again: dict[str, Any] = {}
        if copied:
            written.append(f"Already known, write something else: {copied}")
            again["config"] = {"temperature": RESAMPLING_TEMPERATURE}
        step = trace.ask(
            self.think,
            otherwise={"thought": "", "next_step": "", "answer": ""},
            context=self._context(trace),
            question=trace.question,
            thoughts="\n".join(written),
            **again,
        )
        thought = str(step.thought or "").strip()
        return step, first_sentence(thought) if self.knobs.one_sentence else thought

    def _follow(self, trace: Trace, thoughts: list[str], *, last: bool) -> None:
        if last and self.knobs.initial_retrieval:  # one search a sentence, the first one included
            trace.step("think", thought=thoughts[-1])
            return
        query = self._query(trace.question, thoughts)
        passages = self._search(trace, query)
        trace.step("think", thought=thoughts[-1], input=query, pids=tuple(p.pid for p in passages))

    def _search(self, trace: Trace, query: str) -> list[Passage]:
        if self.knobs.strip_question_words:
            words = [word for word in query.split() if word.lower() not in _QUESTION_WORDS]
            query = " ".join(words) or query
        return trace.search(query, k=self.knobs.k)

    def _query(self, question: str, thoughts: list[str]) -> str:
        if self.knobs.query_from == "last_thought":
            return thoughts[-1]
        facts = [thought for thought in thoughts if not is_inference(thought)]
        return facts[-1] if facts else question

    def _kept(self, trace: Trace) -> list[Passage]:
        passages = _by_best_score(trace) if self.knobs.keep == "best" else trace.passages
        short = [p for p in passages if len(p.text.split()) <= self.knobs.passage_words]
        if self.knobs.keep == "first_distinct":
            short = _distinct(short)
        return short[: self.knobs.max_passages]

    def _context(self, trace: Trace) -> list[str]:
        shown = [_cut(passage, self.knobs.shown_words) for passage in self._kept(trace)]
        lines = render(shown, max_tokens=self.knobs.context_tokens)
        if not self.knobs.best_last or len(trace.searches) < 2:
            return lines
        kept = {passage.pid for passage in shown[: len(lines)]}
        best = _best_scores(trace)
        last = sorted((p for p in trace.passages if p.pid in kept), key=lambda p: best[p.pid])
        cut = [_cut(passage, self.knobs.shown_words) for passage in last]
        return render(cut, max_tokens=self.knobs.context_tokens)


def is_inference(sentence: str) -> bool:
    """Whether `sentence` only concludes or adds up, by IRCoT's rule."""
    return bool(_INFERENCE.search(sentence))


def _ending(step: dspy.Prediction, thought: str) -> tuple[bool, str]:
    """Whether the chain ends here, and the answer it gives, which may be blank."""
    phrase = _ANSWER_PHRASE.search(thought)
    stated = phrase[1].strip() if phrase else ""
    said = [text for text in (str(step.answer or "").strip(), stated) if is_answer(text)]
    if step.next_step:
        return (True, said[0] if said else "") if step.next_step == "answer" else (False, "")
    return is_answer(stated), stated if is_answer(stated) else ""


def _is_copy(thought: str, earlier: list[str]) -> bool:
    """Whether `thought` says what one of `earlier` says, by its normalised words."""
    return bool(thought) and normalise_answer(thought) in map(normalise_answer, earlier)


def _thoughts(trace: Trace) -> list[str]:
    return [step.thought for step in trace.steps if step.action == "think"]


def _best_scores(trace: Trace) -> dict[str, float]:
    best: dict[str, float] = {}
    for search in trace.searches:
        for pid, score in search.hits:
            best[pid] = max(score, best.get(pid, score))
    return best


def _by_best_score(trace: Trace) -> list[Passage]:
    best = _best_scores(trace)
    return sorted(trace.passages, key=lambda p: -best[p.pid])


def _distinct(passages: list[Passage]) -> list[Passage]:
    kept: list[Passage] = []
    for passage in passages:
        if not any(_alike(passage.title, p.title) and _alike(passage.text, p.text) for p in kept):
            kept.append(passage)
    return kept


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


def _cut(passage: Passage, words: int) -> Passage:
    parts = passage.text.split()
    if len(parts) <= words:
        return passage
    return replace(passage, text=" ".join(parts[:words]) + " ...")
