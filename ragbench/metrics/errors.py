"""Find the cause of a wrong answer, from the record only.

The first rule that applies decides, in this order:

- control/...: an error ended the question.
- control/answered_anyway: the question has no answer, and a refusal would be correct.
- reading/wrong_form: correct in substance, but not the expected string.
- data/metrics_disagree: a judge accepts the answer, and the strings differ.
- reading/among_words: the gold answer among other words: correct, denied, or part of a name.
- control/parse, budget: no parsable answer; the budget was spent.
- control/from_memory: the program chose to answer without a search.
- control/no_search: there was no search.
- control/loop: gold was not found, and the searches repeated themselves.
- control/too_few_steps: gold was not found; a name that leads to it was seen but not searched.
- retrieval/...: gold was not found for another reason: never in reach, or in reach and not
  retrieved.
- control/not_in_context: gold was found, and the model never saw its text.
- control/no_answer: the model saw all gold passages and gave no answer.
- data/answer_not_in_gold: no word of the gold answer is in the gold passages.
- reading/...: the model saw all gold passages, and the answer is a part of the gold answer, an
  entity of the same type, or of another type.

Gold is *in reach* if the missing passage is named, by its title or by the answer that leads to it,
in the question, in a query, or in a retrieved text. The hop is the number of retrieved gold
passages plus one.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ragbench.metrics.answer import best_of_answer, exact_match, is_answerable
from ragbench.metrics.retrieval import union
from ragbench.metrics.text import answer_kind, is_blank, is_refusal
from ragbench.record import Record

#: Maximum number of extra words in a reply that counts as containing the gold answer.
SPARE_WORDS = 12


#: Causes by rule that only a judgment of the meaning could confirm.
UNDECIDED = frozenset({
    "reading/among_words", "reading/partial", "reading/same_type", "reading/other_type",
    "data/answer_not_in_gold", "retrieval/answer_not_seen",
})  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """Cause of a wrong answer.

    Attributes:
        level: `retrieval`, `reading`, `control` or `data`.
        kind: Kind within the level.
        detail: Evidence for the cause.
        hop: Number of gold passages obtained, plus 1. None if no gold is missing.
        by: Origin: a rule or a model's opinion.
    """

    level: str
    kind: str
    detail: str = ""
    hop: int | None = None
    by: Literal["rule", "model"] = "rule"

    @property
    def name(self) -> str:
        return f"{self.level}/{self.kind}"


def cause_of(record: Record) -> Cause | None:
    """Return the cause of a wrong answer. None for an exact match or a correct refusal."""
    if record.failure is not None:
        kind = record.failure.boundary
        return Cause("control", "budget" if kind == "limit" else kind, record.failure.error)
    if record.failed:
        return Cause("control", "program", "no answer")
    if not is_answerable(record):
        if _is_no_answer(record.answer_text):
            return None
        return Cause("control", "answered_anyway", "the searched data has no answer")
    if best_of_answer(exact_match)(record):
        return None
    if cause := _wrong_form(record):
        return cause
    if (record.scores.get("judge") or 0) >= 1:
        return Cause("data", "metrics_disagree", "the judge accepts it")
    if cause := _among_words(record) or _stopped(record) or _missing(record):
        return cause
    if _is_no_answer(record.answer_text):
        detail = "no answer, although all gold passages were in context"
        return Cause("control", "no_answer", detail)
    return _bad_gold(record) or _reading(record)


def _wrong_form(record: Record) -> Cause | None:
    pred = loose_words(record.answer_text)
    for gold in filter(loose_words, record.answers):
        if sorted(pred) == sorted(loose_words(gold)):
            return Cause("reading", "wrong_form", "the same words in another order or spelling")
    return None


def _among_words(record: Record) -> Cause | None:
    """Find the gold answer among other words: "Oslo, in Norway", "Oslo Street in Bergen"."""
    pred = loose_words(record.answer_text)
    for gold in record.answers:
        gold_words = loose_words(gold)
        if answer_kind(gold) == "yes_no":
            there = pred[:1] == gold_words
        else:
            there = _holds(pred, gold_words)
        if there and len(pred) - len(gold_words) <= SPARE_WORDS:
            return Cause("reading", "among_words", f"{gold!r} among more words")
    return None


def _stopped(record: Record) -> Cause | None:
    counts = record.counts
    reason = record.stop_reason
    unparsed = counts.get("parse_fallback", 0) or counts.get("blank_answer", 0)
    if reason == "parse_fallback" or (unparsed and _is_no_answer(record.answer_text)):
        return Cause("control", "parse", "a reply that could not be read")
    if reason == "budget":
        return Cause("control", "budget", "the limit of calls or searches was reached")
    if not record.searches and not record.passages and not record.in_context:
        if reason == "direct":
            return Cause("control", "from_memory", "the program chose to answer from memory")
        return Cause("control", "no_search", "answered without searching")
    return None


def _missing(record: Record) -> Cause | None:
    """Return the cause if a gold passage, or the gold answer without gold ids, is missing."""
    seen = set(union(record)) | {passage.pid for passage in record.passages}
    gold = record.gold_pids
    texts = [f"{passage.title} {passage.text}" for passage in record.passages]
    if not gold:
        answerable = any(_is_among(loose_words(answer), texts) for answer in record.answers)
        if answerable or answer_kind(record.answers[0]) == "yes_no":
            return None
        return Cause("retrieval", "answer_not_seen", "no retrieved passage has the gold answer")
    n_seen = sum(pid in seen for pid in gold)
    if n_seen == len(gold):
        n_in_context = n_seen
        if record.in_context is not None:
            n_in_context = sum(pid in record.in_context for pid in gold)
        if n_in_context == len(gold):
            return None
        detail = f"{n_in_context} of {len(gold)} gold passages in context, all retrieved"
        return Cause("control", "not_in_context", detail, n_in_context + 1)
    hop = n_seen + 1
    detail = f"{n_seen} of {len(gold)} gold passages"
    repeats = sum(search.cached for search in record.searches)
    often = repeats >= 2 and 2 * repeats >= len(record.searches)
    if record.stop_reason == "no_progress" or often:
        return Cause("control", "loop", f"{detail}; repeated searches", hop)
    queries = [search.query for search in record.searches]
    missing = _missing_names(record, hop)
    reached = ""
    for name in missing:
        words = loose_words(re.sub(r"\s*\([^)]*\)$", "", name))
        if _is_among(words, queries):
            return Cause("retrieval", "not_retrieved", f"{detail}; {name!r} was searched", hop)
        if not reached and _is_among(words, [record.question, *texts]):
            reached = name
    if reached:
        return Cause("control", "too_few_steps", f"{detail}; {reached!r} was not searched", hop)
    if missing:
        return Cause("retrieval", "never_in_reach", f"{detail}; nothing named {missing[0]!r}", hop)
    return Cause("retrieval", "not_retrieved", detail, hop)


def _missing_names(record: Record, hop: int) -> list[str]:
    """Return the titles of missing passages, and the answer that leads to them."""
    titles = dict.fromkeys(title for title, _ in record.support)
    for passage in record.passages:
        titles.pop(passage.title, None)
    questions = record.decomposition
    if 2 <= hop <= len(questions):
        return [*titles, str(questions[hop - 2]["answer"])]
    return list(titles)


def _is_among(words: tuple[str, ...], texts: Sequence[str]) -> bool:
    return any(_holds(loose_words(text), words) for text in texts)


def _bad_gold(record: Record) -> Cause | None:
    gold = [passage for passage in record.passages if passage.pid in record.gold_pids]
    if (
        len(gold) < len(record.gold_pids)
        or not gold
        or "yes_no" in map(answer_kind, record.answers)
    ):
        return None
    gold_words = set(loose_words(" ".join(record.answers)))
    for passage in gold:
        if gold_words & set(loose_words(f"{passage.title} {passage.text}")):
            return None
    return Cause("data", "answer_not_in_gold", "no word of the answer is in the gold passages")


def _reading(record: Record) -> Cause:
    pred = set(loose_words(record.answer_text))
    for gold in record.answers:
        if answer_kind(gold) == "yes_no":
            continue
        gold_words = set(loose_words(gold))
        if pred & gold_words and (pred <= gold_words or gold_words <= pred):
            return Cause("reading", "partial", f"part of {gold!r}, or more than it")
        if gold_words and len(pred & gold_words) >= _MOST * len(gold_words):
            return Cause("reading", "partial", f"most words of {gold!r}")
    kind = answer_kind(record.answer_text)
    wanted_kind = answer_kind(record.answers[0])
    if kind == wanted_kind:
        return Cause("reading", "same_type", f"another {kind.replace('_', ' or ')}")
    return Cause("reading", "other_type", f"{kind} for {wanted_kind}".replace("_", " or "))


def _is_no_answer(answer: str) -> bool:
    return is_blank(answer) or is_refusal(answer)


@lru_cache(maxsize=2_000)
def loose_words(text: str) -> tuple[str, ...]:
    """Return the words of `text` without accents, case, punctuation, articles, ordinal endings."""
    plain = text.casefold()
    if not plain.isascii():
        letters = unicodedata.normalize("NFKD", plain)
        plain = "".join(c for c in letters if not unicodedata.combining(c))
    plain = _ORDINAL.sub(r"\1", _JOINED.sub("", plain))
    words = _LOOSE_WORD.findall(plain)
    return tuple(_DIGITS.get(word, word) for word in words if word not in ("a", "an", "the"))


#: Minimum share of the gold answer's words in an answer that counts as a part of it.
_MOST = 0.6
_JOINED = re.compile(r"(?<=\d),(?=\d{3})|['\u2019]s?\b")
_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b")
_LOOSE_WORD = re.compile(r"[^\W_]+")
_DIGITS = {
    "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6",
    "seven": "7", "eight": "8", "nine": "9", "ten": "10",
}  # fmt: skip


def _holds(words: tuple[str, ...], phrase: tuple[str, ...]) -> bool:
    return bool(phrase) and f" {' '.join(phrase)} " in f" {' '.join(words)} "
