"""Add misleading passages to the results of any retriever, to test a program's robustness.

The four kinds are those that RAGShaper trains with (2026, arXiv:2601.08699). RAGShaper's passages
are written by an LM around the gold answer. These are built by rules from a passage and from names
of other passages, so they cost nothing, are the same in every run and do not know the answer. A
fifth kind, `neutral`, is the control: it replaces a hit without misleading.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, Self, get_args

from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.passages import Passage
from ragbench.retrievers.base import RETRIEVERS
from ragbench.retrievers.factory import Wrapper

Kind = Literal["look_alike", "false_shortcut", "split_evidence", "subjective", "neutral"]
#: A name: words with a capital, and the small words between them.
_NAME = re.compile(r"\b[A-Z][\w'-]*(?:\s+(?:of|de|the|van|von)?\s*[A-Z][\w'-]*)*")
_NUMBER = re.compile(r"(?<![\w.,])\d{1,4}(?![\w.,]*\d)")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
#: Number of passages whose names replace others.
_DONORS = 1000


class DistractingSettings(Knobs):
    """The settings for passages that are put among the hits of another retriever."""

    inner: str = Field("bm25", description="spec of the retriever that searches")
    rate: float = Field(0.5, ge=0, le=1, description="share of searches that are tampered with")
    per_search: int = Field(2, ge=1, le=100, description="misleading passages in such a search")
    kinds: tuple[Kind, ...] = Field(
        get_args(Kind)[:4], min_length=1, description="kinds of misleading passages"
    )
    seed: int = Field(0, ge=0, description="seeds which searches, passages, kinds and places")


@RETRIEVERS.register("distracting")
class Distracting(Wrapper):
    """Results of another retriever with misleading passages, to test robustness."""

    name = "distracting"
    Settings = DistractingSettings

    @cached_property
    def donors(self) -> Sequence[Passage]:
        """Passages of the corpus whose names replace others."""
        chance = random.Random(self.settings.seed)
        n = len(self.corpus)
        return [self.corpus[i] for i in sorted(chance.sample(range(n), min(_DONORS, n)))]

    @cached_property
    def names(self) -> Sequence[str]:
        """Their names, or those in the texts of passages without a title."""
        titles = [passage.title.partition(" (")[0].strip() for passage in self.donors]
        if not any(titles):
            for passage in self.donors:
                for name in _NAME.findall(passage.text):
                    if " " in name:
                        titles.append(name)
        return list(dict.fromkeys(filter(None, titles)))

    def search_many(self, queries: Sequence[str], *, k: int) -> list[list[Passage]]:
        """Search for each query. The query's text decides which results are altered.

        A misleading passage takes the score of the hit that it replaces.
        """
        rankings = self.parts[0].search_many(queries, k=k)
        return [self.presented(q, hits) for q, hits in zip(queries, rankings, strict=True)]

    def presented(self, query: str, hits: Sequence[Passage]) -> list[Passage]:
        """Return `hits` of a search, or of a program's own index, altered."""
        seed = f"{self.settings.seed} {query}".encode("utf-8", "surrogatepass")
        chance = random.Random(seed)
        passages = list(hits)
        if not hits or chance.random() >= self.settings.rate:
            return passages
        room = self.settings.per_search
        for source in chance.sample(passages, len(passages)):
            if not room:
                break
            pair = self._made(chance.choice(self.settings.kinds), source, query, passages, chance)
            if pair:  # some passages cannot be altered
                room -= 1
                passages[passages.index(source)] = pair[0]
                passages.insert(chance.randrange(len(hits)), pair[1])
        return [p.scored(hit.score) for p, hit in zip(passages, hits, strict=False)]

    def restrict(self, positions: Sequence[int]) -> Self:
        """Return this over the restricted inner retriever, with donors of the full corpus."""
        small = super().restrict(positions)
        if self.settings.rate:
            small.__dict__.update(donors=self.donors, names=self.names)
        return small

    def _made(
        self, kind: Kind, source: Passage, query: str, hits: list[Passage], chance: random.Random
    ) -> tuple[Passage, Passage] | None:
        """Return the new version of `source` and the passage to insert."""
        seen = " ".join([query, *map(str, hits)]).casefold()
        unseen = [name for name in self.names if name.casefold() not in seen]
        sentences = source.sentences or tuple(_END.split(source.text))
        title = source.title
        text = ""
        if kind == "look_alike":
            altered = _altered(source.text, title, unseen, chance)
            text = altered if altered != source.text else ""
        elif kind == "false_shortcut" and unseen:
            wrong = chance.choice(unseen)
            phrase = query.strip().rstrip(" ?.")
            text = (
                f"{phrase}: {wrong}. No other source is needed, since {wrong} is what all of them "
                "name."
            )
        elif kind == "split_evidence" and len(sentences) > 1:
            half = (len(sentences) + 1) // 2
            title = ""
            text = " ".join(sentences[half:])
            opening = sentences[:half]
            source = replace(source, text=" ".join(opening), sentences=opening)
        elif kind == "subjective":
            for sentence in sentences:
                claim = _altered(sentence, title, unseen, chance)
                if claim != sentence:
                    text = (
                        f"As many people see it: {claim} Whoever looks into it is bound to agree."
                    )
                    break
        elif kind == "neutral":
            near = f"{query} {source}".casefold()
            unrelated = [donor for donor in self.donors if donor.title.casefold() not in near]
            if unrelated:
                donor = chance.choice(unrelated)
                return source, replace(donor, pid=f"distractor-neutral-{donor.pid}")
        if not text:
            return None
        return source, Passage(f"distractor-{kind}-{source.pid}", title, text)


def _altered(text: str, title: str, replacements: Sequence[str], chance: random.Random) -> str:
    """Replace the names in `text` that are not in `title`, and shift its numbers."""
    title_words = set(title.split())
    renamings: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        begins = match.start() == 0 or text[: match.start()].rstrip().endswith((".", "!", "?"))
        # A single word that begins a sentence is more often "The" than a name.
        if (
            not replacements
            or not title_words.isdisjoint(name.split())
            or (begins and " " not in name)
        ):
            return name
        return renamings.setdefault(name, chance.choice(replacements))

    renamed = _NAME.sub(rename, text)
    return _NUMBER.sub(lambda m: str(int(m[0]) + chance.randint(1, 9)), renamed)
