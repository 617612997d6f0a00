"""Which questions a program or a policy was made with, so that none of them is used to judge it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import dspy
from pydantic import BaseModel, ConfigDict

from ragbench.data import question_key
from ragbench.errors import DataError, RunError
from ragbench.experiments.store import check_output, read_json, write_json
from ragbench.logs import get
from ragbench.programs.routing import Policy

_log = get(__name__)


class Part(BaseModel):
    """A part of a sidecar; fields of other versions are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Questions(Part):
    """The questions of one split: their ids, and hashes of their texts and of gold passages."""

    ids: list[str]
    hashes: list[str]
    passages: list[str] = []

    @classmethod
    def of(cls, examples: Sequence[dspy.Example]) -> Questions:
        """The part made of `examples`, in order."""
        return cls(
            ids=[str(example.qid) for example in examples],
            hashes=[question_hash(example.question) for example in examples],
            passages=sorted({h for example in examples for h in _passages_of(example)}),
        )


class DataCard(Part):
    """The data it was compiled with."""

    name: str
    digest: str
    train: Questions
    validation: Questions


def question_hash(question: str) -> str:
    """A short SHA-256 of the normalised question."""
    return hashlib.sha256(question_key(question).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _passages_of(example: dspy.Example) -> set[str]:
    """Hashes of the ids of an example's gold passages, which are the same in every file."""
    pids = map(str, example.get("gold_pids") or ())
    return {hashlib.sha256(pid.encode("utf-8", "surrogatepass")).hexdigest()[:16] for pid in pids}


def data_card(
    name: str, digest: str, train: Sequence[dspy.Example], validation: Sequence[dspy.Example]
) -> DataCard:
    """The card of the data; the splits must share no question.

    Raises:
        DataError: a question is in both, by id or by normalised text.
    """
    card = DataCard(
        name=name, digest=digest, train=Questions.of(train), validation=Questions.of(validation)
    )
    both = {*card.train.ids} & {*card.validation.ids}
    texts = {*card.train.hashes} & {*card.validation.hashes}
    if both or texts:
        first = next(iter(sorted(both or texts)))
        raise DataError(f"training and validation share {len(both or texts)} questions ({first})")
    return card


def assert_held_out(
    data: DataCard, examples: Sequence[dspy.Example], *, dataset: str | None = None
) -> None:
    """Do nothing if no question of `examples` was used to compile.

    See `shared_questions` for what counts as the same question.

    Raises:
        DataError: some were; the message names the first and their number.
    """
    if shared := shared_questions(data, examples, dataset=dataset):
        raise DataError(
            f"{len(shared)} of {len(examples)} questions were used to compile this program "
            f"(first: {shared[0]}); evaluate on the test split, or compile on others"
        )


def warn_of_shared_passages(data: DataCard, examples: Sequence[dspy.Example]) -> None:
    """Warn where questions need a gold passage that one of those compiled with needed.

    Such a question may be another's in other words, also in another file.
    """
    known = {*data.train.passages, *data.validation.passages}
    shared = [str(example.qid) for example in examples if known & _passages_of(example)]
    if shared:
        _log.warning(
            "%d of %d questions share gold passages with those that the program was compiled with "
            "(first: %s); they may be the same questions in other words",
            len(shared), len(examples), shared[0],
        )  # fmt: skip


def shared_questions(
    data: DataCard, examples: Sequence[dspy.Example], *, dataset: str | None = None
) -> list[str]:
    """The ids of `examples` that the program was compiled with, by id or by normalised text.

    Ids are left out where `dataset` names another data set, whose ids mean other questions.
    """
    parts = (data.train, data.validation)
    same = dataset is None or dataset == data.name
    ids = {qid for part in parts for qid in part.ids} if same else set()
    hashes = {text for part in parts for text in part.hashes}
    return [
        str(example.qid)
        for example in examples
        if str(example.qid) in ids or question_hash(example.question) in hashes
    ]


def write_policy(policy: Policy, path: Path) -> None:
    """Write `policy` to `path`."""
    check_output(path)
    write_json(path, policy.model_dump(mode="json"))


def read_policy(path: Path) -> Policy:
    """The policy in `path`. Raises RunError: it is missing, or is no policy."""
    if not path.is_file():
        raise RunError(f"no policy {path}; `ragbench recommend RUN... --router -o FILE` writes one")
    return read_json(path, Policy)


def assert_not_learned_from(
    policy: Policy, examples: Sequence[dspy.Example], *, dataset: str
) -> None:
    """Do nothing if `policy` was learned from no question of `examples`.

    Raises:
        DataError: it was; the message names the first and their number.
    """
    source = policy.learned_from
    asked = Questions(ids=source.ids, hashes=source.hashes)
    none = Questions(ids=[], hashes=[])
    card = DataCard(name=source.dataset, digest=source.digest, train=asked, validation=none)
    if shared := shared_questions(card, examples, dataset=dataset):
        raise DataError(
            f"the policy was learned from {len(shared)} of these {len(examples)} questions "
            f"(first: {shared[0]}); run it on others, such as another split"
        )
