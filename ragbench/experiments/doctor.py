"""Checks a folder that a run or a compile left, and mends what can be mended.

A folder is looked at under its lock. Mending loses no good record: the file as it was stays beside
as `records.jsonl.bak`, and only lines that count for nothing are left out of the new one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ragbench.errors import RagbenchError, RunError
from ragbench.experiments.artifacts import SIDECAR, load_artefact, read_sidecar
from ragbench.experiments.compile import ASKED
from ragbench.experiments.config import make_config
from ragbench.experiments.estimates import ESTIMATE
from ragbench.experiments.findings import Finding, told_by
from ragbench.experiments.records import (
    CALLS,
    CONFIG,
    PROMPTS,
    RECORDS,
    SENT,
    Line,
    Parse,
    as_json,
    held,
    parse_line,
    parse_prompt,
    read_calls,
    read_card,
    read_each,
    read_object,
    usable,
    write_without,
    wrong_with_sent,
)
from ragbench.experiments.runs import SUMMARY, reopen, write_summary
from ragbench.experiments.score import (
    LINES,
    SUMMARY as SCORES,
    digest,
    wrong_with_reply,
    wrong_with_scores,
)
from ragbench.experiments.score.annotate import JOURNAL
from ragbench.logs import LOG
from ragbench.record import Record

#: What such a folder may hold; anything else is told and left alone.
_BELONGS = frozenset(
    {CONFIG, RECORDS, PROMPTS, SENT, SUMMARY, ESTIMATE, SCORES, LINES, JOURNAL, LOG, SIDECAR, ASKED}
    | {".lock", "program.json", "bank.json", "candidates", "work"}
)
#: Files that mark a folder of several runs' and compiled programs' folders.
_COLLECTIONS = ("verdict.json", "tune.json", "sweep.json")


def folders_under(folder: Path) -> list[Path]:
    """`folder` itself, or those of runs and compiled programs in the folder of a whole study.

    Raises:
        RunError: it is none of these.
    """
    if _is_one(folder):
        return [folder]
    if any((folder / name).is_file() for name in _COLLECTIONS):
        return sorted(path for path in folder.rglob("*") if path.is_dir() and _is_one(path))
    raise RunError(
        f"{folder} is neither a run nor a compiled program: it has no {CONFIG} and no {SIDECAR}"
    )


def _is_one(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (CONFIG, RECORDS, SIDECAR, ASKED))


def examine(folder: Path, *, data: bool = True) -> list[Finding]:
    """What is wrong with the folder; `data` says whether ids are compared with the data set's."""
    try:
        if not os.access(folder, os.W_OK):  # so this process cannot lock it
            return list(_findings(folder, data))
        with held(folder):
            return list(_findings(folder, data))
    except (RunError, OSError) as error:
        problem = str(error).removeprefix(f"{folder} ")
        return [Finding(folder, problem, "not all was checked")]


def repair(folder: Path, findings: Sequence[Finding]) -> None:
    """Mend every finding that can be.

    Raises:
        RunError: the folder is in use, or cannot be written.
    """
    with held(folder):
        for path in dict.fromkeys(finding.path for finding in findings if finding.lines):
            bad = {n for finding in findings if finding.path == path for n in finding.lines}
            write_without(path, bad)
        for finding in findings:
            if finding.mend:
                finding.mend()
        if any(finding.path.name == RECORDS and finding.lines for finding in findings):
            _summarize_again(folder)


def _summarize_again(folder: Path) -> None:
    if (folder / CONFIG).is_file() and not list(_config_findings(folder)):
        write_summary(folder)


def _findings(folder: Path, data: bool) -> Iterator[Finding]:
    yield from _strangers(folder)
    if any((folder / name).is_file() for name in (SIDECAR, ASKED)):
        yield from _compiled(folder)
    if any((folder / name).is_file() for name in (CONFIG, RECORDS)):
        yield from _run(folder, data)


