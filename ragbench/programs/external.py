"""Any DSPy module as a program: it takes `question` and returns a prediction with `answer`.

A `RAGProgram` is taken as it is; any other `dspy.Module` is wrapped. It searches by the retriever
that its constructor takes as `retriever`, or by `dspy.Retrieve`; both are noted in the question's
trace. Passages that it returns as `passages` or `context` are kept with the record.
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
from ragbench.programs.core.asked import asking, example_of
from ragbench.programs.core.program import named
from ragbench.retrievers import Passage, Retriever
from ragbench.retrievers.base import SearchNotes
from ragbench.user_code import contained, digest_of_plugin, digest_of_spec, is_external, load_object

#: Calls that an LM and each module remember while a module of a person's own runs.
MOST_HISTORY = 1_000
#: The largest `k`, as of every program.
MOST_K = 100


#: Fields of an example that no program is shown.
_GOLD = frozenset(
    {"qid", "answer", "answers", "qtype", "hops", "support", "gold_pids", "decomposition"}
    | {"own_fields"}
)
#: Outputs of a module that a record has a place for; others are kept beside them.
_KNOWN = frozenset({"answer", "passages", "context", "reasoning"})


class TracedRetriever:
    """Searches of a wrapped module, noted in the trace of the question that is being answered.

    Callable as `dspy.settings.rm`, so that `dspy.Retrieve` finds it.
    """

    def __init__(self, k: int) -> None:
        self.k = k

    def search(self, query: str, k: int | None = None, **_: Any) -> list[Passage]:
        """At most `k` passages, by default as many as the knob says."""
        return self.search_many([query], k=k)[0]

    __call__ = search

    def search_many(self, queries: Sequence[str], *, k: int | None = None) -> list[list[Passage]]:
        """One list of passages per query, in order; RuntimeError outside of a question."""
        trace = current().get(Trace)
        if trace is None:
            raise RuntimeError("the retriever of a program searches while it answers a question")
        with use(current().plus(SearchNotes(None))):  # the trace notes it
            return trace.search_many(list(queries), k=k or self.k)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class ModuleKnobs(ProgramKnobs):
    """Knobs of a wrapped module; what its constructor takes is given as `init`, and `k` as `k`."""

    init: dict[str, Any] = Field({}, description="arguments of the module's constructor")


class ModuleProgram(RAGProgram[ModuleKnobs]):
    """Answer a question with a given module."""

    family = "workflow"
    calls = "those of the module"
    make: type[dspy.Module]
    #: The module that was handed over as an object.
    given: dspy.Module | None = None
    #: Whether its constructor takes the knob `k`.
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
        except Exception as error:  # whatever a stranger's constructor raises
            raise ConfigError(
                f"{self.name} cannot be made: {type(error).__name__}: {error}; its arguments are "
                "given as --set init='{...}'"
            ) from error
        for name, predictor in self.module.named_predictors():
            if not hasattr(predictor, "rb_signature"):
                named(predictor, predictor.signature)
                predictor.rb_signature = predictor.signature.__name__ or name

    def __call__(self, *args: Any, **inputs: Any) -> dspy.Prediction:
        """As any module, but that callbacks and usage are those of the module within."""
        return self.forward(*args, **inputs)

    def solve(self, trace: Trace) -> dspy.Prediction:
        # Calls are the program's, not those of an optimizer's prompt model.
        context = replace(current(), caller=("", "")).plus(SearchNotes(trace.note_search))
        settings: dict[str, Any] = {"rm": self.traced, OWN: True, "max_history_size": MOST_HISTORY}
        if dspy.settings.trace is None:  # some of DSPy's modules add to it
            settings["trace"] = []
        with use(context, **settings), contained(self.name):
            output = self._output(trace.question)
        prediction = _as_prediction(output, self.name)
        answer = _answer_text(prediction["answer"], self.name)
        passages = _passages(prediction, trace)
        thought = str(prediction.get("reasoning") or "")
        trace.step("answer", input=trace.question, thought=thought, observation=answer)
        outputs = {}
        for name, value in prediction.items():
            if name not in _KNOWN:
                outputs[name] = value
        prediction = trace.prediction(answer, "answered", passages=passages or None)
        prediction.outputs = outputs
        prediction.shown = None  # what a foreign module shows its model is not known
        return prediction

    def _output(self, question: str) -> Any:
        inputs = self._inputs(question)
        if hasattr(type(self.module), "forward"):
            return self.module(**inputs)
        return asyncio.run(self.module.acall(**inputs))

    def forward(self, question: str, **inputs: Any) -> dspy.Prediction:
        """Answer `question`; of other `inputs` the module gets those that it takes."""
        with use(asking(question, inputs)):
            return super().forward(question)

    def _inputs(self, question: str) -> dict[str, Any]:
        """The fields of the example that the module takes, by the names that they have there.

        One that takes any (`**inputs`) gets those that its signature names, or else those that
        `with_inputs` declares and those that a predictor in it names.
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
        """The state of the module alone, so that it also loads without ragbench."""
        return self.module.dump_state(json_mode=json_mode)

    def saved_name(self, predictor: str) -> str:
        return predictor.removeprefix("module.")

    def load_state(self, state: Mapping[str, Any], **options: Any) -> None:
        self.module.load_state(state, **options)


