"""The JSON that the browser draws: programs, one family of tests a metric, questions, traces.

Every question is taken in the order of its id, so that nothing depends on the order of records.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare.against import compare_all
from ragbench.experiments.compare.family import Family, Standing, make_family
from ragbench.experiments.compare.paired import Shared
from ragbench.experiments.recommend import Advice, Arm, advise
from ragbench.experiments.report import tables
from ragbench.experiments.report.comparison import compared
from ragbench.experiments.report.means import measured
from ragbench.experiments.report.names import in_common, lm_aliases
from ragbench.experiments.report.page.board import (
    Board,
    Json,
    Program,
    cell,
    names_of_texts,
    scores_of,
)
from ragbench.experiments.report.table import with_interval
from ragbench.experiments.runs.settings import lm_name, plain_settings
from ragbench.experiments.runs.summary import Evaluation
from ragbench.metrics import GROUPINGS

#: Questions of a run whose traces the page unpacks together.
PIECE = 40


def page_data(board: Board, *, title: str, live: bool = False) -> Json:
    """All that the page shows but for the traces of its questions."""
    qids = board.qids
    columns = [run.records.column(cell) for run in board.runs]
    cells = []
    for column in columns:
        rows = []
        for qid in qids:
            outcome = column.get(qid)
            rows.append(None if outcome is None else [outcome.answer, outcome.cause])
        cells.append(rows)
    questions = []
    for qid in qids:
        outcomes = [column[qid] for column in columns if qid in column]
        titles = sorted(set[str]().union(*(outcome.titles for outcome in outcomes)))
        outcome = outcomes[0]
        questions.append({"qid": qid, "question": outcome.question, "gold": outcome.gold,
                          "type": outcome.type, "titles": titles})  # fmt: skip
    kinds = {}
    for name, kind in GROUPINGS.items():
        of_question: dict[str, Any] = {}
        for run in board.runs:
            of_question |= run.records.column(kind)
        kinds[name] = list(map(of_question.get, qids))
    scores = {}
    for name in board.metrics:
        scores[name] = [list(map(scores_of(run, name).get, qids)) for run in board.runs]
    groups = []
    for places in board.groups:
        runs: list[Evaluation] = []
        qids_of_group: set[str] = set()
        for place in places:
            runs += [board.runs[at] for at in board.programs[place].runs]
        for run in runs:
            qids_of_group.update(run.records)
        groups.append({"about": in_common(runs, len(qids_of_group))})
    families = {}
    for name in board.metrics:
        families[name] = [_family(board, name, places) for places in board.groups]
    return {
        "title": title,
        "live": live,
        "piece": PIECE,
        "metric": board.metric,
        "metrics": list(board.metrics),
        "groups": groups,
        "programs": [_program(board, program) for program in board.programs],
        "runs": [_run(board, at) for at in range(len(board.runs))],
        "lms": _lms(board.runs),
        "questions": questions,
        "kinds": kinds,
        "cells": cells,
        "scores": scores,
        "families": families,
        "artefacts": list(board.artefacts),
    }  # fmt: skip


def _lms(runs: Sequence[Evaluation]) -> list[list[str]]:
    """The short name of each LM, and its whole names with the addresses that it was asked at."""
    aliases = lm_aliases([run.card for run in runs])
    models: dict[str, dict[str, None]] = {}
    for run in runs:
        models.setdefault(aliases[lm_name(run.card.model)], {})[run.card.model] = None
    return [[alias, ", ".join(models_of_alias)] for alias, models_of_alias in models.items()]


def _run(board: Board, at: int) -> Json:
    run = board.runs[at]
    [place] = [n for n, program in enumerate(board.programs) if at in program.runs]
    program = board.programs[place]
    seed = f", {run.folder.name}" if len(program.runs) > 1 else ""
    return {
        "name": program.name + seed,
        "program": place,
        "folder": run.folder.as_posix(),
        "card": run.card.model_dump(mode="json", exclude_defaults=True),
    }


def _program(board: Board, program: Program) -> Json:
    """The row of a program; what a question takes is the mean over its runs."""
    runs = [board.runs[at] for at in program.runs]
    base = runs[0]
    rows = list(map(tables.row_of_run, runs))
    row: Json = {}
    for name in rows[0]:
        values = [figures[name] for figures in rows]
        row[name] = None if None in values else fmean(values)
    evidence = [tables.without_evidence(run.records) for run in runs]
    settings = plain_settings(base.card)
    billed = [run.summary.billed.cost_usd for run in runs]
    return {
        **row,
        "n": rows[0]["n"],
        "failed": sum(figures["failed"] for figures in rows),
        "name": program.name,
        "runs": program.runs,
        "group": program.group,
        "before": program.before,
        "system": base.card.system,
        "compiled": bool(base.card.identity.get("compiled")),
        "model": ", ".join(dict.fromkeys(run.card.model for run in runs)),
        "folder": base.folder.as_posix(),
        "asked": base.card.questions or base.summary.n,
        "done": all(run.progress.complete for run in runs),
        "means": {name: _mean(runs, name) for name in board.metrics},
        "without_evidence": sum(lacking for lacking, _ in evidence),
        "right": sum(right for _, right in evidence),
        "billed_usd": None if None in billed else sum(filter(None, billed)),
        "settings": {k: v for k, v in settings.items() if isinstance(v, int | float | str)},
    }  # fmt: skip


def _mean(runs: Sequence[Evaluation], metric: str) -> Json:
    """The mean of all questions of the runs, with its interval."""
    if len(runs) == 1:
        row = measured(runs[0].records, metric)
    else:
        row = with_interval(metric, *Shared.within(runs).mean(runs, metric))
    return {**row, "n": len(scores_of(runs[0], metric))}


def _family(board: Board, metric: str, places: Sequence[int]) -> Json:
    """The tests of a metric over the finished programs at `places`, and what they advise.

    Runs whose answer's form was repaired are controls of a verdict, which has their tests.
    """
    arms = {}
    for at in places:
        arm = [board.runs[run] for run in board.programs[at].runs]
        control = arm[0].card.identity.get("form")
        if not control and all(run.progress.complete for run in arm):
            arms[at] = arm
    labels = [board.programs[at].name for at in arms]
    family_json: Json = {"baseline": None, "best": None, "standings": {}, "n": 0, "tests": 0}
    place_of = {id(arm[0]): at for at, arm in arms.items()}
    family: Family | None = None
    try:
        advice = advise(list(arms.values()), metric, labels=labels, common=True)
        family = advice.family
        family_json["advice"] = _advice(advice, place_of)
    except (CompareError, ConfigError):  # one program, or no measure of accuracy
        if len(arms) > 1:
            with suppress(CompareError):
                family = make_family(list(arms.values()), metric, common=True)
    if family is not None:
        places_of_family = [place_of[id(member.runs[0])] for member in family.standings]
        baseline = family.baseline
        for at, standing in zip(places_of_family, family.standings, strict=True):
            family_json["standings"][at] = _standing(standing, metric)
        family_json["n"] = len(family.questions)
        family_json["clusters"] = len(set(family.clusters.values()))
        family_json["tests"] = family.tests
        family_json["best"] = places_of_family[family.best]
        family_json["baseline"] = None if baseline is None else places_of_family[baseline]
    for at, arm in arms.items():
        before = board.programs[at].before
        standing = family_json["standings"].get(at, {})
        if before in arms and not standing.get("before"):
            with suppress(CompareError):
                alone = compare_all([arms[before], arm], metrics=[metric], common=True)[0]
                standing["before"] = compared(alone.scores[metric])
                family_json["standings"][at] = standing
    return family_json


def _standing(standing: Standing, metric: str) -> Json:
    cell: Json = with_interval(metric, standing.mean, standing.interval)
    for name in ("best", "baseline", "before"):
        comparison = getattr(standing, f"to_{name}")
        cell[name] = compared(comparison) if comparison else None
    return cell


def _advice(advice: Advice, place_of: dict[int, int]) -> Json:
    """What `recommend` says, with the places of the programs that it speaks of."""

    def place(arm: Arm | None) -> int | None:
        return place_of[id(arm.runs[0])] if arm else None

    return {
        "use": place(advice.use),
        "best": place(advice.best),
        "rival": place(advice.rival),
        "sentences": advice.sentences(),
        "why": {place(arm): arm.why for arm in advice.arms},
    }


def pieces(run: Evaluation, qids: Sequence[str], only: int | None = None) -> Iterator[str]:
    """The records of a run with the prompts and replies of their calls, `PIECE` questions each.

    A piece is JSON. The records in it stand as they are kept: to parse them again takes as long as
    all that the page says of them.

    `only` is the number of the one piece that is wanted.
    """
    starts: Iterable[int] = range(0, len(qids), PIECE)
    if only is not None:
        starts = [only * PIECE]
    for start in starts:
        records = run.records.only(qids[start : start + PIECE])
        digests: set[str] = set()
        for names_of_record in records.column(names_of_texts).values():
            digests.update(names_of_record)
        texts = json.dumps(run.run.texts(sorted(digests)))
        traces = ",".join(f"{json.dumps(qid)}:{trace}" for qid, trace in records.stored())
        yield f'{{"records":{{{traces}}},"texts":{texts}}}'
