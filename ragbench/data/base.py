"""What every data set becomes: examples, a corpus and the splits between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import dspy

from ragbench.registry import Registry
from ragbench.retrievers.base import Corpus, View

Split = Literal["train", "validation", "test"]
Setting = Literal["distractor", "pooled"]


@dataclass(frozen=True)
class DataSpec:
    """Which questions over which corpus; everything that decides the bytes of a data set.

    `setting` None takes the data set's own default; `size` is the number of passages where the data
    set is generated. `fractions` are the shares of train, validation and test where a file has no
    split of its own.
    """

    dataset: str = "synthetic"
    setting: Setting | None = None
    view: View = "paragraph"
    data_file: Path | None = None
    corpus_file: Path | None = None
    hub: bool = False
    size: int = 2000
    seed: int = 42
    fractions: tuple[float, float, float] = (0.4, 0.2, 0.4)


@dataclass(frozen=True)
class Dataset:
    """Examples by split, and the corpus they are asked over.

    Splits share no example by id and none by normalised question. `setting` says whether a question
    searches its own passages (`corpus.contexts`) or all.
    """

    name: str
    splits: Mapping[Split, Sequence[dspy.Example]]
    corpus: Corpus
    setting: Setting
    card: Mapping[str, Any] = field(default_factory=dict)


#: A loader takes a spec and gives a data set, or raises DataError.
Loader = Callable[[DataSpec], Dataset]

DATASETS: Registry[Loader] = Registry("dataset", package="ragbench.data")


def make_example(
    *,
    qid: str,
    question: str,
    answers: Sequence[str],
    qtype: str = "",
    hops: int | None = None,
    support: Sequence[tuple[str, int]] = (),
    decomposition: Sequence[Mapping[str, str]] = (),
    **extra: Any,
) -> dspy.Example:
    """An example; only `question` is an input.

    `answers` has the canonical answer first, then its aliases, and is never empty. `support` lists
    the supporting facts as `(title, sentence index)`; `decomposition` the sub-questions, each a
    mapping with `question` and `answer`. `extra` holds what one data set alone has.
    """
    return dspy.Example(
        qid=qid,
        question=question,
        answers=list(answers),
        qtype=qtype,
        hops=hops,
        support=[tuple(pair) for pair in support],
        decomposition=[dict(part) for part in decomposition],
        **extra,
    ).with_inputs("question")


def question_key(question: str) -> str:
    """The normalised text by which two questions count as the same: words, lower case."""
    return " ".join(re.findall(r"\w+", question.lower()))


def for_optimizer(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    """The examples an optimizer may see: question, answer and all answers, no gold passage.

    `answer` is the canonical one and becomes the demo's output; `answers` is for the metric.
    """
    return [
        dspy.Example(
            question=example.question, answer=example.answers[0], answers=list(example.answers)
        ).with_inputs("question")
        for example in examples
    ]
