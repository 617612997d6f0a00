"""`ragbench choose`: programs race over one stream of questions, each in a run of its own.

    cells/        a run folder for each program, as a sweep has them
    choose.json   who was out when and why, and what is advised

Questions that vary together, since they share a gold passage, follow each other in the stream. A
look comes after each block; who is in answers the next one. Everything is computed from the
records, so that the same command continues a race, and recorded runs can be raced again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from numpy.typing import NDArray

from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.choose.rule import Block, Exit, Race, Rule
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.context import RunContext, ready
from ragbench.experiments.runs.runner import run
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import locked, write_json
from ragbench.experiments.watch import SILENT, Watch
from ragbench.metrics import Metric, get_metric

FILE = "choose.json"
#: Questions between two looks. Looking costs nothing, so it is what a table of runs can show.
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
    """How a race ended.

    `runners` are all programs, those that are in first, the cheapest at the top; `exits` says of
    the others when and why they left. `questions` were asked of `stream` that there are.
    `stopped_by` is the limit that ended the race, blank where none did.
    """

    runners: Sequence[Runner]
    running: Sequence[str]
    exits: Sequence[tuple[str, Exit, str]]
    questions: int
    stream: int
    rule: Rule
    metric: str
    stopped_by: str = ""

    @property
    def decided(self) -> bool:
        """Whether one program is left."""
        return len(self.running) == 1

    @property
    def sentence(self) -> str:
        """The advice in one sentence."""
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
        """The questions asked of all programs, as a share of those of the full table."""
        questions = sum(runner.questions for runner in self.runners)
        return questions / (len(self.runners) * self.stream)

    def to_dict(self) -> dict[str, Any]:
        """The race as JSON."""
        exits = []
        for name, exit_row, winner in self.exits:
            exits.append({**vars(exit_row), "program": name, "winner": winner})
        runners = []
        for runner in self.runners:
            runners.append({**vars(runner), "folder": str(runner.folder)})
        race = {**vars(self), "rule": vars(self.rule), "exits": exits, "programs": runners}
        del race["runners"]
        return {"advice": self.sentence, "share": self.calls_share, **race}


def choose(
    configs: Mapping[str, RunConfig],
    folder: Path,
    *,
    rule: Rule,
    metric: str = "f1",
    watch: Watch = SILENT,
) -> Choice:
    """Races the programs of `configs`, by name, until it is decided, and writes `choose.json`.

    Each config asks the same questions with the same LM; its `out` is the folder of its run.

    Raises:
        ConfigError: fewer than two programs, or a metric whose scores have no range.
    """
    measure = _measure(metric, configs)
    contexts: dict[str, RunContext] = {}
    first_context: RunContext | None = None
    for name, config in configs.items():
        contexts[name] = ready(config, like=first_context)
        first_context = first_context or contexts[name]
    assert first_context is not None
    stream = in_clusters(first_context.examples)
    clusters = list(map(_cluster, stream))
    programs = list(configs)
    runs: dict[str, Evaluation] = {}
    stopped = ""
    with locked(folder):
        race = Race(len(programs), rule, largest=_largest(clusters))
        for block in blocks(clusters):
            if race.over:
                break
            for number in race.running:
                name = programs[number]
                block_context = replace(contexts[name], examples=stream[: block.stop])
                title = f"{name}, to question {block.stop}"
                runs[name] = run(block_context, watch=watch, title=title)
                stopped = runs[name].stopped_by or ""
                if stopped:
                    break
            if stopped:
                break
            qids = [str(example.qid) for example in stream[block]]
            _take_in(race, programs, runs, qids, clusters[block], measure)
            for exit_row in race.exits:
                if exit_row.questions == race.questions:
                    watch.say(_left_line(programs, exit_row))
        choice = _choice(race, programs, runs, len(stream), measure, stopped)
        write_json(folder / FILE, choice.to_dict())
    return choice


def replay(runs: Mapping[str, Evaluation], *, rule: Rule, metric: str = "f1") -> Choice:
    """The race that recorded `runs` of the same questions would have been; asks nothing.

    It ends where a program that is in has no record of a question; one that left needs no more.

    Raises:
        CompareError: the runs share no question.
    """
    measure = _measure(metric, runs)
    programs = list(runs)
    longest = max(runs.values(), key=lambda evaluation: len(evaluation.records))
    known_clusters = clusters_of(longest.records)
    by_cluster: dict[str, list[str]] = {}
    for qid in longest.records:
        by_cluster.setdefault(known_clusters.get(qid, qid), []).append(qid)
    qids: list[str] = []
    clusters: list[str] = []
    for cluster, members in by_cluster.items():
        qids += members
        clusters += [cluster] * len(members)
    race = Race(len(programs), rule, largest=_largest(clusters))
    for block in blocks(clusters):
        recorded = (runs[programs[number]].records.keys() for number in race.running)
        if race.over or not all(qids_recorded >= set(qids[block]) for qids_recorded in recorded):
            break
        _take_in(race, programs, runs, qids[block], clusters[block], measure)
    if not race.questions:
        raise CompareError("the runs share no block of questions, so that they cannot be raced")
    return _choice(race, programs, runs, len(qids), measure, "")


def in_clusters(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Returns `examples` with those of a cluster side by side, each where its first one stands."""
    by_cluster: dict[str, list[dspy.Example]] = {}
    for example in examples:
        by_cluster.setdefault(_cluster(example), []).append(example)
    return list(chain.from_iterable(by_cluster.values()))


