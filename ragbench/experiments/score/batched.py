"""Annotation through a provider's batches: half the price, answers within a day.

Each unit runs with an LM that collects requests instead of sending them. The requests are
submitted as a batch. When its replies arrive, the units run again with them. A unit that
needs a second call or a retry waits for the next batch. Prompts, strict reading and journal rows
are those of direct calls.

A batch is in the journal as soon as it has an id. All its replies are written before any is used.
An interrupted annotation first fetches the batches in its journal.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ragbench import stopping
from ragbench.experiments.score.asking import Session, ask_once
from ragbench.lms.batch import (
    BatchClient,
    BatchFailedError,
    BatchReply,
    Item,
    most,
    service_of,
    took,
)
from ragbench.lms.calls import Amount, CallRefusedError, Reservation, Scope, room

#: Limits of a batch. OpenAI accepts 50,000 requests and 200 MB, Anthropic 100,000 and 256 MB.
_MOST_ITEMS, _MOST_BYTES = 10_000, 90_000_000
_NO_RESULT = BatchReply(504, {"error": {"message": "the batch has no result for it"}})
#: Journal entry of a batch: `id`, `keys` of its items, and `tasks` that wait for it.
Batch = Mapping[str, Any]


def open_batches(rows: Iterable[Mapping[str, Any]]) -> list[Batch]:
    """Return the batches in the journal's rows that have no replies yet."""
    batches: dict[str, Batch] = {}
    for row in rows:
        if row.get("batch") == "submitted":
            batches[row["id"]] = row
        elif row.get("batch") == "ended":
            batches.pop(row["id"], None)
    return list(batches.values())


def under_way(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the keys of units that wait for a batch that was not fetched yet."""
    keys: set[str] = set()
    for batch in open_batches(rows):
        keys.update(batch["tasks"])
    return keys


class BatchRunner:
    """Annotation through batches, for a single use."""

    def __init__(
        self,
        session: Session,
        client: BatchClient,
        rows: Sequence[Mapping[str, Any]],
    ) -> None:
        self.session = session
        self.lm = session.asking.lm
        self.client = client
        self._open = open_batches(rows)
        for row in rows:
            for key, reply in row.get("replies", {}).items():  # Row of a batch.
                if reply["status"] < 300:  # A new command retries failed ones.
                    client.replies[key] = BatchReply(**reply)
        self.service = service_of(client.spec)
        self._n = self._done = 0

    def run(self, todo: Sequence[str]) -> None:
        """Ask the units at `todo`, and write each result as its replies arrive.

        Raises:
            RunError: The provider is unreachable or rejects a batch. Submitted batches stay in the
                journal, and the same command resumes.
        """
        self._n = len(todo)
        try:
            for batch in self._open:
                self._fetch(batch)
            waiting = list(todo)
            while waiting:
                waiting = self._ask(waiting)
        finally:
            self.service.close()

    def _ask(self, keys: Sequence[str]) -> list[str]:
        """Ask the units at `keys`, fetch the next batch, and return those that waited."""
        waiting: dict[str, Item] = {}
        for key in keys:
            self.client.begin(key)
            reply = ask_once(self.session, key)
            if self.client.asked:
                waiting[key] = self.client.asked[0]
            else:
                self.session.add(key, reply)
                self._done += 1
                self.session.tell(self._done, self._n)
        if not waiting:
            return []
        chosen, amount = self._next_batch(waiting)
        try:
            with Scope.current().reserved(amount) as reservation:
                items = list(chosen.values())
                batch = {"id": self.service.submit(items), "keys": [item.key for item in items]}
                self._note("submitted", **batch, tasks=list(chosen))
                self._fetch(batch, reservation)
        except CallRefusedError:
            return []
        # Items that did not fit may fit now: a batch uses less than its reserved maximum.
        return list(waiting)

    def _next_batch(self, waiting: Mapping[str, Item]) -> tuple[dict[str, Item], Amount]:
        """Return the items of the next batch, at least one, and their maximum usage.

        The batch holds as many items as its size and the limits allow. A single item
        that exceeds a limit is refused later.
        """
        budget = room()
        total = Amount(calls=0)
        size = 0
        chosen: dict[str, Item] = {}
        for key, item in waiting.items():
            amount = total + most(self.lm, item)
            size += len(json.dumps(item.body)) + 200
            fits = amount.calls <= budget.calls and amount.tokens <= budget.tokens
            fits = fits and amount.cost <= budget.cost and size <= _MOST_BYTES
            if chosen and (not fits or len(chosen) == _MOST_ITEMS):
                break
            chosen[key] = item
            total = amount
        return chosen, total

    def _fetch(self, batch: Batch, reservation: Reservation | None = None) -> None:
        """Wait for the replies of `batch` and save them."""
        first_wait = self.session.asking.wait_s
        wait = first_wait
        replies = None
        while replies is None:
            try:
                done, replies = self.service.look(batch["id"])
            except BatchFailedError:
                self._note("ended", id=batch["id"])
                raise
            self.session.tell(min(self._done + done, self._n), self._n)
            if replies is None:
                stopping.sleep(wait, over=lambda: False)
                if stopping.stopped():
                    raise KeyboardInterrupt
                wait = min(1.5 * wait, 30 * first_wait)
        ours = {key: replies.get(key, _NO_RESULT) for key in batch["keys"]}
        rows = {key: asdict(reply) for key, reply in ours.items()}
        self._note("ended", id=batch["id"], replies=rows)
        if reservation:
            used = sum((took(self.lm, reply) for reply in ours.values()), Amount(calls=0))
            reservation.take(tokens=used.tokens, cost=used.cost, calls=len(ours))
        self.client.replies |= ours

    def _note(self, event: str, **fields: Any) -> None:
        self.session.store.add_reply({"qid": "", "batch": event, **fields})
