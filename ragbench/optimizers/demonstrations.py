"""Demonstrations as they are shown: whole, of the fields of their predictor, and short enough.

A bootstrapped demonstration carries the full inputs of the call it was taken from, for RAG every
passage of every hop; four of them overflow a small model's context. And DSPy adds each training
example to every predictor, so that one that plans or grades is shown replies "not supplied", and a
reader is shown an answer without the passages that it was read from.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dspy

from ragbench.data.base import jsonable
from ragbench.tokens import estimate_tokens, first_tokens

#: Items of a list that would be left with fewer tokens than this are dropped.
_LEAST = 15


def fit_demos(
    demos: Sequence[Any], signature: type[dspy.Signature], *, max_tokens: int | None
) -> list[dict[str, Any]]:
    """The demonstrations that are whole for `signature`, each trimmed to `max_tokens`.

    One without an input or an output is left out. Only the signature's fields are kept, as plain
    JSON values. With None nothing is trimmed.
    """
    tokens = 10**9 if max_tokens is None else max_tokens
    return [_trimmed(demo, signature, tokens) for demo in demos if is_whole(demo, signature)]


def is_whole(demo: Any, signature: type[dspy.Signature]) -> bool:
    """Whether `demo` has every output of `signature`, and every input that has no default."""
    for name, field in signature.fields.items():
        optional = name in signature.input_fields and not field.is_required()
        if demo.get(name) is None and not optional:
            return False
    return True


def one_step_each(metric: Callable[..., Any]) -> Callable[..., Any]:
    """`metric`, under which the trace of a right run keeps one call of each predictor.

    A bootstrap of DSPy makes one demonstration of the calls of one predictor, half of the time of
    the last, so that a loop may be shown its end alone. Here right runs take turns: the first shows
    the first call, the next one the last, then the second, and so on.
    """
    turns = itertools.count()

    def choosing(example: dspy.Example, prediction: Any, trace: Any = None) -> Any:
        is_right = metric(example, prediction, trace)
        if trace and is_right:
            turn = next(turns)
            calls: dict[int, list[Any]] = {}
            for call in trace:
                calls.setdefault(id(call[0]), []).append(call)
            trace[:] = [_at_turn(same, turn) for same in calls.values()]
        return is_right

    return choosing


def _at_turn(calls: Sequence[Any], turn: int) -> Any:
    place, from_the_end = divmod(turn % len(calls), 2)
    if from_the_end:
        return calls[-1 - place]
    return calls[place]


def _trimmed(
    demo: Mapping[str, Any], signature: type[dspy.Signature], max_tokens: int
) -> dict[str, Any]:
    """`demo` with its inputs, the question apart, cut to `max_tokens` in all, the longest last.

    Of a list, and of the lines of a text, those that hold the demonstrated answer are kept first,
    since a demonstration whose proof is cut away teaches to guess; order and numbering stay.
    """
    fields = {name: jsonable(demo[name]) for name in signature.fields if demo.get(name) is not None}
    outputs = [fields[name] for name in signature.output_fields]
    proofs = []
    for text in outputs:
        if isinstance(text, str) and len(text) > 1:
            proofs.append(text.casefold())
    inputs = [name for name in signature.input_fields if name != "question" and name in fields]
    for name in sorted(inputs, key=lambda name: _size(fields[name])):
        fields[name] = _cut(fields[name], max_tokens, proofs)
        max_tokens -= _size(fields[name])
    if "augmented" in demo:
        fields["augmented"] = True
    return fields


def _cut(value: Any, room: int, proofs: Sequence[str]) -> Any:
    if isinstance(value, str):
        if "\n" in value and estimate_tokens(value) > room:
            return "\n".join(_cut(value.split("\n"), room, proofs))
        if room > 1 or not value:
            return first_tokens(value, room)
        return ""
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _cut(item, room, proofs)
            room -= _size(value[key])
        return value
    if not isinstance(value, list):
        return value

    def proves(place: int) -> bool:
        text = str(value[place]).casefold()
        return any(proof in text for proof in proofs)

    items: dict[int, Any] = {}
    used = 0
    for i in sorted(range(len(value)), key=proves, reverse=True):  # stable
        if used and room - used < _LEAST:
            break
        items[i] = _cut(value[i], room - used, proofs)
        used += _size(items[i])
    return [items[i] for i in sorted(items)]


def _size(value: Any) -> int:
    if isinstance(value, dict | list):
        return sum(map(_size, value.values() if isinstance(value, dict) else value))
    if isinstance(value, str):
        return estimate_tokens(value)
    return 0
