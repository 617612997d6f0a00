"""From Python objects to the config of a run: data, modules, LMs and retrievers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import dspy

from ragbench.data import DATASETS, Dataset, DataSpec, make_example
from ragbench.errors import ConfigError
from ragbench.experiments.config import RunConfig, make_config
from ragbench.programs.external import keep_module
from ragbench.retrievers import Corpus, Passage, Retriever

#: What may be asked: the name of a data set, one that was loaded, or examples of one's own.
Data: TypeAlias = str | Dataset | Sequence[dspy.Example]
#: What may answer: the name of a program, `package.module:Class`, or a DSPy module.
Program: TypeAlias = str | dspy.Module
LM: TypeAlias = str | dspy.LM


def config_of(
    program: Program,
    data: Data,
    lm: LM,
    retriever: str | Retriever,
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
        fields |= _lm_fields(lm)
    if isinstance(retriever, str):
        fields["retriever"] = retriever
    else:
        fields["retriever"] = retriever.name
        fields["retriever_set"] = retriever.settings.model_dump(mode="json")
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
    if name not in DATASETS.names():

        def loader(spec: DataSpec) -> Dataset:
            return dataset

        DATASETS.register(name)(loader)
    return name


def _own(examples: Sequence[dspy.Example], corpus: Iterable[Passage | str] | None) -> Dataset:
    """Examples of one's own as a data set whose every question is a test question."""
    passages = tuple(
        item if isinstance(item, Passage) else Passage(pid=f"p{number}", title="", text=str(item))
        for number, item in enumerate(corpus or ())
    )
    made = [_example(example) for example in examples]
    return Dataset("own", {"test": made}, Corpus(passages), "pooled")


def _example(example: dspy.Example) -> dspy.Example:
    fields = dict(example.items())
    question = fields.pop("question", None)
    answers = fields.pop("answers", None) or [fields.get("answer")]
    if not question or answers == [None]:
        raise ConfigError("an example needs a question, and an answer or a list of answers")
    fields.pop("answer", None)
    qid = str(fields.pop("qid", "") or hashlib.sha256(str(question).encode()).hexdigest()[:12])
    return make_example(qid=qid, question=question, answers=[str(a) for a in answers], **fields)


def _lm_fields(lm: dspy.LM) -> dict[str, Any]:
    """The config fields of a `dspy.LM`: model, address and sampling. Keys stay in its hands."""
    names = {"temperature": "temperature", "max_tokens": "reply_tokens", "api_base": "api_base"}
    settings = {ours: lm.kwargs[theirs] for theirs, ours in names.items() if lm.kwargs.get(theirs)}
    return {"lm": getattr(lm, "spec", None) or lm.model, **settings}
