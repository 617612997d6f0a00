"""A compiled program on disk, and which questions it was made with.

    program.json    DSPy's state: instructions and demonstrations per predictor
    sidecar.json    program, knobs, signatures, data, optimizer, seeds, LMs, versions, cost, scores
    candidates.jsonl, candidates/N
                    what was tried: scores, and each as a folder like this one, `FOLDER@N`
    work/           the optimizer's log and the journal of calls

DSPy matches a state to a program by position and checks nothing, so a state of other fields loads
without a word and answers wrongly. Everything is checked here before it loads. Only JSON is read.
None of the questions that something was made with is used to judge it.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dspy
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator

import ragbench
from ragbench.errors import DataError, RunError
from ragbench.experiments.config import compiled_digest, differing, file_within
from ragbench.experiments.store import read_json, read_object, write_json
from ragbench.logs import get
from ragbench.outputs import write_whole
from ragbench.paths import make_folder
from ragbench.programs.core import RAGProgram
from ragbench.text_normalization import question_key

_log = get(__name__)

PROGRAM = "program.json"
SIDECAR = "sidecar.json"
FORMAT = 2


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
        """Return the ids and hashes of `examples`, in order."""
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


class _Interval(Part):
    low: FiniteFloat
    high: FiniteFloat


class _Side(Part):
    mean: FiniteFloat | None = None
    interval: _Interval | None = None


class _Scores(Part):
    """The parts of `Sidecar.scores` that reports read."""

    metric: str = ""
    n: int = 0
    zero_shot: _Side = _Side()
    compiled: _Side = _Side()
    difference: FiniteFloat | None = None
    interval: _Interval | None = None


class Sidecar(Part):
    """Content of `sidecar.json`."""

    format: int
    program: str
    variant: str
    knobs: dict[str, Any]
    #: The fields of each predictor in order, such as "context, question -> answer".
    predictors: dict[str, str]
    #: Digest of all that runs: `program.json` and `files`.
    program_sha256: str
    #: Files of the optimizer next to the state, such as a bank of examples.
    files: list[str] = Field(default_factory=list)
    data: DataCard
    optimizer: dict[str, Any]
    config: dict[str, Any]
    #: Data, LM and retriever as they were given, to be compared; what evaluates it names its own.
    given: dict[str, Any] = Field(default_factory=dict)
    lms: dict[str, Any]
    versions: dict[str, str]
    scores: dict[str, Any]
    cost: dict[str, Any]
    #: What is said of the outcome, in a word; see `compile.Outcome`.
    outcome: str = ""
    #: Reason for each excluded reply of the prompt LM.
    left_out: list[str] = Field(default_factory=list)
    #: Predictors whose instruction holds an answer of a training question, where it did not before.
    leak: int = 0
    #: Number of the candidate that this is; see `candidates.jsonl`.
    candidate: int | None = None
    notes: dict[str, Any] = Field(default_factory=dict)

    @field_validator("scores")
    @classmethod
    def _readable(cls, scores: dict[str, Any]) -> dict[str, Any]:
        """Refuse scores that a report could not show, such as an interval that is a text."""
        _Scores.model_validate(scores)
        return scores


def fields_of(program: RAGProgram) -> dict[str, str]:
    """Return the fields of each predictor of `program`, in DSPy's order."""
    fields = {}
    for name, predictor in program.named_predictors():
        inputs = ", ".join(predictor.signature.input_fields)
        outputs = ", ".join(predictor.signature.output_fields)
        fields[name] = f"{inputs} -> {outputs}"
    return fields


