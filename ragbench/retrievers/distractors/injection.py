"""Any retriever, with misleading passages put among its hits: a test of a program's robustness."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import RETRIEVERS, Corpus, Passage, Retriever
from ragbench.retrievers.distractors import texts
from ragbench.retrievers.distractors.texts import KINDS, Kind
from ragbench.retrievers.factory import make_retriever

#: Passages whose names stand for others' in made-up texts.
_DONORS = 1000


class DistractingSettings(Knobs):
    """The settings for passages that are put among the hits of another retriever."""

    inner: str = Field("bm25", description="spec of the retriever that searches")
    rate: float = Field(0.5, ge=0, le=1, description="share of searches that are tampered with")
    per_search: int = Field(2, ge=1, le=100, description="misleading passages in such a search")
    kinds: tuple[Kind, ...] = Field(KINDS, min_length=1, description="kinds of misleading passages")
    seed: int = Field(0, ge=0, description="seeds which searches, passages, kinds and places")


@RETRIEVERS.register("distracting")
class Distracting(Retriever):
    """Another retriever's hits with misleading passages among them, to test robustness."""

    name = "distracting"
    Settings = DistractingSettings

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self._inner = make_retriever(self.settings.inner, corpus)

    @property
    def parts(self) -> tuple[Retriever, ...]:
        """The retriever that searches."""
        return (self._inner,)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of other passages of the corpus, which stand in for those of a passage."""
        chance = random.Random(self.settings.seed)
        places = chance.sample(range(len(self.corpus)), min(_DONORS, len(self.corpus)))
        donors = [self.corpus[place] for place in sorted(places)]
        titles = [passage.title.partition(" (")[0].strip() for passage in donors]
        names = [name for name in titles if name] or [
            name for passage in donors for name in texts.names_in(passage.text) if " " in name
        ]
        return tuple(dict.fromkeys(names))

    def search(self, query: str, *, k: int) -> list[Passage]:
        """At most `k` passages; misleading ones have the score of the hit whose place they take."""
        return self.search_many([query], k=k)[0]

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """One list per query, in order; whether one is tampered with depends on its text alone."""
        self.build()
        rankings = self._inner.search_many(queries, k=k)
        return [self._tampered(q, hits) for q, hits in zip(queries, rankings, strict=True)]

    def presented(self, query: str, hits: Sequence[Passage]) -> list[Passage]:
        """`hits` of a program's own index, tampered with as those of a search would be."""
        return self._tampered(query, list(hits))

    def restrict(self, positions: Sequence[int]) -> Distracting:
        """The same over the inner retriever, restricted; names are those of the whole corpus."""
        small = type(self)(self.corpus.subset(positions), **self.settings.model_dump())
        small._inner = self._inner.restrict(positions)
        if self.settings.rate:
            small.__dict__["names"] = self.names
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
            return texts.split_evidence(source)
        if kind == "false_shortcut":
            made = texts.false_shortcut(source, query, names, chance)
        elif kind == "look_alike":
            made = texts.look_alike(source, names, chance)
        else:
            made = texts.subjective(source, names, chance)
        return (made,) if made else None
