"""Walk a folder of documents and account for every file in it."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragbench.data.document_readers import DOCUMENTS, READERS
from ragbench.data.text_files import check_regular, first_line, is_saved_dataset
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
        skipped: Documents that were not read -> reason.
        left_out: Number of files with each unsupported ending.
    """

    read: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def card(self) -> dict[str, Any]:
        """Return the account for a data card, JSON-ready, with at most 100 skipped documents."""
        skipped = dict(list(self.skipped.items())[:_KEPT])
        return {"read": self.read, "skipped": skipped, "left_out": dict(self.left_out)}

    def lines(self) -> list[str]:
        """Return one line each for unsupported files and skipped documents."""
        lines = []
        if self.left_out:
            counts = ", ".join(f"{n} {ending}" for ending, n in sorted(self.left_out.items()))
            lines.append(f"{self.left_out.total()} files are left out, of kinds not read: {counts}")
        if self.skipped:
            reasons = [f"{name} ({why})" for name, why in self.skipped.items()]
            listing = ", ".join(reasons[:_NAMED])
            if len(reasons) > _NAMED:
                listing += f" and {len(reasons) - _NAMED} more"
            lines.append(f"{len(reasons)} documents are left out: {listing}")
        return lines


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
            account.skipped[name] = first_line(error, file)
            continue
        texts = [(name, title, text) for title, text in sections if text.strip()]
        if not texts:
            account.skipped[name] = "no text; a scan?"
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
            account.skipped[name] = first_line(error, file)
            continue
        if not is_inside:
            account.skipped[name] = "a link out of the folder"
        elif not file.is_dir():
            yield name, file