def _accepted(module: dspy.Module) -> set[str] | None:
    """Names of the inputs that `module` takes; None where it takes any."""
    kind = type(module)  # of an object DSPy warns that `forward` is read
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
    """Replace each LM that a module within `program` holds by what `metered` makes of it."""
    replaced: dict[int, RagbenchLM] = {}
    for _, module in program.named_sub_modules():
        for name, value in [*vars(module).items()]:
            if isinstance(value, dspy.BaseLM) and not isinstance(value, RagbenchLM):
                if id(value) not in replaced:
                    replaced[id(value)] = metered(value)
                setattr(module, name, replaced[id(value)])


def _copy(module: dspy.Module) -> dspy.Module:
    """A copy of `module`, which compiling may change. It shares LMs, and what ends with its owner.

    Where a part cannot be copied, such as a lock or a connection, DSPy's own way shares it.
    """
    memo: dict[int, Any] = {}
    for _, inner in module.named_sub_modules():
        for value in vars(inner).values():
            held = [value, *getattr(value, "__dict__", {}).values()]
            if isinstance(value, dspy.BaseLM) or any(hasattr(type(v), "__del__") for v in held):
                memo[id(value)] = value
    try:
        copied = copy.deepcopy(module, memo)
    except Exception:  # whatever a part raises when it is copied
        copied = module.deepcopy()
    pairs = zip(module.named_sub_modules(), copied.named_sub_modules(), strict=True)
    for (_, original), (_, fresh) in pairs:  # copying leaves them out
        fresh.callbacks = original.callbacks
    return copied


def adapter_of(program: RAGProgram, name: str, lm: dspy.LM | None) -> dspy.Adapter:
    """Return the adapter called `name` for `program`.

    `auto` of a module of a person's own is what it is in plain DSPy: that of DSPy's settings, or
    `dspy.ChatAdapter`.
    """
    if name == "auto" and isinstance(program, ModuleProgram):
        adapter: dspy.Adapter = dspy.settings.adapter or dspy.ChatAdapter()
        return adapter
    return make_adapter(name, lm)


