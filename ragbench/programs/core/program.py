"""The contract of a program.

A program is a `dspy.Module` whose predictors are direct attributes (so that optimizers find them)
and whose `forward` keeps everything about one question in a `Trace` that it makes and drops.
Subclasses write `solve`, and `force` for the answer given when a limit is reached; `forward` sees
to the rest: the answer is never blank, a limit never raises, and only an LM's provider errors
leave it.
"""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, get_args

import dspy
from pydantic import Field
from typing_extensions import TypeVar

from ragbench.context import current, use
from ragbench.errors import KnobError, UnknownNameError
from ragbench.knobs import Knobs, resolve
from ragbench.metrics import is_refusal
from ragbench.programs.core.asked import example_of
from ragbench.programs.core.departures import Autonomy, Family, sources
from ragbench.programs.core.prompts import render
from ragbench.programs.core.text import Passages
from ragbench.programs.core.trace import Budget, BudgetSpentError, Trace, Wording
from ragbench.registry import Registry
from ragbench.retrievers import PerQuestion, Progress, Retriever
from ragbench.signatures import AnswerStyle, OnMissing, role_of

#: How a reader answers: at once, or after a reasoning of its own.
Reader = Literal["predict", "cot"]

#: HotpotQA's own word for giving no answer; never equal to a gold answer there.
NO_ANSWER = "noanswer"


def bounded(default: float, least: float, most: float, description: str) -> Any:
    """A knob that is a number from `least` to `most`."""
    return Field(default, ge=least, le=most, description=description)


class ProgramKnobs(Knobs):
    """Knobs that every program has."""

    variant: str = Field("", description="which published behaviour to follow")
    k: int = bounded(5, 1, 100, "passages per search")
    context_tokens: int = bounded(4000, 100, 1_000_000, "tokens of passages shown")
    answer_style: AnswerStyle = Field(
        "brief", description="the final answer: a name or phrase, a sentence or two, or at length"
    )
    on_missing: OnMissing = Field(
        "guess", description="the final answer without its facts: a guess, or a word that says so"
    )
    max_calls: int = bounded(50, 1, 10_000, "LM calls per question at the most")
    max_retrievals: int = bounded(100, 0, 10_000, "searches per question at most")


def predict(
    signature: type[dspy.Signature], *, like: type[dspy.Signature] | None = None, **config: Any
) -> dspy.Module:
    """Return a `dspy.Predict` that keeps the name and role of its signature for the ledger.

    Args:
        signature: The signature to ask by.
        like: The declared signature from which `signature` was derived. DSPy drops its name.
        config: Settings of the call.
    """
    return named(dspy.Predict(signature, **config), like or signature)


def chain_of_thought(signature: type[dspy.Signature], **config: Any) -> dspy.Module:
    """Return a `dspy.ChainOfThought` that keeps the name and role of its signature."""
    return named(dspy.ChainOfThought(signature, **config), signature)


def reading(signature: type[dspy.Signature], reader: Reader) -> dspy.Module:
    """The predictor of `signature` that the knob `reader` names."""
    if reader == "cot":
        return chain_of_thought(signature)
    return predict(signature)


def named(module: dspy.Module, signature: type[dspy.Signature]) -> dspy.Module:
    """Return `module` with the name and role under which the ledger files its calls."""
    for predictor in module.predictors():
        predictor.signature.__name__ = signature.__name__
    # An optimizer replaces the signature by one without its name, so the module keeps it too.
    module.rb_signature = signature.__name__
    module.rb_role = role_of(signature)
    return module


@dataclass(frozen=True)
class CallKind:
    """A kind of LM call that a program makes: what makes it, its signature and its role."""

    predictor: str
    signature: str
    role: str


# Covariant: a program of certain knobs is a program. Without a parameter, of those that all have.
K = TypeVar("K", bound=ProgramKnobs, default=ProgramKnobs, covariant=True)


