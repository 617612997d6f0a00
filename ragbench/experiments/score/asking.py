"""Calls to a model about finished records, and the journal of its replies.

Replies are read strictly. An unreadable reply is requested again, once. Each reply is written to
the table `replies` at once: a hash of the request, the result, and every call with its price. An
unusable reply is a result. The next command repeats units that failed at the provider. Calls have
the kind `judge`, because they are not a cost of answering.
"""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import dspy
from dspy import AdapterParseError, LMError

from ragbench.context import current, use
from ragbench.experiments.store import RunFolder, Store
from ragbench.ledger import RetryContext, open_ledger
from ragbench.lms.adapters import LenientChat, LenientJSON
from ragbench.lms.batch import client_of
from ragbench.lms.calls import GIVE_PRICE, LimitReachedError, check_price
from ragbench.lms.lm import RagbenchLM
from ragbench.programs.core import predict
from ragbench.record import Call, parse_call
from ragbench.redact import redact

Value = TypeVar("Value")

#: Temperature of a retry.
AGAIN_TEMPERATURE = 0.7


class UnusableError(Exception):
    """A reply without a usable value, after the retry."""


@dataclass(frozen=True)
class JudgeSession:
    """The LM to ask, and how to call it.

    Attributes:
        lm: The LM.
        workers: Maximum number of concurrent calls.
        on_reply: Called after each reply with the number done, the total, and a status text.
        wait_s: First pause in seconds between two looks at a batch. Pauses grow.
    """

    lm: RagbenchLM
    workers: int = 4
    on_reply: Callable[[int, int, str], None] | None = None
    wait_s: float = 2.0

    def check(self) -> None:
        """Reject an LM that cannot be called, or whose required price is unknown."""
        check_price(self.lm.model, priced=self.lm.pricing.known, cure=GIVE_PRICE)
        self.lm.check("the judge")


@dataclass(frozen=True)
class Unit:
    """One request about one question.

    Attributes:
        qid: Id of the question.
        parts: JSON-ready values that determine the reply, apart from the model.
        inputs: Inputs of the signature.
        data: Values that are needed to read the reply.
        cut: True if the prompt omits some text.
        calls: Number of calls if every reply is usable.
    """

    qid: str
    parts: Sequence[Any]
    inputs: Mapping[str, Any]
    data: Any = None
    cut: bool = False
    calls: int = 1


@dataclass(frozen=True)
class Reply:
    """Result of a unit. `why` gives the reason if there is no value."""

    value: Any
    why: str
    calls: tuple[Call, ...]
    failed: bool = False  # The provider failed.
    refused: bool = False  # A limit of the command was reached.


@dataclass
class Session:
    """Requests about the records of a run, with their replies.

    Attributes:
        asking: The LM and how to call it.
        name: Name of the annotation, such as "judge".
        ask: Function that returns the JSON-ready value of a unit. Raises UnusableError.
        store: Database of the journal.
        units: Units by a hash of everything that determines the reply.
        replies: Replies so far, by the same hash.
        earlier: Calls of failed attempts that were repeated later.
    """

    asking: JudgeSession
    name: str
    ask: Callable[[Unit, RagbenchLM], Any]
    store: Store
    units: Mapping[str, Unit]
    replies: dict[str, Reply] = field(default_factory=dict)
    earlier: tuple[Call, ...] = ()

    def add(self, key: str, reply: Reply) -> None:
        """Write a reply to the journal.

        If a limit stopped the unit, only its calls are written.

        Args:
            key: Hash of the unit.
            reply: The reply.
        """
        if not reply.refused or reply.calls:
            model = self.asking.lm.model
            row = {"qid": self.units[key].qid, "pass": self.name, "key": key, "model": model}
            row |= {"value": reply.value, "why": reply.why}
            calls = list(map(asdict, reply.calls))
            failed = reply.failed or reply.refused
            self.store.add_reply({**row, "provider_failed": failed, "calls": calls})
        if reply.refused:
            self.earlier += reply.calls
        else:
            self.replies[key] = reply

    def tell(self, done: int, n: int) -> None:
        """Report progress, with the fraction of answers judged correct so far.

        Args:
            done: Number of replies.
            n: Number of requests.
        """
        if self.asking.on_reply:
            verdicts = Counter(str(reply.value) for reply in self.replies.values())
            right = verdicts["correct"]
            judged = verdicts["correct"] + verdicts["incorrect"]
            self.asking.on_reply(done, n, f"judged correct {right / judged:.3f}" if judged else "")


