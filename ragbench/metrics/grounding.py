"""Whether what a program says stands in what it retrieved, cheaply and without a model.

A claim is *grounded* when one window of retrieved text (a sentence with its passage's title), or
two that share a name which the claim leaves out, hold all its numbers, all its names and most of
its other words, and agree with it about negation. Words are compared by their first letters. A
claim of a few words, such as a short answer, is grounded when it stands word for word in a passage.

What this cannot see: swapped roles ("A succeeded B"), paraphrase without shared words, comparisons
and arithmetic. `tests/conformance/grounding_cases.json` holds hand-labelled claims, and
docs/metrics.md the agreement with them; take the numbers as relative, and judge with a model where
a claim matters.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from heapq import nlargest
from itertools import combinations, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from ragbench.metrics.base import METRICS, Metric, Record, failed
from ragbench.metrics.kinds import answer_kind
from ragbench.metrics.text import Memo, normalise_answer

#: Share of a claim's words, names and numbers aside, that its windows must hold.
COVERAGE = 0.6
_NOT = "!"  # the stem of every negation
#: Letters, endings taken off, by which two words count as the same.
STEM = 5

_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(\u201c]?[A-Z0-9])")
_ENDING = re.compile(r"(?<=...)(?:ings?|ers?|ed|es|s|e)$")
# Words part at the apostrophe: "didn't" is read as "didn" and "t".
_NEGATIONS = frozenset({"not", "no", "never", "neither", "nor", "without", "none"}) | {
    f"{verb}n"
    for verb in ("did", "do", "does", "is", "are", "was", "were", "has", "have", "had", "could")
}
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at to for from by with as and or but that this these those it its he "
        "she his her him they their them is are was were be been being has have had do does did "
        "which who whom whose what when where there here also so thus therefore then than into "
        "about after before would could can will may one answer question passage passages s t",
    )
)
_NUMBERS = {
    "zero": "0",
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
    "eleven": "11",
    "twelve": "12",
}


class Claim(NamedTuple):
    """What must be found: stems of names and of other words, and numbers.

    `anchors` counts numbers and runs of capitalised words.
    """

    must: frozenset[str]  # names and numbers
    names: frozenset[str]
    words: frozenset[str]
    negated: bool
    anchors: int


class Window(NamedTuple):
    """The stems in a sentence of a passage and in its title, and both as text."""

    held: frozenset[str]
    text: str
    title: str


def is_grounded(claim: str, passages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether `claim` stands in `passages` by the rule of this module; an empty claim does not."""
    return _Evidence(passages).grounds(claim)


