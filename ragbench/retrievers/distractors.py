"""Any retriever, with misleading passages put among its hits: a test of a program's robustness.

The four kinds are those that RAGShaper trains with (2026, arXiv:2601.08699). There an LM writes
them around the gold answer; these are made by rule, from the text of a passage and names of other
passages, so that they cost nothing, are the same in every run and know nothing of the answer. A
fifth, `neutral`, is the control: it takes the place of a hit, and misleads nobody.
"""

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import RETRIEVERS, Passage
from ragbench.retrievers.factory import Wrapper

Kind = Literal["look_alike", "false_shortcut", "split_evidence", "subjective", "neutral"]
#: Those that mislead.
KINDS: tuple[Kind, ...] = ("look_alike", "false_shortcut", "split_evidence", "subjective")

#: A name: words with a capital, and the small words between them.
_NAME = re.compile(r"\b[A-Z][\w'-]*(?:\s+(?:of|de|the|van|von)?\s*[A-Z][\w'-]*)*")
_NUMBER = re.compile(r"(?<![\w.,])\d{1,4}(?![\w.,]*\d)")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
#: Passages whose names stand for others' in made-up
_DONORS = 1000


class DistractingSettings(Knobs):
    """The settings for passages that are put among the hits of another retriever."""

    inner: str = Field("bm25", description="spec of the retriever that searches")
    rate: float = Field(0.5, ge=0, le=1, description="share of searches that are tampered with")
    per_search: int = Field(2, ge=1, le=100, description="misleading passages in such a search")
    kinds: tuple[Kind, ...] = Field(KINDS, min_length=1, description="kinds of misleading passages")
    seed: int = Field(0, ge=0, description="seeds which searches, passages, kinds and places")


@RETRIEVERS.register("distracting")
class Distracting(Wrapper):
    """Another retriever's hits with misleading passages among them, to test robustness."""

    name = "distracting"
    Settings = DistractingSettings

    @cached_property
    def donors(self) -> tuple[Passage, ...]:
        """Passages of the corpus, whose names stand in for those of others."""
        chance = random.Random(self.settings.seed)
        places = chance.sample(range(len(self.corpus)), min(_DONORS, len(self.corpus)))
        return tuple(self.corpus[place] for place in sorted(places))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Their names, or those in the texts of passages without a title."""
        titles = [passage.title.partition(" (")[0].strip() for passage in self.donors]
        names = [name for name in titles if name] or [
            name for passage in self.donors for name in names_in(passage.text) if " " in name
        ]
        return tuple(dict.fromkeys(names))

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list per query, in order; whether one is tampered with depends on its text alone.

        Misleading passages have the score of the hit whose place they take.
        """
        self.build()
        rankings = self._inner.search_many(queries, k=k)
        return [self._tampered(q, hits) for q, hits in zip(queries, rankings, strict=True)]

    def presented(self, query: str, hits: Sequence[Passage]) -> list[Passage]:
        """`hits` of a program's own index, tampered with as those of a search would be."""
        return self._tampered(query, list(hits))

    def restrict(self, positions: Sequence[int], **other: Any) -> Self:
        """The same over the inner retriever, restricted; donors are those of the whole corpus."""
        small = super().restrict(positions, **other)
        if self.settings.rate:
            small.__dict__.update(donors=self.donors, names=self.names)
        return small

    def _tampered(self, query: str, hits: list[Passage]) -> list[Passage]:
        chance = random.Random(
            hashlib.sha256(
                f"{self.settings.seed} {query}".encode("utf-8", "surrogatepass")
            ).digest()
        )
        if not hits or chance.random() >= self.settings.rate:
            return hits
        known = " ".join([query, *map(str, hits)]).casefold()
        names = [name for name in self.names if name.casefold() not in known]
        scores = [hit.score for hit in hits]
        shown, sources = list(hits), list(hits)
        chance.shuffle(sources)
        left = self.settings.per_search
        for source in sources:
            kind: Kind = chance.choice(self.settings.kinds)
            made = self._made(kind, source, query, names, chance) if left else None
            if made is None:  # some passages give nothing to work with: take another
                continue
            left -= 1
            if kind == "split_evidence":
                shown[shown.index(source)] = made[0]
            shown.insert(chance.randrange(len(scores)), made[-1])
        return [p.scored(score) for p, score in zip(shown, scores, strict=False)]

    def _made(
        self, kind: Kind, source: Passage, query: str, names: list[str], chance: random.Random
    ) -> tuple[Passage, ...] | None:
        """The replacement for `source`, if any, and the passage that is put in."""
        if kind == "split_evidence":
            return split_evidence(source)
        if kind == "neutral":
            return self._neutral(source, query, chance)
        if kind == "false_shortcut":
            made = false_shortcut(source, query, names, chance)
        else:
            made = (look_alike if kind == "look_alike" else subjective)(source, names, chance)
        return (made,) if made else None

    def _neutral(self, source: Passage, query: str, chance: random.Random) -> tuple[Passage] | None:
        """A passage whose name neither `query` nor `source` has."""
        known = f"{query} {source}".casefold()
        others = [p for p in self.donors if p.pid != source.pid and p.title.casefold() not in known]
        if not others:
            return None
        other = chance.choice(others)
        return (Passage(_pid("neutral", other), other.title, other.text),)


