"""Annotation through a provider's batches: half the price, answers within a day.

Each unit runs with an LM that collects requests instead of sending them. The requests are
submitted as a batch. When its replies arrive, the units run again with them. A unit that
needs a second call or a retry waits for the next batch. Prompts, strict reading and journal rows
are those of direct calls.

A batch is in the journal as soon as it has an id. All its replies are written before any is used.
An interrupted annotation first fetches the batches in its journal.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.context import sleep_until, stopped
from ragbench.errors import RunError
from ragbench.experiments.score.asking import Session, ask_once
from ragbench.lms.batch import SERVICES, BatchClient, BatchFailedError, Item, most, used
from ragbench.lms.calls import Amount, CallRefusedError, Scope, room
from ragbench.lms.calls.client import UNREADABLE

#: Limits of a batch. OpenAI accepts 50,000 requests and 200 MB, Anthropic 100,000 and 256 MB. The
#: replies must fit in the longest reply of the HTTP client.
_MOST_ITEMS, _MOST_BYTES = 5_000, 90_000_000
_NO_RESULT = {"status": 504, "body": {"error": {"message": "the batch has no result for it"}}}
#: Journal entry of a batch: `id`, and `items`, which maps each waiting unit to its request's key.
Batch = Mapping[str, Any]


def open_batches(rows: Sequence[Mapping[str, Any]]) -> list[Batch]:
    """Return the batches in the journal's rows that have no replies yet."""
    ended = {row["id"] for row in rows if row.get("batch") == "ended"}
    return [row for row in rows if row.get("batch") == "submitted" and row["id"] not in ended]


class BatchRunner:
    """Annotation through batches, for a single use."""

    def __init__(
        self, session: Session, client: BatchClient, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        self.session = session
        self.lm = session.asking.lm
        self.client = client
        self.service = SERVICES[client.spec.provider](client.spec)
        self._open = open_batches(rows)
        self._n = self._done = 0
        for row in rows:
            for key, reply in row.get("replies", {}).items():
                if reply["status"] < 300:  # A new command retries failed ones.
                    client.replies[key] = reply

    def run(self, todo: Sequence[str]) -> None:
        """Ask the units at `todo`, and write each result as its replies arrive.

        Raises:
            RunError: The provider is unreachable or rejects a batch. Submitted batches stay in the
                journal, and the same command resumes.
        """
        self._n = len(todo)
        waiting = list(todo)
        try:
            for batch in self._open:
                self._fetch(batch)
            while waiting:
                waiting = self._ask(waiting)
        except CallRefusedError:
            return

    def _ask(self, keys: Sequence[str]) -> list[str]:
        """Ask the units at `keys`, fetch the next batch, and return those that waited."""
        waiting: dict[str, Item] = {}
        for key in keys:
            self.client.begin(key)
            reply = ask_once(self.session, key)
            if self.client.asked:
                waiting[key] = self.client.asked
            else:
                self.session.add(key, reply)
                self._done += 1
                self.session.tell(self._done, self._n)
        if waiting:
            chosen, amount = self._next_batch(waiting)
            with Scope.current().reserved(amount) as reservation:
                reservation.taken = Amount(calls=0)
                batch_id = self.service.submit(list(chosen.values()))
                reservation.taken = amount  # Until the replies are fetched.
                items = {key: item["custom_id"] for key, item in chosen.items()}
                self._note("submitted", id=batch_id, items=items)
                reservation.taken = self._fetch({"id": batch_id, "items": items})
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
            amount = total + most(self.lm, item["body"])
            size += len(json.dumps(item))
            fits = all(getattr(amount, kind) <= most for kind, most in vars(budget).items())
            if chosen and not (fits and size <= _MOST_BYTES and len(chosen) < _MOST_ITEMS):
                break
            chosen[key] = item
            total = amount
        return chosen, total

    def _fetch(self, batch: Batch) -> Amount:
        """Wait for the replies of `batch`, save them, and return their usage."""
        wait = self.session.asking.wait_s
        while (replies := self._look(batch["id"])) is None:
            sleep_until(wait, over=lambda: False)
            if stopped():
                raise KeyboardInterrupt
            wait = min(1.5 * wait, 60.0)
        ours = {key: replies.get(key, _NO_RESULT) for key in batch["items"].values()}
        self._note("ended", id=batch["id"], replies=ours)
        self.client.replies |= ours
        return sum((used(self.lm, reply) for reply in ours.values()), Amount(calls=0))

    def _look(self, batch_id: str) -> Mapping[str, Any] | None:
        try:
            return self.service.fetch(batch_id)
        except BatchFailedError:
            self._note("ended", id=batch_id)
            raise
        except UNREADABLE as error:
            why = f"{self.service.name} gave an unreadable reply: {type(error).__name__}"
            raise RunError(f"{why}; the same command continues") from error

    def _note(self, event: str, **fields: Any) -> None:
        self.session.store.add_reply({"qid": "", "batch": event, **fields})
