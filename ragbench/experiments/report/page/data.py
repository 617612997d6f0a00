"""What the page shows of runs, read once from their folders: JSON for the browser to draw.

Every question is taken in the order of its id, so that nothing depends on the order of records.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragbench.errors import CompareError, ConfigError, RunError
from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.compare.arms import clusters_of, compare_arms, gold_pids, shared_questions
from ragbench.experiments.recommend import advise
from ragbench.experiments.recommend.advice import SPENDING
from ragbench.experiments.report.comparison import compared
from ragbench.experiments.report.compiled import validated
from ragbench.experiments.report.tables import (
    EVIDENCE,
    label_runs,
    measured,
    row_of_run,
    settings_of,
    without_evidence,
)
from ragbench.experiments.runs import Evaluation, failed
from ragbench.experiments.store import (
    is_run,
    read_card,
    read_object,
    read_records,
    read_texts,
    runs_under,
)
from ragbench.logs import get
from ragbench.metrics import JUDGED, Method, cause_of, cluster_of, correct, get_metric
from ragbench.record import Record

Json = dict[str, Any]

#: Metrics that the page offers where a run has them.
METRICS = ("f1", "em", "recall", EVIDENCE, *JUDGED)
#: Questions of a run whose traces the page unpacks together.
PIECE = 40
#: With more runs than these, only some can be chosen as baseline.
BASELINES = 12
#: Settings in which a compiled program differs from what it was compiled from.
_OF_COMPILING = frozenset({"compiled", "compiled_files"})
#: What of a record its trace leaves out: the page has it elsewhere, or not at all.
_ELSEWHERE = frozenset({"question", "counts", "extra", "decomposition"})

_log = get(__name__)


@dataclass
class Shown:
    """One run of the page: what it is, and what it did with each question, by id."""

    name: str
    run: Evaluation
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    cells: dict[str, Json] = field(default_factory=dict)

    @property
    def settings(self) -> Json:
        """All that can change a record, but for what compiling made of it."""
        found = settings_of(self.run.card)
        return {name: value for name, value in found.items() if name not in _OF_COMPILING}

    @property
    def compiled(self) -> bool:
        """Whether the program was compiled."""
        return bool(self.run.card.identity.get("compiled"))


@dataclass
class Board:
    """The runs of a page, over the questions that any of them asked."""

    runs: Sequence[Shown]
    metrics: Sequence[str]
    metric: str
    artefacts: Sequence[Json] = ()

    @property
    def qids(self) -> list[str]:
        """The questions, in order."""
        return sorted({qid for run in self.runs for qid in run.cells})


def find_runs(paths: Sequence[Path]) -> tuple[list[Path], list[Json]]:
    """The run folders that `paths` are or hold, and the verdicts, sweeps and tunes among them.

    Raises:
        RunError: there is no run.
    """
    folders: dict[Path, None] = {}
    artefacts = []
    for path in paths:
        folders |= dict.fromkeys([path] if is_run(path) else runs_under(path))
        for kind in ("verdict", "sweep", "tune"):
            for file in sorted({*path.glob(f"{kind}.json"), *path.glob(f"*/{kind}.json")}):
                front = _front(file.parent) if kind == "tune" else []
                artefacts.append({**read_object(file), "kind": kind, "front": front,
                                  "folder": file.parent.as_posix()})  # fmt: skip
    if not folders:
        raise RunError(
            f"no run in {', '.join(map(str, paths))}: give folders of runs, verdicts, sweeps, tunes"
        )
    return list(folders), artefacts


def _front(folder: Path) -> list[Json]:
    """The programs on the front of a tune, from their sidecars."""
    rows = []
    for path in sorted((folder / "front").glob("*")):
        try:
            card = read_sidecar(path)
        except RunError as error:
            _log.warning("%s is left out: %s", path, error)
            continue
        rows.append({"name": path.name, **validated(card), "knobs": card.knobs})
    return rows


def make_board(paths: Sequence[Path], metric: str = "f1") -> Board:
    """The page of the runs in `paths`.

    Raises:
        RunError: there is no run, or none has `metric`.
        UnknownNameError: there is no such metric.
    """
    get_metric(metric)
    folders, artefacts = find_runs(paths)
    scores = {name: get_metric(name).score for name in dict.fromkeys([*METRICS, metric])}
    spending = [get_metric(name).score for name in SPENDING]
    opened = []
    for folder in folders:
        try:
            card, records = read_card(folder), read_records(folder)
        except RunError as error:
            _log.warning("%s is left out: %s", folder, error)
            continue
        if records:
            records.compute([*scores.values(), *spending, _cell, failed, cluster_of, gold_pids])
            opened.append(Evaluation.of(folder, card, records))
        else:
            _log.warning("%s is left out: it has no records", folder)
    if not opened:
        raise RunError(f"no run in {', '.join(map(str, paths))} has a record yet")
    runs = [Shown(name, run) for name, run in zip(label_runs(opened), opened, strict=True)]
    for shown in runs:
        shown.cells = shown.run.records.column(_cell)
        for name, score in scores.items():
            column = shown.run.records.column(score)
            shown.scores[name] = {qid: x for qid, x in column.items() if x is not None}
    known = [name for name in scores if any(shown.scores[name] for shown in runs)]
    if metric not in known:
        raise RunError(
            f"no run has {metric}; there are {', '.join(known)}; what a judge gives comes from "
            "`ragbench score`"
        )
    return Board(runs, known, metric, artefacts)


def _cell(record: Record) -> Json:
    """What the list of questions shows of a record, and its question."""
    cause = cause_of(record)
    return {
        "answer": None if record.failed else (record.answer or "")[:200],
        "cause": cause.name if cause else "",
        "titles": {passage.title or passage.pid for passage in record.passages},
        "question": {"question": record.question, "gold": record.answers[0], "type": record.qtype},
    }


def page_data(board: Board, *, title: str, live: bool = False) -> Json:
    """All that the page shows but for the traces of its questions."""
    runs, qids = board.runs, board.qids
    causes = sorted({cell["cause"] for run in runs for cell in run.cells.values()} - {""})
    number = {cause: at for at, cause in enumerate(causes)}
    baselines = _baselines(board)
    contrasts = {m: _contrasts(board, m, baselines) for m in board.metrics}
    return {
        "title": title,
        "live": live,
        "piece": PIECE,
        "about": _about(board, len(qids)),
        "metric": board.metric,
        "metrics": list(board.metrics),
        "baselines": baselines,
        "runs": [_run(board, at) for at in range(len(runs))],
        "causes": causes,
        "questions": [_question(board, qid) for qid in qids],
        "answers": [[run.cells.get(q, {}).get("answer") for q in qids] for run in runs],
        "asked": [[int(q in run.cells) for q in qids] for run in runs],
        "why": [[number.get(run.cells.get(q, {}).get("cause"), -1) for q in qids] for run in runs],
        "scores": {name: [[_short(run.scores[name].get(q)) for q in qids] for run in runs]
                   for name in board.metrics},
        "contrasts": contrasts,
        "advice": {name: advice(board, name, contrasts[name]) for name in board.metrics},
        "artefacts": list(board.artefacts),
    }  # fmt: skip


def _short(score: float | None) -> float | int | None:
    """A score of one question, four decimals, as few characters as can be."""
    if score is None:
        return None
    return int(score) if score == int(score) else round(score, 4)


def _question(board: Board, qid: str) -> Json:
    cells = [run.cells[qid] for run in board.runs if qid in run.cells]
    titles = sorted(set().union(*(cell["titles"] for cell in cells)))
    return {**cells[0]["question"], "qid": qid, "titles": titles}


def _about(board: Board, questions: int) -> str:
    """What the runs have in common: data, number of questions, LM and retriever."""
    cards = [run.run.card for run in board.runs]
    parts = [
        {card.data.name for card in cards},
        {f"{questions:,} questions"},
        {card.model for card in cards},
        {str(card.identity.get("retriever", "")) for card in cards},
    ]
    return " · ".join(next(iter(part)) for part in parts if len(part) == 1 and any(part))


def _run(board: Board, at: int) -> Json:
    shown = board.runs[at]
    run, card = shown.run, shown.run.card
    without, right = without_evidence(run.records)
    return {
        **row_of_run(run),
        "name": shown.name,
        "folder": run.folder.as_posix(),
        "program": card.program,
        "before": _before(board, at),
        "asked": card.questions or run.summary.n,
        "done": run.progress.complete,
        "means": {name: measured(run.records, name) | {"n": len(shown.scores[name])}
                  for name in board.metrics if shown.scores[name]},
        "without_evidence": without,
        "right": right,
        "billed_usd": run.summary.billed.cost_usd,
        "causes": Counter(c["cause"] for c in shown.cells.values() if c["cause"]),
        "settings": {k: v for k, v in shown.settings.items() if isinstance(v, int | float | str)},
        "card": list(card_rows(card.model_dump(mode="json"))),
    }  # fmt: skip


def card_rows(card: Json, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The run card as pairs of a dotted name and a text, nested parts flattened."""
    for name, value in card.items():
        if isinstance(value, dict):
            yield from card_rows(value, f"{prefix}{name}.")
        elif value not in (None, "", [], {}):
            yield f"{prefix}{name}", str(value)[:2000]


