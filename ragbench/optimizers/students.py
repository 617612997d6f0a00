"""Students: copies of a program to optimize, whose demonstrations fit and which notice a dead LM.

Demonstrations are mended where a prompt is made, not after the search, so that what is searched is
what ships. What an optimizer sees of a run is one lean prediction: no times and no places of calls,
or the same prompt would be another at another clock.

Optimizers run with no limit on errors, since one bad question must not cost a night's work. But a
server that died would make all later candidates equal and the result worthless: the first call that
is refused without being sent (see `lms.calls`) ends it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import dspy
from dspy import LMError

from ragbench.context import current, use
from ragbench.errors import StopSignal
from ragbench.lms.unmetered import unmetered_reason
from ragbench.optimizers.demonstrations import fit_demos
from ragbench.optimizers.tally import Run, Tally
from ragbench.programs.core import RAGProgram
from ragbench.record import Step
from ragbench.tokens import first_tokens

#: Tokens of a step's thought, and of what it saw, that an optimizer is shown.
_STEP_TOKENS = 60


class LMDownError(StopSignal):
    """The LM is down, or a limit was reached: calls are refused from now on."""


class UnmeteredError(StopSignal):
    """A program called an LM that no limit holds, and there is a limit."""


class EndlessError(StopSignal):
    """An optimizer of unknown cost ran the program more often than it may have calls."""


class _Predict(dspy.Predict):
    """A `dspy.Predict` that shows trimmed demonstrations, and ends the compile with the LM.

    Its trace holds what was asked: a loop that adds to a list which it passed to an earlier call
    would make a demonstration that is shown what came later.
    """

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        demos = kwargs.pop("demos", self.demos)
        kwargs = {name: _copied(value) for name, value in kwargs.items()}
        if self.rb_demo_tokens is not None:
            demos = fit_demos(demos, self.signature, max_tokens=self.rb_demo_tokens)
        try:
            return super().forward(demos=demos, **kwargs)
        except LMError as error:
            if getattr(error, "code", None) == "refused":
                raise LMDownError(f"{type(error).__name__}: {error}") from error
            raise


def _copied(value: Any) -> Any:
    """`value` with copies of its lists and mappings; what they hold at the end stays itself."""
    if isinstance(value, list):
        return list(map(_copied, value))
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return value


_Predict.__name__ = "Predict"  # instruction optimizers show the class's name in their prompts


def make_student(program: RAGProgram, *, demo_tokens: int, tally: Tally) -> RAGProgram:
    """A copy of `program` without demonstrations, whose predictors trim theirs to `demo_tokens`.

    Its runs are noted in `tally`.
    """
    student = cast(RAGProgram, program.reset_copy())
    kind: Any = type(student)
    student.__class__ = _student_of(kind)
    student.rb_tally = tally
    student.rb_names = frozenset({*vars(student), "rb_names"})
    for predictor in student.predictors():
        predictor.__class__ = _Predict
        predictor.rb_demo_tokens = demo_tokens
    return student


@lru_cache(maxsize=64)
def _student_of(kind: Any) -> type[Any]:
    """The class of students of `kind`, which shows optimizers the source of `kind`."""

    # A class of its own, not a method of the instance, so that a copy asks itself.
    class Student(kind):
        rb_plain = kind

        def forward(self, question: str) -> dspy.Prediction:
            tally: Tally = self.rb_tally
            run = tally.begin(self, question)
            try:
                with use(current().plus(run.meter)):
                    run.prediction = super().forward(question)
            except Exception:
                tally.note(run, 0.0)
                raise
            if reason := unmetered_reason():
                raise UnmeteredError(reason)
            return lean(run)

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(Student, name, getattr(kind, name))
    return Student


def lean(run: Run) -> dspy.Prediction:
    """What an optimizer sees of `run`: answer, passages once, and steps as text."""
    prediction = run.prediction
    steps = list(map(_step_text, prediction.get("steps") or ()))
    passages = prediction.get("passages")
    seen = dspy.Prediction(answer=prediction.answer, passages=passages, steps=steps)
    seen._rb_run = run
    return seen


def run_of(prediction: Any) -> Run | None:
    """The run that a lean `prediction` is of; None for any other."""
    run: Run | None = getattr(prediction, "_rb_run", None)
    return run


def _step_text(step: Step) -> str:
    """`step` in a line; passages, which the prediction has, by their number."""
    seen = step.observation
    if step.pids and step.action != "answer":
        seen = f"{len(step.pids)} passages"
    texts = [step.action, step.input, step.thought, seen]
    words = []
    for text in texts:
        if text:
            words.append(first_tokens(" ".join(text.split()), _STEP_TOKENS))
    return " | ".join(words)


def guarded(program: dspy.Module) -> dspy.Module:
    """A copy of `program`, its demonstrations untrimmed, whose calls end when the LM is down."""
    copied = cast(dspy.Module, program.deepcopy())
    for predictor in copied.predictors():
        if not isinstance(predictor, _Predict):
            predictor.__class__ = _Predict
            predictor.rb_demo_tokens = None
    return copied


def bare(program: RAGProgram) -> RAGProgram:
    """A copy of the student `program` without what an optimizer hung on it.

    DSPy's hang their candidates there, which would be copied with it, and freeze what they
    compiled.
    """
    copied = cast(RAGProgram, program.deepcopy())
    for name in copied.__dict__.keys() - program.__dict__.get("rb_names", copied.__dict__.keys()):
        del copied.__dict__[name]
    copied._compiled = False
    return copied


def answer_by(program: RAGProgram, answer: Callable[[RAGProgram, str], dspy.Prediction]) -> None:
    """Let `program` answer by `answer`, which is given a plain copy of it and the question."""
    kind: Any = type(program)

    # A class of its own, not a method of the instance, so that a copy asks itself.
    class Answering(kind):
        def forward(self, question: str) -> dspy.Prediction:
            plain = self.deepcopy()
            plain.__class__ = kind
            return answer(plain, question)

    Answering.__name__ = kind.__name__
    Answering.__doc__ = kind.__doc__
    program.__class__ = Answering


def finish(program: RAGProgram) -> RAGProgram:
    """A copy of a compiled student as a plain program: demonstrations trimmed and JSON-ready."""
    plain = bare(program)
    plain.__class__ = getattr(type(plain), "rb_plain", type(plain))
    for name in ("rb_tally", "rb_names"):
        plain.__dict__.pop(name, None)
    for predictor in plain.predictors():
        if isinstance(predictor, _Predict):
            tokens = predictor.__dict__.pop("rb_demo_tokens")
            predictor.__class__ = dspy.Predict
            predictor.demos = fit_demos(predictor.demos, predictor.signature, max_tokens=tokens)
        predictor.lm = None
        predictor.traces = []
        predictor.train = []
    return plain
