"""Any DSPy module as a program: it takes `question` and returns a prediction with `answer`.

A `RAGProgram` is used directly. Any other `dspy.Module` is wrapped. It searches with the retriever
that its constructor takes as `retriever`, or with `dspy.Retrieve`. The question's trace records
both. The record stores the passages that it returns as `passages` or `context`.
"""

import asyncio
import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Self

import dspy
from pydantic import Field, create_model

from ragbench.context import current, use
from ragbench.data.answers import answers_of
from ragbench.errors import ConfigError, NoAnswerError
from ragbench.external import find, is_kept, keep, label_of, tag_of
from ragbench.lms.adapters import make_adapter
from ragbench.lms.lm import OWN, RagbenchLM
from ragbench.passages import passage_of_text
from ragbench.programs.core import PROGRAMS, ProgramKnobs, RAGProgram, Trace, bounded
from ragbench.programs.core.program import named
from ragbench.programs.core.question_state import asking, example_of
from ragbench.retrievers import Passage, Retriever
from ragbench.retrievers.base import SearchNotes
from ragbench.user_code import contained, digest_of_plugin, digest_of_spec, is_external, load_object

#: Length of DSPy's call history while a wrapped module runs.
MOST_HISTORY = 1_000
#: Largest `k`, as in other programs.
MOST_K = 100


#: Fields of an example that programs never receive.
_GOLD = frozenset(
    {"qid", "answer", "answers", "qtype", "hops", "support", "gold_pids", "decomposition"}
    | {"own_fields"}
)
#: Outputs of a module with a field in the record. It stores others separately.
_KNOWN = frozenset({"answer", "passages", "context", "reasoning"})


class TracedRetriever:
    """Retriever of a wrapped module, which records searches in the current question's trace.

    It is callable like `dspy.settings.rm`, so that `dspy.Retrieve` finds it.
    """

    def __init__(self, k: int) -> None:
        self.k = k

    def search(self, query: str, k: int | None = None, **_: Any) -> list[Passage]:
        """Return the passages of a search, best first.

        Args:
            query: Text of the query.
            k: Maximum number of passages. None: the parameter `k`.
            **_: Ignored.
        """
        return self.search_many([query], k=k)[0]

    __call__ = search

    def search_many(self, queries: Sequence[str], *, k: int | None = None) -> list[list[Passage]]:
        """Search for several queries.

        Args:
            queries: Queries.
            k: Maximum number of passages per query. None: the knob `k`.

        Returns:
            One list of passages per query, in order.

        Raises:
            RuntimeError: No question is active.
        """
        trace = current().get(Trace)
        if trace is None:
            raise RuntimeError("the retriever of a program searches while it answers a question")
        with use(current().plus(SearchNotes(None))):  # the trace notes it
            return trace.search_many(list(queries), k=k or self.k)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class ModuleKnobs(ProgramKnobs):
    """Knobs of a wrapped module: `init` has its constructor's arguments, `k` its `k`."""

    init: dict[str, Any] = Field({}, description="arguments of the module's constructor")