def _before(board: Board, at: int) -> int | None:
    """The run of the same settings, data and LM that was not compiled, for a compiled one."""
    mine = board.runs[at]
    for number, other in enumerate(board.runs if mine.compiled else ()):
        same_data = other.run.card.data.digest == mine.run.card.data.digest
        if same_data and not other.compiled and other.settings == mine.settings:
            return number
    return None


def _baselines(board: Board) -> list[int]:
    """The runs that others may be set against: vanilla first, compiled programs last."""
    numbers = sorted(
        range(len(board.runs)),
        key=lambda at: (board.runs[at].compiled, board.runs[at].run.card.program != "vanilla", at),
    )
    means = [measured(shown.run.records, board.metric)[board.metric] for shown in board.runs]
    best = max(numbers, key=lambda at: -math.inf if (mean := means[at]) is None else mean)
    befores = [b for at in numbers if (b := _before(board, at)) is not None]
    kept = numbers if len(numbers) <= BASELINES else [*numbers[:BASELINES], best, *befores]
    return list(dict.fromkeys(kept))


def _contrasts(board: Board, metric: str, baselines: Sequence[int]) -> dict[int, dict[int, Json]]:
    """Baseline -> run -> the paired difference from it; p-values by Holm over the baseline's runs.

    Runs over other data, of other judges, or that share no question with the metric, have none.
    """
    shown: dict[int, dict[int, Json]] = {}
    for a in baselines:
        family, left = {}, board.runs[a].run
        for b, other in enumerate(board.runs):
            with suppress(CompareError):
                if a != b:
                    qids = sorted(shared_questions(left, other.run, common=True))
                    method = Method(clusters=clusters_of(left.records.only(qids)))
                    family[b] = compare_arms([left], [other.run], metric, qids, method)
        corrected = correct(list(family.values()))
        shown[a] = {b: compared(c) for b, c in zip(family, corrected, strict=True)}
    return shown


