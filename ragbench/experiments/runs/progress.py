"""How far a run came: its questions by what came of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ragbench.experiments.records import Loaded


@dataclass(frozen=True)
class Progress:
    """A run's questions by outcome; all None if the run does not say."""

    answered: int
    failed: int
    cut_off: int
    questions: int | None = None

    @classmethod
    def of(cls, loaded: Loaded, questions: int | None) -> Progress:
        """The progress that the records show."""
        answered = len(loaded.finished)
        cut_off = set(loaded.cut_off.qids) - set(loaded.records)
        return cls(answered, len(loaded.records) - answered, len(cut_off), questions)

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


def stop_lines(stopped_by: str, progress: Progress) -> list[str]:
    """The lines to print with the table of a run that is not complete; none if it is."""
    if progress.complete:
        return []
    state = f"stopped by {stopped_by}" if stopped_by else "not finished"
    return [f"{state}: {progress.words()}; the scores are of those that were answered or failed"]
