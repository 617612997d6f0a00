"""A rehearsal: what one question takes in calls and tokens, without asking any model.

The program runs over real questions and its real retriever, and every call is answered at once with
a value of the declared type. How long a program's loop runs depends on the answers, so it is run
with several kinds of them, from words that end it at once to texts as long as a reply may be, which
gives a range rather than a number.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, Usage
from pydantic import BaseModel

from ragbench.context import current, use
from ragbench.lms import Pricing, RagbenchLM, UnknownPrice, priced
from ragbench.lms.calls import UNBOUNDED_REPLY, Limits, spending
from ragbench.programs.core import RAGProgram
from ragbench.tokens import estimate_tokens

#: Tokens of the shortest reply, and items of a list in a long one.
_SHORTEST, _MANY = 2, 5


@dataclass(frozen=True)
class Rehearsed:
    """Fewest and most that one question takes, over kinds of replies.

    `tokens` are of prompts and replies; `cost` in US dollars is None where a price is not known.
    """

    calls: tuple[int, int]
    tokens: tuple[int, int]
    cost: tuple[float, float] | None


@dataclass(frozen=True)
class _Kind:
    """Kind of made-up reply: booleans, choice of a list of labels or tools, length of the rest.

    Texts of a blank one are empty, by which programs come to their second choices. With a seed,
    each of them is drawn anew for every value.
    """

    yes: bool = False
    last: bool = False
    long: bool = False
    blank: bool = False
    seed: int | None = None


_KINDS = [
    *(_Kind(*kind) for kind in itertools.product((True, False), repeat=3)),
    *(_Kind(yes=yes, blank=True) for yes in (True, False)),
    *(_Kind(seed=seed) for seed in range(6)),
]


@dataclass(frozen=True)
class _Asked:
    prompt: int  # tokens
    longest: int  # tokens that the reply may have
    pricing: Pricing

    def cost(self, reply: int) -> float:
        usd = priced(self.pricing, None, self.prompt, reply)
        return math.inf if usd is None else usd


def rehearse(
    program: RAGProgram,
    examples: Sequence[dspy.Example],
    adapter: dspy.Adapter,
    lm: RagbenchLM | None = None,
) -> Rehearsed | None:
    """The range over `examples` and kinds of replies; tokens are a quarter of the characters.

    `lm` gives prices and the length of replies. Makes no call to any server, also not to one of
    embeddings: a run that would need one ends there. None where the program reaches no LM call.
    """
    runs = []
    for kind, example in itertools.product(_KINDS, examples):
        stand_in = _StandIn(adapter, kind, lm)
        none = dspy.LM("rehearsal/none", engine=_NoEngine(stand_in), cache=False)
        settings = {"lm": none, "adapter": stand_in, "trace": None, "warn_on_type_mismatch": False}
        made_up = replace(current(), rehearsal=True)
        # A made-up reply may lead anywhere; what was asked until then counts.
        with use(made_up, **settings), spending(Limits(calls=0)), contextlib.suppress(Exception):
            program(question=example.question)
        if stand_in.asked:
            runs.append(stand_in.asked)
    if not runs:
        return None
    calls = [len(run) for run in runs]
    low_cost = min(sum(asked.cost(_SHORTEST) for asked in run) for run in runs)
    high_cost = max(sum(asked.cost(asked.longest) for asked in run) for run in runs)
    prompts = [sum(asked.prompt for asked in run) for run in runs]
    longest = max(sum(asked.longest for asked in run) for run in runs)
    return Rehearsed(
        calls=(min(calls), max(calls)),
        tokens=(min(prompts) + _SHORTEST * min(calls), max(prompts) + longest),
        cost=(low_cost, high_cost) if math.isfinite(high_cost) else None,
    )


class _NoEngine:
    """Answers what a program asks of its LM past the adapter."""

    def __init__(self, stand_in: _StandIn) -> None:
        self.stand_in = stand_in

    def complete(self, request: Request) -> Response:
        texts = [str(request.system or ""), *(m.text or "" for m in request.messages)]
        self.stand_in.note(sum(map(estimate_tokens, texts)), None)
        message = Message.assistant([TextPart(self.stand_in.text(1))])
        return Response(None, request.model, message, "stop", Usage(1, 1, 2))


class _StandIn(dspy.Adapter):
    """Formats each prompt as the real adapter does, measures it and makes up the reply."""

    def __init__(self, real: dspy.Adapter, kind: _Kind, lm: RagbenchLM | None) -> None:
        super().__init__()
        self.asked: list[_Asked] = []
        self._real, self._kind, self._lm = real, kind, lm
        self._numbers, self._chance = itertools.count(1), random.Random(kind.seed)
        self._longest = _longest(lm) if lm else 512

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[Any],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        messages = self._real.format(signature, demos, inputs)
        self.note(sum(estimate_tokens(str(m.get("content") or "")) for m in messages), lm)
        fields = signature.output_fields.items()
        return [{name: self._value(field.annotation, len(fields)) for name, field in fields}]

    def format_user_message_content(self, *arguments: Any, **named: Any) -> str:
        """As the real adapter: `dspy.ReAct` writes its trajectory so."""
        written: str = self._real.format_user_message_content(*arguments, **named)
        return written

    def note(self, prompt: int, lm: Any) -> None:
        """Count a call of `prompt` tokens; `lm` is that of a role, if it is not the main one."""
        other = lm if isinstance(lm, RagbenchLM) else None
        priced_by = other or self._lm
        pricing = priced_by.pricing if priced_by else UnknownPrice()
        self.asked.append(_Asked(prompt, _longest(other) if other else self._longest, pricing))

    def text(self, share: int) -> str:
        """A text that ends what can be ended, or one that fills its share of a long reply."""
        if self._kind.blank:
            return ""
        # Each text is new, or a loop that stops at a repetition would look short.
        number = next(self._numbers)
        if not self._yes(self._kind.long):
            return f"So the answer is: {number}"
        return f"a made-up reply, number {number}" + " and more" * (self._longest // 2 // share - 4)

    def _value(self, annotation: Any, share: int) -> Any:
        origin, arguments = get_origin(annotation), get_args(annotation)
        drawn = self._kind.seed is not None
        if origin is Literal:
            last = arguments[-1 if self._kind.last else 0]
            return self._chance.choice(arguments) if drawn else last
        if origin in (list, tuple, set):
            n = _MANY if self._yes(self._kind.long) else 1
            return [self._value(arguments[0], share * n) for _ in range(n)] if arguments else []
        if origin is dict or annotation is dict:
            return {"made_up": self.text(share)}  # such as the arguments of a tool
        if arguments:
            return self._value(arguments[0], share)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = annotation.model_fields
            share *= max(len(fields), 1)
            values = {n: self._value(f.annotation, share) for n, f in fields.items()}
            return annotation.model_validate(values)
        if annotation is bool:
            return self._yes(self._kind.yes)
        if annotation is float:  # in [0, 1]
            sure = 0.9 if self._kind.yes else 0.1
            return round(self._chance.random(), 2) if drawn else sure
        return 1 if annotation is int else self.text(share)

    def _yes(self, given: bool) -> bool:
        return given if self._kind.seed is None else self._chance.random() < 0.5


def _longest(lm: RagbenchLM) -> int:
    """Tokens that a reply of `lm` may have."""
    return int(lm.kwargs.get("max_tokens") or UNBOUNDED_REPLY)