def advice(board: Board, metric: str, contrasts: dict[int, dict[int, Json]]) -> Json:
    """What `recommend` says of the finished runs; empty where it cannot choose.

    A compiled program counts where it is shown better than what it was compiled from.
    """
    some = []
    for at, shown in enumerate(board.runs):
        before = _before(board, at)
        gain = None if before is None else contrasts.get(before, {}).get(at)
        if shown.run.progress.complete and (gain is None or gain["verdict"].startswith("better")):
            some.append(at)
    names = [board.runs[at].name for at in some]
    try:
        found = advise([board.runs[at].run for at in some], metric, labels=names, common=True)
    except (CompareError, ConfigError):  # one run, other data, or no measure of accuracy
        return {}
    use, best = (some[names.index(arm.label)] for arm in (found.use, found.best))
    return {"use": use, "best": best, "sentences": found.sentences()}


def pieces(shown: Shown, qids: Sequence[str], only: int | None = None) -> Iterator[Json]:
    """The records of a run with the prompts and replies of their calls, `PIECE` questions each.

    `only` is the number of the one piece that is wanted.
    """
    starts = range(0, len(qids), PIECE)
    if only is not None:
        qids, starts = qids[only * PIECE : (only + 1) * PIECE], range(1)
    asked = (shown.run.records[qid] for qid in qids if qid in shown.cells)
    texts = read_texts(shown.run.folder, asked)
    for start in starts:
        yield _piece(shown, qids[start : start + PIECE], texts)


def _piece(shown: Shown, qids: Sequence[str], texts: Mapping[str, str]) -> Json:
    traces: Json = {}
    used: Json = {}
    for qid in qids:
        if qid in shown.cells:
            record = shown.run.records[qid]
            traces[qid] = {k: v for k, v in record.to_dict().items() if k not in _ELSEWHERE}
            for call in record.ledger.calls:
                used |= {name: texts[name] for name in (*call.prompt, call.reply) if name in texts}
    return {"records": traces, "texts": used}
