"""Whether the words of what a program says stand in what it retrieved, without a model.

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
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from heapq import nlargest
from itertools import combinations
from operator import itemgetter
from typing import NamedTuple

from ragbench.metrics.kinds import answer_kind
from ragbench.metrics.text import Memo, normalise_answer, strip_punctuation
from ragbench.record import ShownPassage

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
_SPELT = frozenset(_NUMBERS.values())
_SORTS = ("name", "number", "word", "negation", "stop")


class Claim(NamedTuple):
    """The parts of a claim to look for: stems of names and of other words, and numbers.

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


def stands_in(words: str, passages: Iterable[ShownPassage]) -> bool:
    """Whether the normalised `words` stand whole in the title or the text of a passage."""
    inner = normalise_answer(words)
    longest = max(inner.split(), key=len, default="")
    texts = [text for p in passages for text in (p.title, p.text)]
    # To normalise a text is slow: one that lacks the longest word needs not be.
    if not inner or longest not in strip_punctuation("\n".join(texts).lower()):
        return False
    likely = (text for text in texts if longest in strip_punctuation(text.lower()))
    return any(f" {inner} " in f" {normalise_answer(text)} " for text in likely)


def sentences(text: str) -> list[str]:
    """The sentences of `text`, blank ones left out."""
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def grounded(claims: Sequence[str], passages: Sequence[ShownPassage]) -> list[bool]:
    """Of each claim whether it stands in `passages` by the rule of this module."""
    return list(map(_Evidence(passages, claims).grounds, claims))


def says_something(text: str) -> bool:
    """Whether `text` reads as a sentence: more than six words, or it ends like one."""
    return len(text.split()) > 6 or text.rstrip().endswith((".", "!", "?"))


def _claim(text: str) -> Claim:
    stems: dict[str, list[str]] = {sort: [] for sort in _SORTS}
    before, runs = "", 0
    for sort, stem in map(_READ.__getitem__, _words(text)):
        stems[sort].append(stem)
        runs += sort == "name" and before != "name"
        before = sort
    names = frozenset(stems["name"])
    return Claim(
        must=names.union(stems["number"]),
        names=names,
        words=frozenset(stems["word"]),
        negated=bool(stems["negation"]),
        anchors=runs + len(stems["number"]),
    )


def _read(word: str) -> tuple[str, str]:
    """The kind of a word, and its stem."""
    low = word.lower()
    if word[0].isdigit() or low in _NUMBERS:
        return "number", _NUMBERS.get(low, word)
    if low in _NEGATIONS:
        return "negation", ""
    if low in _STOP:
        return "stop", ""
    return "name" if word[0].isupper() else "word", _ENDING.sub("", low)[:STEM]


def _words(text: str) -> list[str]:
    """What `_WORD` finds in `text`; of plain text by quicker means."""
    return text.translate(_BLANKED).split() if text.isascii() else _WORD.findall(text)


_BLANKED = {code: " " for code in range(128) if not _WORD.fullmatch(chr(code))}
# What is done for every word that was seen is done by `map` and table look-ups alone.
_READ = Memo(_read)
_STEM = Memo(lambda word: _NOT if _READ[word][0] == "negation" else _READ[word][1])
_NAME = Memo(lambda word: _READ[word][1] if _READ[word][0] == "name" else "")


