"""The JSON that the browser draws: programs, one family of tests a metric, questions, traces.

Every question is taken in the order of its id, so that nothing depends on the order of records.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare.family import Family, Standing, make_family
from ragbench.experiments.compare.paired import compare_arms, mean_of_arm, shared_questions
from ragbench.experiments.recommend import Advice, advise
from ragbench.experiments.report import tables
from ragbench.experiments.report.comparison import compared
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
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.settings import lm_name, plain_settings
from ragbench.experiments.runs.summary import Evaluation
from ragbench.metrics import GROUPINGS, Comparison, Method, correct

#: Questions of a run whose traces the page unpacks together.
PIECE = 40


def page_data(board: Board, *, title: str, live: bool = False) -> Json:
    """All that the page shows but for the traces of its questions."""
    qids = board.qids
    cells = [run.records.column(cell) for run in board.runs]
    names_of_causes: set[str] = set()
    for column in cells:
        names_of_causes.update(outcome.cause for outcome in column.values())
    causes = sorted(names_of_causes - {""})
    number = {cause: at for at, cause in enumerate(causes)}
    questions = []
    answers: list[list[Any]] = [[] for _ in cells]
    recorded: list[list[int]] = [[] for _ in cells]
    why: list[list[int]] = [[] for _ in cells]
    for qid in qids:
        titles = set[str]()
        question: Json = {}
        for at, column in enumerate(cells):
            outcome = column.get(qid)
            recorded[at].append(int(outcome is not None))
            if outcome is None:
                answers[at].append(None)
                why[at].append(-1)
                continue
            answers[at].append(outcome.answer)
            why[at].append(number.get(outcome.cause, -1))
            titles.update(outcome.titles)
            if not question:
                question = {"question": outcome.question, "gold": outcome.gold,
                            "type": outcome.type}  # fmt: skip
        questions.append({**question, "qid": qid, "titles": sorted(titles)})
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
        "causes": causes,
        "questions": questions,
        "answers": answers,
        "asked": recorded,
        "why": why,
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
    without = 0
    right = 0
    for run in runs:
        lacking, correct_answers = tables.without_evidence(run.records)
        without += lacking
        right += correct_answers
    causes: Counter[str] = Counter()
    for run in runs:
        causes.update(outcome.cause for outcome in run.records.column(cell).values())
    del causes[""]
    settings = plain_settings(base.card)
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
        "by": _by_group(base, board.metrics),
        "without_evidence": without,
        "right": right,
        "billed_usd": _billed(runs),
        "causes": dict(causes),
        "settings": {k: v for k, v in settings.items() if isinstance(v, int | float | str)},
    }  # fmt: skip


def _mean(runs: Sequence[Evaluation], metric: str) -> Json:
    """The mean of all questions of the runs, with its interval."""
    if len(runs) == 1:
        row = tables.measured(runs[0].records, metric)
    else:
        qids = sorted(set(runs[0].records).intersection(*(run.records for run in runs[1:])))
        clusters = clusters_of(runs[0].records.only(qids))
        mean, ends = mean_of_arm(runs, metric, qids, clusters) or (None, None)
        row = with_interval(metric, mean, ends)
    return {**row, "n": len(scores_of(runs[0], metric))}


def _billed(runs: Sequence[Evaluation]) -> float | None:
    paid = [run.summary.billed.cost_usd for run in runs]
    amounts = []
    for usd in paid:
        if usd is not None:
            amounts.append(usd)
    if len(amounts) == len(paid):
        return sum(amounts)
    return None


def _by_group(run: Evaluation, metrics: Sequence[str]) -> list[Json]:
    """Mean and n of each kind of question, by hops and type."""
    rows = []
    for name, column in GROUPINGS.items():
        members: dict[str, list[str]] = {}
        for qid, key in run.records.column(column).items():
            if key is not None:
                members.setdefault(str(key), []).append(qid)
        for key in sorted(members) if len(members) > 1 else ():
            row: Json = {"by": name, "group": key, "n": len(members[key])}
            for metric in metrics:
                scores = scores_of(run, metric)
                values = [scores[qid] for qid in members[key] if qid in scores]
                row[metric] = fmean(values) if values else None
            rows.append(row)
    return rows


def _family(board: Board, metric: str, places: Sequence[int]) -> Json:
    """The tests of a metric over the finished programs at `places`, and what they advise.

    Runs whose answer's form was repaired are controls of a verdict, which has their tests.
    """
    finished = []
    for at in places:
        arm = [board.runs[run] for run in board.programs[at].runs]
        control = arm[0].card.identity.get("form")
        if not control and all(run.progress.complete for run in arm):
            finished.append(at)
    arms = {}
    for at in finished:
        arms[at] = [board.runs[run] for run in board.programs[at].runs]
    labels = [board.programs[at].name for at in finished]
    family_json: Json = {"baseline": None, "best": None, "standings": {}, "n": 0, "tests": 0}
    place_of = {id(arm[0]): at for at, arm in arms.items()}
    family: Family | None = None
    try:
        advice = advise(list(arms.values()), metric, labels=labels, common=True)
        family = advice.family
        family_json["advice"] = _advice(advice, place_of)
    except (CompareError, ConfigError):  # one program, or no measure of accuracy
        family = _without_advice(list(arms.values()), metric)
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
            alone = _alone(family, arms[before], arm, metric)
            if alone is not None:
                family_json["standings"].setdefault(at, {})["before"] = compared(alone)
    return family_json


def _without_advice(arms: Sequence[Sequence[Evaluation]], metric: str) -> Family | None:
    if len(arms) < 2:
        return None
    try:
        return make_family(arms, metric, common=True)
    except CompareError:
        return None


def _alone(
    family: Family | None, before: Sequence[Evaluation], after: Sequence[Evaluation], metric: str
) -> Comparison | None:
    """A compiled program against what it was compiled from, where the family has not both."""
    try:
        qids = sorted(shared_questions(before[0], after[0], common=True))
        method = Method(clusters=clusters_of(before[0].records.only(qids)))
        comparison = compare_arms(before, after, metric, qids, method)
    except CompareError:
        return None
    if family is None:
        return correct([comparison])[0]
    return family.beside([comparison])[0]


def _standing(standing: Standing, metric: str) -> Json:
    cell: Json = with_interval(metric, standing.mean, standing.interval)
    for name in ("best", "baseline", "before"):
        comparison = getattr(standing, f"to_{name}")
        cell[name] = compared(comparison) if comparison else None
    return cell


def _advice(advice: Advice, place_of: dict[int, int]) -> Json:
    """What `recommend` says, with the places of the programs that it speaks of."""
    use = advice.use
    rival = advice.rival
    return {
        "use": None if use is None else place_of[id(use.run)],
        "best": place_of[id(advice.best.run)],
        "rival": None if rival is None else place_of[id(rival.run)],
        "sentences": advice.sentences(),
        "why": {place_of[id(arm.run)]: arm.why for arm in advice.arms},
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
        names: set[str] = set()
        for names_of_record in records.column(names_of_texts).values():
            names.update(names_of_record)
        texts = json.dumps(run.run.texts(sorted(names)))
        traces = ",".join(f"{json.dumps(qid)}:{trace}" for qid, trace in records.stored())
        yield f'{{"records":{{{traces}}},"texts":{texts}}}'
