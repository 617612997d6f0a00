"""What was tried in a compile: each program that met a validation question, and its scores there.

Optimizers keep different things of what they try, and a stranger's keeps what it likes. So it is
noted where every optimizer passes: a student notes its runs, and the metric their scores.
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
from ragbench.words import question_key


@dataclass
class Tried:
    """A program that was tried; scores of validation questions by key, and what these runs took."""

    program: Any
    scores: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0


@dataclass
class Run:
    """One run of a student: which program it was, on which question, and the whole prediction."""

    tag: str
    question: str
    meter: Meter
    prediction: Any = None


class Tally:
    """Programs that met a question of `val`, by tag, in the order in which they first did.

    `on_run` is called once for each run of a student. Safe under threads.
    """

    def __init__(
        self, val: Sequence[dspy.Example] = (), on_run: Callable[[], None] | None = None
    ) -> None:
        self.order = [question_key(example.question) for example in val]
        self._known = {*self.order}
        self._on_run = on_run
        self._lock = threading.Lock()
        self._programs: dict[str, Any] = {}
        self.tried: dict[str, Tried] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # students are copied, and all note in one place

    def begin(self, program: Any, question: str) -> Run:
        """The run of `program` on `question` that starts now."""
        tag = fingerprint(program)
        with self._lock:
            if question_key(question) in self._known and tag not in self._programs:
                self._programs[tag] = program.deepcopy()
        if self._on_run:
            self._on_run()
        return Run(tag, question, Meter())

    def note(self, run: Run, score: float) -> None:
        """The `score` of a run; that of a training question is not kept."""
        key = question_key(run.question)
        if key not in self._known:
            return
        with self._lock:
            entry = self.tried.setdefault(run.tag, Tried(self._programs.get(run.tag)))
            if key not in entry.scores:
                entry.calls += run.meter.calls
                entry.tokens += run.meter.tokens
            entry.scores[key] = score

    def mean(self, program: Any) -> float | None:
        """The mean score of `program` if it met every validation question."""
        entry = self.tried.get(fingerprint(program))
        if entry is None or not self._known <= entry.scores.keys():
            return None
        return sum(entry.scores[key] for key in self.order) / len(self.order)


def fingerprint(program: Any) -> str:
    """A hash of what a compile can change of `program`.

    That is instructions, fields, demonstrations, and the thresholds of decisions.
    """
    digests = []
    for name, predictor in program.named_predictors():
        signature = predictor.signature
        tokens = getattr(predictor, "rb_demo_tokens", None)
        demos = fit_demos(predictor.demos, signature, max_tokens=tokens)
        digests.append([name, signature.dump_state(), demos, predictor.fields])
    text = json.dumps(digests, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
