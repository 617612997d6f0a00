"""Record of a compile: each program that ran a validation question, and its scores.

Optimizers return different parts of their search, and third-party ones anything. So ragbench
records it in the common parts: a student records its runs, and the metric records their scores.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import dspy

from ragbench.ledger import Meter
from ragbench.optimizers.demonstrations import fit_demos
from ragbench.text_normalization import question_key


@dataclass
class CandidateScores:
    """A candidate with its validation scores by key, and the usage of these runs."""

    program: Any
    scores: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0


@dataclass
class Run:
    """A run of a student: program tag, question, and the whole prediction."""

    tag: str
    question: str
    meter: Meter
    prediction: Any = None


class CandidateLog:
    """Programs that ran a question of `val`, by tag, in the order of their first run.

    `on_run` is called once per run of a student. Thread-safe.
    """

    def __init__(
        self, val: Sequence[dspy.Example] = (), on_run: Callable[[], None] | None = None
    ) -> None:
        self.order = [question_key(example.question) for example in val]
        self._known = {*self.order}
        self._on_run = on_run
        self._lock = threading.Lock()
        self._programs: dict[str, Any] = {}
        self.tried: dict[str, CandidateScores] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # all copies of a student share one tally

    def begin(self, program: Any, question: str) -> Run:
        """Start a run of `program` on `question` and return it.

        Args:
            program: Candidate program.
            question: Text of the question.
        """
        tag = fingerprint(program)
        with self._lock:
            if question_key(question) in self._known and tag not in self._programs:
                self._programs[tag] = program.deepcopy()
        if self._on_run:
            self._on_run()
        return Run(tag, question, Meter())

    def note(self, run: Run, score: float) -> None:
        """Record the `score` of a run, unless its question is a training question.

        Args:
            run: The run, from `begin`.
            score: Score of its answer.
        """
        key = question_key(run.question)
        if key not in self._known:
            return
        with self._lock:
            entry = self.tried.setdefault(run.tag, CandidateScores(self._programs.get(run.tag)))
            if key not in entry.scores:
                entry.calls += run.meter.calls
                entry.tokens += run.meter.tokens
            entry.scores[key] = score

    def mean(self, program: Any) -> float | None:
        """Return the mean score of `program`, or None if a validation question is missing."""
        entry = self.tried.get(fingerprint(program))
        if entry is None or not self._known <= entry.scores.keys():
            return None
        return sum(entry.scores[key] for key in self.order) / len(self.order)


def fingerprint(program: Any) -> str:
    """Return a hash of everything that a compile can change in `program`.

    These are instructions, fields, demonstrations and decision thresholds.
    """
    digests = []
    for name, predictor in program.named_predictors():
        signature = predictor.signature
        tokens = getattr(predictor, "rb_demo_tokens", None)
        demos = fit_demos(predictor.demos, signature, max_tokens=tokens)
        digests.append([name, signature.dump_state(), demos, predictor.fields])
    text = json.dumps(digests, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