class ModuleProgram(RAGProgram[ModuleKnobs]):
    """Answer a question with a given module."""

    family = "workflow"
    calls = "those of the module"
    make: type[dspy.Module]
    #: The module, if the user passed an object.
    given: dspy.Module | None = None
    #: True if its constructor takes the knob `k`.
    takes_k = False

    def __init__(self, retriever: Retriever, **knobs: Any) -> None:
        super().__init__(retriever, **knobs)
        self.traced = TracedRetriever(self.knobs.k)
        arguments = dict(self.knobs.init)
        if self.takes_k:
            k = arguments.setdefault("k", self.knobs.k)
            default = self.Knobs.model_fields["k"].default
            if self.knobs.k not in (k, default):
                raise ConfigError(
                    f"{self.name}: k is given twice, as k={self.knobs.k} and as init k={k!r}; "
                    "leave one out"
                )
        if "retriever" in inspect.signature(self.make.__init__).parameters:
            arguments.setdefault("retriever", self.traced)
        try:
            with contained("its constructor"):
                if self.given is None:
                    self.module = self.make(**arguments)
                else:
                    self.module = _copy(self.given)
        except Exception as error:  # user code can raise anything
            raise ConfigError(
                f"Cannot construct {self.name}: {type(error).__name__}: {error}. Set its arguments "
                "with --set init='{...}'."
            ) from error
        for name, predictor in self.module.named_predictors():
            if not hasattr(predictor, "rb_signature"):
                named(predictor, predictor.signature)
                predictor.rb_signature = predictor.signature.__name__ or name

    def __call__(self, *args: Any, **inputs: Any) -> dspy.Prediction:
        """Call the program without callbacks or usage tracking, which the module has."""
        return self.forward(*args, **inputs)

    def solve(self, trace: Trace) -> dspy.Prediction:
        # Attribute calls to the program, not to an optimizer's prompt model.
        context = replace(current(), caller=("", "")).plus(SearchNotes(trace.note_search))
        settings: dict[str, Any] = {"rm": self.traced, OWN: True, "max_history_size": MOST_HISTORY}
        if dspy.settings.trace is None:  # some DSPy modules append to it
            settings["trace"] = []
        with use(context, **settings), contained(self.name):
            output = self._output(trace.question)
        prediction = _as_prediction(output, self.name)
        answer = _answer_text(prediction["answer"], self.name)
        passages = _passages(prediction, trace)
        thought = str(prediction.get("reasoning") or "")
        trace.step("answer", input=trace.question, thought=thought, observation=answer)
        outputs = {name: value for name, value in prediction.items() if name not in _KNOWN}
        prediction = trace.prediction(answer, "answered", passages=passages or None)
        prediction.outputs = outputs
        prediction.in_context = None  # the prompts of a wrapped module are unknown
        return prediction

    def _output(self, question: str) -> Any:
        inputs = self._inputs(question)
        if hasattr(type(self.module), "forward"):
            return self.module(**inputs)
        return asyncio.run(self.module.acall(**inputs))

    def forward(self, question: str, **inputs: Any) -> dspy.Prediction:
        """Answer `question`. The module receives those of `inputs` that it accepts."""
        with use(asking(question, inputs)):
            return super().forward(question)

    def _inputs(self, question: str) -> dict[str, Any]:
        """Return the fields of the example that the module accepts.

        A module that accepts any field (`**inputs`) gets the fields of its signature. Without one,
        it gets those that `with_inputs` declares and those of the predictors in it.
        """
        example = example_of(question) or dspy.Example(question=question).with_inputs("question")
        available = {**dict(example.items()), "question": question}
        declared = set(example._input_keys or example.keys())
        for name, value in example.get("own_fields", {}).items():
            if value == question:
                available[name] = value
                if name in declared:
                    declared.discard("question")
        accepted = _accepted(self.module)
        if accepted is None:
            accepted = declared
            for _, predictor in self.module.named_predictors():
                accepted |= predictor.signature.input_fields.keys() & available.keys()
        inputs = {}
        for name in available.keys() - _GOLD:
            if name in accepted:
                inputs[name] = available[name]
        return inputs or {"question": question}

    def dump_state(self, json_mode: bool = True) -> Any:
        """Return the state of the module only, which loads without ragbench too."""
        return self.module.dump_state(json_mode=json_mode)

    def saved_name(self, predictor: str) -> str:
        return predictor.removeprefix("module.")

    def load_state(self, state: Mapping[str, Any], **options: Any) -> None:
        """Load a state into the wrapped module.

        Args:
            state: State that DSPy saved.
            **options: Options of `dspy.Module.load_state`.
        """
        self.module.load_state(state, **options)


def _accepted(module: dspy.Module) -> set[str] | None:
    """Return the names of the inputs of `module`, or None if it accepts any."""
    kind = type(module)  # reading `forward` of an object makes DSPy warn
    function = getattr(kind, "forward", None) or kind.aforward
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        for owner in (module, getattr(module, "predict", None)):
            fields = getattr(getattr(owner, "signature", None), "input_fields", None)
            if fields:
                return set(fields)
        return None
    return {parameter.name for parameter in parameters}


