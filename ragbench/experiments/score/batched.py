"""Annotation through a provider's batches: half the price, and an answer within a day.

Every task is asked with an LM that collects what it would have sent. What was collected goes out as
a batch; with its replies the tasks are asked again, as often as it takes: a task that needs a
second call, or a second try, waits for a second batch. The prompts, the strict reading and the rows
of the journal are those of direct calls.

A batch is in the journal as soon as it has an id, and all its replies before any is used. An
annotation that was cut off asks for the batches in its journal first.
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

#: Both take more: 50,000 requests and 200 MB (OpenAI), 100,000 and 256 MB (Anthropic).
_MOST_ITEMS, _MOST_BYTES = 10_000, 90_000_000
_NO_RESULT = BatchReply(504, {"error": {"message": "the batch has no result for it"}})
#: A batch as the journal has it: `id`, `keys` of its items, and `tasks` that wait for it.
Batch = Mapping[str, Any]


def open_batches(rows: Iterable[Mapping[str, Any]]) -> list[Batch]:
    """The batches in the journal's rows whose replies are not there yet."""
    batches: dict[str, Batch] = {}
    for row in rows:
        if row.get("batch") == "submitted":
            batches[row["id"]] = row
        elif row.get("batch") == "ended":
            batches.pop(row["id"], None)
    return list(batches.values())


def under_way(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Keys of the tasks whose replies come with a batch that has not been fetched."""
    keys: set[str] = set()
    for batch in open_batches(rows):
        keys.update(batch["tasks"])
    return keys


class BatchRunner:
    """Asks tasks through batches; see the module. Used once."""

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
            for key, reply in row.get("replies", {}).items():  # of a batch
                if reply["status"] < 300:  # what failed before is tried anew by a new command
                    client.replies[key] = BatchReply(**reply)
        self.service = service_of(client.spec)
        self._n = self._done = 0

    def run(self, todo: Sequence[str]) -> None:
        """Ask the units at `todo`, and write each result as its replies come.

        Raises:
            RunError: the provider cannot be reached, or refuses a batch; what was submitted is
                kept, and the same command continues.
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
        """Ask the units at `keys`; fetch the replies that some wait for, and give those back."""
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
        # What did not fit may do so now: a batch takes less than it could have taken.
        return list(waiting)

    def _next_batch(self, waiting: Mapping[str, Item]) -> tuple[dict[str, Item], Amount]:
        """The items of the next batch, one at least, and what they take at the most.

        They are as many as a batch and the limits have room for; one that no limit has room for is
        refused later.
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
        """Wait for the replies of `batch`, and keep them."""
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
