"""Match passage names of another system, by id, text or title, to those of the data."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import dspy

from ragbench.passages import Corpus, Passage
from ragbench.text_normalization import words


class PassageMatcher:
    """Search for passages of a corpus by the names in a file of predictions.

    An id takes precedence over a text, and a text over a title. Texts are compared by their words,
    with or without the title before them. The question's own passages take precedence over all
    others.

    Attributes:
        unmatched: Names without a matching passage, with their number of uses.
    """

    def __init__(self, corpus: Corpus, mentions: Iterable[str]) -> None:
        self._corpus = corpus
        self.unmatched: Counter[str] = Counter()
        unresolved = set()
        for name in dict.fromkeys(mentions):
            if name not in corpus.positions:
                unresolved.add(_key(name))
        self._by_text: dict[str, int] = {}
        if unresolved:
            self._read_texts(unresolved)

    def _read_texts(self, keys: set[str]) -> None:
        """Store the positions of the passages whose texts are among `keys`."""
        for place, passage in enumerate(self._corpus):
            for key in _text_keys(passage):
                if key in keys:
                    self._by_text.setdefault(key, place)

    def match(self, mentions: Sequence[str], example: dspy.Example) -> list[Passage]:
        """Return the passages for the names, without duplicates.

        Args:
            mentions: Ids, texts or titles of the passages of one question, best first. A name
                without a match becomes a passage with that text.
            example: Question.

        Returns:
            The passages, in order.
        """
        by_name: dict[str, list[Passage]] = defaultdict(list)
        for passage in self._own(example):
            for name in {passage.pid, passage.title, *_text_keys(passage)}:
                by_name[name].append(passage)
        passages: dict[str, Passage] = {}
        for number, name in enumerate(mentions):
            candidates = by_name.get(name) or by_name.get(_key(name)) or self._elsewhere(name)
            if not candidates:
                self.unmatched[name] += 1
                candidates = [Passage(f"imported-{number}", "", name)]
            # Paragraphs of one article share a title: each mention takes the next of them.
            passage = next((p for p in candidates if p.pid not in passages), candidates[0])
            passages[passage.pid] = passage
        return list(passages.values())

    def _own(self, example: dspy.Example) -> list[Passage]:
        """Return the question's own passages, or in a pooled corpus the named ones."""
        places = self._corpus.own(example.question, example.qid) or ()
        if not places:
            pids = example.get("paragraph_pids", ())
            places = tuple(self._corpus.positions[p] for p in pids if p in self._corpus.positions)
        return [self._corpus[place] for place in places]

    def _elsewhere(self, name: str) -> list[Passage]:
        place = self._corpus.positions.get(name)
        if place is None:
            place = self._by_text.get(_key(name))
        if place is None:
            place = self._corpus.titled(name)
        if place is None:
            return []
        return [self._corpus[place]]


def _key(text: str) -> str:
    """Return the words of a text, which are the same in all spellings of it."""
    return " ".join(words(text))


def _text_keys(passage: Passage) -> tuple[str, str]:
    text = _key(passage.text)
    return text, f"{_key(passage.title)} {text}".strip()
