"""From Python objects to the config of a run: data, modules, LMs and retrievers."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import dspy

from ragbench.data import DATASETS, Dataset, make_example
from ragbench.errors import ConfigError
from ragbench.experiments.config import RunConfig, make_config
from ragbench.lms.factory import keep_lm
from ragbench.programs.external import keep_module
from ragbench.retrievers import Corpus, Passage, Retriever, keep_retriever

#: What may be asked: the name of a data set, one that was loaded, or examples of one's own.
Data: TypeAlias = str | Dataset | Sequence[dspy.Example]
#: What may answer: the name of a program, `package.module:Class`, or a DSPy module or its class.
Program: TypeAlias = str | dspy.Module | type[dspy.Module]
LM: TypeAlias = str | dspy.LM
#: What may search: the name of a retriever, `FILE.py:Class`, or an object with `search(query, k)`.
AnyRetriever: TypeAlias = str | Retriever | Callable[..., Any]

#: Data sets that were given as objects, by the name that stands for each in a config.
_given: dict[str, Dataset] = {}


def config_of(
    program: Program,
    data: Data,
    lm: LM,
    retriever: AnyRetriever,
    corpus: Iterable[Passage | str] | None,
    options: Mapping[str, Any],
) -> RunConfig:
    """The config that these objects and options come to.

    Raises:
        RagbenchError: an unknown option, or objects that do not go together.
    """
    fields: dict[str, Any] = {**options, "dataset": _dataset_name(data, corpus)}
    if not isinstance(data, str):
        fields.setdefault("limit", None)
    fields["program"] = program if isinstance(program, str) else keep_module(program)
    if isinstance(lm, str):
        fields["lm"] = lm
    else:
        _check_kind("lm", lm, dspy.LM, "a spec such as openai/gpt-4o-mini")
        fields["lm"] = keep_lm(lm)
    if isinstance(retriever, str):
        fields["retriever"] = retriever
    else:
        fields["retriever"] = keep_retriever(retriever)
    return make_config({name: _plain(value) for name, value in fields.items()})


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _dataset_name(data: Data, corpus: Iterable[Passage | str] | None) -> str:
    if isinstance(data, str):
        if corpus is not None:
            raise ConfigError(f"the data set {data!r} brings its corpus; leave corpus out")
        return data
    dataset = data if isinstance(data, Dataset) else _own(data, corpus)
    name = f"{dataset.name}-{dataset.digest[:12]}"
    if name not in _given:
        _given[name] = dataset
        DATASETS.register(name, listed=False)(lambda spec: _given[name])
    return name


def _own(examples: Iterable[dspy.Example], corpus: Iterable[Passage | str] | None) -> Dataset:
    """Examples of one's own as a data set whose every question is a test question."""
    if not isinstance(examples, Iterable):
        raise ConfigError(f"data={examples!r} is neither a data set nor a list of dspy.Example")
    made = [_example(example) for example in examples]
    seen: dict[str, dspy.Example] = {}
    for example in made:
        if seen.setdefault(example.qid, example) is not example:
            raise ConfigError(
                f"two examples have the qid {example.qid!r} (without one it is of the question): "
                f"{example.question[:80]!r}; give each its own qid, or leave one out"
            )
    return Dataset("own", {"test": made}, Corpus(_passages(corpus)), "pooled")


def _passages(corpus: Iterable[Passage | str] | None) -> tuple[Passage, ...]:
    if isinstance(corpus, str | Mapping):
        raise ConfigError(f"corpus is one {type(corpus).__name__}; give a list of Passage or text")
    items = tuple(corpus or ())
    for item in items:
        if not isinstance(item, Passage | str):
            raise ConfigError(f"corpus has {repr(item)[:80]}; give each as a Passage or as text")
    return tuple(
        item if isinstance(item, Passage) else Passage(f"p{number}", "", _text(item, "corpus"))
        for number, item in enumerate(items)
    )


def _example(example: dspy.Example | Mapping[str, Any]) -> dspy.Example:
    if not isinstance(example, dspy.Example | Mapping):
        raise ConfigError(f"data has {repr(example)[:80]}; give each question as a dspy.Example")
    fields = dict(example.items())
    question, answer = fields.pop("question", None), fields.pop("answer", None)
    answers = fields.pop("answers", None) or ([] if answer is None else [answer])
    if not question or not answers:
        raise ConfigError("an example needs a question, and an answer or a list of answers")
    if not isinstance(answers, list | tuple):
        raise ConfigError(f"answers={repr(answers)[:80]} of an example is no list; give [...]")
    question = _text(question, "the question of an example")
    qid = str(fields.pop("qid", "") or hashlib.sha256(question.encode()).hexdigest()[:12])
    return make_example(qid=qid, question=question, answers=[str(a) for a in answers], **fields)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {repr(value)[:80]}, which is no text")
    if "\x00" in value or value != value.encode("utf-8", "replace").decode():
        raise ConfigError(f"{name} holds a NUL or half of a surrogate pair: {repr(value)[:80]}")
    return value


def _check_kind(name: str, value: object, kind: type, otherwise: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(
            f"{name}={repr(value)[:80]} is neither {otherwise} nor a {kind.__name__} object"
        )
