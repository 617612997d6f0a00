"""Demonstrations in prompts: complete, with only their predictor's fields, and short enough.

A bootstrapped demonstration has the full inputs of its call. For RAG these are all passages of all
hops, and four demonstrations overflow a small model's context. DSPy also adds each training example
to every predictor. So a planner or grader would see replies of "not supplied", and a reader would
see answers without their passages.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dspy

from ragbench.redact import jsonable
from ragbench.text_normalization import estimate_tokens, first_tokens

#: Minimum tokens of a trimmed list item. Shorter items are dropped.
_LEAST = 15


def fit_demos(
    demos: Sequence[Any], signature: type[dspy.Signature], *, max_tokens: int | None
) -> list[dict[str, Any]]:
    """Return the demonstrations that are complete for `signature`, each trimmed to `max_tokens`.

    Args:
        demos: Demonstrations. Those with a missing input or output are dropped.
        signature: Signature. Only its fields are included, as plain JSON values.
        max_tokens: Maximum tokens of the inputs of one demonstration. None: no limit.
    """
    tokens = 10**9 if max_tokens is None else max_tokens
    return [_trimmed(demo, signature, tokens) for demo in demos if is_whole(demo, signature)]


def is_whole(demo: Any, signature: type[dspy.Signature]) -> bool:
    """Return True if `demo` has every output of `signature` and every required input.

    Args:
        demo: Demonstration.
        signature: Signature of the predictor.
    """
    for name, field in signature.fields.items():
        optional = name in signature.input_fields and not field.is_required()
        if demo.get(name) is None and not optional:
            return False
    return True


def one_call_per_predictor(metric: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `metric` so that the trace of a right run retains one call of each predictor.

    DSPy's bootstrap makes one demonstration from the calls of a predictor, in half of the cases
    from the last call. So a loop may only show its end. Here right runs alternate: the first run
    shows the first call, the next run the last, then the second, and so on.
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
    """Return `demo` with its inputs, except the question, cut to `max_tokens` together.

    The longest inputs are cut last. From a list, and from the lines of a text, items with the
    demonstrated answer are selected first, because a demonstration without its evidence teaches
    guessing. Order and numbering are unchanged.
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
