"""The contract of a program.

A program is a `dspy.Module` whose predictors are direct attributes, so that optimizers find them.
Its `forward` creates a `Trace` that holds everything about one question. Subclasses implement
`solve`, and `force` for the answer after a limit. `forward` ensures that the answer is never blank,
that a limit never raises, and that only provider errors of an LM leave it.
"""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Generic, Literal, get_args

import dspy
from pydantic import Field
from typing_extensions import TypeVar

from ragbench.context import current, use
from ragbench.errors import KnobError, UnknownNameError
from ragbench.knobs import Knobs, resolve
from ragbench.metrics import is_refusal
from ragbench.programs.core.deviations import Autonomy, Family, sources
from ragbench.programs.core.prompts import render, render_one
from ragbench.programs.core.question_state import Budget, BudgetSpentError, example_of
from ragbench.programs.core.text import Passages
from ragbench.programs.core.trace import Trace, Wording
from ragbench.registry import Registry
from ragbench.retrievers import Passage, PerQuestion, Progress, Retriever
from ragbench.signatures import AnswerStyle, OnMissing, role_of

#: Form of a reader: a direct answer, or reasoning before the answer.
Reader = Literal["predict", "cot"]

#: HotpotQA's marker of a missing answer. It never equals a gold answer there.
NO_ANSWER = "noanswer"


def bounded(default: float, least: float, most: float, description: str) -> Any:
    """Create a numeric knob.

    Args:
        default: Default value.
        least: Smallest allowed value.
        most: Largest allowed value.
        description: Help text.
    """
    return Field(default, ge=least, le=most, description=description)


class ProgramKnobs(Knobs):
    """Knobs that every program has."""

    variant: str = Field("", description="which published behaviour to follow")
    k: int = bounded(5, 1, 100, "passages per search")
    context_tokens: int = bounded(4000, 100, 1_000_000, "tokens of passages in context")
    answer_style: AnswerStyle = Field(
        "brief", description="length of the final answer: a phrase, one or two sentences, or more"
    )
    on_missing: OnMissing = Field(
        "guess", description="if facts are missing: guess, or state that they are missing"
    )
    max_calls: int = bounded(50, 1, 10_000, "maximum number of LM calls per question")
    max_retrievals: int = bounded(100, 0, 10_000, "maximum number of searches per question")


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
    """Return a `dspy.ChainOfThought` that keeps the name and role of its signature.

    Args:
        signature: Signature of the prompt.
        **config: Settings of the LM call.
    """
    return named(dspy.ChainOfThought(signature, **config), signature)


def reading(signature: type[dspy.Signature], reader: Reader) -> dspy.Module:
    """Return a predictor of `signature`.

    Args:
        signature: Signature to predict.
        reader: `cot` reasons before the answer, `predict` does not.
    """
    if reader == "cot":
        return chain_of_thought(signature)
    return predict(signature)


def named(module: dspy.Module, signature: type[dspy.Signature]) -> dspy.Module:
    """Return a module with the name and role under which the ledger files its calls.

    Args:
        module: Module to name.
        signature: Signature that has the name and the role.
    """
    for predictor in module.predictors():
        predictor.signature.__name__ = signature.__name__
    # Optimizers replace the signature and drop its name, so the module stores it too.
    module.rb_signature = signature.__name__
    module.rb_role = role_of(signature)
    return module


@dataclass(frozen=True)
class CallKind:
    """A kind of LM call that a program makes: what makes it, its signature and its role."""

    predictor: str
    signature: str
    role: str


# Covariant: a program with specific knobs is also a program. Default: the common knobs.
K = TypeVar("K", bound=ProgramKnobs, default=ProgramKnobs, covariant=True)


