"""Content of a page: runs, opened once, their programs, and artefacts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from ragbench.metrics import GROUPINGS, JUDGED, get_metric
from ragbench.record import Record

Json = dict[str, Any]
#: Metrics that the page offers if a run has them.
METRICS = ("f1", "em", "recall", tables.GOLD_IN_CONTEXT, *JUDGED)
_log = get(__name__)


@dataclass(frozen=True)
class Program:
    """A row of the page: one program, with the indices of its runs (seeds).

    Attributes:
        name: Label of the program.
        runs: Indices of its runs.
        group: Number of its data set.
        before: Index of the uncompiled program, or None.
    """

    name: str
    runs: tuple[int, ...]
    group: int
    before: int | None = None


@dataclass
class ReportData:
    """Runs of a page, their programs, and the metrics that any run has.

    Runs over one data set form a group. Programs are compared within a group.
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
        """Indices of the programs of each group. One empty group without a program."""
        groups: dict[int, list[int]] = {}
        for at, program in enumerate(self.programs):  # Groups are numbered in order of occurrence.
            groups.setdefault(program.group, []).append(at)
        return list(groups.values()) or [[]]


def find_runs(paths: Sequence[Path]) -> tuple[list[Path], list[tuple[str, Path]]]:
    """Return the run folders in `paths`, and the kind and file of each artefact.

    Raises:
        RunError: There is no run.
    """
    folders: dict[Path, None] = {}
    files = []
    for path in paths:
        folders |= dict.fromkeys([path] if store.is_run(path) else store.runs_under(path))
        for kind, name in FILES.items():
            matches: set[Path] = set()
            for place in ("", "*/", "programs/*/"):
                matches.update(path.glob(f"{place}{name}"))
            files += [(kind, file) for file in sorted(matches)]
    if not folders:
        raise RunError(
            f"no run in {', '.join(map(str, paths))}. Give folders of runs, verdicts, sweeps "
            "or tunes."
        )
    return list(folders), files


def make_board(
    paths: Sequence[Path], metric: str = "f1", opened: dict[Path, Any] | None = None
) -> ReportData:
    """Collect the runs of a page.

    Args:
        paths: Folders that are runs or contain them.
        metric: Metric that the page shows first.
        opened: Runs by folder from an earlier call. Unchanged ones are not read again.

    Raises:
        RunError: No run has a record, or none has the metric.
    """
    get_metric(metric)
    folders, files = find_runs(paths)
    scores = {name: get_metric(name).score for name in dict.fromkeys([*METRICS, metric])}
    others = [
        get_metric(name).score for name in ("answer_rate", *SPENDING, *paired.MEASURES.values())
    ]
    columns: list[store.Column] = [
        *scores.values(), *others, *GROUPINGS.values(),
        store.question_row, store.question, store.varies_with,
    ]  # fmt: skip
    runs = {}
    for folder in folders:
        try:
            run = _opened(folder, columns, {} if opened is None else opened)
        except RunError as error:
            _log.warning("Skipping %s: %s", folder, error)
            continue
        if run.records:
            runs[folder] = run
        else:
            _log.warning("Skipping %s: no records", folder)
    if not runs:
        raise RunError(f"no run in {', '.join(map(str, paths))} has a record yet")
    metrics = []
    for name in scores:
        if any(scores_of(run, name) for run in runs.values()):
            metrics.append(name)
    if not metrics:
        raise RunError(
            "no question has an answer to score. `ragbench show run` shows the refusals."
        )
    if metric not in metrics:
        raise RunError(
            f"no run has the metric {metric}. Available: {', '.join(metrics)}. "
            "For metrics of a judge, run `ragbench score` first."
        )
    artefacts, seeds = _artefacts(files, runs)
    every = list(runs.values())
    return ReportData(every, _programs(every, seeds), metrics, metric, artefacts)


def _opened(
    folder: Path, columns: Sequence[Callable[[Record], Any]], opened: dict[Path, Any]
) -> Evaluation:
    state = store.state_of(folder / store.DATABASE)
    if folder in opened and opened[folder][0] == state:
        unchanged: Evaluation = opened[folder][1]
        return unchanged
    run = Evaluation(store.RunFolder(folder))
    run.records.compute(columns)
    run.summary  # noqa: B018  # computed before the columns that only it needs are freed
    run.records.free(store.spending, store.failure_of)
    opened[folder] = (state, run)
    return run


def _artefacts(
    files: Sequence[tuple[str, Path]], runs: dict[Path, Evaluation]
) -> tuple[list[Json], list[list[Path]]]:
    """Return the readable artefacts, and the folders of runs that are seeds of a program."""
    artefacts = []
    seeds = []
    for kind, file in files:
        try:
            artefact, together = read_artefact(kind, file, runs)
        except (RunError, CompareError, AttributeError, KeyError, TypeError, ValueError) as error:
            _log.warning("Skipping %s: %s", file, error)
            continue
        artefacts.append(artefact)
        seeds += together
    return artefacts, seeds


def _programs(runs: Sequence[Evaluation], seeds: Sequence[Sequence[Path]]) -> list[Program]:
    """Return a program for each group of seeds, each group of repeats, and each other run."""
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
    """Return the scores of questions that have one, with at most four decimals.

    Args:
        run: The run.
        metric: Name of the metric.
    """
    column = run.records.column(get_metric(metric).score)
    scores: dict[str, float] = {}
    for qid, score in column.items():
        if score is not None:
            scores[qid] = int(score) if score == int(score) else round(score, 4)
    return scores
