"""Walk a folder of documents and account for every file in it."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragbench.data.document_readers import DOCUMENTS, READERS
from ragbench.data.tables import is_saved_dataset
from ragbench.data.text_files import check_regular, first_line
from ragbench.errors import DataError, MissingExtraError, RagbenchError
from ragbench.logs import get

#: Maximum number of file names in a message, and in the card.
_NAMED, _KEPT = 5, 100

_log = get(__name__)
_said: set[str] = set()


@dataclass
class Account:
    """Count of the files of a folder, by result.

    Attributes:
        read: Number of documents with text.
        without_text: Documents without text, such as scans.
        damaged: Documents that cannot be read, with the reason.
        outside: Links that point out of the folder.
        left_out: Number of files with each unsupported ending.
    """

    read: int = 0
    without_text: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def card(self) -> dict[str, Any]:
        """Return the account for a data card, JSON-ready, with at most 100 files of a kind."""
        return {
            "read": self.read,
            "without_text": self.without_text[:_KEPT],
            "damaged": dict(list(self.damaged.items())[:_KEPT]),
            "outside": self.outside[:_KEPT],
            "left_out": dict(sorted(self.left_out.items())),
        }

    def lines(self) -> list[str]:
        """Return one line for each kind of file that was skipped or has no text."""
        lines = []
        if self.left_out:
            counts = ", ".join(f"{n} {ending}" for ending, n in sorted(self.left_out.items()))
            lines.append(f"{self.left_out.total()} files are left out, of kinds not read: {counts}")
        if self.without_text:
            listing = _listed(self.without_text)
            lines.append(f"{len(self.without_text)} documents have no text (scans?): {listing}")
        if self.damaged:
            listing = _listed([f"{name} ({why})" for name, why in self.damaged.items()])
            lines.append(f"{len(self.damaged)} documents are left out as unreadable: {listing}")
        if self.outside:
            listing = _listed(self.outside)
            lines.append(f"{len(self.outside)} links lead out of the folder, left out: {listing}")
        return lines


def _listed(items: list[str]) -> str:
    listing = ", ".join(items[:_NAMED])
    if len(items) > _NAMED:
        return f"{listing} and {len(items) - _NAMED} more"
    return listing


def is_document(path: Path) -> bool:
    """Return True if `path` is a folder of documents or a document, not a data file."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return not is_saved_dataset(path)
    if suffix not in DOCUMENTS or not path.is_file():
        return False
    if suffix not in (".txt", ".text"):
        return True
    with path.open("rb") as file:
        return not file.read(200).lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))


def read_documents(path: Path, encoding: str, account: Account) -> Iterator[tuple[str, str, str]]:
    """Yield file, title and text of each section of the documents in a folder, or of one file.

    Skips unreadable and hidden files. Logs a warning once with the skipped files; hidden files are
    not counted.

    Args:
        path: Folder or file.
        encoding: Encoding of a text that is not UTF-8.
        account: Counts that this function updates.

    Raises:
        DataError: No document has text, or the single file cannot be read.
        MissingExtraError: A library that a document needs is not installed.
    """
    for name, file in _files(path, account):
        reader = READERS.get(file.suffix.lower())
        if reader is None:
            account.left_out[file.suffix.lower() or "without an ending"] += 1
            continue
        try:
            check_regular(file)
            sections = list(reader(file, name.removesuffix(file.suffix), encoding))
        except MissingExtraError:
            raise
        except Exception as error:  # libraries raise errors of many kinds on damaged files
            if isinstance(error, RagbenchError) and file == path:
                raise
            account.damaged[name] = first_line(error, file)
            continue
        texts = [(name, title, text) for title, text in sections if text.strip()]
        if not texts:
            account.without_text.append(name)
            continue
        account.read += 1
        yield from texts
    if not account.read:
        reasons = "; ".join(account.lines())
        endings = ", ".join(sorted(READERS))
        why = f": {reasons}" if reasons else ""
        raise DataError(f"{path}: holds no document with text ({endings}){why}"[:600])
    for line in account.lines():
        message = f"{path}: {line}"
        if message not in _said:
            _said.add(message)
            _log.warning("%s", message)


def _files(path: Path, account: Account) -> Iterator[tuple[str, Path]]:
    """Yield the files below a folder, sorted by name, without links that point out of it."""
    if not path.is_dir():
        yield path.name, path
        return
    root = path.resolve()
    for file in sorted(path.rglob("*")):
        steps = file.relative_to(path)
        if any(step.startswith(".") for step in steps.parts):
            continue
        name = os.fsencode(steps).decode("utf-8", "replace")
        try:
            is_inside = file.resolve().is_relative_to(root)
        except (OSError, RuntimeError) as error:  # a link to itself
            account.damaged[name] = first_line(error, file)
            continue
        if not is_inside:
            account.outside.append(name)
        elif not file.is_dir():
            yield name, file
