"""What a page is of: runs, opened once, the programs that they are runs of, and artefacts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

from ragbench.errors import CompareError, RunError
from ragbench.experiments import store
from ragbench.experiments.compare import paired
from ragbench.experiments.compare.family import SPENDING
from ragbench.experiments.report import tables
from ragbench.experiments.report.page.artefacts import FILES, read_artefact
from ragbench.experiments.report.repeats import label_arms
from ragbench.experiments.runs.settings import compiled_from
from ragbench.experiments.runs.summary import Evaluation, folder_of_repeats
from ragbench.logs import get
from ragbench.metrics import GROUPINGS, JUDGED, cause_of, get_metric
from ragbench.record import Record

Json = dict[str, Any]
#: Metrics that the page offers where a run has them.
METRICS = ("f1", "em", "recall", tables.EVIDENCE, *JUDGED)
_log = get(__name__)


@dataclass(frozen=True)
class Program:
    """A row of the page: one program, with the places of its runs (seeds), and of its data.

    `before` is the place of the program that it was compiled from, None where there is none.
    """

    name: str
    runs: tuple[int, ...]
    group: int
    before: int | None = None


@dataclass
class Board:
    """The runs of a page, the programs that they are of, and the metrics that any of them has.

    Runs over one data set are of one group; programs are compared within a group.
    """

    runs: Sequence[Evaluation]
    programs: Sequence[Program]
    metrics: Sequence[str]
    metric: str
    artefacts: Sequence[Json] = field(default_factory=list)

    @property
    def qids(self) -> list[str]:
        qids: set[str] = set()
        for run in self.runs:
            qids.update(run.records)
        return sorted(qids)

    @property
    def groups(self) -> list[list[int]]:
        """The places of the programs of each group."""
        groups: dict[int, list[int]] = {}
        for at, program in enumerate(self.programs):  # groups are numbered as they first occur
            groups.setdefault(program.group, []).append(at)
        return list(groups.values())


def find_runs(paths: Sequence[Path]) -> tuple[list[Path], list[tuple[str, Path]]]:
    """The run folders that `paths` are or hold; kind and file of each artefact among them."""
    folders: dict[Path, None] = {}
    files = []
    for path in paths:
        folders |= dict.fromkeys([path] if store.is_run(path) else store.runs_under(path))
        for kind, name in FILES.items():
            found: set[Path] = set()
            for place in ("", "*/", "programs/*/"):
                found.update(path.glob(f"{place}{name}"))
            files += [(kind, file) for file in sorted(found)]
    if not folders:
        raise RunError(
            f"no run in {', '.join(map(str, paths))}: give folders of runs, verdicts, sweeps, tunes"
        )
    return list(folders), files


def make_board(
    paths: Sequence[Path], metric: str = "f1", opened: dict[Path, Any] | None = None
) -> Board:
    """The page of the runs in `paths`; runs in `opened` that have not changed are not read again.

    Raises:
        RunError: there is no run with a record, or none has the metric.
    """
    get_metric(metric)
    folders, files = find_runs(paths)
    scores = {name: get_metric(name).score for name in dict.fromkeys([*METRICS, metric])}
    spending = [get_metric(name).score for name in (*SPENDING, *paired.MEASURES.values())]
    columns: list[store.Column] = [
        *scores.values(), *spending, *GROUPINGS.values(),
        cell, names_of_texts, store.question, store.varies_with,
    ]  # fmt: skip
    runs = {}
    for folder in folders:
        try:
            run = _opened(folder, columns, {} if opened is None else opened)
        except RunError as error:
            _log.warning("%s is left out: %s", folder, error)
            continue
        if run.records:
            runs[folder] = run
        else:
            _log.warning("%s is left out: it has no records", folder)
    if not runs:
        raise RunError(f"no run in {', '.join(map(str, paths))} has a record yet")
    metrics = []
    for name in scores:
        if any(scores_of(run, name) for run in runs.values()):
            metrics.append(name)
    if not metrics:
        raise RunError("no question has an answer to score; `ragbench show` says who refused")
    if metric not in metrics:
        raise RunError(
            f"no run has {metric}; there are {', '.join(metrics)}; what a judge gives comes from "
            "`ragbench score`"
        )
    artefacts, seeds = _artefacts(files, runs)
    every = list(runs.values())
    return Board(every, _programs(every, seeds), metrics, metric, artefacts)


def _opened(
    folder: Path, columns: Sequence[Callable[[Record], Any]], opened: dict[Path, Any]
) -> Evaluation:
    state = store.state_of(folder / store.DATABASE)
    if folder in opened and opened[folder][0] == state:
        unchanged: Evaluation = opened[folder][1]
        return unchanged
    run = Evaluation(store.RunFolder(folder))
    run.read(columns)
    opened[folder] = (state, run)
    return run


def _artefacts(
    files: Sequence[tuple[str, Path]], runs: dict[Path, Evaluation]
) -> tuple[list[Json], list[list[Path]]]:
    """The artefacts that can be read, and the folders of runs that are seeds of one program."""
    artefacts = []
    seeds = []
    for kind, file in files:
        try:
            artefact, together = read_artefact(kind, file, runs)
        except (RunError, CompareError, AttributeError, KeyError, TypeError, ValueError) as error:
            _log.warning("%s is left out: %s", file, error)
            continue
        artefacts.append(artefact)
        seeds += together
    return artefacts, seeds


def _programs(runs: Sequence[Evaluation], seeds: Sequence[Sequence[Path]]) -> list[Program]:
    """A program for the runs of each of `seeds`, for the repeats of a run, and for each other."""
    place = {run.folder: at for at, run in enumerate(runs)}
    repeats: dict[Path, list[Path]] = {}
    for folder in place:
        repeats.setdefault(folder_of_repeats(folder), []).append(folder)
    arms: list[tuple[int, ...]] = []
    pooled = set[int]()
    for folders in (*seeds, *repeats.values()):
        places = [place[folder] for folder in folders if folder in place]
        if len(places) == len(folders) > 1 and pooled.isdisjoint(places):
            arms.append(tuple(places))
            pooled |= set(places)
    arms += [(at,) for at in range(len(runs)) if at not in pooled]
    arms.sort()
    firsts = [runs[arm[0]] for arm in arms]
    befores = compiled_from(firsts)
    runs_by_arm = []
    for arm in arms:
        runs_by_arm.append([runs[at] for at in arm])
    labels = label_arms(runs_by_arm)
    data: dict[str, int] = {}
    programs = []
    for at, arm in enumerate(arms):
        group = data.setdefault(firsts[at].card.data.digest, len(data))
        programs.append(Program(labels[at], arm, group, befores.get(at)))
    return programs


def scores_of(run: Evaluation, metric: str) -> dict[str, float]:
    """The scores of the questions that have one; four decimals, as few characters as can be."""
    column = run.records.column(get_metric(metric).score)
    scores: dict[str, float] = {}
    for qid, score in column.items():
        if score is not None:
            scores[qid] = int(score) if score == int(score) else round(score, 4)
    return scores


def names_of_texts(record: Record) -> tuple[str, ...]:
    """Under which names the prompts and replies of its calls were kept."""
    digests: dict[str, None] = {}
    for call in record.ledger.calls:
        digests |= dict.fromkeys([*call.prompt, call.reply])
    digests.pop("", None)
    return tuple(digests)


class Cell(NamedTuple):
    """What the list of questions shows of a record, and its question; `answer` None: failed."""

    answer: str | None
    cause: str
    titles: tuple[str, ...]
    question: str
    gold: str
    type: str


def cell(record: Record) -> Cell:
    """The cell of a record; texts that other runs have too are in memory once."""
    cause = cause_of(record)
    answer = None
    if not record.failed:
        answer = record.answer_text[:200]
    titles = dict.fromkeys(intern(passage.title or passage.pid) for passage in record.passages)
    texts = map(intern, (record.question, record.answers[0], record.qtype))
    return Cell(answer, cause.name if cause else "", tuple(titles), *texts)
