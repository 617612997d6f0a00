"""Texts and rankings: sentences, answers, placeholders, likeness, fused lists."""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from ragbench.metrics import is_refusal, tokens
from ragbench.passages import Passage
from ragbench.sentences import split_sentences
from ragbench.words import question_key

# A later sub-question names the answer of an earlier one as {1}; models also write {n1}, {answer 1}
# and #1.
_PLACEHOLDER = re.compile(r"\{\s*[A-Za-z_ ]*(\d+)\s*\}|(?<!\w)#(\d+)\b")

# Words that name a thing: a capital behind the first word, or a digit.
_NAMES = re.compile(r"(?<=[\s(\"'])[A-Z]\w*|\w*\d\w*")

#: Words that make a phrase a question, and those of them that tell questions apart.
_ASKED = frozenset(["who", "whom", "whose", "where", "when", "why", "how"])
_ASKING = _ASKED | {"what", "which", "is", "are", "was", "were", "do", "does", "did"}

#: Passages in some order, most often that of a ranking.
Passages = Sequence[Passage]

Fusion = Literal["rrf", "max_score"]
Item = TypeVar("Item")


def sentences_of(passage: Passage) -> Sequence[str]:
    """The sentences of a passage, split where it has no list of them."""
    return passage.sentences or split_sentences(passage.text)


def first_sentence(text: str) -> str:
    """The first sentence of `text`."""
    return next(iter(split_sentences(text)), "")


def one_line(text: str) -> str:
    """Returns `text` with a blank for each run of whitespace, and none at its ends."""
    return " ".join(text.split())


def is_answer(text: str) -> bool:
    """Whether `text` commits itself: not blank, nor a refusal to answer."""
    return bool(tokens(text)) and not is_refusal(text)


def distinct(texts: Iterable[str]) -> list[str]:
    """`texts` on one line each, without blanks and those that differ in marks or case alone."""
    unlike: dict[str, str] = {}
    for text in texts:
        unlike.setdefault(question_key(text), one_line(text))
    return [text for key, text in unlike.items() if key]


def numbered(items: Iterable[object]) -> list[str]:
    """Returns the text of each item after its number, as in `[1] first`."""
    return [f"[{number}] {item}" for number, item in enumerate(items, start=1)]


def by_number(items: Sequence[Item], numbers: Iterable[int]) -> list[Item]:
    """Returns the items of `numbers`, from 1 and each once, in the order of `numbers`.

    A model also gives numbers that no item has, which are left out.
    """
    chosen = []
    for number in dict.fromkeys(numbers):
        if 0 < number <= len(items):
            chosen.append(items[number - 1])
    return chosen


def answers_used(text: str) -> list[int]:
    """The numbers of the sub-questions whose answers `text` uses, in order."""
    return [int(braced or bare) for braced, bare in _PLACEHOLDER.findall(text)]


def is_repeat(text: str, earlier: str, alike: float) -> bool:
    """Return True if `text` asks the same as `earlier`.

    A text whose words are a part of the earlier one's asks for less, and a text with another name
    or number asks about another thing. Neither is a repeat.

    Args:
        text: A question or query.
        earlier: One that was asked before.
        alike: Share of common words from which two texts can be the same, in (0, 1].
    """
    words = set(tokens(text))
    known = set(tokens(earlier))
    if words - _ASKING < known - _ASKING or jaccard(text, earlier) < alike:
        return False
    if words & _ASKED != known & _ASKED:
        return False
    names = set(tokens(" ".join(_NAMES.findall(text) + _NAMES.findall(earlier))))
    return not (words ^ known) & names


def with_answers(
    text: str,
    questions: Mapping[int, str],
    answers: Mapping[int, str],
    count: Callable[[str], None],
) -> str:
    """Returns `text` with {n} replaced by the n-th of `answers`, or else of `questions`.

    A text with a placeholder for itself or for no question cannot be asked: the result is blank,
    counted as `bad_placeholder`. A placeholder without an answer is counted as
    `unfilled_placeholder`.
    """
    if any(questions.get(number, text) == text for number in answers_used(text)):
        count("bad_placeholder")
        return ""

    def fill(match: re.Match[str]) -> str:
        number = int(match[1] or match[2])
        if is_answer(answers.get(number, "")):
            return answers[number]
        count("unfilled_placeholder")
        return f"({_PLACEHOLDER.sub('', questions[number]).rstrip(' ?')})"

    return " ".join(_PLACEHOLDER.sub(fill, text).split())


def each_once(passages: Iterable[Passage], but: Container[str] = ()) -> list[Passage]:
    """Returns the passages, each once, in the order first seen, without those of the pids `but`."""
    by_pid: dict[str, Passage] = {}
    for passage in passages:
        if passage.pid not in but:
            by_pid[passage.pid] = passage
    return list(by_pid.values())


def jaccard(a: str, b: str) -> float:
    """Shared words of the normalised texts over all their words, in [0, 1]; 1 for two blanks."""
    words_a = set(tokens(a))
    words_b = set(tokens(b))
    if words_a | words_b:
        return len(words_a & words_b) / len(words_a | words_b)
    return 1.0


def fuse(lists: Sequence[Sequence[Passage]], *, fusion: Fusion = "rrf") -> list[Passage]:
    """The union of ranked `lists`, best first; equals stand in the order first seen.

    `rrf` scores a passage by the sum of 1 / (60 + rank) over the lists (Cormack et al. 2009),
    `max_score` by its best score, which compares queries fairly only where scores are on one scale
    (cosine, not BM25).
    """
    scores: dict[str, float] = {}
    by_pid: dict[str, Passage] = {}
    for passages in lists:
        for rank, passage in enumerate(passages, start=1):
            pid = passage.pid
            by_pid.setdefault(pid, passage)
            if fusion == "rrf":
                scores[pid] = scores.get(pid, 0.0) + 1 / (60 + rank)
            else:
                scores[pid] = max(scores.get(pid, passage.score), passage.score)
    return [by_pid[pid].scored(scores[pid]) for pid in sorted(by_pid, key=lambda pid: -scores[pid])]
