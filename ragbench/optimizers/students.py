"""Students: copies of a program to optimize, with trimmed demonstrations and a check for a dead LM.

Demonstrations are trimmed when a prompt is made, so the searched program equals the saved one. An
optimizer sees one lean prediction per run, without times and positions of calls. Otherwise the same
prompt would differ from run to run.

Optimizers run without a limit on errors, because one bad question must not end a long compile. But
if a server dies, all later candidates look equal and the result is worthless. So the first call
that is refused without being sent (see `lms.calls`) ends the compile.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import dspy
from dspy import LMError

from ragbench.context import current, use
from ragbench.errors import StopSignal
from ragbench.lms.calls import unmetered_reason
from ragbench.optimizers.candidate_log import CandidateLog, Run
from ragbench.optimizers.demonstrations import fit_demos
from ragbench.programs.core import RAGProgram
from ragbench.record import Step
from ragbench.text_normalization import first_tokens

#: Maximum tokens of each part of a step in an optimizer's view.
_STEP_TOKENS = 60


class LMDownError(StopSignal):
    """The LM is down or a limit was reached, so all further calls are refused."""


class UnmeteredError(StopSignal):
    """A program called an unmetered LM although a limit is set."""


class CallLimitExceededError(StopSignal):
    """An optimizer of unknown cost ran the program more often than its limit of calls."""


class _Predict(dspy.Predict):
    """A `dspy.Predict` that trims demonstrations and ends the compile if the LM is down.

    Its trace has copies of the inputs. A loop may extend a list that it passed to an earlier call,
    so the demonstration of that call would show later content.
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
    """Return `value` with copies of its lists and mappings, but the same leaves."""
    if isinstance(value, list):
        return list(map(_copied, value))
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return value


_Predict.__name__ = "Predict"  # instruction optimizers show the class's name in their prompts


def make_student(program: RAGProgram, *, demo_tokens: int, tally: CandidateLog) -> RAGProgram:
    """Return a copy of `program` without demonstrations, which notes its runs in `tally`.

    Args:
        program: The program. Not changed.
        demo_tokens: Maximum tokens of the inputs of one demonstration.
        tally: Record of runs and scores.
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
    """Return the student class of `kind`, with the name and docstring of `kind`."""

    # A subclass and not a method of the instance, so that a copy calls itself.
    class Student(kind):
        rb_plain = kind

        def forward(self, question: str) -> dspy.Prediction:
            tally: CandidateLog = self.rb_tally
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
    """Return the view of `run` for optimizers: answer, passages once, and steps as text."""
    prediction = run.prediction
    steps = list(map(_step_text, prediction.get("steps") or ()))
    passages = prediction.get("passages")
    seen = dspy.Prediction(answer=prediction.answer, passages=passages, steps=steps)
    seen._rb_run = run
    return seen


def run_of(prediction: Any) -> Run | None:
    """Return the run of a lean `prediction`, or None for any other."""
    run: Run | None = getattr(prediction, "_rb_run", None)
    return run


def _step_text(step: Step) -> str:
    """Return `step` as a line, with the number of its passages."""
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
    """Return a copy of `program` with untrimmed demonstrations that stops if the LM is down."""
    copied = cast(dspy.Module, program.deepcopy())
    for predictor in copied.predictors():
        if not isinstance(predictor, _Predict):
            predictor.__class__ = _Predict
            predictor.rb_demo_tokens = None
    return copied


def bare(program: RAGProgram) -> RAGProgram:
    """Return a copy of the student `program` without attributes that an optimizer added.

    DSPy's optimizers attach their candidates, which copies would include, and freeze compiled
    programs.
    """
    copied = cast(RAGProgram, program.deepcopy())
    for name in copied.__dict__.keys() - program.__dict__.get("rb_names", copied.__dict__.keys()):
        del copied.__dict__[name]
    copied._compiled = False
    return copied


def answer_by(program: RAGProgram, answer: Callable[[RAGProgram, str], dspy.Prediction]) -> None:
    """Make `program` answer with `answer`.

    Args:
        program: The program. Changed in place.
        answer: Takes a plain copy of the program and the question.
    """
    kind: Any = type(program)

    # A subclass and not a method of the instance, so that a copy calls itself.
    class Answering(kind):
        def forward(self, question: str) -> dspy.Prediction:
            plain = self.deepcopy()
            plain.__class__ = kind
            return answer(plain, question)

    Answering.__name__ = kind.__name__
    Answering.__doc__ = kind.__doc__
    program.__class__ = Answering


def finish(program: RAGProgram) -> RAGProgram:
    """Return a compiled student as a plain program with trimmed, JSON-ready demonstrations."""
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