def stands_in(words: str, passages: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the normalised `words` stand whole in the title or the text of a passage."""
    inner = normalise_answer(words)
    texts = (normalise_answer(text) for p in passages for text in (p["title"], p["text"]))
    return bool(inner) and any(f" {inner} " in f" {text} " for text in texts)


def sentences(text: str) -> list[str]:
    """The sentences of `text`, blank ones left out."""
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def chain_fidelity(record: Record) -> float | None:
    """The share of the sentences of a program's thoughts that are grounded in what it retrieved.

    None where it wrote down no thought.
    """
    claims = [line for step in record["steps"] for line in sentences(step.get("thought") or "")]
    return _share(claims, record)


def hallucination_rate(record: Record) -> float | None:
    """The share of the answer's claims that are not grounded in what was retrieved.

    A yes or no makes no claim that could be looked up, and gives None.
    """
    answer = record["answer"]
    if answer_kind(answer) == "yes_no" or not normalise_answer(answer):
        return None
    grounded = _share(sentences(answer), record)
    return None if grounded is None else 1 - grounded


def _share(claims: Sequence[str], record: Record) -> float | None:
    claims = [claim for claim in claims if normalise_answer(claim)]
    if not claims:
        return None
    evidence = _Evidence(record["passages"])
    return sum(map(evidence.grounds, claims)) / len(claims)


def _says_something(text: str) -> bool:
    """Whether `text` reads as a sentence: more than six words, or it ends like one."""
    return len(text.split()) > 6 or text.rstrip().endswith((".", "!", "?"))


def _claim(text: str) -> Claim:
    found = [_READ[word] for word in _WORD.findall(text)]
    sorts = [sort for sort, _ in found]
    starts = [a for a, b in pairwise(["", *sorts]) if b == "name" and a != "name"]
    names = frozenset(stem for sort, stem in found if sort == "name")
    return Claim(
        must=names | {stem for sort, stem in found if sort == "number"},
        names=names,
        words=frozenset(stem for sort, stem in found if sort == "word"),
        negated="negation" in sorts,
        anchors=len(starts) + sorts.count("number"),
    )


def _read(word: str) -> tuple[str, str]:
    """What sort of word it is, and its stem."""
    low = word.lower()
    if word[0].isdigit() or low in _NUMBERS:
        return "number", _NUMBERS.get(low, word)
    if low in _NEGATIONS:
        return "negation", ""
    if low in _STOP:
        return "stop", ""
    return "name" if word[0].isupper() else "word", _ENDING.sub("", low)[:STEM]


# Three views of a word, so that a window is built by `map` alone: it is done for all that is seen.
_READ = Memo(_read)
_STEM = Memo(lambda word: _NOT if _READ[word][0] == "negation" else _READ[word][1])
_NAME = Memo(lambda word: _READ[word][1] if _READ[word][0] == "name" else "")


class _Evidence:
    """What was retrieved for one question; read word by word only where a claim needs it."""

    def __init__(self, passages: Sequence[Mapping[str, Any]]) -> None:
        self.passages = passages
        self.texts = [f"{p['title']} {p['text']}".lower() for p in passages]
        self._windows: dict[int, list[Window]] = {}

    def windows(self, number: int) -> list[Window]:
        """The windows of one passage."""
        if number not in self._windows:
            passage = self.passages[number]
            lines = passage.get("sentences") or sentences(passage["text"])
            self._windows[number] = _windows(passage["title"], lines)
        return self._windows[number]

    @cached_property
    def seen(self) -> frozenset[str]:
        """Every stem in any window."""
        every = (w.held for number in range(len(self.passages)) for w in self.windows(number))
        return frozenset().union(*every)

    def grounds(self, text: str) -> bool:
        """Whether the claim `text` is grounded here."""
        if _says_something(text):
            return self._holds_sentence(_claim(text))
        if answer_kind(text) in ("number", "date"):
            bare = _claim(text)._replace(words=frozenset())  # units and the order of a date vary
            return self._holds_in_one(bare)
        return stands_in(text, self.passages)

    def _holds_sentence(self, claim: Claim) -> bool:
        # The stem of a name starts it, so where no text has the stem no window can.
        if any(all(name not in text for text in self.texts) for name in claim.names):
            return False
        return self._holds_in_one(claim) or self._holds_in_two(claim)

    def _holds_in_one(self, claim: Claim) -> bool:
        return any(
            _holds(claim, window.held)
            for number, text in enumerate(self.texts)
            if all(name in text for name in claim.names)
            for window in self.windows(number)
        )

    def _holds_in_two(self, claim: Claim) -> bool:
        if not claim.must <= self.seen:
            return False
        wanted = claim.must | claim.words
        near = [
            (len(wanted & window.held), -number, window)
            for number in range(len(self.passages))
            for window in self.windows(number)
            if not wanted.isdisjoint(window.held)
        ]
        # Pairs of the best few, since a claim rests on few sentences, that lack no name in common.
        best = [(n, claim.must - w.held, w) for _, n, w in nlargest(12, near, key=itemgetter(0, 1))]
        joined = claim._replace(anchors=1)
        return any(
            _holds(joined, a.held | b.held) and _bridged(claim, a, b)
            for (left, lacks, a), (right, misses, b) in combinations(best, 2)
            if left != right and lacks.isdisjoint(misses)
        )


def _windows(title: str, lines: Sequence[str]) -> list[Window]:
    """One window a sentence.

    A pronoun stands for the title; without one, for a name of the sentence before.
    """
    subjects = [title] * len(lines) if title else ["", *lines]
    return [
        Window(_positive(subject).union(map(_STEM.__getitem__, _WORD.findall(line))), line, subject)
        for subject, line in zip(subjects, lines, strict=False)
    ]


@lru_cache(maxsize=4096)
def _positive(subject: str) -> frozenset[str]:
    """The stems of `subject`; a negation in it says nothing of what follows."""
    return frozenset(map(_STEM.__getitem__, _WORD.findall(subject))) - {_NOT}


def _names(window: Window) -> frozenset[str]:
    return _names_in(window.title) | _names_in(window.text)


@lru_cache(maxsize=4096)
def _names_in(text: str) -> frozenset[str]:
    return frozenset(map(_NAME.__getitem__, _WORD.findall(text))) - {""}


def _bridged(claim: Claim, a: Window, b: Window) -> bool:
    """Whether the windows share a name, and none that the claim has: it joins two facts."""
    shared = _names(a) & _names(b)
    return bool(shared) and shared.isdisjoint(claim.names)


def _holds(claim: Claim, held: frozenset[str]) -> bool:
    if not claim.must <= held or claim.negated != (_NOT in held):
        return False
    found = len(claim.words & held)
    # Where two names or numbers agree, fewer of the other words need to.
    needed = COVERAGE * len(claim.words) if claim.anchors < 2 else len(claim.words) // 2
    return found >= needed


METRICS.register("chain_fidelity")(
    Metric(
        "chain_fidelity",
        lambda record: 0.0 if failed(record) else chain_fidelity(record),
        "share of the sentences thought that are grounded in what was retrieved, by word rules",
    )
)
METRICS.register("hallucination_rate")(
    Metric(
        "hallucination_rate",
        lambda record: 1.0 if failed(record) else hallucination_rate(record),
        "share of the answer's claims not grounded in what was retrieved, by word rules",
        worst=1.0,
        higher_is_better=False,
    )
)