def _strangers(folder: Path) -> Iterator[Finding]:
    for path in sorted(folder.iterdir()):
        name = path.name
        if name in _BELONGS or ".jsonl.bak" in name or (path.is_dir() and _is_one(path)):
            continue
        if any(name.startswith(f".{known}.") for known in _BELONGS) and path.is_file():
            problem, cure = "was left by a write that was cut off", "--repair removes it"
            yield Finding(path, problem, cure, mend=path.unlink)
        else:
            yield Finding(path, "does not belong here", "it is left alone; move it elsewhere")


def _run(folder: Path, data: bool) -> Iterator[Finding]:
    try:
        lines = [_facts(line) for line in read_each(folder / RECORDS, parse_line)]
    except RunError as error:
        yield Finding(folder / RECORDS, str(error).rpartition(": ")[2], "mend its permissions")
        return
    wrong = [*_line_findings(folder / RECORDS, lines)]
    broken = [*_config_findings(folder)]
    if data and not broken:
        wrong += _unknown_questions(folder, lines)
    yield from (*wrong, *broken, *_side_findings(folder), *_score_findings(folder, lines))
    if not broken:
        yield from _summary_findings(folder)


class _Facts(NamedTuple):
    """The parts of a record line that are checked; `qid` is None if the line cannot be used."""

    number: int
    torn: bool
    bytes_sha256: bytes = b""
    qid: str | None = None
    finished: bool = False
    cut_off: bool = False
    answer: str = ""  # its hash, by which scores know it


def _facts(line: Line[Record]) -> _Facts:
    record = line.row
    if record is None:
        return _Facts(line.number, line.torn)
    return _Facts(
        line.number,
        line.torn,
        hashlib.sha256(line.raw.rstrip(b"\n")).digest(),
        record.qid,
        record.failure is None,
        record.cut_off,
        digest(record),
    )


def _config_findings(folder: Path) -> Iterator[Finding]:
    try:
        read_card(folder)
    except RunError as error:
        said = str(error)
        problem = said.rpartition(": ")[2] if "cannot read" in said else "is missing"
        if "was changed" in said:
            problem = "was changed after it was written"
        cure = "run its command with --limit 1 and another --out, and copy that run's config.json"
        yield Finding(folder / CONFIG, problem, cure)


def _line_findings(path: Path, lines: Sequence[_Facts]) -> Iterator[Finding]:
    corrupt = [line.number for line in lines if line.qid is None and not line.torn]
    if corrupt:
        problem = f"line {_some(corrupt)} cannot be read, or was changed after it was written"
        cure = "--repair moves it out, and the run's command asks the question again"
        yield Finding(path, problem, cure, tuple(corrupt))
    if lines and lines[-1].torn:
        problem, cure = "the last line was cut short", "--repair or the next run cuts it off"
        yield Finding(path, problem, cure, (lines[-1].number,))
    same, again = _repeats(lines)
    if same:
        problem = f"line {_some(same)} repeats an earlier line byte by byte"
        yield Finding(path, problem, "--repair moves it out", tuple(same))
    if again:
        problem = f"line {_some(again)} is of a question that was finished before"
        yield Finding(path, problem, "the last one counts; was the file put together by hand?")


def _repeats(lines: Sequence[_Facts]) -> tuple[list[int], list[int]]:
    """Numbers of lines that were there before, and of others whose question was finished before."""
    seen: set[bytes] = set()
    finished: set[str] = set()
    same, again = [], []
    for line in lines:
        if line.qid is None:
            continue
        if line.bytes_sha256 in seen:
            same.append(line.number)
            continue
        seen.add(line.bytes_sha256)
        if line.qid in finished:
            again.append(line.number)
        if line.finished:
            finished.add(line.qid)
    return same, again


