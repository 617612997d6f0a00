"""Demonstrations that fit: what a compiled prompt shows of the questions it learned from.

A bootstrapped demonstration carries the full inputs of the call it was taken from, for RAG every
passage of every hop; four of them overflow a small model's context. And DSPy adds each training
example to every predictor, so that one that plans or grades is shown replies "not supplied". Both
are mended where a prompt is made, not after the search, so that what is searched is what ships.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import dspy
from dspy import LMError, LMInvalidRequestError
from pydantic import BaseModel

from ragbench.optimizers.outage import current_outage
from ragbench.programs.core import RAGProgram
from ragbench.tokens import estimate_tokens, first_tokens

#: Items of a list that would be left with fewer tokens than this are dropped.
_LEAST = 15


class _Predict(dspy.Predict):
    """A `dspy.Predict` that shows trimmed demonstrations and notices a dead server."""

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        demos = kwargs.pop("demos", self.demos)
        if self.rb_demo_tokens is not None:
            demos = fit_demos(demos, self.signature, max_tokens=self.rb_demo_tokens)
        outage = current_outage()
        if outage:
            outage.check()
        try:
            reply = super().forward(demos=demos, **kwargs)
        except LMError as error:
            if outage and not isinstance(error, LMInvalidRequestError):
                outage.note(error)
            raise
        if outage:
            outage.clear()
        return reply


_Predict.__name__ = "Predict"  # instruction optimizers show the class's name in their prompts


def make_student(program: RAGProgram, *, demo_tokens: int) -> RAGProgram:
    """A copy of `program` to optimize, without demonstrations.

    Its predictors trim theirs to `demo_tokens` and own their signatures: DSPy's rule induction
    writes instructions into the signature class, which other programs share.
    """
    student = cast(RAGProgram, program.reset_copy())
    for predictor in student.predictors():
        predictor.__class__ = _Predict
        predictor.rb_demo_tokens = demo_tokens
        predictor.signature = predictor.signature.with_instructions(
            predictor.signature.instructions
        )
    return student


def guarded(program: dspy.Module) -> dspy.Module:
    """A copy of `program`, its demonstrations untrimmed, whose calls end when the LM is down."""
    copied = program.deepcopy()
    for predictor in copied.predictors():
        if not isinstance(predictor, _Predict):
            predictor.__class__ = _Predict
            predictor.rb_demo_tokens = None
    return cast(dspy.Module, copied)


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


def fit_demos(
    demos: Sequence[Any], signature: type[dspy.Signature], *, max_tokens: int
) -> list[dict[str, Any]]:
    """The demonstrations that can be shown whole to `signature`, each trimmed to `max_tokens`.

    One without an input, or without every output, is left out. Only the signature's fields are
    kept, as plain JSON values.
    """
    return [
        trim(demo, signature, max_tokens=max_tokens) for demo in demos if is_whole(demo, signature)
    ]


def is_whole(demo: Any, signature: type[dspy.Signature]) -> bool:
    """Whether `demo` has every output of `signature` and at least one input."""
    return all(demo.get(name) is not None for name in signature.output_fields) and any(
        demo.get(name) is not None for name in signature.input_fields
    )


def trim(
    demo: Mapping[str, Any], signature: type[dspy.Signature], *, max_tokens: int
) -> dict[str, Any]:
    """`demo` with its inputs, the question apart, cut to `max_tokens` in all, the longest last.

    Of a list, and of the lines of a text, those that hold the demonstrated answer are kept first,
    since a demonstration whose proof is cut away teaches to guess; order and numbering stay.
    """
    shown = {k: _plain(demo[k]) for k in signature.fields if demo.get(k) is not None}
    outputs = [shown[name] for name in signature.output_fields if isinstance(shown.get(name), str)]
    left = max_tokens
    inputs = [name for name in signature.input_fields if name != "question" and name in shown]
    for name in sorted(inputs, key=lambda name: _size(shown[name])):
        shown[name], used = _cut(shown[name], left, [text for text in outputs if len(text) > 1])
        left -= used
    if "augmented" in demo:
        shown["augmented"] = True
    return shown


def _cut(value: Any, left: int, proofs: Sequence[str]) -> tuple[Any, int]:
    if isinstance(value, str):
        if "\n" in value and estimate_tokens(value) > left:
            lines, used = _cut(value.split("\n"), left, proofs)
            return "\n".join(lines), used
        text = _cut_text(value, left)
        return text, estimate_tokens(text)
    if isinstance(value, dict):
        for key, item in value.items():
            value[key], used = _cut(item, left, proofs)
            left -= used
        return value, _size(value)
    if not isinstance(value, list):
        return value, 0
    proving = [i for i, item in enumerate(value) if _holds(item, proofs)]
    kept: dict[int, Any] = {}
    total = 0
    for i in [*proving, *(i for i in range(len(value)) if i not in proving)]:
        if total and left - total < _LEAST:
            break
        kept[i], used = _cut(value[i], left - total, proofs)
        total += used
    return [kept[i] for i in sorted(kept)], total


def _holds(item: Any, proofs: Sequence[str]) -> bool:
    text = str(item).casefold()
    return any(proof.casefold() in text for proof in proofs)


def _cut_text(text: str, tokens: int) -> str:
    return first_tokens(text, tokens) if tokens > 1 or not text else ""


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(_size(item) for item in value.values())
    if isinstance(value, list):
        return sum(_size(item) for item in value)
    return estimate_tokens(value) if isinstance(value, str) else 0


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(item) for item in items]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
