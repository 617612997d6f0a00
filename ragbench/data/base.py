"""What every data set becomes: examples, a corpus and the splits between them."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import dspy
from pydantic_core import to_jsonable_python

from ragbench.data.values import plain
from ragbench.errors import ConfigError
from ragbench.external import PREFIX
from ragbench.passages import Corpus, View
from ragbench.registry import Registry
from ragbench.settings import DataSettings

Split = Literal["train", "validation", "test"]
Setting = Literal["distractor", "pooled"]


@dataclass(frozen=True)
class Dataset:
    """Examples by split, and the corpus they are asked over.

    Splits share no example by id and none by normalised question. `questions` has all examples in
    the order of the files, those whose question is asked twice among them. `setting` says whether a
    question searches its own passages (`corpus.contexts`) or all. `card` holds what loading has
    counted: questions, duplicates dropped, questions whose gold passages are known, supporting
    facts that point to no sentence.
    """

    name: str
    splits: Mapping[Split, Sequence[dspy.Example]]
    corpus: Corpus
    setting: Setting
    card: Mapping[str, Any] = field(default_factory=dict)
    questions: Sequence[dspy.Example] = ()
    layout: str = ""  # of files that give the data set their own name
    is_own: bool = False  # whether all come from one file of a person's own, which is no split

    @property
    def every(self) -> Sequence[dspy.Example]:
        """All examples: in the order of the files where that is known, else by split."""
        return self.questions or [e for examples in self.splits.values() for e in examples]

    def select(
        self, split: Split | Literal["all"], limit: int | None = None, *, answered: bool = True
    ) -> Sequence[dspy.Example]:
        """Returns the first `limit` questions of a split, or all of them (None).

        A whole split and `all` are in the order of the files; a part of a split that was cut is a
        seeded sample, and a smaller one is part of a larger one. ConfigError where there are none,
        or they have to be `answered` and have no answers.
        """
        every = self.every
        chosen = every
        if split != "all":
            chosen = self.splits.get(split, ())
        if not chosen:
            sizes = (f"{name} ({len(held)})" for name, held in self.splits.items() if held)
            listing = ", ".join(sizes) or "none"
            raise ConfigError(f"{self.name} has no {split} questions; it has {listing}")
        if answered and not all(example.answers for example in chosen):
            raise ConfigError(
                f"{self.name} has questions without answers; only `ragbench retrieve` can ask them"
            )
        if limit is not None and limit < len(chosen):
            return chosen[:limit]
        qids = {example.qid for example in chosen}
        return [example for example in every if example.qid in qids]

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the examples of all splits in order, the setting and the corpus."""
        state = hashlib.sha256(
            f"{self.layout or self.name}\x1f{self.setting}\x1f{self.corpus.digest}".encode()
        )
        for split in sorted(self.splits):
            state.update(f"\x1d{split}".encode())
            for example in self.splits[split]:
                content = dict(example.items())
                for name in _FOLLOWS:
                    content.pop(name, None)
                state.update(f"\x1e{as_json(content)}".encode())
        for question in sorted(self.corpus.askers):
            for positions in self.corpus.contexts_of(question):
                state.update(f"\x1c{question}\x1f{positions}".encode())
        return state.hexdigest()


def as_json(fields: Mapping[str, Any]) -> str:
    """Returns `fields` as JSON in one order; objects of pydantic by their fields.

    Raises:
        ConfigError: one of them is no JSON.
    """
    try:
        return json.dumps(fields, sort_keys=True, default=_plain)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"a field of an example is no JSON and no pydantic object: {error}"
        ) from None


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    converted = plain(value)
    if converted is value:  # also a set, whose order is another in another process
        raise TypeError(f"{type(value).__name__} {repr(value)[:80]}")
    return converted


def jsonable(value: Any) -> Any:
    """Returns `value` as JSON has it: objects by their fields or as text, bytes in base 64."""
    if isinstance(value, set | frozenset):  # whose order is another in another process
        value = sorted(value, key=str)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(jsonable, value))
    return to_jsonable_python(value, fallback=str, bytes_mode="base64")


#: Fields of an example that follow from the others.
_FOLLOWS = frozenset({"answer", "document"})


