"""A rehearsal: what one question costs in calls and prompt tokens, without asking any model.

The program runs over real questions and its real retriever, and every call is answered at once with
a value of the declared type. How long a program's loop runs depends on the answers, so it is run
with several kinds of them, which gives a range rather than a number.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

import dspy
from dspy.lm15 import Request, Response
from pydantic import BaseModel

from ragbench.programs.base import RAGProgram
from ragbench.programs.trace import REHEARSAL_KEY, estimate_tokens


@dataclass(frozen=True)
class Rehearsed:
    """Fewest and most LM calls and prompt tokens of one question, over kinds of replies."""

    calls: tuple[int, int]
    prompt_tokens: tuple[int, int]


def rehearse(
    program: RAGProgram, examples: Sequence[dspy.Example], adapter: dspy.Adapter
) -> Rehearsed | None:
    """The range over `examples` and kinds of replies; tokens are a quarter of the characters.

    Makes no LM call; searches are real. None where the program reaches no call that way.
    """
    lm = dspy.LM("rehearsal/none", engine=_NoEngine(), cache=False)
    calls: list[int] = []
    tokens: list[int] = []
    for (yes, last), example in itertools.product(_KINDS, examples):
        stand_in = _StandIn(adapter, yes=yes, last=last)
        settings = {"lm": lm, "adapter": stand_in, "trace": None, "warn_on_type_mismatch": False}
        settings[REHEARSAL_KEY] = True
        # A made-up reply may lead anywhere; what was asked until then counts.
        with dspy.context(**settings), contextlib.suppress(Exception):
            program(question=example.question)
        if stand_in.sizes:
            calls.append(len(stand_in.sizes))
            tokens.append(sum(stand_in.sizes))
    if not calls:
        return None
    return Rehearsed((min(calls), max(calls)), (min(tokens), max(tokens)))


#: Whether booleans are true, and whether the last choice of a list of labels or tools is taken.
_KINDS = tuple(itertools.product((True, False), (True, False)))


class _NoEngine:
    def complete(self, request: Request) -> Response:
        raise NotImplementedError("a rehearsal asks no model")


@dataclass
class _StandIn(dspy.Adapter):
    """Formats each prompt as the real adapter does, measures it and makes up the reply."""

    real: dspy.Adapter
    yes: bool
    last: bool
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._numbers: Iterator[int] = itertools.count(1)

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[Any],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        messages = self.real.format(signature, demos, inputs)
        self.sizes.append(sum(estimate_tokens(str(m.get("content") or "")) for m in messages))
        fields = signature.output_fields.items()
        return [{name: self._value(field.annotation) for name, field in fields}]

    def _value(self, kind: Any) -> Any:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return arguments[-1 if self.last else 0]
        if origin in (list, tuple, set):
            return [self._value(arguments[0])] if arguments else []
        if origin is dict or kind is dict:
            return {}
        if arguments:
            return self._value(arguments[0])
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            values = {n: self._value(f.annotation) for n, f in kind.model_fields.items()}
            return kind.model_validate(values)
        # Each text is new, or a loop that stops at a repetition would look short.
        made: dict[Any, Any] = {bool: self.yes, int: 1, float: 0.5}
        return made.get(kind, f"a made-up reply of some words, number {next(self._numbers)}")