def meter_lms(program: dspy.Module, metered: Callable[[dspy.BaseLM], RagbenchLM]) -> None:
    """Replace each LM in a module of `program`.

    Args:
        program: Program to change.
        metered: Function that returns the replacement of an LM.
    """
    replaced: dict[int, RagbenchLM] = {}
    for _, module in program.named_sub_modules():
        for name, value in [*vars(module).items()]:
            if isinstance(value, dspy.BaseLM) and not isinstance(value, RagbenchLM):
                if id(value) not in replaced:
                    replaced[id(value)] = metered(value)
                setattr(module, name, replaced[id(value)])


def _copy(module: dspy.Module) -> dspy.Module:
    """Copy `module`, so that compiling can change it. LMs and objects with finalizers are shared.

    If a part cannot be copied, such as a lock or a connection, DSPy's own copy shares it.
    """
    memo: dict[int, Any] = {}
    for _, inner in module.named_sub_modules():
        for value in vars(inner).values():
            held = [value, *getattr(value, "__dict__", {}).values()]
            if isinstance(value, dspy.BaseLM) or any(hasattr(type(v), "__del__") for v in held):
                memo[id(value)] = value
    try:
        copied = copy.deepcopy(module, memo)
    except Exception:  # user code can raise anything
        copied = module.deepcopy()
    pairs = zip(module.named_sub_modules(), copied.named_sub_modules(), strict=True)
    for (_, original), (_, fresh) in pairs:  # copying omits callbacks
        fresh.callbacks = original.callbacks
    return copied


def adapter_of(program: RAGProgram, name: str, lm: dspy.LM | None) -> dspy.Adapter:
    """Return the adapter `name` for `program`.

    Args:
        program: Program of the run.
        name: Name of the adapter. For a wrapped module, `auto` is the adapter of DSPy's settings,
            or else `dspy.ChatAdapter`.
        lm: LM of the run.
    """
    if name == "auto" and isinstance(program, ModuleProgram):
        adapter: dspy.Adapter = dspy.settings.adapter or dspy.ChatAdapter()
        return adapter
    return make_adapter(name, lm)


def _as_prediction(output: Any, owner: str) -> dspy.Prediction:
    """Convert the output of a module: a prediction, a dict of its fields, or only the answer.

    Raises:
        NoAnswerError: The fields do not include `answer`.
    """
    if isinstance(output, Mapping):
        output = dspy.Prediction(**output)
    if not isinstance(output, dspy.Prediction):
        return dspy.Prediction(answer=output)
    if "answer" not in output:
        fields = ", ".join(output.keys()) or "nothing"
        raise NoAnswerError(
            f"{owner} returns {fields} and no `answer`; name the output that is scored answer, or "
            "return dspy.Prediction(answer=...)"
        )
    return output


def _answer_text(answer: Any, owner: str) -> str:
    """Convert `answer` to text, like gold answers. Several texts are joined with commas.

    Raises:
        NoAnswerError: The type is not supported.
        ValueError: The answer is None. Only this question fails.
    """
    if answer is None:
        raise ValueError(f"{owner} returned no answer (None)")
    if isinstance(answer, Enum):
        answer = answer.value
    if callable(getattr(answer, "item", None)):  # NumPy scalars
        answer = answer.item()
    texts: list[str] = []
    for value in answer if isinstance(answer, list | tuple | set | frozenset) else [answer]:
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, bool | int | float):
            texts += answers_of(value)
        else:
            raise NoAnswerError(
                f"{owner} returned an answer of the type {type(value).__name__} "
                f"({' '.join(repr(value).split())[:80]}). Return dspy.Prediction(answer=...) with "
                "a str, number, bool or list."
            )
    return ", ".join(texts)


def _passages(prediction: dspy.Prediction, trace: Trace) -> list[Passage]:
    """Return the passages that the module reports. Unknown texts become passages."""
    output = prediction.get("passages") or prediction.get("context") or ()
    by_text = {str(passage): passage for passage in trace.passages}
    if isinstance(output, str):
        output = [output]
    passages = []
    for item in output:
        if isinstance(item, str):
            item = by_text.get(item) or passage_of_text(item)
        if isinstance(item, Passage):
            passages.append(item)
    return passages