def _unknown_questions(folder: Path, lines: Sequence[_Facts]) -> list[Finding]:
    """Records of questions that the data set has not; loads it as the run did."""
    from ragbench.data import load_dataset

    card = read_card(folder)
    try:
        config = make_config(card.config or card.identity)
        dataset = load_dataset(config.data_spec())
    except RagbenchError as error:
        problem = f"question ids were not checked, for its data cannot be loaded ({error})"
        return [Finding(folder / CONFIG, problem, "put the data back, or give --no-data")]
    if dataset.digest != card.data.digest:
        problem = "its data are not what they were when it ran"
        return [
            Finding(folder / CONFIG, problem, "put the old data back, or start anew with --out")
        ]
    known = {str(example.qid) for example in dataset.select(config.data.split)}
    outside = [line.number for line in lines if line.qid not in known and line.qid is not None]
    if not outside:
        return []
    problem = f"line {_some(outside)} is of a question that is not in the data"
    return [Finding(folder / RECORDS, problem, "--repair moves it out", tuple(outside))]


def _summary_findings(folder: Path) -> Iterator[Finding]:
    path = folder / SUMMARY
    run = reopen(folder)
    right = (as_json(run.stored()), as_json(run.summary.to_dict()))  # older ones: no intervals
    if not path.is_file():
        problem, cure = "is missing: the run did not come to its end", "give its command again"
        yield Finding(path, problem, cure, mend=lambda: write_summary(folder))
    elif path.read_bytes() not in right:
        problem, cure = "is not what the records say", "--repair computes it again"
        yield Finding(path, problem, cure, mend=lambda: write_summary(folder))


def _side_findings(folder: Path) -> Iterator[Finding]:
    out = "--repair moves it out"
    scored = f"{out}; ragbench score makes it again"
    journals: tuple[tuple[str, Parse[object], str], ...] = (
        (SENT, usable(wrong_with_sent), f"{out}; what was billed may lack a call"),
        (PROMPTS, parse_prompt, f"{out}; the prompts of some calls cannot be shown"),
        (LINES, usable(wrong_with_scores), scored),
        (JOURNAL, usable(wrong_with_reply), scored),
    )
    for name, parse, cure in journals:
        bad = [line.number for line in read_each(folder / name, parse) if line.row is None]
        if bad:
            yield Finding(folder / name, f"line {_some(bad)} cannot be read", cure, tuple(bad))


def _score_findings(folder: Path, lines: Sequence[_Facts]) -> Iterator[Finding]:
    answers = {line.qid: line.answer for line in lines if line.qid is not None and not line.cut_off}
    scored, stale = 0, []
    for scores in read_each(folder / LINES, usable(wrong_with_scores)):
        if scores.row is not None:
            scored += 1
            if answers.get(scores.row["qid"]) != scores.row["of"]:
                stale.append(str(scores.row["qid"]))
    if stale:
        problem = f"{len(stale)} scores are not of the answers in the records (first: {stale[0]})"
        yield Finding(folder / LINES, problem, "score the run again")
    path = folder / SCORES
    if scored and not path.is_file():
        yield Finding(path, "is missing", "score the run again")
    elif path.is_file():
        try:
            read_object(path)
        except RunError as error:
            yield told_by(path, error, "remove it and score the run again")


def _compiled(folder: Path) -> Iterator[Finding]:
    try:
        sidecar = read_sidecar(folder)
        load_artefact(folder, _program(sidecar.program, sidecar.knobs))
        for row in sidecar.notes.get("candidates") or ():
            if not (folder / str(row["file"])).is_file():
                yield Finding(folder / str(row["file"]), "is missing", "copy the whole folder")
    except RagbenchError as error:
        yield told_by(folder, error, "compile again")
    except (KeyError, TypeError, AttributeError):
        yield Finding(folder / SIDECAR, "its notes are malformed", "compile again")
    if (folder / ASKED).is_file():
        try:
            read_object(folder / ASKED)
        except RunError as error:
            yield Finding(folder / ASKED, str(error).partition(": ")[2], "compile again")
    calls = folder / "work" / CALLS
    try:
        read_calls(calls)
    except RunError as error:
        yield told_by(calls, error, "compile again")


def _program(name: str, knobs: Mapping[str, Any]) -> Any:
    from ragbench.programs import PROGRAMS
    from ragbench.retrievers import Corpus, make_retriever

    return PROGRAMS.get(name)(make_retriever("bm25", Corpus(()), setting="pooled"), **knobs)


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return shown + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