def blocks(clusters: Sequence[Any], least: int = BLOCK) -> Iterator[slice]:
    """Yields places of `least` questions and more, none of which cuts a cluster."""
    start = 0
    while start < len(clusters):
        end = min(start + least, len(clusters))
        while end < len(clusters) and clusters[end] == clusters[end - 1]:
            end += 1
        yield slice(start, end)
        start = end


def _cluster(example: dspy.Example) -> str:
    return str(example.get("cluster") or example.qid)


def _largest(clusters: Sequence[Any]) -> int:
    return max(Counter(clusters).values())


def _measure(metric: str, programs: Mapping[str, object]) -> Metric:
    if len(programs) < 2:
        raise ConfigError("a race needs at least two programs; name more with --programs")
    measure = get_metric(metric)
    if measure.score_range is None or not measure.higher_is_better:
        raise ConfigError(f"{metric} has no range, or less of it is better; race by em or f1")
    return measure


def _take_in(
    race: Race,
    programs: Sequence[str],
    runs: Mapping[str, Evaluation],
    qids: Sequence[str],
    clusters: Sequence[str],
    measure: Metric,
) -> None:
    shape = (len(programs), len(qids))
    scores = np.full(shape, np.nan)
    seconds = np.full(shape, np.nan)
    assert measure.score_range is not None
    low, high = measure.score_range
    for number in race.running:
        records = runs[programs[number]].records
        for column, qid in enumerate(qids):
            record = records[qid]
            score = measure.score(record)
            if score is None:
                score = measure.worst
            scores[number, column] = (score - low) / (high - low)
            seconds[number, column] = record.latency_s
    race.look(Block(scores, _costs(race, programs, runs), seconds, clusters))


def _costs(
    race: Race, programs: Sequence[str], runs: Mapping[str, Evaluation]
) -> NDArray[np.float64]:
    """Returns the mean cost of a question of each program that is in, its index included.

    Dollars where those of all are known, else tokens, which are known of every call.
    """
    dollars = np.full(len(programs), np.nan)
    tokens = np.full(len(programs), np.nan)
    for number in race.running:
        run = runs[programs[number]]
        spent = run.summary.as_if + run.prepared
        tokens[number] = spent.tokens / run.summary.n
        if spent.cost_usd is not None:
            dollars[number] = spent.cost_usd / run.summary.n
    if np.isnan(dollars[race.running]).any():
        return tokens
    return dollars


def _choice(
    race: Race,
    programs: Sequence[str],
    runs: Mapping[str, Evaluation],
    stream: int,
    measure: Metric,
    stopped: str,
) -> Choice:
    running = [programs[number] for number in race.cheapest_first()]
    exits = []
    for exit_row in race.exits:
        winner = "" if exit_row.winner is None else programs[exit_row.winner]
        exits.append((programs[exit_row.program], exit_row, winner))
    order = [*running, *(name for name, _, _ in reversed(exits))]
    runners = []
    for name in order:
        if name in runs:
            runners.append(_runner(name, runs[name], measure))
    return Choice(
        runners=runners,
        running=running,
        exits=exits,
        questions=race.questions,
        stream=stream,
        rule=race.rule,
        metric=measure.name,
        stopped_by=stopped,
    )


def _runner(name: str, evaluation: Evaluation, measure: Metric) -> Runner:
    scores = []
    seconds = []
    tokens = evaluation.prepared.all_tokens
    usd = evaluation.prepared.cost_usd
    for record in evaluation.records.values():
        score = measure.score(record)
        scores.append(measure.worst if score is None else score)
        seconds.append(record.latency_s)
        spent = record.ledger.as_if
        tokens += spent.tokens
        if usd is None or spent.cost_usd is None:
            usd = None
        else:
            usd = usd + spent.cost_usd
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


def _left_line(programs: Sequence[str], exit_row: Exit) -> str:
    if exit_row.winner is None:
        against = ""
    else:
        against = f", against {programs[exit_row.winner]}"
    name = programs[exit_row.program]
    return f"{name} is out after {exit_row.questions} questions: {exit_row.reason}{against}"
