"""Choices: programs race over the same questions, and a rule drops some after each block.

Questions that vary together follow each other in the stream. Everything is computed from the
records, so the same command continues a race, and recorded runs can be raced again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragbench.data import find_clusters
from ragbench.errors import CompareError, ConfigError, StoppedError
from ragbench.experiments.cells.cell import Cell, Outcome, write_experiment
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.choose.racing import Elimination, Race, Rule
from ragbench.experiments.config import RunConfig
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import locked
from ragbench.metrics import get_metric
from ragbench.metrics.stats.estimates import codes_of
from ragbench.record import Record

T = TypeVar("T")
#: Minimum number of questions in a block. The rule is applied after each block.
BLOCK = 20


@dataclass(frozen=True)
class Runner:
    """A program in the race. `usd` and `tokens` are the means of a question, with the index."""

    name: str
    questions: int
    score: float
    usd: float | None
    tokens: float
    p95_s: float
    folder: Path


@dataclass(frozen=True)
class Choice:
    """Result of a race.

    `runners` are all programs with answers: first the active ones, cheapest first, then the
    eliminated
    ones. `exits` has a row for each eliminated program. `questions` is the number of questions run,
    of
    the `stream` available ones. `stopped_by` is the limit that ended the race, or "".
    """

    runners: Sequence[Runner]
    running: Sequence[str]
    exits: Sequence[Mapping[str, Any]]
    questions: int
    stream: int
    rule: Rule
    metric: str
    stopped_by: str = ""

    @property
    def decided(self) -> bool:
        """True if one program is left."""
        return len(self.running) == 1

    @property
    def sentence(self) -> str:
        """Advice in one sentence."""
        if not any(runner.questions for runner in self.runners):
            return f"undecided: no program has an answer yet ({self.stopped_by})"
        runner = self.runners[0]
        if not self.running:
            return "none: every program was shown to take longer than it may"
        if self.decided:
            share = f"{self.calls_share:.0%} of the questions of the full table"
            return f"use {runner.name}: {self.metric} {runner.score:.3f}, decided with {share}"
        programs = ", ".join(self.running)
        ended = self.stopped_by or f"all {self.questions} questions were asked"
        return (
            f"undecided between {programs} ({ended}); {runner.name} is the cheapest of them, at "
            f"{self.metric} {runner.score:.3f}"
        )

    @property
    def calls_share(self) -> float:
        """Number of questions run by all programs, as a share of the full table."""
        questions = sum(runner.questions for runner in self.runners)
        return questions / max(1, len(self.runners) * self.stream)

    def to_dict(self) -> dict[str, Any]:
        """Return the race as JSON."""
        runners = [{**vars(runner), "folder": str(runner.folder)} for runner in self.runners]
        race = {**vars(self), "rule": vars(self.rule), "programs": runners}
        del race["runners"]
        return {"advice": self.sentence, "share": self.calls_share, **race}


def choose(
    configs: Mapping[str, RunConfig],
    folder: Path,
    *,
    rule: Rule,
    metric: str = "f1",
    watch: ProgressListener = SILENT,
) -> Choice:
    """Race programs until the choice is decided, and write `experiment.json`.

    Args:
        configs: Config of each program by name. All have the same questions and the same LM.
        folder: Folder of the experiment.
        rule: Rule that eliminates programs.
        metric: Metric to compare.
        watch: The receiver of progress.

    Raises:
        ConfigError: There are fewer than two programs, or the scores of the metric have no range.
    """
    field = Field(configs, rule, metric)
    scheduler = Scheduler(watch)
    cells = {name: Cell(name, config, arm=name) for name, config in configs.items()}
    outcomes = {name: Outcome(cell) for name, cell in cells.items()}
    examples = scheduler.build(next(iter(cells.values()))).examples
    stream = field.start(examples, find_clusters(examples))
    with locked(folder):
        try:
            for block in blocks(field.clusters):
                for name in field.running():
                    title = f"{name}, to question {block.stop}"
                    outcomes[name] = scheduler.run(cells[name], title, stream[: block.stop])
                    if evaluation := outcomes[name].run:
                        field.runs[name] = evaluation
                    if outcomes[name].error is not None:
                        outcomes[name].finished()
                qids = [str(example.qid) for example in stream[block]]
                for exit_row in field.add_records(qids, block):
                    watch.say(field.exit_line(exit_row))
                if field.race.over:
                    break
        except StoppedError:
            pass
        stopped = next((o.reason for o in outcomes.values() if o.state == "stopped"), "")
        choice = field.choice(stopped)
        results = list(outcomes.values())
        write_experiment(folder, "choose", results, choice.to_dict(), stopped or None)
    return choice


def replay(runs: Mapping[str, Evaluation], *, rule: Rule, metric: str = "f1") -> Choice:
    """Race recorded runs of the same questions. Sends no request.

    The race ends at the first block for which an active program lacks a record.

    Args:
        runs: Runs by name.
        rule: Rule that eliminates programs.
        metric: Metric to compare.

    Raises:
        CompareError: The runs share no block of questions.
    """
    field = Field(runs, rule, metric)
    longest = max(runs.values(), key=lambda evaluation: len(evaluation.records))
    known_clusters = clusters_of(longest.records)
    qids = list(longest.records)
    qids = field.start(qids, [known_clusters.get(qid, qid) for qid in qids])
    field.runs.update(runs)
    for block in blocks(field.clusters):
        recorded = (runs[name].records.keys() for name in field.running())
        if field.race.over or not all(keys >= set(qids[block]) for keys in recorded):
            break
        field.add_records(qids[block], block)
    if not field.race.questions:
        raise CompareError("the runs share no block of questions, so that they cannot be raced")
    return field.choice("")


def blocks(clusters: Sequence[Any], least: int = BLOCK) -> Iterator[slice]:
    """Yield slices that do not split a cluster, of `least` questions or more but for the last."""
    start = 0
    while start < len(clusters):
        end = min(start + least, len(clusters))
        while end < len(clusters) and clusters[end] == clusters[end - 1]:
            end += 1
        yield slice(start, end)
        start = end


class Field:
    """Race of named programs, based on the records of their runs, which may grow."""

    def __init__(self, programs: Iterable[str], rule: Rule, metric: str) -> None:
        self.programs = list(programs)
        self.runs: dict[str, Evaluation] = {}
        self.clusters: list[Hashable] = []
        self._measure = get_metric(metric)
        score_range = self._measure.score_range
        if len(self.programs) < 2:
            raise ConfigError("a race needs at least two programs; name more with --programs")
        if score_range is None or not self._measure.higher_is_better:
            raise ConfigError(f"{metric} has no range, or less of it is better; race by em or f1")
        self._low, self._high = score_range
        self.race = Race(len(self.programs), rule)
        self._asked: list[str] = []

    def start(self, items: Sequence[T], clusters: Sequence[Hashable]) -> list[T]:
        """Return the questions `items` in the order of the race, and store their clusters.

        The questions of a cluster are adjacent. Clusters are in the order of their first questions.
        """
        order = np.argsort(codes_of(clusters, len(items)), kind="stable")
        self.clusters = [clusters[at] for at in order]
        self.race.largest = max(Counter(clusters).values(), default=1)
        return [items[at] for at in order]

    def exit_line(self, exit_row: Elimination) -> str:
        """Describe in a line who leaves and why."""
        name = self.programs[exit_row.program]
        line = f"{name} is out after {exit_row.questions} questions: {exit_row.reason}"
        if exit_row.winner is not None:
            line += f", against {self.programs[exit_row.winner]}"
        return line

    def running(self) -> list[str]:
        """Return the active programs."""
        return [self.programs[number] for number in self.race.running]

    def add_records(self, qids: Sequence[str], block: slice) -> list[Elimination]:
        """Add the records of the questions of `block`. Return the programs that they eliminate."""
        shape = (len(self.programs), len(qids))
        scores = np.full(shape, np.nan)
        seconds = np.full(shape, np.nan)
        for number in self.race.running:
            records = self.runs[self.programs[number]].records
            for column, qid in enumerate(qids):
                record = records[qid]
                score = self._score(record)
                scores[number, column] = (score - self._low) / (self._high - self._low)
                seconds[number, column] = record.latency_s
        self._asked += qids
        return self.race.look(scores, self._costs(), seconds, self.clusters[block])

    def _score(self, record: Record) -> float:
        score = self._measure.score(record)
        if score is None:
            return self._measure.worst
        return score

    def _costs(self) -> NDArray[np.float64]:
        """Return the costs of all questions so far, each with its share of the index.

        They are dollars if those of all programs that are in are known, else tokens. The shape is
        (programs, questions); NaN for programs that are out.
        """
        costs = np.full((len(self.programs), len(self._asked)), np.nan)
        for unit in ("cost_usd", "tokens"):
            for number in self.race.running:
                run = self.runs[self.programs[number]]
                of_question = run.records.column(get_metric(unit).score)
                prepared = getattr(run.prepared, unit)
                amounts = np.array([of_question[qid] for qid in self._asked], dtype=np.float64)
                share = np.nan if prepared is None else prepared / len(self._asked)
                costs[number] = amounts + share
            if not np.isnan(costs[self.race.running]).any():
                break
        return costs

    def choice(self, stopped: str) -> Choice:
        """Return the current result of the race."""
        running = [self.programs[number] for number in self.race.cheapest_first()]
        exits: list[dict[str, Any]] = []
        for exit_row in self.race.exits:
            winner = "" if exit_row.winner is None else self.programs[exit_row.winner]
            program = self.programs[exit_row.program]
            exits.append({**vars(exit_row), "program": program, "winner": winner})
        order = [*running, *(row["program"] for row in reversed(exits))]
        return Choice(
            runners=[self._runner(name) for name in order if self._is_answered(name)],
            running=running,
            exits=exits,
            questions=self.race.questions,
            stream=len(self.clusters),
            rule=self.race.rule,
            metric=self._measure.name,
            stopped_by=stopped,
        )

    def _is_answered(self, name: str) -> bool:
        return name in self.runs and bool(self.runs[name].records)

    def _runner(self, name: str) -> Runner:
        evaluation = self.runs[name]
        scores = []
        seconds = []
        tokens = evaluation.prepared.all_tokens
        usd = evaluation.prepared.cost_usd
        for record in evaluation.records.values():
            scores.append(self._score(record))
            seconds.append(record.latency_s)
            spent = record.ledger.as_if
            tokens += spent.tokens
            if usd is not None:
                usd = None if spent.cost_usd is None else usd + spent.cost_usd
        count = len(scores)
        return Runner(
            name=name,
            questions=count,
            score=sum(scores) / count,
            usd=None if usd is None else usd / count,
            tokens=tokens / count,
            p95_s=float(np.quantile(seconds, 0.95)),
            folder=evaluation.folder,
        )