# Class docstrings of programs are shown to instruction optimizers as part of the prompt: keep them
# short, neutral and without citations; the module docstring is the place for those.
class RAGProgram(dspy.Module, Generic[K]):
    """Answer a question with retrieved passages."""

    name: ClassVar[str]
    family: ClassVar[Family]
    paper: ClassVar[str] = ""
    #: LM calls per question with the default knobs, as a formula, for `ragbench show`.
    calls: ClassVar[str] = ""
    autonomy: ClassVar[Autonomy] = Autonomy("no", "no", "no")
    #: Whether what it reads is chosen by searches for `k` passages.
    chooses: ClassVar[bool] = True
    #: Whether it is told the gold passages: an upper bound, which nobody can build.
    needs_gold: ClassVar[bool] = False
    #: The class of `knobs`; `RAGProgram[MyKnobs]` sets it.
    Knobs: ClassVar[type[ProgramKnobs]] = ProgramKnobs
    knobs: K
    #: Knobs that nothing of this program reads -> what to do instead.
    unread: ClassVar[Mapping[str, str]] = {}
    #: The same of one run by itself: in a sweep over programs they do no harm.
    idle: ClassVar[Mapping[str, str]] = {}
    #: Variant -> the defaults it changes; the first is the default. A given knob wins over both.
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    #: Variants whose answer comes from one passage at a time, so that multi-hop facts never meet.
    single_passage: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type):
                    cls.Knobs = argument

    def __init__(self, retriever: Retriever, **knobs: Any) -> None:
        super().__init__()
        self.retriever = retriever
        self.knobs = self.resolve_knobs(knobs)  # type: ignore[assignment]
        self.make_predictors()

    def make_predictors(self) -> None:
        """Make the predictors that the knobs need, as attributes, so that optimizers find them."""

    @classmethod
    def resolve_knobs(cls, knobs: Mapping[str, Any]) -> ProgramKnobs:
        """The knobs of this program: `knobs` over the variant's over the declared defaults."""
        variant = str(knobs.get("variant") or next(iter(cls.variants)))
        if variant not in cls.variants:
            raise UnknownNameError(f"variant of {cls.name}", variant, cls.variants)
        fields = {**knobs, "variant": variant}
        resolved = resolve(cls.Knobs, cls.name, fields, cls.variants[variant])
        for name in cls.unread:
            value = getattr(resolved, name)
            if value != cls.Knobs.model_fields[name].default:
                raise cls.unread_error(name, value, cls.unread)
        return resolved

    @classmethod
    def check_idle(cls, knobs: Mapping[str, Any]) -> None:
        """Raise KnobError for one of `knobs`, given for one run, that nothing reads."""
        for name in cls.idle:
            if name in knobs:
                raise cls.unread_error(name, knobs[name], cls.idle)

    @classmethod
    def unread_error(cls, name: str, value: Any, unread: Mapping[str, str]) -> KnobError:
        """The error for a `value` of the knob `name`, which is `unread`."""
        read = ", ".join(knob for knob in cls.Knobs.model_fields if knob not in unread)
        return KnobError(
            f"nothing in {cls.name} reads {name}={value!r}; {unread[name]}; knobs that are "
            f"read: {read}"
        )

    def forward(self, question: str) -> dspy.Prediction:
        """Answer `question`: a Prediction with answer, passages, steps, searches, stop_reason."""
        budget = Budget(self.knobs.max_calls, self.knobs.max_retrievals)
        retriever = self.retriever.for_question(question)
        wording = Wording(self.knobs.answer_style, self.knobs.on_missing)
        trace = Trace(question, retriever, budget, wording)
        values = trace, trace.root, trace.root.pending
        context = current()
        example = example_of(question)
        if context.qid is None and example is not None:
            context = replace(context, qid=example.get("qid"))
        try:
            with use(context.plus(*values)):
                try:
                    prediction = self.solve(trace)
                except BudgetSpentError:
                    answer = ""
                    with suppress(BudgetSpentError):  # the call kept back may be spent as well
                        answer = self.force(trace)
                    prediction = trace.prediction(answer, "budget")
        except Exception as error:
            error.ragbench_trace = trace  # type: ignore[attr-defined]  # for the record
            raise
        if not str(prediction.answer or "").strip():
            trace.count("blank_answer")
            prediction.answer = NO_ANSWER
        if 0 < budget.calls <= trace.counts.get("parse_fallback", 0):
            prediction.stop_reason = "parse_fallback"  # no reply could be read
        elif prediction.stop_reason in ("answered", "direct") and refuses(prediction.answer):
            prediction.stop_reason = "no_answer"
        return prediction

    @abstractmethod
    def solve(self, trace: Trace) -> dspy.Prediction:
        """Answer the trace's question; end with `trace.prediction(answer, stop_reason, ...)`."""

    def force(self, trace: Trace) -> str:
        """The answer when the budget is spent: one last call, by `self.answer` if there is one."""
        reader = getattr(self, "answer", None)
        if isinstance(reader, dspy.Module):
            return self.answer_from(trace, reader, trace.passages)
        return NO_ANSWER

    def shown(self, passages: Passages) -> list[str]:
        return render(passages, max_tokens=self.knobs.context_tokens)

    def answer_from(self, trace: Trace, reader: dspy.Module, passages: Passages) -> str:
        return trace.answer(reader, last=True, context=self.shown(passages))

    def finish(self, trace: Trace, reader: dspy.Module, passages: Passages) -> dspy.Prediction:
        """End with what `reader` answers from `passages`, which are the program's own ranking."""
        answer = self.answer_from(trace, reader, passages)
        return trace.prediction(answer, "answered", passages=passages)

    # -- what only some programs have

    @property
    def label(self) -> str:
        """The name in titles and tables; another one where a knob makes it another system."""
        return self.name

    @property
    def changed_knobs(self) -> dict[str, Any]:
        """The knobs that are not as the variant has them."""
        variant = type(self).resolve_knobs({"variant": self.knobs.variant})
        published = variant.model_dump(mode="json")
        changed = {}
        for name, value in self.knobs.model_dump(mode="json").items():
            if value != published[name]:
                changed[name] = value
        return changed

    def check_lms(self, lm: dspy.LM, role_lms: Mapping[str, dspy.LM]) -> None:
        """Raise `ConfigError`, with the cure, if the program cannot work with these LMs."""
        for program in self.inside():
            program.check_lms(lm, role_lms)

    def inside(self) -> Sequence["RAGProgram"]:
        """The programs that this one asks; empty for none."""
        return ()

    def prepare(self, questions: Sequence[str] = (), progress: Progress | None = None) -> None:
        """Make what `questions`, the texts about to be asked, share, such as an index.

        Called before a run with its LM active, so that no question's time includes the work; where
        it was not called, the first question does it.
        """
        for program in self.inside():
            program.prepare(questions, progress)

    def other_calls(self) -> Sequence[CallKind]:
        """The LM calls that no predictor makes, such as those for an index, by `role_lm`."""
        return ()

    def saved_name(self, predictor: str) -> str:
        """The name in saved state of the predictor that `named_predictors` calls `predictor`."""
        return predictor


