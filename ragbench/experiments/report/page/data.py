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
from ragbench.experiments.report.names import in_common, lm_aliases, short_names
from ragbench.experiments.report.page.report_data import Json, Program, ReportData, scores_of
from ragbench.experiments.report.page.texts import called, empty_texts, page_texts
from ragbench.experiments.report.rows import measured, row_of_arm
from ragbench.experiments.report.table import with_interval
from ragbench.experiments.runs.settings import lm_name
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import question_row
from ragbench.metrics import GROUPINGS, Comparison
from ragbench.metrics.text import is_blank, is_refusal

#: Display names of metrics.
LABELS = {"f1": "F1", "em": "exact match"}
#: Number of questions whose traces the page unpacks at a time.
PIECE = 40


def page_data(board: ReportData, *, title: str, live: bool = False) -> Json:
    """Collect all that the page shows, except the traces of its questions.

    Args:
        board: Runs, programs and metrics of the page.
        title: Title of the browser tab if the page has no headline.
        live: True if the page is served and requests new records.

    Returns:
        JSON-ready data.
    """
    if not board.runs:
        return _empty_data(board, live)
    qids = board.qids
    columns = [run.records.column(question_row) for run in board.runs]
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
    programs = [_program(board, program) for program in board.programs]
    _give_letters(programs, board)
    groups = [_group(board, places) for places in board.groups]
    families = {}
    texts = {}
    for name in board.metrics:
        families[name] = [_family(board, name, places, programs) for places in board.groups]
        texts[name] = _texts(board, name, programs, groups, families[name])
    return {
        "title": title,
        "live": live,
        "piece": PIECE,
        "metric": board.metric,
        "metrics": list(board.metrics),
        "labels": {name: LABELS.get(name, name) for name in board.metrics},
        "groups": groups,
        "programs": programs,
        "runs": [_run(board, at) for at in range(len(board.runs))],
        "lms": _lms(board.runs),
        "questions": questions,
        "kinds": kinds,
        "cells": cells,
        "scores": scores,
        "families": families,
        "texts": texts,
        "artefacts": list(board.artefacts),
    }  # fmt: skip


def _empty_data(board: ReportData, live: bool) -> Json:
    """Return the data of a page that waits for its first record."""
    texts = empty_texts()
    group: Json = {"name": "", "about": [("b", "ragbench")]}
    family: Json = {"best": None, "baseline": None, "pairs": {}, "n": 0, "tests": 0}
    return {
        "title": texts["title"], "live": live, "piece": PIECE, "metric": board.metric,
        "metrics": [board.metric], "labels": {board.metric: board.metric}, "groups": [group],
        "programs": [], "runs": [], "lms": [], "questions": [], "kinds": {}, "cells": [],
        "scores": {board.metric: []}, "families": {board.metric: [family]},
        "texts": {board.metric: [texts]}, "artefacts": [],
    }  # fmt: skip


def _give_letters(programs: Sequence[Json], board: ReportData) -> None:
    """Add letter, rank and short name to each program; A has the best score of a group."""
    short_labels = short_names([program["name"] for program in programs])
    # The table has the LM in a line of its own.
    names = [program["name"].replace(f", {program['model_short']}", "") for program in programs]
    rows = short_names(names)
    for places in board.groups:
        order = []
        for at in places:
            # Controls of a verdict are not candidates for use, so they come last.
            program = programs[at]
            score = round(_mean_or_least(program, board.metric), 9)
            cost = math.inf if program["cost_usd"] is None else program["cost_usd"]
            order.append((program["control"], -score, cost, at))
        for rank, (*_, at) in enumerate(sorted(order)):
            programs[at] |= {
                "key": letter_of(rank),
                "rank": rank,
                "short": short_labels[at],
                "row": rows[at],
            }


def _mean_or_least(program: Json, metric: str) -> float:
    mean = program["means"][metric][metric]
    return -math.inf if mean is None else float(mean)


def _group(board: ReportData, places: Sequence[int]) -> Json:
    """Describe the data that a group of programs shares."""
    runs: list[Evaluation] = []
    qids: set[str] = set()
    for place in places:
        runs += [board.runs[at] for at in board.programs[place].runs]
    for run in runs:
        qids.update(run.records)
    shared = in_common(runs, len(qids))
    name, _, details = shared.partition(",")
    return {"name": shared.partition(" · ")[0], "about": [("b", name), ("", f" ·{details}")]}


def _texts(
    board: ReportData, metric: str, programs: Sequence[Json], groups: Sequence[Json],
    families: Sequence[Json],
) -> list[Json]:  # fmt: skip
    texts = []
    for places, group, family in zip(board.groups, groups, families, strict=True):
        rows = sorted((programs[at] for at in places), key=lambda program: program["rank"])
        subject = group["name"]
        texts.append(page_texts(rows, family, metric, board.artefacts, subject))
    return texts


def _lms(runs: Sequence[Evaluation]) -> list[list[str]]:
    """Return the short name of each LM, and its full names with their addresses."""
    aliases = lm_aliases([run.card for run in runs])
    models: dict[str, dict[str, None]] = {}
    for run in runs:
        models.setdefault(aliases[lm_name(run.card.model)], {})[run.card.model] = None
    return [[alias, ", ".join(models_of_alias)] for alias, models_of_alias in models.items()]


def _run(board: ReportData, at: int) -> Json:
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


def _program(board: ReportData, program: Program) -> Json:
    """Return the row of a program; usage per question is the mean over its runs."""
    runs = [board.runs[at] for at in program.runs]
    base = runs[0]
    right = [tables.without_gold(run.records) for run in runs]
    models = list(dict.fromkeys(run.card.model for run in runs))
    return {
        **row_of_arm(runs),
        "name": program.name,
        "runs": program.runs,
        "at": board.programs.index(program),
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
        "refused": _refused(base),
    }  # fmt: skip


def _refused(run: Evaluation) -> int:
    """Return the number of questions that the run refused to answer."""
    refused = 0
    for outcome in run.records.column(question_row).values():
        answer = outcome.answer
        refused += answer is not None and (is_blank(answer) or is_refusal(answer))
    return refused


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
    labels = [called(programs[at]) for at in arms]
    row: Json = {"baseline": None, "best": None, "pairs": {}, "n": 0, "tests": 0, "advice": None}
    family: Family | None = None
    try:
        keys = [programs[at]["key"] for at in arms]
        advice = advise(list(arms.values()), metric, labels=labels, keys=keys, common=True)
        family = advice.family
        row["advice"] = {"sentences": advice.sentences()}
    except (CompareError, ConfigError):  # A single program, or not a metric of accuracy.
        if len(arms) > 1:
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
    interval = comparison.interval
    corrected = comparison.corrected_interval
    return {
        "difference": comparison.difference,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "corrected_low": corrected.low if corrected else None,
        "corrected_high": corrected.high if corrected else None,
        "word": comparison.outcome,
        "scope": interval.scope if interval else "",
        "breakdown": comparison.breakdown,
    }


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