# Instruction optimizers show the class docstrings of programs in prompts. Keep them short, neutral
# and without citations, which belong into the module docstring.
class RAGProgram(dspy.Module, Generic[K]):
    """Answer a question with retrieved passages."""

    name: ClassVar[str]
    family: ClassVar[Family]
    paper: ClassVar[str] = ""
    #: Formula of the LM calls per question with default knobs, for `ragbench show`.
    calls: ClassVar[str] = ""
    autonomy: ClassVar[Autonomy] = Autonomy("no", "no", "no")
    #: True if searches for `k` passages select the text that the program reads.
    chooses: ClassVar[bool] = True
    #: True if the program receives the gold passages. It is an upper bound, not a real system.
    needs_gold: ClassVar[bool] = False
    #: Class of `knobs`, set by `RAGProgram[MyKnobs]`.
    Knobs: ClassVar[type[ProgramKnobs]] = ProgramKnobs
    knobs: K
    #: Maps each knob that this program does not read to advice.
    unread: ClassVar[Mapping[str, str]] = {}
    #: Like `unread`, but only for single runs. Sweeps over programs ignore these knobs.
    idle: ClassVar[Mapping[str, str]] = {}
    #: Maps each variant to its defaults. The first one is the default. Explicit knobs win.
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
        """Create the predictors that the knobs need, as attributes for optimizers."""

    @classmethod
    def resolve_knobs(cls, knobs: Mapping[str, Any]) -> ProgramKnobs:
        """Return the complete knobs: `knobs`, then the variant's defaults, then the declared ones.

        Raises:
            UnknownNameError: The program does not have the variant.
            KnobError: A knob has an invalid value, or the program does not read it.
        """
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
        """Check the knobs of a single run.

        Raises:
            KnobError: The program does not read one of `knobs`.
        """
        for name in cls.idle:
            if name in knobs:
                raise cls.unread_error(name, knobs[name], cls.idle)

    @classmethod
    def unread_error(cls, name: str, value: Any, unread: Mapping[str, str]) -> KnobError:
        """Return the error for a knob that the program does not read.

        Args:
            name: Name of the knob.
            value: Value that the user set.
            unread: Advice for each knob that the program does not read.
        """
        read = ", ".join(knob for knob in cls.Knobs.model_fields if knob not in unread)
        return KnobError(
            f"{cls.name} does not read {name}={value!r}: {unread[name]}. It reads: {read}"
        )

    def forward(self, question: str) -> dspy.Prediction:
        """Answer `question`; return answer, passages, steps, searches and stop reason."""
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
                    with suppress(BudgetSpentError):  # the reserved call may be spent too
                        answer = self.force(trace)
                    prediction = trace.prediction(answer, "budget")
        except Exception as error:
            error.ragbench_trace = trace  # type: ignore[attr-defined]  # for the record
            raise
        if not str(prediction.answer or "").strip():
            trace.count("blank_answer")
            prediction.answer = NO_ANSWER
        if 0 < budget.calls <= trace.counts.get("parse_fallback", 0):
            prediction.stop_reason = "parse_fallback"  # every reply was unreadable
        elif prediction.stop_reason in ("answered", "direct") and refuses(prediction.answer):
            prediction.stop_reason = "no_answer"
        return prediction

    @abstractmethod
    def solve(self, trace: Trace) -> dspy.Prediction:
        """Answer the trace's question. End with `trace.prediction(answer, stop_reason)`."""

    def force(self, trace: Trace) -> str:
        """Return the answer after a limit: one last call of `self.answer`, if it exists."""
        reader = getattr(self, "answer", None)
        if isinstance(reader, dspy.Module):
            return self.answer_from(trace, reader, trace.passages)
        return NO_ANSWER

    def as_context(self, passages: Passages) -> list[str]:
        return render(passages, max_tokens=self.knobs.context_tokens)

    def as_context_line(self, passage: Passage) -> str:
        return render_one(passage, max_tokens=self.knobs.context_tokens)

    def answer_from(self, trace: Trace, reader: dspy.Module, passages: Passages) -> str:
        """Return the answer of a reader to the passages.

        Args:
            trace: Trace of the question.
            reader: Module that answers.
            passages: Passages for its context.
        """
        return trace.answer(reader, last=True, context=self.as_context(passages))

    def finish(self, trace: Trace, reader: dspy.Module, passages: Passages) -> dspy.Prediction:
        """Answer with `reader` from `passages` and end.

        Args:
            trace: Trace of the question.
            reader: Predictor of the answer.
            passages: Ranking of the program, best first.
        """
        answer = self.answer_from(trace, reader, passages)
        return trace.prediction(answer, "answered", passages=passages)

    # -- hooks of some programs

    @property
    def label(self) -> str:
        """The name in titles and tables. It differs if a knob makes a different system."""
        return self.name

    @property
    def changed_knobs(self) -> dict[str, Any]:
        """The knobs that differ from the variant's values."""
        variant = type(self).resolve_knobs({"variant": self.knobs.variant})
        published = variant.model_dump(mode="json")
        changed = {}
        for name, value in self.knobs.model_dump(mode="json").items():
            if value != published[name]:
                changed[name] = value
        return changed

    def inside(self) -> Sequence["RAGProgram"]:
        """List the programs that this one asks."""
        return ()

    def prepare(self, questions: Sequence[str] = (), progress: Progress | None = None) -> None:
        """Create the parts that several questions share, such as an index.

        A run calls this first, with its LM active, so that no question's time includes the work. If
        no one called it, the first question does the work.

        Args:
            questions: Texts of the questions of the run.
            progress: Progress callback.
        """
        for program in self.inside():
            program.prepare(questions, progress)

    def other_calls(self) -> Sequence[CallKind]:
        """List the LM calls that no predictor makes, such as those for an index."""
        return ()

    def saved_name(self, predictor: str) -> str:
        """Return the name in saved state of a predictor of `named_predictors`."""
        return predictor