class _Evidence:
    """What was retrieved for one question, as far as it matters for `claims`.

    It is read word by word only where a claim needs it, and words that no claim has are dropped.
    """

    def __init__(self, passages: Sequence[ShownPassage], claims: Sequence[str]) -> None:
        self.passages = passages
        self._claims = claims
        self._windows: dict[int, list[Window]] = {}

    @cached_property
    def claims(self) -> dict[str, Claim]:
        """What each claim asks for; a short answer is looked up without it."""
        return {text: _claim(text) for text in self._claims}

    @cached_property
    def _known(self) -> frozenset[str]:
        every = (claim.must | claim.words for claim in self.claims.values())
        return frozenset({_NOT}).union(*every)

    @cached_property
    def texts(self) -> list[str]:
        """Each passage in lower case, its title before it."""
        return [f"{p.title} {p.text}".lower() for p in self.passages]

    @cached_property
    def joined(self) -> str:
        """All of `texts`."""
        return "\n".join(self.texts)

    def windows(self, number: int) -> list[Window]:
        """The windows of one passage."""
        if number not in self._windows:
            passage = self.passages[number]
            lines = passage.sentences or sentences(passage.text)
            self._windows[number] = _windows(passage.title, lines, self._known)
        return self._windows[number]

    @cached_property
    def every(self) -> list[tuple[int, Window]]:
        """All windows, each after its passage's number."""
        return [(n, w) for n in range(len(self.passages)) for w in self.windows(n)]

    @cached_property
    def seen(self) -> frozenset[str]:
        """Every stem in any window."""
        return frozenset().union(*(window.held for _, window in self.every))

    def grounds(self, text: str) -> bool:
        """Whether the claim `text` is grounded here."""
        if says_something(text):
            return self._holds_sentence(self.claims[text])
        if answer_kind(text) in ("number", "date"):
            # Units and the order of a date vary.
            bare = self.claims[text]._replace(words=frozenset())
            return self._may_hold(bare) and self._holds_in_one(bare, self._likely(bare))
        return stands_in(text, self.passages)

    def _holds_sentence(self, claim: Claim) -> bool:
        if not self._may_hold(claim):
            return False
        likely = self._likely(claim)
        return self._holds_in_one(claim, likely) or self._holds_in_two(claim, likely)

    def _may_hold(self, claim: Claim) -> bool:
        """Whether all passages together may hold the claim, by what is quickly looked for."""
        if not all(_may_be(stem, self.joined) for stem in claim.must):
            return False
        left, needed = len(claim.words), _needed(claim)
        for stem in claim.words:
            if not _may_be(stem, self.joined):
                left -= 1
                if left < needed:
                    return False
        return True

    def _likely(self, claim: Claim) -> list[frozenset[str]]:
        """For each passage the stems of `claim` that may be in it."""
        wanted = claim.must | claim.words
        return [_found(wanted, text) for text in self.texts]

    def _holds_in_one(self, claim: Claim, likely: Sequence[frozenset[str]]) -> bool:
        return any(
            _holds(claim, window.held)
            for number, stems in enumerate(likely)
            if _enough(claim, stems)
            for window in self.windows(number)
        )

    def _holds_in_two(self, claim: Claim, likely: Sequence[frozenset[str]]) -> bool:
        joined = claim._replace(anchors=1)
        if not any(_enough(joined, a | b) for a, b in combinations(likely, 2)):
            return False
        if not claim.must <= self.seen:
            return False
        wanted = claim.must | claim.words
        near = [(len(wanted & w.held), -n, w) for n, w in self.every if wanted & w.held]
        # Pairs of the best few, since a claim rests on few sentences, that lack no name in common.
        best = [
            (count, n, claim.must - window.held, window)
            for count, n, window in nlargest(12, near, key=itemgetter(0, 1))
        ]
        enough = len(claim.must) + _needed(joined)
        return any(
            _holds(joined, a.held | b.held) and _bridged(claim, a, b)
            for (some, left, lacks, a), (more, right, misses, b) in combinations(best, 2)
            if left != right and some + more >= enough and lacks.isdisjoint(misses)
        )


def _windows(title: str, lines: Sequence[str], known: frozenset[str]) -> list[Window]:
    """One window a sentence, of the stems that are `known`.

    A pronoun stands for the title; without one, for a name of the sentence before.
    """
    subjects = [title] * len(lines) if title else ["", *lines]
    positive = known - {_NOT}  # a negation in a title says nothing of what follows
    of_title = positive.intersection(_stems_in(title))
    windows = []
    for subject, line in zip(subjects, lines, strict=False):
        held = known.intersection(_stems_in(line))
        before = of_title if title else positive.intersection(_stems_in(subject))
        windows.append(Window(held | before if before else held, line, subject))
    return windows


def _stems_in(text: str) -> Iterable[str]:
    return map(_STEM.__getitem__, _words(text))


def _names(window: Window) -> frozenset[str]:
    return _names_in(window.title) | _names_in(window.text)


@lru_cache(maxsize=4096)
def _names_in(text: str) -> frozenset[str]:
    return frozenset(map(_NAME.__getitem__, _WORD.findall(text))) - {""}


def _bridged(claim: Claim, a: Window, b: Window) -> bool:
    """Whether the windows share a name, and none that the claim has: it joins two facts."""
    shared = _names(a) & _names(b)
    return bool(shared) and shared.isdisjoint(claim.names)


def _found(stems: frozenset[str], text: str) -> frozenset[str]:
    """The stems of `stems` that may be in `text`, which is in lower case."""
    return frozenset([stem for stem in stems if _may_be(stem, text)])


def _may_be(stem: str, text: str) -> bool:
    """Whether `stem` may start a word of `text`; a number may be spelt."""
    return stem in text or stem in _SPELT


def _holds(claim: Claim, held: frozenset[str]) -> bool:
    return _enough(claim, held) and claim.negated == (_NOT in held)


def _enough(claim: Claim, held: frozenset[str]) -> bool:
    """Whether `held` has all names and numbers of the claim, and most of its other words."""
    return claim.must <= held and len(claim.words & held) >= _needed(claim)


def _needed(claim: Claim) -> float:
    """How many of its words must be held; fewer where two names or numbers agree."""
    return COVERAGE * len(claim.words) if claim.anchors < 2 else len(claim.words) // 2
