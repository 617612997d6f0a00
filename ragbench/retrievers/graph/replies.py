"""Replies of the LM that makes an index, each kept on disk before the next is asked for.

They are filed by LM, signature and inputs, in one SQLite file beside the indexes, so an index that
was interrupted goes on where it stopped, and one with other settings or another embedder, or of
another system, pays again only for what nobody asked before.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import dspy
from dspy import AdapterParseError, ContextWindowExceededError
from pydantic_core import to_jsonable_python

from ragbench.kept import KeptRows, checksum
from ragbench.ledger import calling, file_call, open_ledger
from ragbench.logs import get
from ragbench.record import Call, parse_call
from ragbench.retrievers.base import Progress
from ragbench.signatures import role_of

Item = TypeVar("Item")
Result = TypeVar("Result")

_log = get(__name__)
_SCHEMA = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT) WITHOUT ROWID"
#: How often a text that the LM refuses as too long is cut in half.
_CUTS = 8


@dataclass(frozen=True)
class IndexReply:
    """The output fields of a reply as JSON holds them, and the calls that it took.

    `readable` is False where not every field could be read; `cut` where the input was too long for
    the LM and was cut.
    """

    values: Mapping[str, Any]
    calls: tuple[Call, ...]
    readable: bool = True
    cut: bool = False


class ReplyCache:
    """One SQLite file, shared by threads and processes; without a path, in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._rows = KeptRows(path, _SCHEMA)

    def get(self, key: str) -> IndexReply | None:
        """The reply kept under `key`; None where it was changed."""
        for (row,) in self._rows.read("SELECT reply FROM replies WHERE key = ?", (key,)):
            # Rows of an earlier version have no checksum.
            digest, _, text = ("", "", row) if str(row).startswith("{") else row.partition(" ")
            if not digest or digest == _digest(key, text):
                kept = json.loads(text)
                return IndexReply(**{**kept, "calls": tuple(map(parse_call, kept["calls"]))})
            _log.warning("a kept reply was changed and is asked for again")
        return None

    def put(self, key: str, reply: IndexReply) -> None:
        """Keep `reply`; on disk when this returns."""
        text = json.dumps(asdict(reply))
        query = "INSERT OR REPLACE INTO replies VALUES (?, ?)"
        self._rows.write(query, [(key, f"{_digest(key, text)} {text}")])

    def close(self) -> None:
        """Close the file."""
        self._rows.close()


class IndexLM:
    """The current LM as the maker of an index: whatever it said before is not asked for again."""

    def __init__(self, cache: ReplyCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._used: dict[str, IndexReply] = {}

    @property
    def replies(self) -> list[IndexReply]:
        """Every reply used so far, in an order that does not depend on timing."""
        return [self._used[key] for key in sorted(self._used)]

    @property
    def calls(self) -> list[Call]:
        """The calls that the replies took, those of earlier processes too."""
        return [call for reply in self.replies for call in reply.calls]

    def ask(self, signature: type[dspy.Signature], **inputs: Any) -> IndexReply:
        """The reply to `inputs`; a new one is kept, and its calls are filed in the ledger.

        Raises:
            dspy.LMError: the provider failed.
        """
        key = _key(signature, inputs)
        reply = self._cache.get(key)
        if reply is None:
            reply = _asked(signature, inputs)
            self._cache.put(key, reply)
            for call in reply.calls:
                file_call(call)
        with self._lock:
            self._used[key] = reply
        return reply

    def knows(self, signature: type[dspy.Signature], **inputs: Any) -> bool:
        """Whether the reply to `inputs` is kept."""
        return self._cache.get(_key(signature, inputs)) is not None


def at_once(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    progress: Progress | None = None,
) -> list[Result]:
    """`function` of each item in input order, as many at once as the run has workers.

    Raises:
        Exception: the first error that comes; items not begun by then are left out.
    """
    if not items:
        return []
    workers = min(len(items), max(int(dspy.settings.get("num_threads") or 1), 1))
    with ThreadPoolExecutor(workers, thread_name_prefix="index") as pool:
        futures = [pool.submit(copy_context().run, function, item) for item in items]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                if progress:
                    progress(done, len(items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _key(signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> str:
    fields = {
        name: [str(field.annotation), field.json_schema_extra.get("desc", "")]
        for name, field in signature.output_fields.items()
    }
    model = str(getattr(dspy.settings.lm, "model", ""))
    parts = [model, signature.__name__, signature.instructions, fields, inputs]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _digest(key: str, text: str) -> str:
    return checksum(key.encode(), text.encode()).hex()


def _asked(signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> IndexReply:
    values: Mapping[str, Any] = {}
    readable, cut = False, False
    caller = calling(signature.__name__, role_of(signature))
    with open_ledger() as ledger, caller, dspy.context(trace=None):
        for _ in range(_CUTS):
            try:
                reply = dspy.Predict(signature)(**inputs)
            except ContextWindowExceededError:
                inputs, cut = _halved(inputs), True
                continue
            except AdapterParseError as error:
                values = getattr(error, "read", {})
            else:
                values = {name: reply[name] for name in signature.output_fields}
                readable = True
            break
    return IndexReply(to_jsonable_python(dict(values)), tuple(ledger.calls), readable, cut)


def _halved(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """`inputs` with the longest text, or list, cut in half."""
    name = max(inputs, key=lambda name: len(str(inputs[name])))
    value = inputs[name]
    return {**inputs, name: value[: len(value) // 2] if isinstance(value, str | list) else value}
