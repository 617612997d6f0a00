"""Metrics for optimizers: thin wrappers of one scorer.

DSPy's conventions differ by optimizer. A bootstrapping optimizer calls
`metric(example, prediction, trace)` and selects every truthy result, so an F1 of 0.1, or a
`Prediction(score=0.0)`, would make a demonstration of a failure. A searching optimizer calls
`metric(example, prediction)` and averages the results. GEPA requires five positional arguments and
a text, and SIMBA shows its prompt model all other values that a metric returns.

A custom metric is any callable that DSPy's optimizers accept, given as `package.module:function` or
`path/to/file.py:function`. It is called with as many of `example, prediction, trace, pred_name,
pred_trace` as it accepts. The example has `question`, `answer` and `answers`. The score is a number
with best value 1, a bool, or a prediction with a `score` and optionally a `feedback`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dspy

from ragbench.errors import ConfigError, UnknownNameError
from ragbench.external import is_kept, tag_of
from ragbench.metrics import best, contains, exact_match, token_f1
from ragbench.metrics.base import metric_function, range_of, read_score
from ragbench.optimizers.students import run_of
from ragbench.programs.core.program import NO_ANSWER
from ragbench.text_normalization import first_tokens, question_key
from ragbench.user_code import contained, digest_of_spec

#: Score of a prediction in [0, 1], and 0 without an answer.
Scorer = Callable[[dspy.Example, Any], float]

_COMPARE = {"em": exact_match, "f1": token_f1}


def make_scorer(name: str) -> Scorer:
    """Return the scorer of a metric.

    `name` is em or f1, over all gold answers, or a custom metric such as FILE.py:function.

    Raises:
        UnknownNameError: There is no such metric.
    """
    if ":" in name:
        return OwnMetric(name)
    if name not in _COMPARE:
        raise UnknownNameError("metric to compile for", name, _COMPARE)
    compare = _COMPARE[name]

    def score(example: dspy.Example, prediction: Any) -> float:
        answer = answer_of(prediction)
        if answer:
            return best(compare, answer, example.answers)
        return 0.0

    return score


def answer_of(prediction: Any) -> str:
    """Return the stripped answer of `prediction`, or an empty text if there is none."""
    text = getattr(prediction, "answer", None)
    answer = text.strip() if isinstance(text, str) else ""
    if answer == NO_ANSWER:
        return ""
    return answer


class Judgement(dspy.Prediction):
    """A score with feedback, which is true only if the score is the best possible.

    A plain `dspy.Prediction` with a score is always true, and would make a demonstration of a
    failure.
    Sums and comparisons use the score.
    """

    def __bool__(self) -> bool:
        return bool(self._best)


#: Called with each scored run and its score.
OnScore = Callable[[Any, float], None]


def full_metric(
    scorer: Scorer, gold: Sequence[dspy.Example] = (), note: OnScore | None = None
) -> Callable[..., Judgement]:
    """Return the metric in its full form: five arguments, and a `Judgement` with feedback.

    Args:
        scorer: Scorer of answers. The feedback of a custom metric has priority.
        gold: Full training examples. Feedback names their supporting facts, which are not in the
            examples that programs and demonstrations can show.
        note: Called with each scored run and its score.
    """
    examples = {question_key(example.question): example for example in gold}

    def metric(
        example: dspy.Example,
        prediction: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> Judgement:
        result = prediction
        run = run_of(prediction)
        if run is not None:
            result = run.prediction
        full = examples.get(question_key(example.question), example)
        text = ""
        if isinstance(scorer, OwnMetric):
            score, best_so, text = scorer.judge(example, result, trace, pred_name, pred_trace)
        else:
            score = scorer(example, result)
            best_so = is_exact(example, result)
        if run is not None and note is not None and pred_name is None:
            note(run, score)
        if not text and pred_trace and not _answers(pred_trace[0], result):
            text = step_feedback(full, result, pred_trace[0], score)
        judged = Judgement(score=score, feedback=text or feedback(full, result))
        judged._best = best_so
        return judged

    return metric


def is_exact(example: dspy.Example, prediction: Any) -> bool:
    """Return True if the nonblank answer equals a gold answer after normalization.

    Args:
        example: Example with gold `answers`.
        prediction: Prediction of a program.
    """
    answer = answer_of(prediction)
    return bool(answer) and bool(best(exact_match, answer, example.answers))


def feedback(example: dspy.Example, prediction: Any) -> str:
    """Describe the mistake in `prediction`, in sentences for a writer of instructions.

    Args:
        example: Example with gold `answers`.
        prediction: Prediction of a program.
    """
    gold = example.answers[0]
    answer = answer_of(prediction)
    if any(exact_match(answer, right) for right in example.answers):
        return f"Right: {answer!r}."
    if not answer:
        lines = [f"No answer was given; expected {gold!r}."]
    elif best(contains, answer, example.answers):
        lines = [
            f"Wrong form: the right answer {gold!r} stands inside a reply of "
            f"{len(answer.split())} words, {answer!r}. The answer alone is wanted."
        ]
    else:
        lines = [f"Wrong: {answer!r} was answered, expected {gold!r}."]
    lines += _missed_hops(example, prediction)
    counts: Mapping[str, int] = getattr(prediction, "counts", None) or {}
    if unread := counts.get("parse_fallback", 0):
        lines.append(f"{unread} replies could not be read in the required form.")
    return " ".join(lines)


#: A call of one predictor in a run: the predictor, its inputs and its outputs.
Step = tuple[Any, Mapping[str, Any], Any]
#: Maximum tokens of a value in the feedback on a step.
_STEP_TOKENS = 40


def step_feedback(example: dspy.Example, prediction: Any, step: Step, score: float) -> str:
    """Describe the contribution of one step that did not give the final answer.

    Args:
        example: The full example. Its sub-answers and supporting passages are the required facts.
        prediction: The result of the whole run.
        step: The call of the predictor that gets the feedback.
        score: Score of the final answer, in [0, 1].
    """
    _, inputs, outputs = step
    results = dict(outputs.items()) if hasattr(outputs, "items") else {"reply": outputs}
    lines = [f"This step was given {_values(inputs)} and returned {_values(results)}."]
    read = str(dict(inputs)).casefold()
    returned = str(results).casefold()
    for hop in list(example.get("decomposition") or ())[:-1]:
        fact = str(hop.get("answer") or "")
        if fact and fact.casefold() not in returned:
            place = "its input states it" if fact.casefold() in read else "its input lacks it too"
            lines.append(f"Missing fact: the result does not hold {fact!r}; {place}.")
    lines += _missed_hops(example, prediction)
    return " ".join([*lines, f"The final answer of the run scored {score:.2f}."])


def _answers(step: Step, prediction: Any) -> bool:
    """Return True if `step` gave the final answer of the run."""
    answer = answer_of(step[2])
    return bool(answer) and answer == answer_of(prediction)


def _values(fields: Mapping[str, Any]) -> str:
    texts = (f"{name} {first_tokens(str(text), _STEP_TOKENS)!r}" for name, text in fields.items())
    return ", ".join(texts) or "nothing"


def _missed_hops(example: dspy.Example, prediction: Any) -> list[str]:
    retrieved = {passage.title for passage in getattr(prediction, "passages", None) or ()}
    titles = dict.fromkeys(title for title, _ in getattr(example, "support", None) or ())
    missed = [title for title in titles if title not in retrieved]
    return [f"Missed hop: no search found the passage {title!r}." for title in missed]


class OwnMetric:
    """The scorer of a custom metric that `spec` names."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._function = metric_function(spec)
        self._range = range_of(self._function)
        self._taken = _positional(self._function)

    def __call__(self, example: dspy.Example, prediction: Any) -> float:
        return self.judge(example, prediction)[0]

    def judge(
        self,
        example: dspy.Example,
        prediction: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> tuple[float, bool, str]:
        """Score a prediction with as many of the five arguments as the function accepts.

        Args:
            example: Question and gold answers.
            prediction: The program's result.
            trace: Calls of the run. None outside of a bootstrap.
            pred_name: Name of the predictor that gets feedback.
            pred_trace: Calls of that predictor.

        Returns:
            The score, whether the prediction may become a demonstration, and the feedback, if any.
        """
        arguments = (example, prediction, trace, pred_name, pred_trace)
        with contained(f"--metric {self.spec}"):
            reply = self._function(*arguments[: self._taken])
            score = read_score(reply, self._range)
        best_so = reply if isinstance(reply, bool) else score >= self._range[1]
        text = reply.get("feedback") if isinstance(reply, dspy.Prediction) else None
        return score, best_so, str(text or "")

    def check(self, example: dspy.Example) -> None:
        """Score the gold answer of `example`, without LM calls, to check the metric.

        Raises:
            ConfigError: The metric fails.
        """
        prediction = dspy.Prediction(answer=example.answers[0], passages=[])
        try:
            self(example, prediction)
            self.judge(example, prediction, [])
        except Exception as error:  # custom code may raise anything
            raise ConfigError(
                f"--metric {self.spec} fails on a gold answer: {type(error).__name__}: {error}; it "
                "must accept (example, prediction, trace=None) and return a number"
            ) from None

    @property
    def digest(self) -> str:
        """Identity of its code. A changed metric is another compile."""
        return tag_of(self.spec) if is_kept(self.spec) else digest_of_spec(self.spec, "--metric")


def _positional(function: Callable[..., Any]) -> int:
    """Return the number of positional arguments of `function`, or 3 if unknown."""
    try:
        kinds = [p.kind.name for p in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return 3
    if "VAR_POSITIONAL" in kinds:
        return 5
    return min(kinds.count("POSITIONAL_ONLY") + kinds.count("POSITIONAL_OR_KEYWORD"), 5)
