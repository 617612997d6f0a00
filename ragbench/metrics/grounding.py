"""Whether what a program says stands in what it retrieved, cheaply and without a model.

A claim is *grounded* when one or two windows of retrieved text (a sentence with
the passage's title) hold all its numbers, all its names and most of its other words, and agree
with it about negation. Words are compared by their first letters. A claim of a few words without a
verb, such as a short answer, is grounded when it stands word for word in a passage.

What this cannot see: swapped roles ("A succeeded B"), paraphrase without shared words, comparisons
and arithmetic. `tests/conformance/grounding_cases.json` holds hand-labelled claims, and
docs/metrics.md the agreement with them; take the numbers as relative, and judge with a model where
a claim matters.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from ragbench.metrics.base import METRICS, Metric, Record, failed
from ragbench.metrics.kinds import answer_kind
from ragbench.metrics.text import normalise_answer

#: Share of a claim's words, names and numbers aside, that its windows must hold.
COVERAGE = 0.6
#: Letters, endings taken off, by which two words count as the same.
STEM = 5

_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+(?:'[^\W\d_]+)?")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(\u201c]?[A-Z0-9])")
_ENDING = re.compile(r"(?<=...)(?:ings?|ers?|ed|es|s|e)$")
_NEGATIONS = frozenset({"not", "no", "never", "neither", "nor", "without", "none"})
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at to for from by with as and or but that this these those it its he "
        "she his her him they their them is are was were be been being has have had do does did "
        "which who whom whose what when where there here also so thus therefore then than into "
        "about after before would could can will may one answer question passage passages",
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
    """The words of a text, as stems: numbers, names and others."""

    numbers: frozenset[str]
    names: frozenset[str]
    words: frozenset[str]
    negated: bool = False
    anchors: int = 0  # numbers, and runs of capitalised words


class Window(NamedTuple):
    """What a sentence of a passage holds, and the passage's number."""

    passage: int
    held: Claim


def is_grounded(claim: str, passages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether `claim` stands in `passages` by the rule of this module; an empty claim does not."""
    return _is_grounded(claim, passages, _windows(passages))


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
    passages = record["passages"]
    windows = _windows(passages)
    return sum(_is_grounded(claim, passages, windows) for claim in claims) / len(claims)


def _is_grounded(
    text: str, passages: Sequence[Mapping[str, Any]], windows: Sequence[Window]
) -> bool:
    claim = _claim(text)
    if _says_something(text):
        return _grounded_in(claim, windows)
    if claim.numbers and answer_kind(text) in ("number", "date"):
        bare = claim._replace(words=frozenset())  # units and the order of a date vary
        return any(_holds(bare, window.held) for window in windows)
    return stands_in(text, passages)


def _says_something(text: str) -> bool:
    """Whether `text` reads as a sentence: more than six words, or it ends like one."""
    return len(text.split()) > 6 or text.rstrip().endswith((".", "!", "?"))


def _claim(text: str) -> Claim:
    numbers, names, words = set(), set(), set()
    negated, anchors, name_ends = False, 0, -2
    for match in _WORD.finditer(text):
        word = match[0]
        low = word.lower().removesuffix("'s")
        negated = negated or low in _NEGATIONS or low.endswith("n't")
        if word[0].isdigit() or (low in _NUMBERS):
            numbers.add(_NUMBERS.get(low, word.replace(",", "")))
            anchors += 1
        elif low in _STOP or low in _NEGATIONS:
            continue
        elif word[0].isupper():
            names.add(_stem(low))
            anchors += match.start() != name_ends + 1
            name_ends = match.end()
        else:
            words.add(_stem(low))
    return Claim(frozenset(numbers), frozenset(names), frozenset(words), negated, anchors)


def _stem(word: str) -> str:
    return _ENDING.sub("", word)[:STEM]


def _windows(passages: Iterable[Mapping[str, Any]]) -> list[Window]:
    windows = []
    for number, passage in enumerate(passages):
        lines = list(passage.get("sentences") or sentences(passage["text"]))
        title = _claim(passage["title"])
        for index, line in enumerate(lines):
            # A pronoun stands for the title; without one, for a name of the sentence before.
            subject = title if passage["title"] or not index else _claim(lines[index - 1])
            windows.append(Window(number, _join(_claim(line), subject._replace(negated=False))))
    return windows


def _grounded_in(claim: Claim, windows: Sequence[Window]) -> bool:
    near = [window for window in windows if _found(claim, window.held)]
    near.sort(key=lambda window: -_found(claim, window.held))
    near = near[:12]  # pairs of these; a claim rests on few sentences
    if any(_holds(claim, window.held) for window in near):
        return True
    return any(
        _holds(claim._replace(anchors=1), _join(a.held, b.held))
        for a, b in combinations(near, 2)
        if a.passage != b.passage and _bridged(claim, a.held, b.held)
    )


def _bridged(claim: Claim, a: Claim, b: Claim) -> bool:
    """Whether the windows share a name, and none that the claim has: it joins two facts."""
    shared = a.names & b.names
    return bool(shared) and not shared & claim.names


def _holds(claim: Claim, window: Claim) -> bool:
    if not claim.numbers <= window.numbers or claim.negated != window.negated:
        return False
    held = window.words | window.names
    if not claim.names <= held:
        return False
    needed = COVERAGE * len(claim.words)
    found = len(claim.words & held)
    # Where two names or numbers agree, fewer of the other words need to.
    return found >= (needed if claim.anchors < 2 else len(claim.words) // 2)


def _found(claim: Claim, window: Claim) -> int:
    held = claim.names | claim.words
    return len(held & (window.names | window.words)) + len(claim.numbers & window.numbers)


def _join(a: Claim, b: Claim) -> Claim:
    return Claim(
        a.numbers | b.numbers, a.names | b.names, a.words | b.words, a.negated or b.negated
    )


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
