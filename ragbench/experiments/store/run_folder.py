"""A run on disk, opened once for all reads of a command.

Every reader (summaries, comparisons, tables, the page, exports, scores, checks) takes a
`RunFolder`. The database is opened once, the card is read once, and each record is parsed once for
all columns that are requested together. Reading writes no record.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from ragbench.errors import RunError
from ragbench.experiments.store.calls import read_calls
from ragbench.experiments.store.card import RunCard, card_in
from ragbench.experiments.store.database import Store
from ragbench.experiments.store.reader import Reader, unpacked
from ragbench.experiments.store.records import StoredRecords, find_records
from ragbench.experiments.store.schema import DATABASE
from ragbench.logs import get
from ragbench.record import Call, parse_call, was_sent
from ragbench.redact import digest_of

_log = get(__name__)


class RunFolder:
    """The run in the folder `path`. If there is none, it has no records and no card.

    Args:
        path: The folder.
        card: Card to use instead of the one in the folder.
        check: Verify digests. Records with a wrong digest are omitted, with a warning.

    Attributes:
        path: The folder.
        reader: The open database.
    """

    def __init__(self, path: Path, card: RunCard | None = None, *, check: bool = False) -> None:
        self._check = check
        self.path = path
        self._card = card
        self.reader = Reader(path / DATABASE)

    @cached_property
    def card(self) -> RunCard:
        """Card of the run: program, data, settings and versions.

        Raises:
            RunError: The folder is not a run or cannot be read, or `card.json` is of another run.
        """
        return self._card or card_in(self.path, self.reader)

    @cached_property
    def records(self) -> StoredRecords:
        """Records by question, as of the first access."""
        return find_records(self.reader, self.price, check=self._check)

    def price(self, call: Call) -> Call:
        """Return `call` at the run's price, if it is of the main LM and a price is set."""
        return self.card.priced(call) if self.reader.exists else call

    def lost_calls(self) -> list[Call]:
        """Return the calls of questions without a record: the run was killed or still runs."""
        return list(map(self.price, read_calls(self.reader, "qid != ''")))

    def preparation_calls(self) -> list[Call]:
        """Return the calls for work that all questions share, finished or not."""
        return list(map(self.price, read_calls(self.reader, "qid = ''")))

    def billed_calls(self) -> Iterator[Call]:
        """Yield the calls sent to servers, also those of repeated and lost questions."""
        for row, value in self.reader.rows("SELECT id, value FROM records ORDER BY id"):
            try:
                calls = list(map(parse_call, json.loads(value)["ledger"]["calls"]))
            except (ValueError, TypeError, KeyError, RecursionError):
                raise RunError(
                    f"{self.reader.path}: row {row} of records is damaged. Restore the file."
                ) from None
            yield from map(self.price, filter(was_sent, calls))
        yield from map(self.price, filter(was_sent, read_calls(self.reader)))

    def texts(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the saved prompts and replies by their ids, without damaged ones."""
        texts = {}
        for name in ids:
            for (packed,) in self.reader.rows("SELECT text FROM prompts WHERE id = ?", name):
                text = unpacked(packed)
                if text is None:
                    path = self.reader.path
                    _log.warning("%s: skipping a damaged text of a call", path)
                else:
                    texts[name] = text
        return texts

    def replies(self) -> list[dict[str, Any]]:
        """Return the replies of judges and the events of batches, oldest first."""
        replies = []
        query = "SELECT id, value, digest FROM replies ORDER BY id"
        for row, value, digest in self.reader.rows(query):
            if digest != digest_of(value):
                raise RunError(
                    f"{self.reader.path}: row {row} of replies is damaged. Restore the file."
                )
            replies.append(json.loads(value))
        return replies

    def scores(self) -> dict[str, dict[str, float | None]]:
        """Return the scores of the answers by question."""
        query = (
            "SELECT qid, scores.value, scores.digest FROM answers "
            "JOIN scores ON scores.record = answers.id"
        )
        scores = {}
        for qid, value, digest in self.reader.rows(query):
            if digest == digest_of(qid, value):
                scores[qid] = json.loads(value)["scores"]
        return scores


def put_price(folder: Path, card: RunCard) -> None:
    """Save a card in a run and recompute the facts at its price.

    Args:
        folder: Folder of the run.
        card: Card of the run with the price.
    """
    records = RunFolder(folder, card).records
    with Store(folder, card) as store:
        store.write_facts(records.by_row())


def read_records(folder: Path) -> StoredRecords:
    """Return the records of the run in `folder`, with digests checked."""
    return RunFolder(folder, check=True).records


def read_card(folder: Path) -> RunCard:
    """Return the card of the run in `folder` (see `RunFolder.card`)."""
    return RunFolder(folder).card


def billed_calls(path: Path) -> Iterator[Call]:
    """Yield the calls to servers in the database at `path`, of a run or a compile."""
    if path.name == DATABASE:
        yield from RunFolder(path.parent).billed_calls()
    else:
        yield from filter(was_sent, read_calls(Reader(path)))