def names_in(text: str) -> list[str]:
    """The names in `text`, in order, each once; the first word of a sentence may be among them."""
    return list(dict.fromkeys(_NAME.findall(text)))


def look_alike(passage: Passage, names: Sequence[str], chance: random.Random) -> Passage | None:
    """A namesake of what `passage` is about: other names and numbers; None where it has neither."""
    text = _altered(passage.text, keep=passage.title, names=names, chance=chance)
    if text == passage.text:
        return None
    return Passage(_pid("look_alike", passage), passage.title, text)


def false_shortcut(
    passage: Passage, query: str, names: Sequence[str], chance: random.Random
) -> Passage | None:
    """A passage that answers `query` at once, and wrongly."""
    if not names:
        return None
    wrong = chance.choice(names)
    asked = query.strip().rstrip(" ?.")
    text = f"{asked}: {wrong}. No other source is needed, since {wrong} is what all of them name."
    return Passage(_pid("false_shortcut", passage), passage.title, text)


def split_evidence(passage: Passage) -> tuple[Passage, Passage] | None:
    """`passage` cut in two: its beginning, under its own pid, and the rest, without the title.

    None where the text is one sentence.
    """
    parts = passage.sentences or tuple(_END.split(passage.text))
    if len(parts) < 2:
        return None
    half = (len(parts) + 1) // 2
    first = replace(passage, text=" ".join(parts[:half]), sentences=parts[:half])
    return first, Passage(_pid("split_evidence", passage), "", " ".join(parts[half:]))


def subjective(passage: Passage, names: Sequence[str], chance: random.Random) -> Passage | None:
    """An opinion that contradicts the first sentence of `passage` that has a name or a number."""
    for sentence in passage.sentences or _END.split(passage.text):
        claim = _altered(sentence, keep=passage.title, names=names, chance=chance)
        if claim != sentence:
            text = f"As many people see it: {claim} Whoever looks into it is bound to agree."
            return Passage(_pid("subjective", passage), passage.title, text)
    return None


def _pid(kind: Kind, passage: Passage) -> str:
    return f"distractor-{kind}-{passage.pid}"


def _altered(text: str, *, keep: str, names: Sequence[str], chance: random.Random) -> str:
    """`text` with each name that is no part of `keep` replaced by another, and numbers shifted."""
    kept = set(keep.split())
    others: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        begins = match.start() == 0 or text[: match.start()].rstrip().endswith((".", "!", "?"))
        # A single word that begins a sentence is more often "The" than a name.
        if not names or not kept.isdisjoint(name.split()) or (begins and " " not in name):
            return name
        return others.setdefault(name, chance.choice(names))

    renamed = _NAME.sub(rename, text)
    return _NUMBER.sub(lambda m: str(int(m[0]) + chance.randint(1, 9)), renamed)
