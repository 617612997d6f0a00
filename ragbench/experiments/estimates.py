"""What a run is expected to spend, with a range, before it spends anything.

Calls and prompts come from a rehearsal over some of the run's own questions: the program runs over
its real retriever, and every call is answered at once with a value of the declared type. How long a
loop runs depends on the answers, so several kinds of them are tried, from words that end it at once
to texts as long as a reply may be, which gives a range. Where an embeddings or reranking server
would have to be asked, BM25 over the same passages stands in. Requests that a server fails are
extra.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import operator
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, Literal, NamedTuple, get_args, get_origin

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, Usage
from pydantic import BaseModel

from ragbench.context import current, use
from ragbench.errors import RunError
from ragbench.experiments.runs.context import RunContext, asks_servers, takes_tokens
from ragbench.experiments.store import read_records
from ragbench.lms.adapters import calls_of_reply
from ragbench.lms.calls import UNBOUNDED_REPLY, Limits, spending
from ragbench.lms.lm import RagbenchLM
from ragbench.lms.prices import Pricing
from ragbench.programs.core import RAGProgram, Rehearsal
from ragbench.programs.core.indexed import index_ahead
from ragbench.programs.wrappers import Around
from ragbench.retrievers import Retriever, make_retriever
from ragbench.tokens import estimate_tokens

#: Questions that are rehearsed.
SAMPLE = 6
#: Real tokens for each that was estimated, at the least and at the most, for English text; the
#: rest is for the questions that were not rehearsed.
MARGIN = (0.7, 1.4)
ASKED_TWICE = "the upper ends have every reply asked for twice, as an unreadable one is"
#: Tokens of the shortest and of a usual reply, and items of a list in a long one.
_SHORTEST, _USUAL, _MANY = 2, 50, 5


class Spend(NamedTuple):
    """What calls take; `cost` in US dollars, infinite where a price is not known."""

    calls: float = 0
    tokens: float = 0
    cost: float = 0

    def times(self, n: float, margin: float = 1.0) -> Spend:
        """This `n` times; `margin` is of what a prompt's estimate may be off."""
        return Spend(n * self.calls, n * margin * self.tokens, n * margin * self.cost)


NOTHING = Spend()


def each_of(pick: Callable[[Any], float], spends: Iterable[Spend]) -> Spend:
    """`pick` of the calls of all, of their tokens and of their costs."""
    return Spend(*map(pick, zip(*spends, strict=True)))


@dataclass(frozen=True)
class Estimate:
    """The least, the likely and the most that something takes if no reply is cached."""

    title: str = ""
    low: Spend = NOTHING
    likely: Spend = NOTHING
    high: Spend = NOTHING
    notes: Sequence[str] = ()
    #: Of the program's own index, which comes in addition and is no question's.
    index: Estimate | None = None

    def times(
        self, low: float, likely: float, high: float, *, tries: int = 1, **changes: Any
    ) -> Estimate:
        """So many of this one, every reply asked for up to `tries` times; `changes` are fields."""
        return Estimate(
            low=self.low.times(low, MARGIN[0]),
            likely=self.likely.times(likely),
            high=self.high.times(tries * high, MARGIN[1]),
            **changes,
        )

    def lines(self) -> list[str]:
        lines = [self.title]
        for name, low, likely, high in zip(
            Spend._fields, self.low, self.likely, self.high, strict=True
        ):
            formatted = usd if name == "cost" else "{:,.0f}".format
            text = formatted(low)
            if low < high:
                text += f" to {formatted(high)}"
                text += f", likely about {formatted(likely)}" if likely else ""
            if math.isinf(high):
                text = "unknown: no price is known for an LM; give --price"
                if math.isinf(self.high.calls) and math.isfinite(low):
                    text = f"at least {formatted(low)}; the most is unknown"
            lines.append(f"  {name:<7} {text}")
        inner = self.index.lines() if self.index else []
        return [*lines, *(f"  {line}" for line in (*self.notes, *inner))]


def in_all(title: str, estimates: Sequence[Estimate], notes: Sequence[str] = ()) -> Estimate:
    """The sum of what `estimates` expect to be spent."""
    ends = map(operator.attrgetter, ("low", "likely", "high"))
    low, likely, high = (each_of(sum, map(end, estimates)) for end in ends)
    return Estimate(title, low, likely, high, notes)


