"""The long form of Self-RAG: a beam search over segments (Asai et al. 2023, Algorithm 1).

A segment is one sentence. Before each segment the model decides whether to retrieve, with the
question and the last sentence as the queries. One call per passage writes a sentence and its
labels. Unsupported sentences are dropped, and the paths with the best scores are kept. The score of
a path is the product of the scores of its sentences, each divided by the best possible score.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import dspy

from ragbench.programs import core
from ragbench.programs.core import Trace, is_answer
from ragbench.programs.core.prompts import render_one
from ragbench.programs.core.text import one_line
from ragbench.programs.self_rag.grades import SelfRAGKnobs, share
from ragbench.retrievers import Passage
from ragbench.text_normalization import question_key, words


@dataclass(frozen=True)
class Path:
    """Sentences one after another, their passages and score, and the answer if it follows."""

    sentences: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    score: float = 1.0
    answer: str = ""


class Beam:
    """The paths of one question. `best` is the first of those kept."""

    def __init__(
        self, trace: Trace, knobs: SelfRAGKnobs, decide: dspy.Module, critique: dspy.Module
    ) -> None:
        self.trace = trace
        self.knobs = knobs
        self.decide = decide
        self.critique = critique
        self._kept = [Path()]
        self._rejected: set[str] = set()  # pids read since the last supported sentence

    @property
    def best(self) -> Path:
        return self._kept[0]

    def search(self) -> core.StopReason:
        """Add a sentence to every kept path until the best path has the answer or a limit."""
        for _ in range(self.knobs.depth):
            before = len(self._rejected)
            grown = self._grown()
            if grown:
                self._rejected.clear()
                grown.sort(key=lambda path: (-path.score, not path.answer))  # stable
                self._kept = grown[: self.knobs.beam_width]
                if self.best.answer:
                    return "answered"
            elif len(self._rejected) == before:  # otherwise the next passages are read
                break
        if grown:
            return "max_steps"
        return "no_progress"

    def _grown(self) -> list[Path]:
        """Return the finished paths, and each open path with one more sentence, without repeats."""
        open_paths = [path for path in self._kept if not path.answer]
        retrieve = self.trace.fan_out(self._needs_passages, open_paths, calls_each=1)
        jobs = list[tuple[Path, Passage | None]]()
        read: list[str] = []
        for path, needed in zip(open_paths, retrieve, strict=False):
            hits: list[Passage | None] = [None]
            if needed:
                hits = list(self._found(path))
                read += [hit.pid for hit in hits if hit]
            jobs += [(path, hit) for hit in hits]
        longer = self.trace.fan_out(lambda job: self._longer(*job), jobs)
        self._rejected.update(read)
        unlike = {question_key(" ".join(p.sentences)): p for p in self._kept if p.answer}
        for path in sorted(filter(None, longer), key=lambda path: -path.score):
            unlike.setdefault(question_key(" ".join(path.sentences)), path)
        return list(unlike.values())

    def _found(self, path: Path) -> list[Passage]:
        """Return passages for the question and the last sentence that `path` has not used."""
        queries = [self.trace.question]
        if path.sentences:
            *earlier, last_sentence = path.sentences
            known_words = set(words(" ".join([self.trace.question, *earlier])))
            added = [piece for piece in _pieces(last_sentence) if set(words(piece)) - known_words]
            # The new words alone too: those of a long question outweigh them.
            queries = [f"{self.trace.question} {last_sentence}", " ".join(added) or last_sentence]
        used = {passage.pid for passage in path.passages} | self._rejected
        rankings = self.trace.search_many(queries, k=self.knobs.k + len(used))
        fresh = core.each_once(core.fuse(rankings), used)[: self.knobs.k]
        self.trace.step("search", input="; ".join(queries), of=fresh)
        return fresh

    def _needs_passages(self, path: Path) -> bool:
        if self.knobs.gate != "ask":
            return self.knobs.gate == "always"
        thoughts = list(path.sentences)
        reply = self.trace.ask(self.decide, otherwise={"retrieve": True}, thoughts=thoughts)
        return bool(reply.retrieve)

    def _longer(self, path: Path, passage: Passage | None) -> Path | None:
        """Return `path` with the sentence that the model writes from `passage`, if supported."""
        passage_text = render_one(passage, max_tokens=self.knobs.context_tokens) if passage else ""
        reply = self.trace.ask(
            self.critique,
            otherwise={"relevance": "relevant", "support": "partial", "utility": 3},
            passage=passage_text,
            thoughts=list(path.sentences),
        )
        sentence = one_line(reply.sentence)
        support = reply.support if passage else "partial"  # memory has nothing to be graded by
        score = share(self.knobs, reply.relevance, support, reply.utility)
        self.trace.step(
            "critique",
            observation=sentence,
            of=[passage] if passage else [],
            notes={
                "relevance": reply.relevance,
                "support": support,
                "utility": reply.utility,
                "score": round(path.score * score, 4),
            },
        )
        sentence_keys = map(question_key, path.sentences)
        if not sentence or support == "none" or question_key(sentence) in sentence_keys:
            return None
        return Path(
            (*path.sentences, sentence),
            (*path.passages, *([passage] if passage else [])),
            path.score * score,
            reply.answer if is_answer(reply.answer) else "",
        )


def _pieces(sentence: str) -> list[str]:
    """Split a sentence into words, but keep the words of a name together."""
    pieces: list[str] = []
    for is_name, group in groupby(sentence.split(), key=lambda word: word[:1].isupper()):
        adjacent = list(group)
        pieces += [" ".join(adjacent)] if is_name else adjacent
    return pieces