@dataclass(frozen=True)
class HubSource:
    """A repository on the hub; `configs` begins with the default one, and is empty for one only.

    `questions` and `corpus` are the paths of JSON files in it, with `{config}` for the
    configuration; where `questions` is empty, the questions are read by `datasets`. `by_hand` says
    what to download, and under what names, where the hub is out of reach.
    """

    repo: str
    configs: tuple[str, ...] = ()
    questions: str = ""
    corpus: str = ""
    by_hand: str = ""


#: Makes the data set of a spec, or raises DataError.
Loader = Callable[[DataSettings], Dataset]


@dataclass(frozen=True)
class Source:
    """A data set that can be named: its loader, and all that is known of it before it is read.

    `view` and `setting` hold where none is chosen. `layouts` are the fields that a record has
    beside `question`, by which a file of the data set is recognised. `keeps_ids` says that ids in a
    corpus file name passages. `aliased` ones take `--alias-file`. `nicknames` are other names that
    people have for it. One that is `titled_by_file` is called by the name of its file.
    """

    load: Loader
    view: View = "paragraph"
    setting: Setting = "distractor"
    layouts: tuple[frozenset[str], ...] = ()
    hub: HubSource | None = None
    keeps_ids: bool = False
    aliased: bool = False
    nicknames: tuple[str, ...] = ()
    titled_by_file: bool = False


DATASETS: Registry[Source] = Registry("dataset", package="ragbench.data.loaders")


def data_set(
    name: str, *layouts: str, listed: bool = True, **facts: Any
) -> Callable[[Loader], Loader]:
    """Registers a loader as the data set `name`; each of `layouts` names fields, with blanks."""
    kinds = tuple(frozenset(fields.split()) for fields in layouts)

    def add(load: Loader) -> Loader:
        DATASETS.register(name, listed=listed)(Source(load, layouts=kinds, **facts))
        return load

    return add


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
    """Returns an example; only `question` is an input.

    `answers` has the canonical answer first, then its aliases, each once; it is empty only where a
    data set for retrieval has none. `support` lists the supporting facts as `(title, sentence
    index)`. `gold_pids` lists the pids of all gold passages in this corpus and view; it is empty
    unless every one is known, so that recall is never computed over a part. `decomposition` lists
    the sub-questions, each with `question` and `answer`. `extra` holds what one data set alone has;
    it must be JSON. The first answer also stands as `answer`, the name that DSPy's own optimizers
    and metrics read.
    """
    if answers:
        extra = {"answer": answers[0], **extra}
    example = dspy.Example(
        qid=qid,
        question=question,
        answers=list(dict.fromkeys(answers)),
        qtype=qtype,
        hops=hops,
        support=list(map(tuple, support)),
        gold_pids=list(dict.fromkeys(gold_pids)),
        decomposition=list(map(dict, decomposition)),
        **extra,
    )
    example._input_keys = {"question"}  # `with_inputs` would make a copy
    return example


def for_optimizer(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Returns the examples an optimizer may see: question, answer and all answers, no gold passage.

    Of questions with one text the first is taken, since an optimizer hands on the text alone.
    `answer` is the canonical one and becomes the demo's output; `answers` is for the metric, and so
    are names and fields of a person's own. Programs are given the question alone, and take further
    inputs from the data.
    """
    by_question: dict[str, dspy.Example] = {}
    for example in examples:
        if example.question not in by_question:
            answers = list(example.answers)
            inputs = dict(example.inputs().items())
            gold = {"answer": answers[0], "answers": answers}
            visible = dspy.Example(**{**example.get("own_fields", {}), **inputs, **gold})
            by_question[example.question] = visible.with_inputs("question")
    return list(by_question.values())


def title_of(spec: DataSettings) -> str:
    """The name of the data set: of the user's own, that of the file."""
    if not DATASETS.get(spec.dataset).titled_by_file:
        return spec.dataset.removeprefix(PREFIX)
    for file in (spec.data_file, spec.test_file, spec.val_file, spec.train_file, spec.hub_repo):
        if file:
            return Path(file).stem
    return spec.dataset