def one_call(prompt: int, lm: RagbenchLM | None) -> Estimate:
    """What a call with a prompt of so many tokens takes."""
    pricing = lm.pricing if lm else Pricing()
    replies = (_SHORTEST, _USUAL, _longest(lm))
    low, likely, high = (_spend(pricing, 1, prompt, reply) for reply in replies)
    return Estimate("", low, likely, high)


def _spend(pricing: Pricing, calls: int, prompt: int, reply: int) -> Spend:
    price = pricing.cost(prompt, reply)
    return Spend(calls, prompt + reply, math.inf if price is None else price)


def _longest(lm: RagbenchLM | None) -> int:
    if lm:
        return int(lm.kwargs.get("max_tokens") or UNBOUNDED_REPLY)
    return 512


def usd(amount: float) -> str:
    """`amount` US dollars, with more digits where it is small."""
    if amount >= 0.01 or amount == 0:
        return f"${amount:,.2f}"
    return f"${amount:.4f}"


def estimate_run(run_context: RunContext, *, afresh: bool = False) -> Estimate:
    """What answering the questions takes that have no record yet, or `afresh`, all of them."""
    finished: frozenset[str] = frozenset()
    if not afresh:
        finished = read_records(run_context.config.folder()).finished
    todo = [example for example in run_context.examples if example.qid not in finished]
    n = len(todo)
    least, tries = calls_of_reply(run_context.adapter)
    notes = []
    title = f"{run_context.title}: {n} questions"
    if n < len(run_context.examples):
        title += f" ({len(run_context.examples) - n} finished before)"
    if not todo:
        return Estimate(title)
    index = _estimate_index(run_context, todo)  # first: questions are rehearsed over what it makes
    if not isinstance(run_context.program, Around):
        most = run_context.program.knobs.max_calls
        notes.append(f"never more than {most} calls a question (knob max_calls)")
    if tries > 1:
        notes.append(ASKED_TWICE)
    if takes_tokens(run_context.retriever):
        tokens = sum(estimate_tokens(str(passage)) for passage in run_context.dataset.corpus)
        notes.append(
            f"searches also ask a server, at most {tokens:,} tokens for the index, which are extra"
        )
    per_question = rehearse_questions(run_context, todo)
    least *= n
    return per_question.times(least, least, n, tries=tries, title=title, notes=notes, index=index)


