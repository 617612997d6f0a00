"""How a model is asked for an annotation: read strictly, and once more if it cannot be read.

`DirectRunner` asks several tasks at once; `batched` asks them through a provider's batches.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

import dspy
from dspy import AdapterParseError, LMError

from ragbench import stopping
from ragbench.context import current, use
from ragbench.errors import RunError
from ragbench.experiments.score.annotate.journal import Replies, Reply, Result, Task, file_reply
from ragbench.experiments.store import Store
from ragbench.ledger import open_ledger
from ragbench.lms import RagbenchLM
from ragbench.lms.adapters import LenientChat, LenientJSON
from ragbench.lms.batch import client_of
from ragbench.lms.calls import GIVE_PRICE, LimitReachedError, check_price
from ragbench.programs.core import predict
from ragbench.redact import redact

#: Temperature of what is asked again: of a retry, and of every repeat after the first.
AGAIN_TEMPERATURE = 0.7

#: Called after each reply with the number done and the number in all.
OnReply = Callable[[int, int], None]


class UnusableError(Exception):
    """A reply without a usable value, after the retry."""


def _wait(seconds: float) -> None:
    """Return after `seconds`.

    Raises:
        KeyboardInterrupt: the process was stopped meanwhile.
    """
    stopping.sleep(seconds, over=lambda: False)
    if stopping.stopped():
        raise KeyboardInterrupt


@dataclass(frozen=True)
class Pace:
    """Seconds between two looks at a batch: they grow from the first to the longest."""

    first_s: float = 2.0
    longest_s: float = 60.0
    sleep: Callable[[float], None] = _wait

    def waits(self) -> Iterator[float]:
        """The waits, one after another, without end."""
        wait = self.first_s
        while True:
            yield wait
            wait = min(1.5 * wait, self.longest_s)


@dataclass(frozen=True)
class Asking:
    """With what a model is asked: the LM, and how many calls at once."""

    lm: RagbenchLM
    workers: int = 4
    on_reply: OnReply | None = None
    pace: Pace = Pace()  # of waiting for batches

    def check(self) -> None:
        """Do nothing if asking can start.

        Raises:
            RagbenchError: the LM cannot be called, or its price is needed and not known.
        """
        check_price(self.lm.model, known=self.lm.pricing.known, cure=GIVE_PRICE)
        self.lm.check("the judge")


def ask_once(task: Task, lm: RagbenchLM) -> Reply:
    """The result of asking `task` once, with `lm`."""
    value, why, failed, refused = None, "", False, False
    context = replace(current(), qid=task.qid)
    with use(context, lm=lm, trace=None), open_ledger() as ledger:
        try:
            value = task.ask()
        except UnusableError as error:
            why = str(error)
        except LimitReachedError as error:
            why, refused = str(error), True
        except LMError as error:
            why, failed = redact(f"{type(error).__name__}: {error}")[:500], True
    batch = {"batch": True, "latency_s": 0.0} if client_of(lm) else {}
    calls = tuple(
        replace(call, kind="judge", **batch) if call.kind == "lm" else call  # type: ignore[arg-type]
        for call in ledger.calls
    )
    return Reply(Result(value, why, calls), lm.model, failed, refused)


def ask_strictly(
    signature: type[dspy.Signature],
    lm: RagbenchLM,
    inputs: Mapping[str, Any],
    unusable: Callable[[dspy.Prediction], str] | None = None,
) -> dspy.Prediction:
    """The reply to `signature`, read as it stands; one that cannot be read is asked for once more.

    Nothing is mended: a label that a lenient reader would guess at counts as unreadable here.
    `unusable` says why a reply that could be read cannot be used, or nothing. The second call is
    filed as a fallback.

    Raises:
        UnusableError: neither reply could be read.
        dspy.LMError: the provider failed.
    """
    adapter: dspy.Adapter = LenientJSON() if lm.supports_response_schema else _ChatOnce()
    predictor, why = predict(signature), ""
    for one in (lm, again(lm, 1)):
        counts: Counter[str] = Counter()
        context = replace(current(), counts=counts, fallback=one is not lm)
        with use(context, lm=one, adapter=adapter):
            try:
                reply = predictor(**inputs)
            except AdapterParseError as error:
                why = str(error.message if hasattr(error, "message") else error)
                continue
        why = "the reply had to be mended" if counts["label_repair"] else ""
        why = why or (unusable(reply) if unusable else "")
        if not why:
            return reply
    raise UnusableError(why.strip().partition("\n")[0][:200] or "unreadable")


class _ChatOnce(LenientChat):
    """`LenientChat` without its second call: a reply is asked for again by `ask_strictly`."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As `dspy.ChatAdapter`."""
        return list(dspy.ChatAdapter.__call__(self, *args, **kwargs))


def again(lm: RagbenchLM, number: int) -> RagbenchLM:
    """`lm` for asking the same once more: another seed, some temperature, other cached replies."""
    settings: dict[str, Any] = {"rollout_id": (lm.kwargs.get("rollout_id") or 1000) + number}
    if lm.kwargs.get("temperature") is not None:  # some models refuse it
        settings["temperature"] = AGAIN_TEMPERATURE
    copied = lm.copy(**settings)
    assert isinstance(copied, RagbenchLM)
    return copied


class DirectRunner:
    """Asks tasks at once, up to the limit of spending, and writes each result as it comes."""

    def __init__(self, asking: Asking, store: Store, replies: Replies) -> None:
        self.asking, self.store, self.replies = asking, store, replies
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, todo: Sequence[Task]) -> None:
        """Ask `todo`.

        Raises:
            RunError: a reply cannot be written.
            KeyboardInterrupt: the user stopped it; every reply so far is kept.
        """
        with ThreadPoolExecutor(self.asking.workers, thread_name_prefix="judge") as pool:
            futures = [pool.submit(copy_context().run, self._one, task) for task in todo]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    if self.asking.on_reply:
                        self.asking.on_reply(done, len(todo))
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _one(self, task: Task) -> None:
        if self._stop.is_set():
            return
        reply = ask_once(task, self.asking.lm)
        try:
            with self._lock:
                file_reply(self.store, self.replies, task, reply)
        except RunError:
            self._stop.set()
            raise
