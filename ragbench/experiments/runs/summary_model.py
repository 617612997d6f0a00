"""What `summary.json` holds, how far the run came among it; `runs.summary` computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ragbench.calls import Totals
from ragbench.experiments.store import StoredRecords

#: Marks a field that is left out of the file where it is empty, 0 or None.
_NOT_EMPTY = Field(exclude_if=lambda value: not value)


@dataclass(frozen=True)
class Progress:
    """A run's questions by outcome; all None if the run does not say."""

    answered: int
    failed: int
    cut_off: int
    questions: int | None = None

    @classmethod
    def of(cls, records: StoredRecords, questions: int | None) -> Progress:
        """The progress that the records show."""
        answered = len(records.finished)
        cut_off = len(records.cut_off_questions)
        return cls(answered, len(records) - answered, cut_off, questions)

    @property
    def not_asked(self) -> int:
        """Questions that were not begun."""
        return max(0, (self.questions or 0) - self.answered - self.failed - self.cut_off)

    @property
    def complete(self) -> bool:
        """Whether every question came to its end."""
        return not self.cut_off and not self.not_asked

    def words(self) -> str:
        """In words, such as "37 of 100 answered, 1 failed, 2 cut off, 60 not asked"."""
        parts = [f"{self.answered} of {self.questions} answered"]
        for n, outcome in (
            (self.failed, "failed"),
            (self.cut_off, "cut off"),
            (self.not_asked, "not asked"),
        ):
            parts += [f"{n} {outcome}"] if n else []
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "not_asked": self.not_asked}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Calls, tokens and US dollars; `cost_usd` is None where a price is unknown.

    `list_usd` is there where another sum was paid, the tokens below it where there are any.
    """

    calls: int
    embedding_and_reranking_calls: int
    failed_calls: int
    attempts: int
    fallbacks: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    list_usd: Annotated[float | None, _NOT_EMPTY] = None
    cache_read_tokens: Annotated[int, _NOT_EMPTY] = 0
    cache_write_tokens: Annotated[int, _NOT_EMPTY] = 0
    tokens_of_failed_attempts: Annotated[int, _NOT_EMPTY] = 0

    @classmethod
    def of(cls, totals: Totals) -> Spent:
        """The sums of calls, dollars to 8 decimals."""
        cost, listed = _rounded(totals.cost_usd), _rounded(totals.list_usd)
        return cls(
            calls=totals.calls,
            embedding_and_reranking_calls=totals.others,
            failed_calls=totals.failed,
            attempts=totals.attempts,
            fallbacks=totals.fallbacks,
            prompt_tokens=totals.prompt_tokens,
            completion_tokens=totals.completion_tokens,
            cost_usd=cost,
            list_usd=listed if listed != cost else None,
            cache_read_tokens=totals.cache_read_tokens,
            cache_write_tokens=totals.cache_write_tokens,
            tokens_of_failed_attempts=totals.failed_tokens,
        )

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


def _rounded(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 8)


@dataclass(frozen=True, slots=True)
class PolicyScores:
    """The headline scores where failed questions are counted by one of the policies."""

    n: int
    failed: int
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SignatureUse:
    """LM calls by one signature, and their tokens."""

    calls: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a run, or of some of its questions; see `runs.summary.summarize`."""

    n: int
    #: Means of the headline metrics over all questions, failed ones as the worst.
    scores: Mapping[str, float]
    #: Failed questions by boundary, and by boundary and class of error.
    failures: Mapping[str, int]
    errors: Mapping[str, int]
    #: By failure policy; empty where no question ever failed.
    treatments: Annotated[Mapping[str, PolicyScores], _NOT_EMPTY] = field(default_factory=dict)
    stop_reasons: Mapping[str, int]
    counts: Mapping[str, int]
    #: What was sent to servers and paid, for records that were replaced or cut off too.
    billed: Spent
    #: As if nothing had been cached or failed, at list price.
    as_if: Spent
    by_signature: Mapping[str, SignatureUse]
    critical_path_calls: int
    retrievals: int
    searches_from_memory: int
    #: Mean, p50 and p95 of a question, with what the cache saved added back; empty without one.
    latency_s: Mapping[str, float]
    #: None for a part of a run.
    progress: Annotated[Progress | None, _NOT_EMPTY] = None

    @property
    def failed(self) -> int:
        """Questions that failed."""
        return sum(self.failures.values())

    def to_dict(self) -> dict[str, Any]:
        """The summary as `summary.json` holds it."""
        dumped: dict[str, Any] = _summaries().dump_python(self)
        if self.progress is not None:
            dumped["progress"] = self.progress.to_dict()
        return dumped


@cache
def _summaries() -> TypeAdapter[Summary]:  # made when used, for a table needs none
    return TypeAdapter(Summary)


def stop_lines(stopped_by: str, progress: Progress) -> list[str]:
    """The lines to print with the table of a run that is not complete; none if it is."""
    if progress.complete:
        return []
    state = f"stopped by {stopped_by}" if stopped_by else "not finished"
    return [f"{state}: {progress.words()}; the scores are of those that were answered or failed"]
