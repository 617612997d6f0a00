"""The metrics that optimizers are given: thin faces over one scorer.

DSPy's conventions differ by optimizer and are easily misread. A bootstrapping optimizer calls
`metric(example, prediction, trace)` and keeps whatever is truthy, so that an F1 of 0.1, or a
`Prediction(score=0.0)`, would turn a failure into a demonstration. A searching one calls
`metric(example, prediction)` and averages. GEPA wants five positional arguments and a text.

A metric of one's own is any callable that DSPy's optimizers take, named `package.module:function`
or `path/to/file.py:function`. It is called as `metric(example, prediction, trace=None)`; the
example has `question`, `answer` and `answers`. Its score is a number whose best value is 1, a bool,
or a prediction with a `score`.
"""

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from ragbench.errors import ConfigError, UnknownNameError
from ragbench.metrics import best, contains, exact_match, token_f1
from ragbench.programs.core.program import NO_ANSWER
from ragbench.user_code import contained, load_object
from ragbench.words import question_key

#: Score of a prediction in [0, 1]; a prediction without an answer scores 0.
Scorer = Callable[[dspy.Example, Any], float]

_COMPARE = {"em": exact_match, "f1": token_f1}


def make_scorer(name: str) -> Scorer:
    """The scorer of the answer metric `name`, em or f1, over all gold answers, or of one's own."""
    if ":" in name:
        return OwnMetric(name)
    if name not in _COMPARE:
        raise UnknownNameError("metric to compile for", name, _COMPARE)
    compare = _COMPARE[name]

    def score(example: dspy.Example, prediction: Any) -> float:
        answer = answer_of(prediction)
        return best(compare, answer, example.answers) if answer else 0.0

    return score


def answer_of(prediction: Any) -> str:
    """The answer of `prediction`, stripped; blank where there is none, whatever was returned."""
    text = getattr(prediction, "answer", None)
    answer = text.strip() if isinstance(text, str) else ""
    return "" if answer == NO_ANSWER else answer


def search_metric(scorer: Scorer) -> Callable[..., Any]:
    """For optimizers that bootstrap and search: a strict bool under a trace, else the score.

    With a trace it is True only for an exact match, or for what a metric of one's own calls best;
    without, it is the score as a float.
    """
    own = inspect.unwrap(scorer)
    best_of = own.is_best if isinstance(own, OwnMetric) else is_exact

    def metric(example: dspy.Example, prediction: Any, trace: Any = None) -> bool | float:
        if trace is not None:
            return best_of(example, prediction, trace)
        return float(scorer(example, prediction))

    return metric


def is_exact(example: dspy.Example, prediction: Any, trace: Any = None) -> bool:
    """Whether the answer matches a gold answer exactly, once normalised; a blank one never does."""
    answer = answer_of(prediction)
    return bool(answer) and bool(best(exact_match, answer, example.answers))


def feedback_metric(scorer: Scorer, gold: Sequence[dspy.Example] = ()) -> Callable[..., Any]:
    """For GEPA: `Prediction(score, feedback)` from five positional arguments.

    `gold` are the full training examples: what they know of support is named in the feedback, and
    is in no example that the program or a demonstration could show.
    """
    known = {question_key(example.question): example for example in gold}

    def metric(example: dspy.Example, prediction: Any, *_: object) -> dspy.Prediction:
        full = known.get(question_key(example.question), example)
        score = float(scorer(example, prediction))
        return dspy.Prediction(score=score, feedback=feedback(full, prediction))

    return metric


def feedback(example: dspy.Example, prediction: Any) -> str:
    """What was wrong with `prediction`, in sentences that an instruction writer can act on."""
    gold, answer = example.answers[0], answer_of(prediction)
    if any(exact_match(answer, right) for right in example.answers):
        return f"Right: {answer!r}."
    if not answer:
        said = [f"No answer was given; expected {gold!r}."]
    elif best(contains, answer, example.answers):
        said = [
            f"Wrong form: the right answer {gold!r} stands inside a reply of "
            f"{len(answer.split())} words, {answer!r}. The answer alone is wanted."
        ]
    else:
        said = [f"Wrong: {answer!r} was answered, expected {gold!r}."]
    retrieved = {passage.title for passage in getattr(prediction, "passages", None) or ()}
    titles = dict.fromkeys(title for title, _ in getattr(example, "support", None) or ())
    missed = [title for title in titles if title not in retrieved]
    said += [f"Missed hop: no search found the passage {title!r}." for title in missed]
    counts: Mapping[str, int] = getattr(prediction, "counts", None) or {}
    if unread := counts.get("parse_fallback", 0):
        said.append(f"{unread} replies could not be read in the required form.")
    return " ".join(said)


class OwnMetric:
    """The scorer that `spec` names."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._function: Callable[..., Any] = load_object(spec, "--metric")
        if not callable(self._function):
            raise ConfigError(f"--metric {spec} is no function")

    def __call__(self, example: dspy.Example, prediction: Any) -> float:
        return _number(self._said(example, prediction))

    def is_best(self, example: dspy.Example, prediction: Any, trace: Any) -> bool:
        """Whether the prediction may become a demonstration: what the function says, or 1."""
        said = self._said(example, prediction, trace)
        return said if isinstance(said, bool) else _number(said) >= 1.0

    def _said(self, *given: Any) -> Any:
        with contained(f"--metric {self.spec}"):
            return self._function(*given)

    def check(self, example: dspy.Example) -> None:
        """Raise ConfigError unless it scores the gold answer of `example`; asks no LM."""
        prediction = dspy.Prediction(answer=example.answers[0], passages=[])
        try:
            score = self(example, prediction)
            self.is_best(example, prediction, [])
        except Exception as error:  # whatever a stranger's function raises
            raise ConfigError(
                f"--metric {self.spec} fails on a gold answer: {type(error).__name__}: {error}; it "
                "is called as metric(example, prediction, trace=None) and gives a number"
            ) from None
        if not math.isfinite(score):
            raise ConfigError(f"--metric {self.spec} gives {score} for a gold answer")

    @property
    def digest(self) -> str:
        """A hash of its source file: a changed metric is another compile."""
        try:
            source = Path(inspect.getfile(self._function)).read_bytes()
        except (OSError, TypeError):  # of a notebook, or an object with a `__call__`
            source = repr(self._function).encode()
        return hashlib.sha256(source).hexdigest()[:16]


def _number(said: Any) -> float:
    score = said.score if isinstance(said, dspy.Prediction) else said
    if isinstance(score, bool | int | float):
        return float(score)
    raise TypeError(f"it gave {type(said).__name__}, not a number")