class Programs(Registry[type[RAGProgram]]):
    """Programs by name, each imported when it is used: all of them take 0.3 s.

    The facts in `programs.yaml` become attributes of a program.
    """

    def get(self, name: str) -> type[RAGProgram]:
        """Return the program class called `name`; see `Registry.get`."""
        if name in sources():
            self._import(name)
        return super().get(name)

    def _import(self, name: str) -> None:
        import_module(f"{self._package}.{sources()[name].module or name}")

    def _load_package(self) -> None:
        super()._load_package()
        for name in sources():
            self._import(name)

    def register(
        self, name: str, *, listed: bool = True
    ) -> Callable[[type[RAGProgram]], type[RAGProgram]]:
        """Return a decorator that registers a program class.

        Args:
            name: Name of the program. It is set on the class if the class has none.
            listed: Show the name in lists.
        """
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
    """Return a digest of the instructions and fields in the prompts of `program`.

    Args:
        program: Built-in program, whose predictors depend only on its knobs.
        knobs: Knobs of the program.
    """
    unsearched: Any = None
    prompt_parts = []
    for name, predictor in program(unsearched, **knobs).named_predictors():
        signature = predictor.signature
        prompt_parts.append([name, signature.instructions])
        for field, declared in signature.fields.items():
            desc = (declared.json_schema_extra or {}).get("desc")
            prompt_parts.append([field, str(declared.annotation), str(desc)])
    return hashlib.sha256(json.dumps(prompt_parts).encode()).hexdigest()[:16]


def refuses(answer: str) -> bool:
    """Return True if `answer` is the program's or the model's statement that there is none."""
    return answer == NO_ANSWER or is_refusal(answer)


def done_so_far(error: Exception) -> dspy.Prediction | None:
    """Return the steps, searches and passages of a program before `error`, if known."""
    trace = getattr(error, "ragbench_trace", None)
    if isinstance(trace, Trace):
        return trace.prediction("")
    return None


def finders_of(retriever: Retriever) -> list[RAGProgram]:
    """List the programs whose indexes `retriever` or its parts search."""
    if isinstance(retriever, PerQuestion):
        inner_retrievers: Sequence[Retriever] = [retriever.whole]
    else:
        inner_retrievers = retriever.parts
    finders: list[RAGProgram] = []
    finder = getattr(retriever, "finder", None)
    if isinstance(finder, RAGProgram):
        finders.append(finder)
    for retriever_inside in inner_retrievers:
        finders += finders_of(retriever_inside)
    return finders


def calls_of(program: RAGProgram) -> list[CallKind]:
    """List every kind of LM call of `program`.

    The calls of its predictors come first, in DSPy's order, then the other ones. The calls of a
    retriever that asks the LM come last.
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