def _as_prediction(output: Any, owner: str) -> dspy.Prediction:
    """What a module returned: a prediction, its fields as a dict, or the answer by itself.

    Raises:
        NoAnswerError: it has fields, and none of them is `answer`.
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
    """`answer` as a text, as gold answers are read; several texts are one with commas.

    Raises:
        NoAnswerError: its type can be no answer.
        ValueError: there is none, which is a failure of the one question.
    """
    if answer is None:
        raise ValueError(f"{owner} returned no answer (None)")
    if isinstance(answer, Enum):
        answer = answer.value
    if callable(getattr(answer, "item", None)):  # of numpy
        answer = answer.item()
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list | tuple | set | frozenset):
        answers = list(answer)
    else:
        answers = [answer]
    texts: list[str] = []
    for value in answers:
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, bool | int | float):
            texts += answers_of(value)
        else:
            raise NoAnswerError(
                f"{owner} returned an answer of the type {type(value).__name__} "
                f"({' '.join(repr(value).split())[:80]}), which can be no answer; return "
                "dspy.Prediction(answer=...) with a text, a number, True or False, or a list"
            )
    return ", ".join(texts)


def _passages(prediction: dspy.Prediction, trace: Trace) -> list[Passage]:
    """The passages that the module says it used; texts stand for themselves."""
    output = prediction.get("passages") or prediction.get("context") or ()
    by_text = {str(passage): passage for passage in trace.passages}
    if isinstance(output, str):
        output = [output]
    passages = []
    for item in output:
        if isinstance(item, Passage):
            passages.append(item)
        elif isinstance(item, str):
            passages.append(by_text.get(item) or passage_of_text(item))
    return passages


def keep_module(module: dspy.Module | type[dspy.Module], *, name: str = "") -> str:
    """Return the name of `module` in configs of this process; see `ragbench.external.keep`.

    Raises:
        ConfigError: it is not a DSPy module, or a program that has a name.
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
    """Return the identity of the code or of the object that `spec` names; "" for our programs."""
    if is_kept(spec):
        return tag_of(spec)
    if is_external(spec):
        return digest_of_spec(spec, "--program")
    return digest_of_plugin(PROGRAMS.get(spec))


@PROGRAMS.outside
def load_program(spec: str) -> type[RAGProgram]:
    """The program that `spec` names, as `package.module:Class` or `path/to/file.py:Class`."""
    loaded = find(spec) if is_kept(spec) else load_object(spec, "--program")
    module = loaded if isinstance(loaded, dspy.Module) else None
    kind: Any = loaded if module is None else type(module)
    if not (isinstance(kind, type) and issubclass(kind, dspy.Module)):
        raise ConfigError(f"{spec} is no subclass of dspy.Module")
    if issubclass(kind, RAGProgram):
        return kind
    own_k = None if module is not None else _own_k(kind)
    knobs = ModuleKnobs
    if own_k is not None:
        about = bounded(own_k, 1, MOST_K, "the k of the module's constructor")
        knobs = create_model("ModuleKnobs", __base__=ModuleKnobs, k=(int, about))
    members = {
        "name": label_of(spec),
        "make": kind,
        "given": module,
        "Knobs": knobs,
        "takes_k": own_k is not None,
        "unread": _unread(kind, is_object=module is not None, takes_k=own_k is not None),
        # An instruction optimizer reads the docstring of the program: it is the module's own.
        "__doc__": kind.__doc__,
        "__module__": __name__,
    }
    return type(f"{kind.__name__}Program", (ModuleProgram,), members)


def _own_k(kind: type[dspy.Module]) -> int | None:
    """The default of the parameter `k` of a constructor; None where it takes no number as `k`."""
    parameter = _parameters(kind).get("k")
    if parameter is None:
        return None
    if parameter.default is parameter.empty:
        return int(ModuleKnobs.model_fields["k"].default)
    k = parameter.default
    if isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= MOST_K:
        return k
    return None


def _unread(kind: type[dspy.Module], *, is_object: bool, takes_k: bool) -> dict[str, str]:
    """Knobs of every program that nothing in the module `kind` reads -> what to do instead."""
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
    """Whether a method names `rm`, as in `dspy.settings.rm(query)`."""
    for base in kind.__mro__:
        if base is dspy.Module:
            return False
        for method in vars(base).values():
            code = getattr(method, "__code__", None)
            if code is not None and "rm" in code.co_names:
                return True
    return False
