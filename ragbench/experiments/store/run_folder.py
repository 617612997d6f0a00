"""A run on disk, opened once for everything that a command reads of it.

Every reader (summaries, comparisons, advice, tables, the page, exports, scores, checks) takes a
`RunFolder` and asks it: the database is opened once, the card is read once, and each record is
parsed once for all columns that are asked for together. Reading writes no record.
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
from ragbench.experiments.store.schema import DATABASE, digest_of
from ragbench.logs import get
from ragbench.record import Call, parse_call, was_sent

_log = get(__name__)


class RunFolder:
    """The run in the folder `path`; where there is none, it has no records and no card.

    Args:
        path: The folder.
        card: The card to go by, in place of the one in the folder.
        check: Leave out records whose digest does not fit, with a warning; else digests are not
            read.

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
        """What was run, on what, by which settings.

        Raises:
            RunError: it is no run folder or cannot be read, or `card.json` is of another run.
        """
        return self._card or card_in(self.path, self.reader)

    @cached_property
    def records(self) -> StoredRecords:
        """The records by question, as they were when they were first asked for."""
        return find_records(self.reader, self.price, check=self._check)

    def price(self, call: Call) -> Call:
        """`call` at the price of this run, if it is of its main LM and the card has a price."""
        return self.card.priced(call) if self.reader.exists else call

    def lost_calls(self) -> list[Call]:
        """Calls of questions that are in no record: the run was killed, or goes on."""
        return list(map(self.price, read_calls(self.reader, "qid != ''")))

    def preparation_calls(self) -> list[Call]:
        """Calls that made what all questions share, finished or not."""
        return list(map(self.price, read_calls(self.reader, "qid = ''")))

    def billed_calls(self) -> Iterator[Call]:
        """The calls to servers, also of questions that were asked again or left no record."""
        for row, value in self.reader.rows("SELECT id, value FROM records ORDER BY id"):
            try:
                calls = list(map(parse_call, json.loads(value)["ledger"]["calls"]))
            except (ValueError, TypeError, KeyError, RecursionError):
                raise RunError(
                    f"{self.reader.path}: row {row} of its records is damaged; put the file back"
                ) from None
            yield from map(self.price, filter(was_sent, calls))
        yield from map(self.price, filter(was_sent, read_calls(self.reader)))

    def texts(self, names: Iterable[str]) -> dict[str, str]:
        """The prompts and replies of calls that were kept under these names."""
        texts = {}
        for name in names:
            for (packed,) in self.reader.rows("SELECT text FROM prompts WHERE id = ?", name):
                text = unpacked(packed)
                if text is None:
                    path = self.reader.path
                    _log.warning("%s: a text of a call is damaged and left out", path)
                else:
                    texts[name] = text
        return texts

    def replies(self) -> list[dict[str, Any]]:
        """What judges said of the answers, and what became of batches, oldest first."""
        replies = []
        query = "SELECT id, value, digest FROM replies ORDER BY id"
        for row, value, digest in self.reader.rows(query):
            if digest != digest_of(value):
                raise RunError(
                    f"{self.reader.path}: row {row} of its replies is damaged; put the file back"
                )
            replies.append(json.loads(value))
        return replies

    def scores(self) -> dict[str, dict[str, float | None]]:
        """The scores that the answers were given, by question."""
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
    """Put `card` into the run in `folder`, and compute the facts by the price of `card`."""
    records = RunFolder(folder, card).records
    with Store(folder, card) as store:
        store.write_facts(records.by_row())


def read_records(folder: Path) -> StoredRecords:
    """Return the records of the run in `folder`, digests checked; none if it is not a run."""
    return RunFolder(folder, check=True).records


def read_card(folder: Path) -> RunCard:
    """The card of the run in `folder`; see `RunFolder.card`."""
    return RunFolder(folder).card


def billed_calls(path: Path) -> Iterator[Call]:
    """The calls to servers that the database at `path` knows of, a run's or a compile's."""
    if path.name == DATABASE:
        yield from RunFolder(path.parent).billed_calls()
    else:
        yield from filter(was_sent, read_calls(Reader(path)))