@cache
def versions() -> dict[str, str]:
    """Return the installed versions of the packages that affect a run or a compile."""
    installed = {}
    for name in ("dspy", "gepa", "optuna", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            installed[name] = version(name)
    return {"ragbench": ragbench.__version__, "python": platform.python_version(), **installed}


def save_program(program: RAGProgram, path: Path) -> str:
    """Write the JSON state of a program in one step. Return the SHA-256 of the file.

    Args:
        program: The program.
        path: File to write.

    Raises:
        RunError: The file cannot be written.
    """
    try:
        make_folder(path.parent)
        with TemporaryDirectory() as folder:
            saved = Path(folder, PROGRAM)
            program.save(str(saved))
            content = saved.read_bytes()
    except (OSError, RuntimeError) as error:
        raise RunError(f"cannot write {path}: {' '.join(str(error).split())[:200]}") from None
    write_whole(path, content)
    return hashlib.sha256(content).hexdigest()


def write_sidecar(folder: Path, sidecar: Sidecar) -> None:
    """Write the metadata of a compiled program.

    Call this last: a folder with metadata is complete.

    Args:
        folder: Folder of the compiled program.
        sidecar: The metadata.
    """
    write_json(folder / SIDECAR, sidecar.model_dump(mode="json"))


def read_sidecar(folder: Path) -> Sidecar:
    """Read the sidecar of the compiled program in `folder`."""
    path = _file_within(folder, SIDECAR)
    if not path.is_file():
        if folder.parent.name == "candidates":
            compiled = folder.parent.parent
            n = len(list(folder.parent.glob(f"*/{SIDECAR}")))
            raise RunError(
                f"{compiled} has no candidate {folder.name}; it has {n}, numbered from 0"
            )
        if (folder / "compile.json").is_file():
            raise RunError(
                f"{folder} holds an unfinished compile; give its command again to finish"
            )
        raise RunError(
            f"{folder} is not a compiled program ({SIDECAR} is missing); see ragbench compile"
        )
    stored = read_object(path).get("format")
    if stored != FORMAT:
        raise RunError(f"{path} has format {stored!r}, not {FORMAT}; compile again")
    return read_json(path, Sidecar)


def load_artefact(folder: Path, program: RAGProgram) -> Sidecar:
    """Load a compiled state into a program after all checks.

    Args:
        folder: Folder of the compiled program.
        program: Program that receives the state. It must have the same name, variant and
            parameters, and predictors of the same fields.

    Returns:
        The metadata of the compiled program.

    Raises:
        RunError: The folder is damaged, or of another program or version of DSPy.
    """
    from ragbench.optimizers import OPTIMIZERS

    sidecar = read_sidecar(folder)
    _check_program(folder, sidecar, program)
    if (then := sidecar.versions.get("dspy")) != (now := version("dspy")):
        raise RunError(
            f"{folder} was compiled with dspy {then}, and this is dspy {now}; compile again, or "
            f"install dspy=={then}"
        )
    for path in folder.iterdir():  # an optimizer may read more than the sidecar lists
        if path.is_symlink():
            _file_within(folder, path.name)
    state = _read_state(folder, sidecar)
    predictors = {program.saved_name(name): p for name, p in program.named_predictors()}
    if set(state) != set(predictors):
        raise RunError(f"{folder / PROGRAM} has other predictors than {SIDECAR}; compile again")
    for name, predictor in predictors.items():
        read_predictor(folder / PROGRAM, name, predictor, state[name])
    name = str(sidecar.optimizer.get("name", ""))
    if sidecar.files and name in OPTIMIZERS.names():  # Other files, such as a bank.
        files = {file: read_object(folder / file) for file in sidecar.files}
        OPTIMIZERS.get(name).attach(program, files)
    return sidecar


def _check_program(folder: Path, sidecar: Sidecar, program: RAGProgram) -> None:
    if program.name != sidecar.program:
        raise RunError(
            f"{folder} is a compiled {sidecar.program}, not {program.name}; "
            f"give --program {sidecar.program}"
        )
    recorded = {"knobs": sidecar.knobs, "predictors": sidecar.predictors}
    actual = {"knobs": program.knobs.model_dump(mode="json"), "predictors": fields_of(program)}
    for key, was, now in differing(recorded, actual)[:1]:
        group, _, name = key.partition(".")
        cure = "compile again"
        if group == "knobs":
            cure = f"give --set {name}={was}"
        raise RunError(f"{folder} was compiled with {name}={was}, not {now}; {cure}")


def _file_within(folder: Path, name: str) -> Path:
    """Return `file_within`. Raises RunError if the file is missing or outside the folder."""
    try:
        return file_within(folder, name)
    except ValueError as error:
        raise RunError(f"{error}; copy the files themselves into it") from None


def _read_state(folder: Path, sidecar: Sidecar) -> dict[str, Any]:
    for name in (PROGRAM, *sidecar.files):
        if not _file_within(folder, name).is_file():
            raise RunError(f"{folder} has a {SIDECAR} but no {name}; copy the whole folder")
    if compiled_digest(folder, sidecar.files) != sidecar.program_sha256:
        changed = " or ".join([PROGRAM, *sidecar.files])
        raise RunError(
            f"{folder}: {changed} was changed after it was compiled; restore it, or compile again"
        )
    state = read_object(folder / PROGRAM)
    state.pop("metadata", None)
    return state


def read_predictor(path: Path, name: str, predictor: Any, state: Any) -> None:
    """Load a stored state into a predictor.

    Args:
        path: File with the state, for messages.
        name: Name of the predictor.
        predictor: Predictor that receives the state.
        state: The state.

    Raises:
        RunError: It is malformed, or it has an LM.
    """
    try:
        if state.get("lm"):
            raise RunError(f"{path} has its own LM; compile again")
        predictor.load_state(state)
        for demo in getattr(predictor, "demos", ()):  # DSPy takes any list
            dict(demo)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        why = f"{type(error).__name__}: {error}"
        raise RunError(f"{path}: predictor {name} is malformed ({why}); compile again") from None


def question_hash(question: str) -> str:
    """Return a short SHA-256 of the normalized question."""
    return _short_hash(question_key(question), 24)


def _short_hash(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _passages_of(example: dspy.Example) -> set[str]:
    """Return hashes of the ids of the gold passages, which are the same in every file."""
    return {_short_hash(str(pid), 16) for pid in example.get("gold_pids") or ()}


def data_card(
    name: str, digest: str, train: Sequence[dspy.Example], validation: Sequence[dspy.Example]
) -> DataCard:
    """Return the card of the data.

    Args:
        name: Name of the data set.
        digest: Hash of the data set.
        train: Training questions.
        validation: Validation questions.

    Raises:
        DataError: The splits share a question, by id or by text.
    """
    card = DataCard(
        name=name, digest=digest, train=Questions.of(train), validation=Questions.of(validation)
    )
    shared = {*card.train.ids} & {*card.validation.ids}
    shared = shared or {*card.train.hashes} & {*card.validation.hashes}
    if shared:
        raise DataError(f"training and validation share {len(shared)} questions ({min(shared)})")
    return card


def assert_held_out(
    data: DataCard, examples: Sequence[dspy.Example], *, dataset: str | None = None
) -> None:
    """Check that no question was used to compile, by id or by normalized text.

    Args:
        data: Data of the compile.
        examples: Questions of the evaluation.
        dataset: Name of their data set. Ids are compared if it is that of the compile, or None.

    Raises:
        DataError: A question was used to compile.
    """
    same = dataset in (None, data.name)
    if shared := _shared([data.train, data.validation], examples, by_id=same):
        raise DataError(
            f"{len(shared)} of {len(examples)} questions were used to compile this program "
            f"(first: {shared[0]}); evaluate on the test split, or compile on others"
        )


def _shared(
    sides: Sequence[Questions], examples: Sequence[dspy.Example], *, by_id: bool
) -> list[str]:
    ids = {qid for side in sides for qid in side.ids if by_id}
    hashes = {key for side in sides for key in side.hashes}
    shared = []
    for example in examples:
        qid = str(example.qid)
        if qid in ids or question_hash(example.question) in hashes:
            shared.append(qid)
    return shared


def warn_of_shared_passages(data: DataCard, examples: Sequence[dspy.Example]) -> None:
    """Warn if questions need a gold passage that a question of the compile needed.

    Such questions may be rephrasings, also across files.

    Args:
        data: Data of the compile.
        examples: Questions of the evaluation.
    """
    learned = {*data.train.passages, *data.validation.passages}
    shared = [str(example.qid) for example in examples if learned & _passages_of(example)]
    if shared:
        _log.warning(
            "%d of %d questions share gold passages with those that the program was compiled with "
            "(first: %s); they may be the same questions in other words",
            len(shared), len(examples), shared[0],
        )  # fmt: skip
