"""Choices: programs race over the same questions, and a rule drops some after each block.

Questions that vary together follow each other in the stream. Everything is computed from the
records, so the same command continues a race, and recorded runs can be raced again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from ragbench.data import find_clusters
from ragbench.errors import CompareError, ConfigError, StoppedError
from ragbench.experiments.cells.cell import Cell, Outcome
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.choose.racing import Elimination, Floats, Race, Rule
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import GOLD_IN_CONTEXT, Evaluation
from ragbench.metrics import get_metric
from ragbench.metrics.stats.estimates import codes_of

T = TypeVar("T")
#: Minimum number of questions in a block. The rule is applied after each block.
BLOCK = 20


@dataclass(frozen=True)
class Choice:
    """Result of a race.

    `programs` has a row for each program with answers: first the active ones, cheapest first, then
    the eliminated ones. Their costs are means of a question, with the index. `exits` has a row for
    each eliminated program. `questions` were run, of the `stream` available ones. `stopped_by` is
    the limit that ended the race, or "".
    """

    programs: Sequence[Mapping[str, Any]]
    running: Sequence[str]
    exits: Sequence[Mapping[str, Any]]
    questions: int
    stream: int
    rule: Rule
    metric: str
    stopped_by: str = ""

    @property
    def sentence(self) -> str:
        """Advice in one sentence."""
        if not self.programs:
            return f"undecided: no program has an answer yet ({self.stopped_by})"
        if not self.running:
            return "none: every program is significantly slower than it may be"
        first = self.programs[0]
        score = f"{self.metric} {first['score']:.3f}"
        if first["gold_in_context"] is not None:
            score += f" with gold in context {first['gold_in_context']:.3f}"
        if len(self.running) == 1:
            share = f"{self.calls_share:.0%} of the questions of the full table"
            return f"use {first['name']}: {score}, decided with {share}"
        programs = ", ".join(self.running)
        ended = self.stopped_by or f"all {self.questions} questions were asked"
        return (
            f"undecided between {programs} ({ended}); {first['name']} is the cheapest of them, at "
            f"{score}"
        )

    @property
    def calls_share(self) -> float:
        """Number of questions run by all programs, as a share of the full table."""
        questions = sum(row["questions"] for row in self.programs)
        return float(questions / max(1, len(self.programs) * self.stream))

    def to_dict(self) -> dict[str, Any]:
        """Return the race as JSON."""
        race = {**vars(self), "rule": vars(self.rule)}
        return {"advice": self.sentence, "share": self.calls_share, **race}


def choose(
    cells: Sequence[Cell],
    folder: Path,
    *,
    rule: Rule,
    metric: str = "f1",
    watch: ProgressListener = SILENT,
) -> Choice:
    """Race programs until the choice is decided, and write `experiment.json`.

    Args:
        cells: The programs. All have the same questions and the same LM.
        folder: Folder of the experiment.
        rule: Rule that eliminates programs.
        metric: Metric to compare.
        watch: The receiver of progress.

    Raises:
        ConfigError: There are fewer than two programs, or the scores of the metric have no range.
    """
    programs = {cell.label: cell for cell in cells}
    field = Field(programs, rule, metric)
    scheduler = Scheduler(folder, "choose", watch)
    scheduler.outcomes = {cell.folder: Outcome(cell) for cell in cells}
    examples = scheduler.build(cells[0]).examples
    stream = field.start(examples, find_clusters(examples))
    with scheduler.working():
        try:
            for block in blocks(field.clusters):
                for name in field.running():
                    title = f"{name}, to question {block.stop}"
                    outcome = scheduler.run(programs[name], title, stream[: block.stop])
                    if outcome.run and outcome.run.records:
                        field.runs[name] = outcome.run
                    outcome.finished()
                qids = [str(example.qid) for example in stream[block]]
                for exit_row in field.add_records(qids, block):
                    watch.say(field.exit_line(exit_row))
                if field.race.over:
                    break
        except StoppedError:
            pass
        outcomes = scheduler.outcomes.values()
        stopped = next((o.reason for o in outcomes if o.state == "stopped"), "")
        choice = field.choice(stopped)
        scheduler.write(choice.to_dict(), stopped or None)
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
    """Yield slices of questions that do not split a cluster.

    Args:
        clusters: Cluster of each question. Questions of a cluster are adjacent.
        least: Minimum number of questions of a slice. The last slice may have fewer.
    """
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
        self._metric = get_metric(metric)
        if len(self.programs) < 2:
            raise ConfigError("a race needs at least two programs; name more with --programs")
        if self._metric.score_range is None or not self._metric.higher_is_better:
            raise ConfigError(f"{metric} has no range, or less of it is better; race by em or f1")
        self._low, self._high = self._metric.score_range
        self.race = Race(len(self.programs), rule)
        self._asked: list[str] = []

    def start(self, items: Sequence[T], clusters: Sequence[Hashable]) -> list[T]:
        """Return the questions in the order of the race, and store their clusters.

        The questions of a cluster are adjacent. Clusters are in the order of their first questions.

        Args:
            items: Questions.
            clusters: Cluster of each question.
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
        """Add the records of a block of questions. Return the programs that they eliminate.

        Args:
            qids: Ids of the questions of the block.
            block: Positions of these questions in the order of the race.
        """
        self._asked += qids
        scores = (self._columns(self._metric.name, qids) - self._low) / (self._high - self._low)
        seconds = self._columns("latency_s", qids)
        return self.race.look(scores, self._costs(), seconds, self.clusters[block])

    def _columns(self, name: str, qids: Sequence[str]) -> Floats:
        """Return a metric of the active programs, shape (programs, questions), NaN elsewhere."""
        values = np.full((len(self.programs), len(qids)), np.nan)
        for number in self.race.running:
            column = self.runs[self.programs[number]].records.column(get_metric(name).score)
            values[number] = [column[qid] for qid in qids]
            if name == self._metric.name:  # A missing score is the worst.
                values[number, np.isnan(values[number])] = self._metric.worst
        return values

    def _costs(self) -> Floats:
        """Return the costs of all questions so far, each with its share of the index.

        They are dollars if those of all programs that are in are known, else tokens. The shape is
        (programs, questions); NaN for programs that are out.
        """
        costs = np.empty((0, 0))
        for unit in ("cost_usd", "tokens"):
            costs = self._columns(unit, self._asked)
            for number in self.race.running:
                prepared = getattr(self.runs[self.programs[number]].prepared, unit)
                costs[number] += np.nan if prepared is None else prepared / len(self._asked)
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
            programs=[self._row(name) for name in order if name in self.runs],
            running=running,
            exits=exits,
            questions=self.race.questions,
            stream=len(self.clusters),
            rule=self.race.rule,
            metric=self._metric.name,
            stopped_by=stopped,
        )

    def _row(self, name: str) -> dict[str, Any]:
        """Return the means of a program over all of its records."""
        run = self.runs[name]
        scores = run.records.column(self._metric.score).values()
        gold = run.records.column(get_metric(GOLD_IN_CONTEXT).score).values()
        known = [value for value in gold if value is not None]
        seconds = np.array([record.latency_s for record in run.records.values()])
        as_if = run.summary.as_if
        usd = None
        if as_if.cost_usd is not None and run.prepared.cost_usd is not None:
            usd = (as_if.cost_usd + run.prepared.cost_usd) / len(scores)
        return {
            "name": name,
            "questions": len(scores),
            "score": fmean(self._metric.worst if x is None else x for x in scores),
            "gold_in_context": fmean(known) if known else None,
            "usd": usd,
            "tokens": (as_if.tokens + run.prepared.all_tokens) / len(scores),
            "p95_s": float(np.quantile(seconds, 0.95)),
            "folder": str(run.folder),
        }