def rehearse_questions(run_context: RunContext, questions: Sequence[Any]) -> Estimate:
    """What one question takes, by a rehearsal over some of `questions`."""
    sample = questions[:: max(1, len(questions) // SAMPLE)][:SAMPLE]
    program = run_context.program
    dataset = run_context.dataset
    if asks_servers(run_context.retriever):
        program = _over(program, make_retriever("bm25", dataset.corpus, setting=dataset.setting))
    with run_context.active():
        rehearsed = rehearse(program, sample, run_context.adapter, run_context.lm)
    if rehearsed is None:
        raise RunError(
            f"{program.name} cannot be rehearsed; ask a few questions with --limit instead"
        )
    return rehearsed


def _over(program: RAGProgram, retriever: Retriever) -> RAGProgram:
    """`program`, with what it is wrapped in, searching by another retriever."""
    copied = copy.copy(program)
    if bound := vars(copied).get("forward"):  # of one that shows examples like the question
        copied.__dict__["forward"] = MethodType(bound.__func__, copied)
    copied.retriever = retriever
    if isinstance(copied, Around):
        copied.inner = _over(copied.inner, retriever)
    return copied


def _estimate_index(run_context: RunContext, todo: Sequence[Any]) -> Estimate | None:
    """What the program's own index would still take, which is no question's; None without one."""
    questions = [example.question for example in todo]
    with run_context.active():
        ahead = index_ahead(run_context.program, questions)
    estimates = []
    notes = []
    for cost in ahead:
        if cost.kept:
            notes.append(f"{cost.kept:,} replies are kept from before")
        pricing = run_context.role_lms.get(cost.role, run_context.lm).pricing
        prompt = cost.prompt_tokens
        reply = cost.reply_tokens
        low = _spend(pricing, cost.calls.low, int(MARGIN[0] * prompt.low), reply.low)
        high = _spend(pricing, cost.calls.high, int(MARGIN[1] * prompt.high), reply.high)
        likely = _spend(pricing, cost.calls.low, *cost.likely)
        estimates.append(Estimate("", low, likely, high))
    if estimates:
        return in_all("the index, in addition", estimates, notes)
    return None


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


def rehearse(
    program: RAGProgram,
    examples: Sequence[dspy.Example],
    adapter: dspy.Adapter,
    lm: RagbenchLM | None = None,
    *,
    stand_in: type[StandIn] | None = None,
) -> Estimate | None:
    """What one question takes over `examples` and kinds of replies; likely: those drawn at random.

    `lm` gives prices and the length of replies. Makes no call to any server, also not to one of
    embeddings: a run that would need one ends there. None where the program reaches no LM call.
    `stand_in` takes the place of `StandIn`, to see the calls.
    """
    runs = []
    drawn = []
    for kind, example in itertools.product(_KINDS, examples):
        replying = (stand_in or StandIn)(adapter, kind, lm)
        # A made-up reply may lead anywhere; what was asked until then counts.
        with replying.answering(), contextlib.suppress(Exception):
            program(question=example.question)
        if replying.asked:
            runs.append(in_all("", replying.asked))
            if kind.seed is not None:
                drawn.append(runs[-1])
    if not runs:
        return None
    low = each_of(min, (run.low for run in runs))
    high = each_of(max, (run.high for run in runs))
    # What the rehearsal of middling tokens took, its calls and its cost too.
    likely = sorted((run.likely for run in drawn or runs), key=operator.itemgetter(1, 0))
    return Estimate("", low, likely[len(likely) // 2], high)


class _NoEngine:
    """Answers what a program asks of its LM past the adapter."""

    def __init__(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in

    def complete(self, request: Request) -> Response:
        texts = [str(request.system or ""), *(m.text or "" for m in request.messages)]
        self.stand_in.note(sum(map(estimate_tokens, texts)), None)
        message = Message.assistant([TextPart(self.stand_in.text(1))])
        return Response(None, request.model, message, "stop", Usage(1, 1, 2))


class StandIn(dspy.Adapter):
    """Formats each prompt as the real adapter does, measures it and makes up the reply."""

    def __init__(
        self, real: dspy.Adapter, kind: _Kind = _KINDS[-1], lm: RagbenchLM | None = None
    ) -> None:
        super().__init__()
        self.asked: list[Estimate] = []
        self._kind = kind
        self._lm = lm
        for same in ("format", "format_user_message_content"):  # the latter is of `dspy.ReAct`
            setattr(self, same, getattr(real, same))
        self._numbers, self._chance = itertools.count(1), random.Random(kind.seed)
        self._longest = _longest(lm)
        self.lm = dspy.LM("rehearsal/none", engine=_NoEngine(self), cache=False)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Inside the block every reply is made up, and no server can be asked."""
        settings = {"adapter": self, "trace": None, "warn_on_type_mismatch": False}
        made_up = current().plus(Rehearsal())
        with use(made_up, lm=self.lm, **settings), spending(Limits(calls=0)):
            yield

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[Any],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        messages = self.format(signature, demos, inputs)
        self.note(sum(estimate_tokens(str(m.get("content") or "")) for m in messages), lm)
        fields = signature.output_fields.items()
        return [{name: self._value(field.annotation, len(fields)) for name, field in fields}]

    def note(self, prompt: int, lm: Any) -> None:
        """Count a call of `prompt` tokens; `lm` is that of a role, if it is not the main one."""
        self.asked.append(one_call(prompt, lm if isinstance(lm, RagbenchLM) else self._lm))

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
        origin = get_origin(annotation)
        arguments = get_args(annotation)
        drawn = self._kind.seed is not None
        if origin is Literal:
            fixed = arguments[-1 if self._kind.last else 0]
            if drawn:
                return self._chance.choice(arguments)
            return fixed
        if origin in (list, tuple, set):
            n = _MANY if self._yes(self._kind.long) else 1
            return [self._value(inner, share * n) for inner in n * arguments[:1]]
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
            if drawn:
                return round(self._chance.random(), 2)
            return sure
        if annotation is int:
            return 1
        return self.text(share)

    def _yes(self, answer: bool) -> bool:
        if self._kind.seed is None:
            return answer
        return self._chance.random() < 0.5
