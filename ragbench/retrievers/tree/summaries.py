"""The summaries of a tree: asked for one by one, and journaled until the tree is whole."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import dspy
from dspy import AdapterParseError

from ragbench.kept import checksum
from ragbench.ledger import calling, open_ledger
from ragbench.paths import sync
from ragbench.record import Call, parse_call
from ragbench.signatures import Summarize


@dataclass(frozen=True)
class Written:
    """A summary and the calls it took; `readable` is False where it is the texts cut short."""

    text: str
    calls: tuple[Call, ...]
    readable: bool = True


def summarize(texts: list[str], max_words: int) -> Written:
    """A summary of `texts` by the current LM, on no question's ledger.

    Raises:
        dspy.LMError: the provider failed.
    """
    with open_ledger() as ledger, calling("Summarize", "extract"), dspy.context(trace=None):
        try:
            reply = dspy.Predict(Summarize)(texts=texts, max_words=max_words)
            text = " ".join(str(reply.summary or "").split())
        except AdapterParseError:
            text = ""
    if text:
        return Written(text, tuple(ledger.calls))
    cut = " ".join(" ".join(texts).split()[:max_words])
    return Written(cut, tuple(ledger.calls), readable=False)


class Journal:
    """Summaries of a tree in the making, one JSON line each, on disk before the next is asked."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def read(self) -> dict[str, Written]:
        """The summaries written before; a line that was cut short or changed is left out."""
        if self.path is None or not self.path.is_file():
            return {}
        written = {}
        for line in self.path.read_text("utf-8", errors="replace").split("\n"):
            kept_sum, _, text = line.partition(" ")
            if kept_sum != checksum(text.encode()).hex():
                continue
            row = json.loads(text)
            calls = tuple(parse_call(call) for call in row["calls"])
            written[row["key"]] = Written(row["text"], calls, row["readable"])
        return written

    def write(self, key: str, entry: Written) -> None:
        """Add a summary."""
        if self.path is None:
            return
        text = json.dumps({"key": key, **asdict(entry)})
        new = not self.path.exists()
        with self.path.open("a", encoding="utf-8") as file:
            # A torn line before it must not swallow this one.
            file.write(f"\n{checksum(text.encode()).hex()} {text}\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync(self.path.parent)

    def drop(self) -> None:
        """Delete the file: the tree is whole."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def digest(texts: Sequence[str], max_words: int) -> str:
    """What a summary is filed under in the journal."""
    text = json.dumps([texts, max_words])
    return hashlib.sha256(text.encode()).hexdigest()
