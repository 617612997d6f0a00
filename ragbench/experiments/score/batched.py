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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from ragbench.errors import RunError
from ragbench.experiments.score.asking import Asking, Replies, Task, ask_once, sleep
from ragbench.lms.batch import (
    MOST_BYTES,
    MOST_ITEMS,
    BatchClient,
    BatchReply,
    Item,
    RefusedError,
    UnsureError,
    most,
    service_of,
    took,
)
from ragbench.lms.calls import Amount, CallRefusedError, Reservation, reserved, room

#: How often an item is sent that expires or that the provider fails, and a batch submitted.
TRIES = 3
#: Errors in a row, while a batch is waited for, after which the command stops.
_PATIENCE = 20
_NO_RESULT = BatchReply(504, {"error": {"message": "the batch has no result for it"}})

T = TypeVar("T")


@dataclass
class _Batch:
    """A batch as the journal has it."""

    name: str
    keys: list[str]
    tasks: list[str]
    since_s: float
    batch_id: str | None = None
    over: bool = False  # its replies are in the journal, or it never was
    guessed: bool = False  # its id was found, and others' batches may look the same
    reservation: Reservation | None = field(default=None, repr=False)


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
        self.batches, fetched = read_batches(rows)
        # What failed before is tried anew by a new command.
        self.client.replies = {key: reply for key, reply in fetched.items() if reply.status < 300}
        self.service = service_of(client.spec)
        self._others: set[str] = set()  # batches that looked like ours and are not
        self._tries: Counter[str] = Counter()
        self._n = self._done = 0

    def run(self, todo: Sequence[Task]) -> None:
        """Ask `todo`, and write each result as its replies come.

        Raises:
            RunError: the provider cannot be reached, or refuses a batch; what was submitted is
                kept, and the same command continues.
        """
        self._n = len(todo)
        left = list(todo)
        try:
            self._await([batch for batch in self.batches.values() if not batch.over])
            while left:
                left = self._ask(left)
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
                self.asking.tell(self._done, self._n)
        if not waiting:
            return []
        chosen, amount = self._next_batch(waiting)
        try:
            with reserved(amount) as reservation:
                self._await([self._submit(chosen, reservation)])
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
            fits = fits and more.cost <= left.cost and size <= MOST_BYTES
            if chosen and (not fits or len(chosen) == MOST_ITEMS):
                break
            chosen[key], total = item, more
        return chosen, total

    def _submit(self, group: Mapping[str, Item], reservation: Reservation) -> _Batch:
        """The batch of `group`, submitted and in the journal."""
        items = list(group.values())
        keys = [item.key for item in items]
        name = f"ragbench-{uuid4().hex[:16]}"
        batch = _Batch(name, keys, list(group), time.time(), reservation=reservation)
        self.batches[name] = batch
        self._note("planned", batch, keys=batch.keys, tasks=batch.tasks, since_s=batch.since_s)
        for wait, _ in zip(self.asking.waits(), range(TRIES), strict=False):
            try:
                batch.batch_id = self.service.submit(name, items)
            except RefusedError as error:
                self._note("lost", batch)
                raise RunError(f"the provider refuses the batch: {error}") from None
            except UnsureError:
                sleep(wait)
                batch.batch_id = self._find(batch)
            if batch.batch_id:
                self._note("submitted", batch, id=batch.batch_id)
                return batch
        self._note("lost", batch)
        raise RunError("the provider takes no batch now; the same command tries again")

    def _await(self, batches: Sequence[_Batch]) -> None:
        """Fetch the replies of `batches`, waiting for those that are not there."""
        for batch in batches:
            if batch.batch_id is None:  # the process ended while it was submitted
                batch.guessed = True
                self._look_for(batch)
        for wait in self.asking.waits():
            under_way = sum(self._look(batch) for batch in batches if not batch.over)
            self.asking.tell(min(self._done + under_way, self._n), self._n)
            if all(batch.over for batch in batches):
                return
            sleep(wait)

    def _look_for(self, batch: _Batch) -> None:
        """Find the id of `batch`, which was perhaps submitted; else it never was."""
        batch.batch_id = self._find(batch)
        if batch.batch_id is None:
            self._note("lost", batch)

    def _look(self, batch: _Batch) -> int:
        """How many items of `batch` are done; fetches the replies if it has ended."""
        batch_id = batch.batch_id or ""
        state = self._patiently(partial(self.service.state, batch_id))
        if state.refused:
            self._note("ended", batch)
            raise RunError(f"batch {batch_id} failed as a whole: {state.refused}")
        if state.ended:
            self._take(batch, self._patiently(partial(self.service.results, batch_id)))
        return state.done

    def _take(self, batch: _Batch, replies: Mapping[str, BatchReply]) -> None:
        if batch.guessed and not replies.keys() & set(batch.keys):
            self._others.add(batch.batch_id or "")
            self._look_for(batch)
            return
        ours = {key: replies.get(key, _NO_RESULT) for key in batch.keys}
        self._note("ended", batch, replies={key: asdict(reply) for key, reply in ours.items()})
        if batch.reservation:
            used = sum((took(self.asking.lm, r) for r in ours.values()), Amount(calls=0))
            batch.reservation.take(tokens=used.tokens, cost=used.cost, calls=len(ours))
        for key, reply in ours.items():
            self._tries[key] += 1
            if not (reply.again and self._tries[key] < TRIES):
                self.client.replies[key] = reply

    def _find(self, batch: _Batch) -> str | None:
        known = {b.batch_id for b in self.batches.values() if b.batch_id} | self._others
        return self._patiently(
            partial(self.service.find, batch.name, len(batch.keys), batch.since_s, known)
        )

    def _patiently(self, ask: Callable[[], T]) -> T:
        """What `ask` gives, asked again where the provider cannot be reached."""
        for wait, _ in zip(self.asking.waits(), range(_PATIENCE), strict=False):
            try:
                return ask()
            except UnsureError as error:
                why = str(error)
                sleep(wait)
            except RefusedError as error:
                raise RunError(f"the provider refuses to tell of the batch: {error}") from None
        raise RunError(f"the batch cannot be asked for ({why}); the same command continues")

    def _note(self, event: str, batch: _Batch, **more: Any) -> None:
        batch.over = event in ("ended", "lost")
        self.replies.store.add_reply({"qid": "", "batch": event, "name": batch.name, **more})
