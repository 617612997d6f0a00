"""Students: copies of a program to optimize, whose demonstrations fit and which notice a dead LM.

A bootstrapped demonstration carries the full inputs of the call it was taken from, for RAG every
passage of every hop; four of them overflow a small model's context. And DSPy adds each training
example to every predictor, so that one that plans or grades is shown replies "not supplied". Both
are mended where a prompt is made, not after the search, so that what is searched is what ships.

Optimizers run with no limit on errors, since one bad question must not cost a night's work. But a
server that died would make all later candidates equal and the result worthless: the first call that
is refused without being sent (see `lms.calls`) ends it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import dspy
from dspy import LMError
from pydantic import BaseModel

from ragbench.errors import StopSignal
from ragbench.programs.core import RAGProgram
from ragbench.tokens import estimate_tokens, first_tokens

#: Items of a list that would be left with fewer tokens than this are dropped.
_LEAST = 15


class LMDownError(StopSignal):
    """The LM is down, or a limit was reached: calls are refused from now on."""


class _Predict(dspy.Predict):
    """A `dspy.Predict` that shows trimmed demonstrations, and ends the compile with the LM."""

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        demos = kwargs.pop("demos", self.demos)
        if self.rb_demo_tokens is not None:
            demos = fit_demos(demos, self.signature, max_tokens=self.rb_demo_tokens)
        try:
            return super().forward(demos=demos, **kwargs)
        except LMError as error:
            if getattr(error, "code", None) == "refused":
                raise LMDownError(f"{type(error).__name__}: {error}") from error
            raise


_Predict.__name__ = "Predict"  # instruction optimizers show the class's name in their prompts


def make_student(program: RAGProgram, *, demo_tokens: int) -> RAGProgram:
    """A copy of `program` without demonstrations, whose predictors trim theirs to `demo_tokens`."""
    student = cast(RAGProgram, program.reset_copy())
    for predictor in student.predictors():
        predictor.__class__ = _Predict
        predictor.rb_demo_tokens = demo_tokens
    return student


def guarded(program: dspy.Module) -> dspy.Module:
    """A copy of `program`, its demonstrations untrimmed, whose calls end when the LM is down."""
    copied = cast(dspy.Module, program.deepcopy())
    for predictor in copied.predictors():
        if not isinstance(predictor, _Predict):
            predictor.__class__ = _Predict
            predictor.rb_demo_tokens = None
    return copied


#: What DSPy's optimizers hang on the program they return; the candidates would be copied with it.
_LEFTOVERS = (
    "candidate_programs",
    "detailed_results",
    "mb_candidate_programs",
    "prompt_model_total_calls",
    "results_best",
    "results_latest",
    "score",
    "simba_idx",
    "total_calls",
    "trial_logs",
)


def finish(program: RAGProgram) -> RAGProgram:
    """A copy of a compiled student as a plain program: demonstrations trimmed and JSON-ready."""
    plain = cast(RAGProgram, program.deepcopy())
    for predictor in plain.predictors():
        if isinstance(predictor, _Predict):
            tokens = predictor.__dict__.pop("rb_demo_tokens")
            predictor.__class__ = dspy.Predict
            predictor.demos = fit_demos(predictor.demos, predictor.signature, max_tokens=tokens)
        predictor.lm, predictor.traces, predictor.train = None, [], []
    for leftover in _LEFTOVERS:
        plain.__dict__.pop(leftover, None)
    plain._compiled = False  # DSPy would freeze it, and refuse to compile it again
    return plain


def fit_demos(
    demos: Sequence[Any], signature: type[dspy.Signature], *, max_tokens: int
) -> list[dict[str, Any]]:
    """The demonstrations that can be shown whole to `signature`, each trimmed to `max_tokens`.

    One without an input, or without every output, is left out. Only the signature's fields are
    kept, as plain JSON values.
    """
    return [_trimmed(demo, signature, max_tokens) for demo in demos if is_whole(demo, signature)]


def is_whole(demo: Any, signature: type[dspy.Signature]) -> bool:
    """Whether `demo` has every output of `signature` and at least one input."""
    given = {name for name in signature.fields if demo.get(name) is not None}
    return given >= set(signature.output_fields) and not given.isdisjoint(signature.input_fields)


def _trimmed(
    demo: Mapping[str, Any], signature: type[dspy.Signature], max_tokens: int
) -> dict[str, Any]:
    """`demo` with its inputs, the question apart, cut to `max_tokens` in all, the longest last.

    Of a list, and of the lines of a text, those that hold the demonstrated answer are kept first,
    since a demonstration whose proof is cut away teaches to guess; order and numbering stay.
    """
    shown = {name: _plain(demo[name]) for name in signature.fields if demo.get(name) is not None}
    outputs = [shown[name] for name in signature.output_fields]
    proofs = [text.casefold() for text in outputs if isinstance(text, str) and len(text) > 1]
    inputs = [name for name in signature.input_fields if name != "question" and name in shown]
    for name in sorted(inputs, key=lambda name: _size(shown[name])):
        shown[name] = _cut(shown[name], max_tokens, proofs)
        max_tokens -= _size(shown[name])
    if "augmented" in demo:
        shown["augmented"] = True
    return shown


def _cut(value: Any, left: int, proofs: Sequence[str]) -> Any:
    if isinstance(value, str):
        if "\n" in value and estimate_tokens(value) > left:
            return "\n".join(_cut(value.split("\n"), left, proofs))
        return first_tokens(value, left) if left > 1 or not value else ""
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _cut(item, left, proofs)
            left -= _size(value[key])
        return value
    if not isinstance(value, list):
        return value
    texts = [str(item).casefold() for item in value]
    proving = [any(proof in text for proof in proofs) for text in texts]
    kept: dict[int, Any] = {}
    used = 0
    for i in sorted(range(len(value)), key=lambda i: not proving[i]):
        if used and left - used < _LEAST:
            break
        kept[i] = _cut(value[i], left - used, proofs)
        used += _size(kept[i])
    return [kept[i] for i in sorted(kept)]


def _size(value: Any) -> int:
    if isinstance(value, dict | list):
        return sum(map(_size, value.values() if isinstance(value, dict) else value))
    return estimate_tokens(value) if isinstance(value, str) else 0


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(item) for item in items]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