def key_of(*values: Any) -> str:
    """Return a hash of `values`, which must be JSON-ready."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def read_journal(run: RunFolder) -> list[dict[str, Any]]:
    """Return the replies in the journal of `run`, oldest first, without batch events."""
    return [row for row in run.replies() if "batch" not in row]


def reply_of(row: Mapping[str, Any]) -> Reply:
    """Return the reply in a row of the journal."""
    calls = tuple(map(parse_call, row["calls"]))
    return Reply(row["value"], row["why"], calls, failed=row["provider_failed"])


def ask_once(session: Session, key: str) -> Reply:
    """Send one unit to the judge and return the reply.

    Args:
        session: Session of the judge.
        key: Key of the unit.
    """
    value = None
    why = ""
    failed = False
    refused = False
    lm = session.asking.lm
    unit = session.units[key]
    context = replace(current(), qid=unit.qid)
    with use(context, lm=lm, trace=None), open_ledger() as ledger:
        try:
            value = session.ask(unit, lm)
        except UnusableError as error:
            why = str(error)
        except LimitReachedError as error:
            why = str(error)
            refused = True
        except LMError as error:
            why = redact(f"{type(error).__name__}: {error}")[:500]
            failed = True
    calls = []
    for call in ledger.calls:
        if call.kind == "lm":
            call = replace(call, kind="judge")
            if client_of(lm):
                call = replace(call, batch=True, latency_s=0.0)
        calls.append(call)
    return Reply(value, why, tuple(calls), failed, refused)


def ask_strictly(
    signature: type[dspy.Signature],
    lm: RagbenchLM,
    inputs: Mapping[str, Any],
    read: Callable[[dspy.Prediction], Value],
) -> Value:
    """Ask `signature` and read the reply strictly; retry once if it cannot be read.

    Nothing is repaired: a label that a lenient reader would guess counts as unreadable. The second
    call is recorded as a fallback.

    Args:
        signature: The signature.
        lm: The LM.
        inputs: Inputs of the signature.
        read: Function that converts a reply. Raises UnusableError if it cannot.

    Returns:
        The result of `read`.

    Raises:
        UnusableError: Both replies are unusable.
    """
    adapter: dspy.Adapter = LenientJSON() if lm.supports_response_schema else _ChatOnce()
    predictor = predict(signature)
    why = ""
    for attempt_lm in (lm, _again(lm)):
        counts: Counter[str] = Counter()
        context = replace(current(), counts=counts)
        if attempt_lm is not lm:
            context = context.plus(RetryContext())
        with use(context, lm=attempt_lm, adapter=adapter):
            try:
                reply = predictor(**inputs)
                if not counts["label_repair"]:
                    return read(reply)
                why = "the reply had to be repaired"
            except (AdapterParseError, UnusableError) as error:
                why = str(error)
    raise UnusableError(why.strip().partition("\n")[0][:200] or "unreadable")


class _ChatOnce(LenientChat):
    """`LenientChat` without its second call: `ask_strictly` retries itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """Call `dspy.ChatAdapter`."""
        return list(dspy.ChatAdapter.__call__(self, *args, **kwargs))


def _again(lm: RagbenchLM) -> RagbenchLM:
    """Return `lm` for a retry: a new seed, a higher temperature, and other cached replies."""
    settings: dict[str, Any] = {"rollout_id": (lm.kwargs.get("rollout_id") or 1000) + 1}
    if lm.kwargs.get("temperature") is not None:  # Some models reject it.
        settings["temperature"] = AGAIN_TEMPERATURE
    copied = lm.copy(**settings)
    assert isinstance(copied, RagbenchLM)
    return copied


def uncached(lm: RagbenchLM, repeat: int) -> RagbenchLM:
    """Return a copy of an LM for a repeat: a new seed, and no cache of replies.

    Args:
        lm: LM of the judge.
        repeat: Number of the repeat.
    """
    settings: dict[str, Any] = {"cache": False}
    if lm.kwargs.get("seed") is not None:
        settings["seed"] = lm.kwargs["seed"] + repeat
    copied = lm.copy(**settings)
    assert isinstance(copied, RagbenchLM)
    return copied


def ask_directly(session: Session, todo: Sequence[str]) -> None:
    """Send units to the judge concurrently and save each reply when it arrives.

    Args:
        session: Session of the judge.
        todo: Keys of the units.
    """
    lock = threading.Lock()
    stop = threading.Event()

    def ask(key: str) -> None:
        if not stop.is_set():
            reply = ask_once(session, key)
            with lock:
                session.add(key, reply)

    with ThreadPoolExecutor(session.asking.workers, thread_name_prefix="judge") as pool:
        futures = [pool.submit(copy_context().run, ask, key) for key in todo]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                session.tell(done, len(todo))
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
