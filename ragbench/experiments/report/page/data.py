"""What the page shows of runs, read once from their folders: JSON for the browser to draw.

Every question is taken in the order of its id, so that nothing depends on the order of records.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.errors import CompareError, ConfigError, RunError
from ragbench.experiments import store
from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.compare import paired
from ragbench.experiments.recommend import SPENDING, advise
from ragbench.experiments.report import tables
from ragbench.experiments.report.comparison import compared
from ragbench.experiments.report.sweep import validated
from ragbench.experiments.report.table import Column, Table, with_interval
from ragbench.experiments.runs.clusters import clusters_of
from ragbench.experiments.runs.summary import Evaluation
from ragbench.logs import get
from ragbench.metrics import JUDGED, Method, cause_of, correct, get_metric
from ragbench.record import Record

Json = dict[str, Any]

#: Metrics that the page offers where a run has them.
METRICS = ("f1", "em", "recall", tables.EVIDENCE, *JUDGED)
#: Questions of a run whose traces the page unpacks together.
PIECE = 40
#: With more runs than these, only some can be chosen as baseline.
BASELINES = 12
#: Settings in which a compiled program differs from what it was compiled from.
_OF_COMPILING = frozenset({"compiled", "compiled_files"})
#: What of a record its trace leaves out: the page has it elsewhere, or not at all.
_ELSEWHERE = frozenset({"question", "counts", "extra", "decomposition"})
#: The table of a verdict, a sweep or a tune.
_COLUMNS = (
    Column("name", "contrast or program"), Column("metric"), Column("n", kind="count"),
    Column("score", kind="score", interval=True),
    Column("difference", kind="gain", interval=True), Column("verdict", "verdict or knobs"),
)  # fmt: skip

_log = get(__name__)


@dataclass
class Board:
    """The runs of a page, what each is called, and the metrics that any of them has."""

    runs: Sequence[Evaluation]
    names: Sequence[str]
    metrics: Sequence[str]
    metric: str
    artefacts: Sequence[Json] = ()

    @property
    def qids(self) -> list[str]:
        return sorted({qid for run in self.runs for qid in run.records})


def find_runs(paths: Sequence[Path]) -> tuple[list[Path], list[Json]]:
    """The run folders that `paths` are or hold, and the verdicts, sweeps and tunes among them."""
    folders: dict[Path, None] = {}
    artefacts = []
    for path in paths:
        folders |= dict.fromkeys([path] if store.is_run(path) else store.runs_under(path))
        for kind in ("verdict", "sweep", "tune"):
            for file in sorted({*path.glob(f"{kind}.json"), *path.glob(f"*/{kind}.json")}):
                try:
                    artefacts.append(_artefact(kind, file))
                except (RunError, AttributeError, KeyError, TypeError, ValueError) as error:
                    _log.warning("%s is left out: %s", file, error)
    if not folders:
        raise RunError(
            f"no run in {', '.join(map(str, paths))}: give folders of runs, verdicts, sweeps, tunes"
        )
    return list(folders), artefacts


def _artefact(kind: str, file: Path) -> Json:
    """The contrasts of a verdict or a sweep, or the front of a tune, as cells to read."""
    found, rows = store.read_object(file), []
    for c in found.get("contrasts", ()):
        name = f"{c['cell']} - {c['baseline']}" if kind == "sweep" else f"{c['b']} - {c['a']}"
        for metric, scores in (c["scores"] if kind == "sweep" else {c["metric"]: c}).items():
            gain = with_interval("difference", scores["difference"], scores["interval"])
            rows.append(
                {"name": name, "metric": metric, "score": scores["mean_b"], **scores, **gain}
            )
    for path in sorted((file.parent / "front").glob("*")) if kind == "tune" else ():
        card = read_sidecar(path)
        knobs = ", ".join(f"{name}={value}" for name, value in card.knobs.items())
        rows.append({"name": path.name, **validated(card), "verdict": knobs})
    table = [[column.heading for column in _COLUMNS], *Table(kind, _COLUMNS, rows).cells()]
    said = {str(metric): str(words) for metric, words in found.get("conclusions", {}).items()}
    return {"kind": kind, "folder": file.parent.as_posix(), "conclusions": said, "table": table}


def make_board(paths: Sequence[Path], metric: str = "f1") -> Board:
    """The page of the runs in `paths`."""
    get_metric(metric)
    folders, artefacts = find_runs(paths)
    scores = {name: get_metric(name).score for name in dict.fromkeys([*METRICS, metric])}
    spending = [get_metric(name).score for name in SPENDING]
    runs = []
    for folder in folders:
        try:
            run = Evaluation.of(store.RunFolder(folder))
        except RunError as error:
            _log.warning("%s is left out: %s", folder, error)
            continue
        if run.records:
            taken = [*spending, *paired.MEASURES.values()]
            run.read([*scores.values(), *taken, _cell, paired.question])
            runs.append(run)
        else:
            _log.warning("%s is left out: it has no records", folder)
    if not runs:
        raise RunError(f"no run in {', '.join(map(str, paths))} has a record yet")
    known = [name for name in scores if any(_scores(run, name) for run in runs)]
    if metric not in known:
        raise RunError(
            f"no run has {metric}; there are {', '.join(known)}; what a judge gives comes from "
            "`ragbench score`"
        )
    return Board(runs, tables.label_runs(runs), known, metric, artefacts)


def _scores(run: Evaluation, metric: str) -> dict[str, float]:
    """The scores of the questions that have one; four decimals, as few characters as can be."""
    column = run.records.column(get_metric(metric).score)
    return {q: int(x) if x == int(x) else round(x, 4) for q, x in column.items() if x is not None}


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
    qids, cells = board.qids, [run.records.column(_cell) for run in board.runs]
    causes = sorted({cell["cause"] for column in cells for cell in column.values()} - {""})
    number = {cause: at for at, cause in enumerate(causes)}
    baselines = _baselines(board)
    contrasts = {m: _contrasts(board, m, baselines) for m in board.metrics}
    questions = []
    for qid in qids:
        asked = [column[qid] for column in cells if qid in column]
        titles = sorted(set().union(*(cell["titles"] for cell in asked)))
        questions.append({**asked[0]["question"], "qid": qid, "titles": titles})
    return {
        "title": title,
        "live": live,
        "piece": PIECE,
        "about": _about(board, len(qids)),
        "metric": board.metric,
        "metrics": list(board.metrics),
        "baselines": baselines,
        "runs": [_run(board, at) for at in range(len(board.runs))],
        "causes": causes,
        "questions": questions,
        "answers": [[column.get(q, {}).get("answer") for q in qids] for column in cells],
        "asked": [[int(q in column) for q in qids] for column in cells],
        "why": [[number.get(column.get(q, {}).get("cause"), -1) for q in qids] for column in cells],
        "scores": {name: [list(map(_scores(run, name).get, qids)) for run in board.runs]
                   for name in board.metrics},
        "contrasts": contrasts,
        "advice": {name: _advice(board, name, contrasts[name]) for name in board.metrics},
        "artefacts": list(board.artefacts),
    }  # fmt: skip


def _about(board: Board, questions: int) -> str:
    """What the runs have in common: data, number of questions, LM and retriever."""
    cards = [run.card for run in board.runs]
    parts = [
        {card.data.name for card in cards},
        {f"{questions:,} questions"},
        {card.model for card in cards},
        {str(card.identity.get("retriever", "")) for card in cards},
    ]
    return " · ".join(next(iter(part)) for part in parts if len(part) == 1 and any(part))


def _run(board: Board, at: int) -> Json:
    run = board.runs[at]
    without, right = tables.without_evidence(run.records)
    causes = Counter(cell["cause"] for cell in run.records.column(_cell).values())
    return {
        **tables.row_of_run(run),
        "name": board.names[at],
        "folder": run.folder.as_posix(),
        "program": run.card.program,
        "before": _before(board, at),
        "asked": run.card.questions or run.summary.n,
        "done": run.progress.complete,
        "means": {name: tables.measured(run.records, name) | {"n": len(scores)}
                  for name in board.metrics if (scores := _scores(run, name))},
        "without_evidence": without,
        "right": right,
        "billed_usd": run.summary.billed.cost_usd,
        "causes": {cause: n for cause, n in causes.items() if cause},
        "settings": {k: v for k, v in _settings(run).items() if isinstance(v, int | float | str)},
        "card": run.card.model_dump(mode="json", exclude_defaults=True),
    }  # fmt: skip


def _settings(run: Evaluation) -> Json:
    """All that can change a record, but for what compiling made of it."""
    return {k: v for k, v in tables.settings_of(run.card).items() if k not in _OF_COMPILING}


def _before(board: Board, at: int) -> int | None:
    """The run of the same settings, data and LM that was not compiled, for a compiled one."""
    mine = board.runs[at]
    for number, other in enumerate(board.runs if mine.card.identity.get("compiled") else ()):
        same_data = other.card.data.digest == mine.card.data.digest
        plain = not other.card.identity.get("compiled")
        if same_data and plain and _settings(other) == _settings(mine):
            return number
    return None


def _baselines(board: Board) -> list[int]:
    """The runs that others may be set against: vanilla first, compiled programs last."""
    numbers = sorted(
        range(len(board.runs)),
        key=lambda at: (bool(board.runs[at].card.identity.get("compiled")),
                        board.runs[at].card.program != "vanilla", at),
    )  # fmt: skip
    befores = [before for at in numbers if (before := _before(board, at)) is not None]
    return list(dict.fromkeys([*numbers[:BASELINES], *befores]))


def _contrasts(board: Board, metric: str, baselines: Sequence[int]) -> dict[int, dict[int, Json]]:
    """Baseline -> run -> the paired difference from it; p-values by Holm over the baseline's runs.

    Runs over other data, of other judges, or that share no question with the metric, have none.
    """
    shown: dict[int, dict[int, Json]] = {}
    for a in baselines:
        family, left = {}, board.runs[a]
        for b, other in enumerate(board.runs):
            with suppress(CompareError):
                if a != b:
                    qids = sorted(paired.shared_questions(left, other, common=True))
                    method = Method(clusters=clusters_of(left.records.only(qids)))
                    family[b] = paired.compare_arms([left], [other], metric, qids, method)
        corrected = correct(list(family.values()))
        shown[a] = {b: compared(c) for b, c in zip(family, corrected, strict=True)}
    return shown


def _advice(board: Board, metric: str, contrasts: dict[int, dict[int, Json]]) -> Json:
    """What `recommend` says of the finished runs; empty where it cannot choose.

    A compiled program counts where it is shown better than what it was compiled from.
    """
    some = []
    for at, run in enumerate(board.runs):
        before = _before(board, at)
        gain = None if before is None else contrasts.get(before, {}).get(at)
        if run.progress.complete and (gain is None or gain["verdict"].startswith("better")):
            some.append(at)
    names = [board.names[at] for at in some]
    try:
        found = advise([board.runs[at] for at in some], metric, labels=names, common=True)
    except (CompareError, ConfigError):  # one run, other data, or no measure of accuracy
        return {}
    best = some[names.index(found.best.label)]
    use = None if found.use is None else some[names.index(found.use.label)]
    return {"use": use, "best": best, "sentences": found.sentences()}


def pieces(run: Evaluation, qids: Sequence[str], only: int | None = None) -> Iterator[Json]:
    """The records of a run with the prompts and replies of their calls, `PIECE` questions each.

    `only` is the number of the one piece that is wanted.
    """
    starts: Iterable[int] = range(0, len(qids), PIECE)
    if only is not None:
        starts = [only * PIECE]
    for start in starts:
        records = run.records.only(qids[start : start + PIECE])
        traces = {}
        found = []
        for qid, record in records.items():
            found.append(record)
            fields = record.to_dict()
            traces[qid] = {name: fields[name] for name in fields if name not in _ELSEWHERE}
        texts = run.run.texts(found)
        yield {"records": traces, "texts": dict(sorted(texts.items()))}
