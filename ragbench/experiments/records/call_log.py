"""Calls of questions that are under way: what a kill would otherwise leave out of what was billed.

A question's calls are in its record, which is written when the question ends. Until the run ends
they stand in `sent.jsonl` as well, a line for each, checksummed but not fsynced: a kill takes only
the line that is being written, a crash of the machine more. When a run comes to its end, the file
keeps the calls that are in no record, and goes where there are none.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Required

from pydantic import ConfigDict, FiniteFloat, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from ragbench.errors import RunError
from ragbench.experiments.records.card import CONFIG, read_card
from ragbench.experiments.records.files import write_whole
from ragbench.experiments.records.jsonl import (
    RECORDS,
    encode,
    parse_line,
    read_each,
    usable,
)
from ragbench.experiments.records.record_writer import RecordWriter
from ragbench.record import Call, parse_call, was_sent

SENT = "sent.jsonl"
#: In place of a question's id: the calls that make what all questions share.
PREPARATION_CALLS = ""

#: How lines are checked: a number in quotes is no number.
STRICT = ConfigDict(strict=True)


@with_config(STRICT)
class _FailedAttempts(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    cost_usd: FiniteFloat | None


@with_config(STRICT)
class CallLine(TypedDict, total=False):
    """A call as `Call.to_dict` writes it."""

    model: Required[str]
    signature: str
    role: str
    kind: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: FiniteFloat | None
    latency_s: FiniteFloat
    attempts: int
    cached: bool
    fallback: bool
    error: str | None
    batch: bool
    paid_usd: FiniteFloat | None
    cache_read_tokens: int
    cache_write_tokens: int
    failed: _FailedAttempts | None


@cache
def _call_lines() -> TypeAdapter[CallLine]:
    return TypeAdapter(CallLine)


class SentCalls:
    """Files the calls of a run's questions as they end; for a `with` block. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._writer = RecordWriter(folder, SENT, durable=False)

    def __enter__(self) -> SentCalls:
        self._writer.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)

    def of(self, qid: str) -> Callable[[Call], None]:
        """Files a call of the question `qid`, if a server was asked."""

        def file(call: Call) -> None:
            if was_sent(call):
                # A disk that is full stops the run when the record is written; a thread that is
                # still under way when the run was stopped has nothing to write to.
                with contextlib.suppress(RunError):
                    self._writer.write({"qid": qid, **call.to_dict()})

        return file


def recorded_calls(folder: Path) -> Iterator[Call]:
    """The calls to servers in the records of the run in `folder`, and of its preparation.

    Raises:
        RunError: the records cannot be read.
    """
    for line in read_each(folder / RECORDS, parse_line):
        if line.row is not None:
            yield from filter(was_sent, line.row.ledger.calls)
    yield from filter(was_sent, _preparation(folder))


def lost_calls(folder: Path) -> list[Call]:
    """The calls to servers that are in no record of the run in `folder`: a kill came first.

    Raises:
        RunError: the files cannot be read.
    """
    return [parse_call(row) for row in _lost(folder)]


def settle(folder: Path) -> None:
    """Leave the calls that are in no record in the file, and nothing where there are none.

    Raises:
        RunError: the files cannot be read or written.
    """
    lost = _lost(folder)
    path = folder / SENT
    if lost:
        write_whole(path, b"".join(encode({**row, "lost": True}) for row in lost))
    else:
        path.unlink(missing_ok=True)


def first_fault(kind: TypeAdapter[Any], value: object, name: str) -> str:
    """Where `value` first differs from its `kind`, such as "calls"; empty if nowhere.

    A value that is wrong as a whole is called `name`.
    """
    try:
        kind.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return ".".join(map(str, first["loc"])) or name
    return ""


def wrong_with_call(row: object) -> str:
    """The reason why a call cannot be counted; empty if it can."""
    return first_fault(_call_lines(), row, "call")


def wrong_with_sent(row: dict[str, Any]) -> str:
    """The reason why a line of the file cannot be counted; empty if it can."""
    return wrong_with_call({n: value for n, value in row.items() if n not in ("qid", "lost")})


def _lost(folder: Path) -> list[dict[str, Any]]:
    if not (folder / SENT).exists():
        return []
    # Of a long run, neither the calls nor the lines are held: their hashes are.
    recorded = Counter(map(hash, recorded_calls(folder)))
    lost = []
    for line in read_each(folder / SENT, usable(wrong_with_sent)):
        if (row := line.row) is None:
            continue
        call = hash(parse_call(row))
        if "lost" in row or not recorded[call]:
            lost.append(row)
        else:
            recorded[call] -= 1
    return lost


def _preparation(folder: Path) -> list[Call]:
    if not (folder / CONFIG).is_file():
        return []
    preparation = read_card(folder).preparation
    return preparation.calls if preparation else []
