"""The journal of a run's annotations: every reply of a model, written as it comes.

A row of the run's table `replies` has what was asked (as a hash), what came of it, and every call
with its price. An annotation that was cut off goes on where it stopped; a reply that could not be
used is kept as the result; what the provider failed is asked again next time. Calls are filed with
kind `judge`: they are no cost of answering.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ragbench.experiments.store import Store, read_replies
from ragbench.record import Call, Totals, billed, parse_call, total


@dataclass(frozen=True)
class Task:
    """One thing to ask of a record; `key` is a hash of all that decides the reply."""

    qid: str
    name: str  # of the annotation, such as "judge"
    key: str
    ask: Callable[[], Any] = field(repr=False)  # JSON-ready; raises UnusableError


@dataclass(frozen=True)
class Result:
    """The result of a task; where there is none, `value` is None and `why` gives the reason."""

    value: Any
    why: str
    calls: tuple[Call, ...]


@dataclass
class Replies:
    """The results by key, and how many were asked now rather than read from the journal.

    `earlier` are the calls of tries that the provider failed and that were made again since.
    """

    results: dict[str, Result]
    earlier: tuple[Call, ...] = ()
    asked: int = 0
    left: int = 0  # not asked, because a limit of the command was reached

    def totals(self) -> Totals:
        """What all of it took, as if uncached."""
        return total(call for result in self.results.values() for call in result.calls)

    def billed(self) -> Totals:
        """What was sent to a server, over all attempts."""
        calls = [call for result in self.results.values() for call in result.calls]
        return billed([*self.earlier, *calls])


def key_of(*parts: Any) -> str:
    """A hash of `parts`, which must be JSON."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Reply:
    """The outcome of asking once: a result, unless the provider `failed` or a limit `refused`."""

    result: Result
    model: str
    failed: bool = False
    refused: bool = False


def file_reply(store: Store, replies: Replies, task: Task, reply: Reply) -> None:
    """Write what came of `task` to the journal, and count it in `replies`.

    Of a task that a limit cut off only what it took until then is written.

    Raises:
        RunError: it cannot be written.
    """
    result = reply.result
    if not reply.refused or result.calls:
        row = {
            "qid": task.qid,
            "pass": task.name,
            "key": task.key,
            "model": reply.model,
            "value": result.value,
            "why": result.why,
            "provider_failed": reply.failed or reply.refused,
            "calls": [asdict(call) for call in result.calls],
        }
        store.add_reply(row)
    if reply.refused:
        replies.left += 1
        replies.earlier += result.calls
    else:
        replies.results[task.key] = result
        replies.asked += 1


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """The replies in the journal of `folder`, oldest first, without what became of batches.

    Raises:
        RunError: as for `read_replies`.
    """
    return [row for row in read_replies(folder) if "batch" not in row]


def result_of(row: Mapping[str, Any]) -> Result:
    """The result in a line of the journal."""
    return Result(row["value"], row["why"], tuple(parse_call(call) for call in row["calls"]))
