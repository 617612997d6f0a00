"""The common form of a data set: examples, a corpus and splits."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import dspy

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
    """Examples by split, and the corpus that they are asked over.

    Two splits share neither an id nor a normalized question. `questions` has all examples in the
    order of the files, duplicate questions included. `setting` decides if a question searches only
    its own passages (`corpus.contexts`) or all. `card` holds the counts of loading: questions,
    dropped duplicates and questions with known gold passages.
    """

    name: str
    splits: Mapping[Split, Sequence[dspy.Example]]
    corpus: Corpus
    setting: Setting
    card: Mapping[str, Any] = field(default_factory=dict)
    questions: Sequence[dspy.Example] = ()
    layout: str = ""  # Layout of a data set that has the name of its file.
    is_own: bool = False  # True for one unsplit file of the user.

    @property
    def every(self) -> Sequence[dspy.Example]:
        """All examples, in the order of the files if it is known, else by split."""
        return self.questions or [e for examples in self.splits.values() for e in examples]

    def select(
        self, split: Split | Literal["all"], limit: int | None = None
    ) -> Sequence[dspy.Example]:
        """Select questions of a split.

        A whole split and `all` are in the order of the files. A part of a split that ragbench cut
        is a seeded sample, and a smaller sample is part of a larger one.

        Args:
            split: Name of the split, or `all`.
            limit: Maximum number of questions. None: all of them.

        Returns:
            The examples.

        Raises:
            ConfigError: There are no such questions.
        """
        every = self.every
        chosen = every
        if split != "all":
            chosen = self.splits.get(split, ())
        if not chosen:
            sizes = (f"{name} ({len(held)})" for name, held in self.splits.items() if held)
            listing = ", ".join(sizes) or "none"
            raise ConfigError(f"{self.name} has no {split} questions; it has {listing}")
        if limit is not None and limit < len(chosen):
            return chosen[:limit]
        qids = {example.qid for example in chosen}
        return [example for example in every if example.qid in qids]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the examples of all splits in order, the setting and the corpus."""
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
    """Serialize `fields` as JSON with sorted keys, pydantic objects by their fields.

    Raises:
        ConfigError: A field cannot be written as JSON.
    """
    try:
        return json.dumps(fields, sort_keys=True, default=_plain)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"a field of an example is neither JSON nor a pydantic object: {error}"
        ) from None


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    converted = plain(value)
    if converted is value:  # Includes sets: their order differs between processes.
        raise TypeError(f"{type(value).__name__} {repr(value)[:80]}")
    return converted


#: Fields of an example that are derived from the others.
_FOLLOWS = frozenset({"answer", "document"})


@dataclass(frozen=True)
class HubSource:
    """Repository of a data set on the Hugging Face hub.

    Attributes:
        repo: OWNER/NAME.
        configs: Configurations, the default one first. Empty if there is only one.
        questions: Path of a JSON file in the repository, with `{config}` for the configuration. If
            empty, the library `datasets` reads the questions.
        corpus: Path of the corpus file, in the same form.
    """

    repo: str
    configs: tuple[str, ...] = ()
    questions: str = ""
    corpus: str = ""


#: Function that loads the data set of a spec, or raises DataError.
Loader = Callable[[DataSettings], Dataset]


@dataclass(frozen=True)
class Source:
    """Data set with a name: its loader, and the facts that are known before it is read.

    Attributes:
        load: Loader.
        view: Default unit of retrieval.
        setting: Default setting.
        layouts: Sets of fields, next to `question`, that identify a file of the data set.
        hub: Repository on the hub.
        keeps_ids: True if ids in a corpus file are passage ids.
        aliased: True if the data set accepts `--alias-file`.
        titled_by_file: True if the data set is named after its file.
    """

    load: Loader
    view: View = "paragraph"
    setting: Setting = "distractor"
    layouts: tuple[frozenset[str], ...] = ()
    hub: HubSource | None = None
    keeps_ids: bool = False
    aliased: bool = False
    titled_by_file: bool = False


DATASETS: Registry[Source] = Registry("dataset", package="ragbench.data.loaders")


def data_set(
    name: str, *layouts: str, listed: bool = True, **facts: Any
) -> Callable[[Loader], Loader]:
    """Register a loader as a data set.

    Args:
        name: Name of the data set.
        layouts: Fields that identify a file of it, separated by blanks. One text for each layout.
        listed: Show the data set in lists.
        facts: Further fields of its `Source`.

    Returns:
        A decorator of the loader.
    """
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
    """Make an example whose only input is `question`.

    The first answer is also stored as `answer`, the name that DSPy's optimizers and metrics read.

    Args:
        qid: Id of the question.
        question: Text of the question.
        answers: Distinct gold answers, the canonical one first, then its aliases. Empty only in
            data sets for retrieval.
        qtype: Type of the question. Blank if unknown.
        hops: Number of hops. None if unknown.
        support: Supporting facts, as title and sentence index.
        gold_pids: Ids of all gold passages in this corpus and view. Empty unless all are known, so
            that recall is never computed over a part of them.
        decomposition: Sub-questions, each with `question` and `answer`.
        extra: Fields of one data set only. They must be JSON.

    Returns:
        The example.
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
    """Return the examples that an optimizer may see, without gold passages.

    Optimizers identify a question by its text, so only the first example of each text is included.
    `answer` is the canonical answer and becomes the output of a demonstration. `answers` and the
    user's own fields are for metrics. Programs receive only the question and read further inputs
    from the data.
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
    """Return the display name of the data set. The user's own set is named after its file."""
    if not DATASETS.get(spec.dataset).titled_by_file:
        return spec.dataset.removeprefix(PREFIX)
    for file in (spec.data_file, spec.test_file, spec.val_file, spec.train_file, spec.hub_repo):
        if file:
            return Path(file).stem
    return spec.dataset