def keep_module(module: dspy.Module | type[dspy.Module], *, name: str = "") -> str:
    """Register `module` and return its name for configs of this process.

    Args:
        module: DSPy module, or its class.
        name: Display name.

    Raises:
        ConfigError: It is not a DSPy module, or it is a program with a name.
    """
    kind = module if isinstance(module, type) else type(module)
    if not issubclass(kind, dspy.Module):
        raise ConfigError(f"program={repr(module)[:80]} is neither a name nor a DSPy module")
    if issubclass(kind, RAGProgram) and kind.name and module is kind:
        return kind.name
    if isinstance(module, RAGProgram) and module.name:
        raise ConfigError(
            f"give the program {module.name} by its name: program={module.name!r}, set={{...}}"
        )
    label = f"{kind.__module__}:{kind.__qualname__.rpartition('<locals>.')[2]}"
    return keep(module, label, name=name)


def program_digest(spec: str) -> str:
    """Return a digest of the code or object of `spec`, "" for built-in programs."""
    if is_kept(spec):
        return tag_of(spec)
    if is_external(spec):
        return digest_of_spec(spec, "--program")
    return digest_of_plugin(PROGRAMS.get(spec))


@PROGRAMS.outside
def load_program(spec: str) -> type[RAGProgram]:
    """Load the program of `spec`: `package.module:Class` or `path/to/file.py:Class`.

    Raises:
        ConfigError: The object is not a DSPy module.
    """
    loaded = find(spec) if is_kept(spec) else load_object(spec, "--program")
    module = loaded if isinstance(loaded, dspy.Module) else None
    kind: Any = loaded if module is None else type(module)
    if not (isinstance(kind, type) and issubclass(kind, dspy.Module)):
        raise ConfigError(f"{spec} is not a subclass of dspy.Module")
    if issubclass(kind, RAGProgram):
        return kind
    own_k = None if module is not None else _own_k(kind)
    knobs = ModuleKnobs
    if own_k is not None:
        k_knob = bounded(own_k, 1, MOST_K, "the k of the module's constructor")
        knobs = create_model("ModuleKnobs", __base__=ModuleKnobs, k=(int, k_knob))
    members = {
        "name": label_of(spec),
        "make": kind,
        "given": module,
        "Knobs": knobs,
        "takes_k": own_k is not None,
        "unread": _unread(kind, is_object=module is not None, takes_k=own_k is not None),
        # Instruction optimizers read the program's docstring, so it is the module's.
        "__doc__": kind.__doc__,
        "__module__": __name__,
    }
    return type(f"{kind.__name__}Program", (ModuleProgram,), members)


def _own_k(kind: type[dspy.Module]) -> int | None:
    """Return the default of a constructor's parameter `k`, None if it has no numeric `k`."""
    parameter = _parameters(kind).get("k")
    k = parameter.default if parameter else None
    if k is inspect.Parameter.empty:
        k = ModuleKnobs.model_fields["k"].default
    return k if type(k) is int and 1 <= k <= MOST_K else None


def _unread(kind: type[dspy.Module], *, is_object: bool, takes_k: bool) -> dict[str, str]:
    """Map each common knob that the module `kind` does not read to advice."""
    own = "the module's own code decides that"
    unread = {"context_tokens": own, "answer_style": own, "on_missing": own, "max_calls": own}
    if is_object:
        unread["init"] = "the object is already constructed, so pass its class"
    searches_by_k = "retriever" in _parameters(kind) and not is_object
    if not (takes_k or searches_by_k or _names_rm(kind)):
        unread["k"] = (
            "the module itself decides how much it retrieves (k is only for classes whose "
            "constructor takes k or retriever)"
        )
    return unread


def _parameters(kind: type[dspy.Module]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(kind.__init__).parameters


def _names_rm(kind: type[dspy.Module]) -> bool:
    """Return True if a method uses `rm`, such as `dspy.settings.rm(query)`."""
    for base in kind.__mro__:
        if base is dspy.Module:
            return False
        for method in vars(base).values():
            code = getattr(method, "__code__", None)
            if code is not None and "rm" in code.co_names:
                return True
    return False
