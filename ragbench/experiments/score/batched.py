"""Annotation through a provider's batches: half the price, and an answer within a day.

Every task is asked with an LM that collects what it would have sent. What was collected goes out as
a batch; with its replies the tasks are asked again, as often as it takes: a task that needs a
second call, or a second try, waits for a second batch. The prompts, the strict reading and the rows
of the journal are those of direct calls.

Nothing is paid twice. That a batch is planned is in the journal before it is submitted, its id as
soon as it is known, and all its replies before any is used. An annotation that was cut off asks for
the batches in its journal first; one whose id was lost is looked for at the provider.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from ragbench.errors import RunError
from ragbench.experiments.score.asking import Asking, Replies, Task, ask_once, sleep
from ragbench.lms.batch import (
    BatchClient,
    BatchFailedError,
    BatchReply,
    Item,
    UnsureError,
    most,
    service_of,
    took,
)
from ragbench.lms.calls import Amount, CallRefusedError, Reservation, reserved, room

#: Both take more: 50,000 requests and 200 MB (OpenAI), 100,000 and 256 MB (Anthropic).
_MOST_ITEMS, _MOST_BYTES = 10_000, 90_000_000
_NO_RESULT = BatchReply(504, {"error": {"message": "the batch has no result for it"}})


@dataclass
class _Batch:
    """A batch as the journal has it."""

    name: str
    keys: list[str]
    tasks: list[str]
    since_s: float
    batch_id: str | None = None
    over: bool = False  # its replies are in the journal, or it never was


def read_batches(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, _Batch], dict[str, BatchReply]]:
    """The batches by name, and the replies by key, in the journal's rows."""
    batches: dict[str, _Batch] = {}
    replies: dict[str, BatchReply] = {}
    for row in rows:
        event = row.get("batch")
        if event == "planned":
            batches[row["name"]] = _Batch(row["name"], row["keys"], row["tasks"], row["since_s"])
        elif event and row["name"] in batches:
            batch = batches[row["name"]]
            batch.batch_id = row.get("id", batch.batch_id)
            batch.over = event in ("ended", "lost")
            replies |= {key: BatchReply(**reply) for key, reply in row.get("replies", {}).items()}
    return batches, replies


def under_way(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Keys of the tasks whose replies come with a batch that has not been fetched."""
    batches, _ = read_batches(rows)
    return {key for batch in batches.values() if not batch.over for key in batch.tasks}


class BatchRunner:
    """Asks tasks through batches; see the module. Used once."""

    def __init__(
        self,
        asking: Asking,
        client: BatchClient,
        replies: Replies,
        rows: Iterable[Mapping[str, Any]],
    ) -> None:
        self.asking, self.client, self.replies = asking, client, replies
        batches, fetched = read_batches(rows)
        self._open = [batch for batch in batches.values() if not batch.over]
        # What failed before is tried anew by a new command.
        self.client.replies = {key: reply for key, reply in fetched.items() if reply.status < 300}
        self.service = service_of(client.spec)
        self._n = self._done = 0

    def run(self, todo: Sequence[Task]) -> None:
        """Ask `todo`, and write each result as its replies come.

        Raises:
            RunError: the provider cannot be reached, or refuses a batch; what was submitted is
                kept, and the same command continues.
        """
        self._n = len(todo)
        try:
            for batch in self._open:
                if batch.batch_id is None:  # the process ended while it was submitted
                    batch.batch_id = self.service.find(batch.name, batch.keys, batch.since_s)
                if batch.batch_id:
                    self._fetch(batch)
                else:
                    self._note("lost", batch)
            left = list(todo)
            while left:
                left = self._ask(left)
        except UnsureError as error:
            raise RunError(
                f"the provider cannot be reached ({error}); the same command continues"
            ) from None
        finally:
            self.service.close()

    def _ask(self, tasks: Sequence[Task]) -> list[Task]:
        """Ask `tasks`; fetch the replies that some wait for, and give these tasks back."""
        waiting: dict[str, Item] = {}
        for task in tasks:
            self.client.asked.clear()
            with self.client.task(task.key):
                reply = ask_once(task, self.asking.lm)
            if self.client.asked:
                waiting[task.key] = next(iter(self.client.asked.values()))
            else:
                self.replies.add(task, self.asking.lm.model, reply)
                self._done += 1
                self.asking.tell(self._done, self._n, self.replies)
        if not waiting:
            return []
        chosen, amount = self._next_batch(waiting)
        try:
            with reserved(amount) as reservation:
                self._fetch(self._submit(chosen), reservation)
        except CallRefusedError:
            return []
        # What did not fit may do so now: a batch takes less than it could have taken.
        return [task for task in tasks if task.key in waiting]

    def _next_batch(self, waiting: Mapping[str, Item]) -> tuple[dict[str, Item], Amount]:
        """The items of the next batch, one at least, and what they take at the most.

        They are as many as a batch and the limits have room for; one that no limit has room for is
        refused later.
        """
        left, total, size = room(), Amount(calls=0), 0
        chosen: dict[str, Item] = {}
        for key, item in waiting.items():
            more = total + most(self.asking.lm, item)
            size += len(json.dumps(item.body)) + 200
            fits = more.calls <= left.calls and more.tokens <= left.tokens
            fits = fits and more.cost <= left.cost and size <= _MOST_BYTES
            if chosen and (not fits or len(chosen) == _MOST_ITEMS):
                break
            chosen[key], total = item, more
        return chosen, total

    def _submit(self, group: Mapping[str, Item]) -> _Batch:
        """The batch of `group`, submitted and in the journal."""
        keys = [item.key for item in group.values()]
        batch = _Batch(f"ragbench-{uuid4().hex[:16]}", keys, list(group), time.time())
        self._note("planned", batch, keys=keys, tasks=batch.tasks, since_s=batch.since_s)
        try:
            batch.batch_id = self.service.submit(batch.name, list(group.values()))
        except BatchFailedError:
            self._note("lost", batch)
            raise
        self._note("submitted", batch, id=batch.batch_id)
        return batch

    def _fetch(self, batch: _Batch, reservation: Reservation | None = None) -> None:
        """Wait for the replies of `batch`, and keep them."""
        for wait in self.asking.waits():
            try:
                done, replies = self.service.look(batch.batch_id or "")
            except BatchFailedError:
                self._note("ended", batch)
                raise
            self.asking.tell(min(self._done + done, self._n), self._n, self.replies)
            if replies is not None:
                break
            sleep(wait)
        ours = {key: (replies or {}).get(key, _NO_RESULT) for key in batch.keys}
        self._note("ended", batch, replies={key: asdict(reply) for key, reply in ours.items()})
        if reservation:
            used = sum((took(self.asking.lm, r) for r in ours.values()), Amount(calls=0))
            reservation.take(tokens=used.tokens, cost=used.cost, calls=len(ours))
        self.client.replies |= ours

    def _note(self, event: str, batch: _Batch, **more: Any) -> None:
        self.replies.store.add_reply({"qid": "", "batch": event, "name": batch.name, **more})