class Programs(Registry[type[RAGProgram]]):
    """Programs by name; what `programs.yaml` says of one becomes its attributes."""

    def register(
        self, name: str, *, listed: bool = True
    ) -> Callable[[type[RAGProgram]], type[RAGProgram]]:
        """Returns a decorator that registers its class, which has `name` if it has no other."""
        add = super().register(name, listed=listed)

        def described(program: type[RAGProgram]) -> type[RAGProgram]:
            if "name" not in vars(program):
                program.name = name
            for attribute, fact in vars(sources()[name]).items() if name in sources() else ():
                setattr(program, attribute, fact)
            return add(program)

        return described


PROGRAMS = Programs("program", package="ragbench.programs")


def prompts_digest(program: type[RAGProgram], knobs: Mapping[str, Any]) -> str:
    """Return a digest of the instructions and fields by which `program` asks the LM.

    Args:
        program: A program of this package, whose predictors depend on its knobs only.
        knobs: Its knobs.
    """
    unsearched: Any = None
    asked = []
    for name, predictor in program(unsearched, **knobs).named_predictors():
        signature = predictor.signature
        asked.append([name, signature.instructions])
        for field, declared in signature.fields.items():
            desc = (declared.json_schema_extra or {}).get("desc")
            asked.append([field, str(declared.annotation), str(desc)])
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def refuses(answer: str) -> bool:
    """Return True if `answer` is the program's or the model's statement that there is none."""
    return answer == NO_ANSWER or is_refusal(answer)


def done_so_far(error: Exception) -> dspy.Prediction | None:
    """What a program had done when `error` left its `forward`: steps, searches, passages."""
    trace = getattr(error, "ragbench_trace", None)
    if isinstance(trace, Trace):
        return trace.prediction("")
    return None


def finders_of(retriever: Retriever) -> list[RAGProgram]:
    """The programs by whose indexes `retriever`, or what it asks, searches; empty for none."""
    if isinstance(retriever, PerQuestion):
        parts: Sequence[Retriever] = [retriever.whole]
    else:
        parts = retriever.parts
    found: list[RAGProgram] = []
    finder = getattr(retriever, "finder", None)
    if isinstance(finder, RAGProgram):
        found.append(finder)
    for part in parts:
        found += finders_of(part)
    return found


def calls_of(program: RAGProgram) -> list[CallKind]:
    """Every kind of LM call of `program`: its predictors', in DSPy's order, then the others.

    Those of a retriever that asks the LM come last.
    """
    rows = _own_calls(program)
    for finder in finders_of(program.retriever):
        for row in _own_calls(finder):
            if row.predictor.partition(".")[0] != "answer":  # it only searches
                rows.append(replace(row, predictor=f"retriever.{row.predictor}"))
    return rows


def _own_calls(program: RAGProgram) -> list[CallKind]:
    rows = []
    for name, module in program.named_sub_modules():
        if getattr(module, "rb_signature", ""):
            path = name.removeprefix("self.")
            rows.append(CallKind(path, module.rb_signature, module.rb_role))
    return [*rows, *program.other_calls()]
