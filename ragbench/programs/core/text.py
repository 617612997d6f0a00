"""Helpers for texts and rankings: sentences, answers, placeholders, similarity, fusion."""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from ragbench.metrics import is_refusal, tokens
from ragbench.passages import Passage
from ragbench.sentences import split_sentences
from ragbench.text_normalization import question_key

# A later sub-question refers to an earlier answer as {1}. Models also write {n1}, {answer 1}
# and #1.
_PLACEHOLDER = re.compile(r"\{\s*[A-Za-z_ ]*(\d+)\s*\}|(?<!\w)#(\d+)\b")

# Parts of names: words with a capital (after the first word) or a digit.
_NAMES = re.compile(r"(?<=[\s(\"'])[A-Z]\w*|\w*\d\w*")

#: Question words, and all words that turn a phrase into a question.
_ASKED = frozenset(["who", "whom", "whose", "where", "when", "why", "how"])
_ASKING = _ASKED | {"what", "which", "is", "are", "was", "were", "do", "does", "did"}

#: Ordered passages, usually a ranking.
Passages = Sequence[Passage]

Fusion = Literal["rrf", "max_score"]
Item = TypeVar("Item")


def sentences_of(passage: Passage) -> Sequence[str]:
    """Return the sentences of a passage. Split its text if it has no list of them."""
    return passage.sentences or split_sentences(passage.text)


def first_sentence(text: str) -> str:
    """Return the first sentence of `text`."""
    return next(iter(split_sentences(text)), "")


def one_line(text: str) -> str:
    """Replace each run of whitespace with one space, and strip the ends."""
    return " ".join(text.split())


def is_answer(text: str) -> bool:
    """Return True if `text` is neither blank nor a refusal to answer."""
    return bool(tokens(text)) and not is_refusal(text)


def distinct(texts: Iterable[str]) -> list[str]:
    """Return `texts` on one line each, without blanks and near-equal repeats."""
    unlike: dict[str, str] = {}
    for text in texts:
        unlike.setdefault(question_key(text), one_line(text))
    return [text for key, text in unlike.items() if key]


def numbered(items: Iterable[object]) -> list[str]:
    """Return the text of each item after its number, such as `[1] first`."""
    return [f"[{number}] {item}" for number, item in enumerate(items, start=1)]


def by_number(items: Sequence[Item], numbers: Iterable[int]) -> list[Item]:
    """Return the items with these numbers.

    Args:
        items: Numbered items, from 1.
        numbers: Numbers that a model gave. Repeated and unknown ones are ignored.

    Returns:
        The items in the order of `numbers`.
    """
    chosen = []
    for number in dict.fromkeys(numbers):
        if 0 < number <= len(items):
            chosen.append(items[number - 1])
    return chosen


def answers_used(text: str) -> list[int]:
    """Return the numbers of the sub-questions whose answers `text` uses, in order."""
    return [int(braced or bare) for braced, bare in _PLACEHOLDER.findall(text)]


def is_repeat(text: str, earlier: str, alike: float) -> bool:
    """Return True if `text` asks the same as `earlier`.

    A text whose words are a part of the earlier one's asks for less. A text with a different name
    or number asks about a different thing. Neither is a repeat.

    Args:
        text: A question or query.
        earlier: An earlier question or query.
        alike: Minimum share of common words of a repeat, in (0, 1].
    """
    words = set(tokens(text))
    earlier_words = set(tokens(earlier))
    if words - _ASKING < earlier_words - _ASKING or jaccard(text, earlier) < alike:
        return False
    if words & _ASKED != earlier_words & _ASKED:
        return False
    name_words = set(tokens(" ".join(_NAMES.findall(text) + _NAMES.findall(earlier))))
    return not (words ^ earlier_words) & name_words


def with_answers(
    text: str,
    questions: Mapping[int, str],
    answers: Mapping[int, str],
    count: Callable[[str], None],
) -> str:
    """Replace each placeholder {n} of `text` with the answer of sub-question n.

    Args:
        text: Sub-question with placeholders.
        questions: Sub-questions by number. One replaces a placeholder without an answer, which is
            counted as `unfilled_placeholder`.
        answers: Answers by number.
        count: Callback that counts an event by name.

    Returns:
        The filled text. Blank if a placeholder refers to `text` itself or to an unknown
        sub-question, which is counted as `bad_placeholder`.
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
    """Return each passage once, in the order of first appearance.

    Args:
        passages: Passages.
        but: Pids to exclude.
    """
    by_pid: dict[str, Passage] = {}
    for passage in passages:
        if passage.pid not in but:
            by_pid[passage.pid] = passage
    return list(by_pid.values())


def jaccard(a: str, b: str) -> float:
    """Return the Jaccard similarity of the normalized words of two texts, in [0, 1].

    Two blank texts have similarity 1.

    Args:
        a: First text.
        b: Second text.
    """
    words_a = set(tokens(a))
    words_b = set(tokens(b))
    if words_a | words_b:
        return len(words_a & words_b) / len(words_a | words_b)
    return 1.0


def fuse(lists: Sequence[Sequence[Passage]], *, fusion: Fusion = "rrf") -> list[Passage]:
    """Fuse ranked lists into one.

    Args:
        lists: Rankings, best first.
        fusion: `rrf` scores a passage by the sum of 1 / (60 + rank) over the lists (Cormack et al.
            2009). `max_score` takes its best score, which is only fair if the scores of all lists
            have one scale (cosine, not BM25).

    Returns:
        The union of the lists, best first. Ties keep the order of first appearance.
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
