"""JSON data of the page: programs, one family of tests per metric, questions and traces.

Questions are sorted by id, so the data does not depend on the order of records.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare.family import Family, make_family
from ragbench.experiments.compare.paired import Shared
from ragbench.experiments.letters import letter_of
from ragbench.experiments.recommend import advise
from ragbench.experiments.report import tables
from ragbench.experiments.report.brief import refusals
from ragbench.experiments.report.names import in_common, lm_aliases, short_names
from ragbench.experiments.report.page.report_data import Json, ReportData, scores_of
from ragbench.experiments.report.page.texts import called, page_texts
from ragbench.experiments.report.rows import compared_rows, measured, row_of_arm
from ragbench.experiments.report.table import with_interval
from ragbench.experiments.runs.settings import lm_name
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import question_row
from ragbench.metrics import GROUPINGS, Comparison

#: Display names of metrics.
LABELS = {"f1": "F1", "em": "exact match"}
#: Number of questions whose traces the page unpacks at a time.
PIECE = 40


def page_data(board: ReportData, *, live: bool = False) -> Json:
    """Collect all that the page shows, except the traces of its questions.

    Args:
        board: Runs, programs and metrics of the page. Without a run, the page waits for one.
        live: True if the page is served and requests new records.

    Returns:
        JSON-ready data.
    """
    qids = board.qids
    columns = [run.records.column(question_row) for run in board.runs]
    cells: list[list[Any]] = [[] for _ in columns]
    questions = []
    for qid in qids:
        titles: set[str] = set()
        for column, of_run in zip(columns, cells, strict=True):
            row = column.get(qid)
            of_run.append(None if row is None else [row.answer, row.cause])
            if row is not None:
                titles.update(row.titles)
                question = {"question": row.question, "gold": row.gold, "type": row.type}
        questions.append({"qid": qid, **question, "titles": sorted(titles)})
    kinds = {}
    for name, kind in GROUPINGS.items():
        of_question: dict[str, Any] = {}
        for run in board.runs:
            of_question |= run.records.column(kind)
        kinds[name] = list(map(of_question.get, qids))
    programs = [_program(board, at) for at in range(len(board.programs))]
    _give_letters(programs, board)
    groups = [_group(board, places) for places in board.groups]
    scores: dict[str, list[Any]] = {}
    families: dict[str, list[Json]] = {}
    texts: dict[str, list[Json]] = {}
    for name in board.metrics:
        scores[name] = [list(map(scores_of(run, name).get, qids)) for run in board.runs]
        families[name] = []
        texts[name] = []
        for places, group in zip(board.groups, groups, strict=True):
            family = _family(board, name, places, programs)
            ranked = sorted((programs[at] for at in places), key=lambda program: program["rank"])
            families[name].append(family)
            texts[name].append(page_texts(ranked, family, name, board.artefacts, group["name"]))
    return {
        "live": live,
        "piece": PIECE,
        "metric": board.metric,
        "metrics": list(board.metrics),
        "labels": {name: LABELS.get(name, name) for name in board.metrics},
        "groups": groups,
        "programs": programs,
        "runs": _runs(board),
        "lms": _lms(board.runs),
        "questions": questions,
        "kinds": kinds,
        "cells": cells,
        "scores": scores,
        "families": families,
        "texts": texts,
        "artefacts": list(board.artefacts),
    }


def _give_letters(programs: Sequence[Json], board: ReportData) -> None:
    """Add letter, rank and short name to each program; A has the best score of a group."""
    short_labels = short_names([program["name"] for program in programs])
    # The table has the LM in a line of its own.
    names = [program["name"].replace(f", {program['model_short']}", "") for program in programs]
    for program, short, row in zip(programs, short_labels, short_names(names), strict=True):
        program |= {"short": short, "row": row}

    def rank_of(at: int) -> tuple[bool, float, float, int]:
        # Controls of a verdict are not candidates for use, so they come last.
        program = programs[at]
        mean = program["means"][board.metric][board.metric]
        cost = math.inf if program["cost_usd"] is None else program["cost_usd"]
        return program["control"], math.inf if mean is None else -round(mean, 9), cost, at

    for places in board.groups:
        for rank, at in enumerate(sorted(places, key=rank_of)):
            programs[at] |= {"key": letter_of(rank), "rank": rank}


def _group(board: ReportData, places: Sequence[int]) -> Json:
    """Describe the data that a group of programs shares."""
    if not places:
        return {"name": "", "about": [("b", "ragbench")]}
    runs: list[Evaluation] = []
    qids: set[str] = set()
    for place in places:
        runs += [board.runs[at] for at in board.programs[place].runs]
    for run in runs:
        qids.update(run.records)
    shared = in_common(runs, len(qids))
    name, _, details = shared.partition(",")
    return {"name": shared.partition(" · ")[0], "about": [("b", name), ("", f" ·{details}")]}


def _lms(runs: Sequence[Evaluation]) -> list[list[str]]:
    """Return the short name of each LM, and its full names with their addresses."""
    aliases = lm_aliases([run.card for run in runs])
    models: dict[str, dict[str, None]] = {}
    for run in runs:
        models.setdefault(aliases[lm_name(run.card.model)], {})[run.card.model] = None
    return [[alias, ", ".join(models_of_alias)] for alias, models_of_alias in models.items()]


def _runs(board: ReportData) -> list[Json]:
    rows = []
    for at, run in enumerate(board.runs):
        [place] = [n for n, program in enumerate(board.programs) if at in program.runs]
        program = board.programs[place]
        seed = f", {run.folder.name}" if len(program.runs) > 1 else ""
        card = run.card.model_dump(mode="json", exclude_defaults=True)
        row = {"name": program.name + seed, "program": place, "card": card}
        rows.append({**row, "folder": run.folder.as_posix()})
    return rows


def _program(board: ReportData, at: int) -> Json:
    """Return the row of a program; usage per question is the mean over its runs."""
    program = board.programs[at]
    runs = [board.runs[run] for run in program.runs]
    base = runs[0]
    right = [tables.without_gold(run.records) for run in runs]
    models = list(dict.fromkeys(run.card.model for run in runs))
    return {
        **row_of_arm(runs),
        "name": program.name,
        "runs": program.runs,
        "at": at,
        "group": program.group,
        "before": program.before,
        "compiled": bool(base.card.identity.get("compiled")),
        "control": bool(base.card.identity.get("form")),
        "model": ", ".join(models),
        "model_short": ", ".join(lm_name(model).rpartition("/")[2] for model in models),
        "folder": base.folder.as_posix(),
        "asked": base.card.questions or base.summary.n,
        "done": all(run.progress.complete for run in runs),
        "means": {name: _mean(runs, name) for name in board.metrics},
        "without_gold": sum(lacking for lacking, _ in right),
        "right": sum(n for _, n in right),
        "causes": _mean_causes(runs),
        "refused": refusals(base),
    }


def _mean_causes(runs: Sequence[Evaluation]) -> dict[str, float]:
    """Return the number of wrong answers by cause, a mean over the runs of a program."""
    causes: Counter[str] = Counter()
    for run in runs:
        for outcome in run.records.column(question_row).values():
            if outcome.cause:
                causes[outcome.cause] += 1
    return {cause: n / len(runs) for cause, n in sorted(causes.items())}


def _mean(runs: Sequence[Evaluation], metric: str) -> Json:
    """Return the mean over all questions of the runs, with its interval."""
    if len(runs) == 1:
        row = measured(runs[0].records, metric)
    else:
        row = with_interval(metric, *Shared.within(runs).mean(runs, metric))
    return {**row, "n": len(scores_of(runs[0], metric))}


def _family(
    board: ReportData, metric: str, places: Sequence[int], programs: Sequence[Json]
) -> Json:
    """Return the tests of a metric over the finished programs at `places`, and their advice.

    A run with a repaired answer format is excluded. It is a control of a verdict, which tests it.
    """
    arms = {}
    for at in places:
        arm = [board.runs[run] for run in board.programs[at].runs]
        control = arm[0].card.identity.get("form")
        if not control and all(run.progress.complete for run in arm):
            arms[at] = arm
    row: Json = {"baseline": None, "best": None, "pairs": {}, "n": 0, "tests": 0, "advice": None}
    if len(arms) < 2:
        return row
    labels = [called(programs[at]) for at in arms]
    keys = [programs[at]["key"] for at in arms]
    family: Family | None = None
    try:
        advice = advise(list(arms.values()), metric, labels=labels, keys=keys, common=True)
        family = advice.family
        row["advice"] = {"sentences": advice.sentences()}
    except (CompareError, ConfigError):  # Not a metric of accuracy.
        with suppress(CompareError):
            family = make_family(list(arms.values()), metric, common=True)
    if family is None:
        return row
    place_of = {id(arm[0]): at for at, arm in arms.items()}
    members = [place_of[id(member.runs[0])] for member in family.standings]
    for (a, b), comparison in family.comparisons.items():
        row["pairs"][f"{members[a]},{members[b]}"] = _pair(comparison)
    return {
        **row,
        "n": len(family.questions),
        "clusters": len(set(family.clusters.values())),
        "tests": family.tests,
        "best": members[family.best],
        "baseline": None if family.baseline is None else members[family.baseline],
    }


def _pair(comparison: Comparison) -> Json:
    """Return a test for the page: B minus A, both intervals, and the outcome for B."""
    [row] = compared_rows({}, {"": comparison})
    names = ("difference", "corrected_low", "corrected_high", "scope", "breakdown")
    pair = {name: row[name] for name in names}
    low, high = row["difference_low"], row["difference_high"]
    return {**pair, "low": low, "high": high, "word": row["outcome"]}


def pieces(run: Evaluation, qids: Sequence[str], only: int | None = None) -> Iterator[str]:
    """Yield the records of a run with their prompts and replies, `PIECE` questions at a time.

    Records are copied as stored JSON, because parsing them takes as long as the rest of the page.

    Args:
        run: The run.
        qids: Ids of all questions of the page.
        only: Number of a single piece. None: all pieces.

    Yields:
        A piece as JSON.
    """
    starts: Iterable[int] = range(0, len(qids), PIECE)
    if only is not None:
        starts = [only * PIECE]
    for start in starts:
        records = run.records.only(qids[start : start + PIECE])
        texts = json.dumps(run.run.texts(records.text_ids()))
        traces = ",".join(f"{json.dumps(qid)}:{trace}" for qid, trace in records.stored())
        yield f'{{"records":{{{traces}}},"texts":{texts}}}'
