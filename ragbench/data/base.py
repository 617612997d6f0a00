"""What every data set becomes: examples, a corpus and the splits between them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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

    `setting` and `view` None take the data set's own default. `size` is the number of passages
    where the data set is generated. `fractions` are the shares of train, validation and test
    where a file has no split of its own. `hub` reads the questions from the Hugging Face hub,
    `hub_config` says which configuration (hotpotqa: distractor, fullwiki; graphrag_bench: medical,
    novel; arag: the folder). `chunk_file` is a given chunk file for view chunk, aligned to the
    paragraphs; `chunk_tokens` the length of a chunk where ragbench cuts them itself. `alias_file`
    has the other names of 2WikiMultiHopQA's entities.
    """

    dataset: str = "synthetic"
    setting: Setting | None = None
    view: View | None = None
    data_file: Path | None = None
    corpus_file: Path | None = None
    chunk_file: Path | None = None
    chunk_tokens: int = 1000
    alias_file: Path | None = None
    hub: bool = False
    hub_config: str | None = None
    size: int = 2000
    seed: int = 42
    fractions: tuple[float, float, float] = (0.4, 0.2, 0.4)


@dataclass(frozen=True)
class Dataset:
    """Examples by split, and the corpus they are asked over.

    Splits share no example by id and none by normalised question. `setting` says whether a question
    searches its own passages (`corpus.contexts`) or all. `card` holds what loading found out, as
    counts: questions, duplicates dropped, questions whose gold passages are known, supporting facts
    that point to no sentence.
    """

    name: str
    splits: Mapping[Split, Sequence[dspy.Example]]
    corpus: Corpus
    setting: Setting
    card: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the examples of all splits in order, the setting and the corpus."""
        state = hashlib.sha256(f"{self.name}\x1f{self.setting}\x1f{self.corpus.digest}".encode())
        for split in sorted(self.splits):
            state.update(f"\x1d{split}".encode())
            for example in self.splits[split]:
                fields = json.dumps(dict(example.items()), sort_keys=True, ensure_ascii=True)
                state.update(f"\x1e{fields}".encode())
        for question in sorted(self.corpus.contexts):
            positions = self.corpus.contexts[question]
            state.update(f"\x1c{question}\x1f{positions}".encode())
        return state.hexdigest()


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
    gold_pids: Sequence[str] = (),
    decomposition: Sequence[Mapping[str, str]] = (),
    **extra: Any,
) -> dspy.Example:
    """An example; only `question` is an input.

    `answers` has the canonical answer first, then its aliases, and is never empty. `support` lists
    the supporting facts as `(title, sentence index)`, empty where the data set has none.
    `gold_pids` lists the pids of all gold passages in the corpus of this data set and view, each
    once; it is empty unless every one of them is known, so that recall is never computed over a
    part. `decomposition` lists the sub-questions, each a mapping with `question` and `answer`.
    `extra` holds what one data set alone has; it must be JSON.
    """
    return dspy.Example(
        qid=qid,
        question=question,
        answers=list(answers),
        qtype=qtype,
        hops=hops,
        support=[tuple(pair) for pair in support],
        gold_pids=list(dict.fromkeys(gold_pids)),
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
