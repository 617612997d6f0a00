"""How a model is asked about finished records, and the journal of what it said.

A reply is read strictly, and asked for once more if it cannot be read. It is a row of the run's
table `replies` as soon as it comes: what was asked (as a hash), what came of it, and every call
with its price. A reply that could not be used is kept as the result; what the provider failed is
asked again next time. Calls are filed with kind `judge`: they are no cost of answering.
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
from ragbench.ledger import SecondTry, open_ledger
from ragbench.lms.adapters import LenientChat, LenientJSON
from ragbench.lms.batch import client_of
from ragbench.lms.calls import GIVE_PRICE, LimitReachedError, check_price
from ragbench.lms.lm import RagbenchLM
from ragbench.programs.core import predict
from ragbench.record import Call, parse_call
from ragbench.redact import redact

Value = TypeVar("Value")

#: Temperature of what is asked once more.
AGAIN_TEMPERATURE = 0.7


class UnusableError(Exception):
    """A reply without a usable value, after the retry."""


@dataclass(frozen=True)
class Asking:
    """With what a model is asked: the LM, and how many calls at once.

    `on_reply` is called after each reply with the number done, the number in all, and what the
    judge said so far. A batch is looked at after `wait_s` seconds, and then ever more seldom.
    """

    lm: RagbenchLM
    workers: int = 4
    on_reply: Callable[[int, int, str], None] | None = None
    wait_s: float = 2.0

    def check(self) -> None:
        """Refuse an LM that cannot be called, or whose price is needed and not known."""
        check_price(self.lm.model, priced=self.lm.pricing.known, cure=GIVE_PRICE)
        self.lm.check("the judge")


@dataclass(frozen=True)
class Unit:
    """One thing that is asked about a question.

    `parts` is all that decides the reply beside the model, JSON-ready; `data` is what reading the
    reply needs. `cut` says that not everything could be shown. `calls` is how many calls it takes
    where every reply can be used.
    """

    qid: str
    parts: Sequence[Any]
    inputs: Mapping[str, Any]
    data: Any = None
    cut: bool = False
    calls: int = 1


@dataclass(frozen=True)
class Reply:
    """What came of a unit; where there is no value, `why` gives the reason."""

    value: Any
    why: str
    calls: tuple[Call, ...]
    failed: bool = False  # by the provider
    refused: bool = False  # by a limit of the command


@dataclass
class Session:
    """What is asked about the records of a run, and the replies to it.

    Attributes:
        asking: With what it is asked.
        name: The name of the annotation, such as "judge".
        ask: Gives the value of a unit, JSON-ready; raises UnusableError.
        store: The database that has the journal.
        units: What is asked, by a hash of all that decides the reply.
        replies: The replies so far, by the same.
        earlier: The calls of failed tries that were made again since.
    """

    asking: Asking
    name: str
    ask: Callable[[Unit, RagbenchLM], Any]
    store: Store
    units: Mapping[str, Unit]
    replies: dict[str, Reply] = field(default_factory=dict)
    earlier: tuple[Call, ...] = ()

    def add(self, key: str, reply: Reply) -> None:
        """Write a reply to the journal; of a unit that a limit cut off only what it took."""
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
        """Say that `done` of `n` replies are there, and the share that calls an answer correct."""
        if self.asking.on_reply:
            verdicts = Counter(str(reply.value) for reply in self.replies.values())
            right = verdicts["correct"]
            judged = verdicts["correct"] + verdicts["incorrect"]
            self.asking.on_reply(done, n, f"judged correct {right / judged:.3f}" if judged else "")


def key_of(*values: Any) -> str:
    """A hash of `values`, which must be JSON."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def read_journal(run: RunFolder) -> list[dict[str, Any]]:
    """The replies in the journal of `run`, oldest first, without what became of batches."""
    return [row for row in run.replies() if "batch" not in row]


def reply_of(row: Mapping[str, Any]) -> Reply:
    """The reply in a row of the journal."""
    calls = tuple(map(parse_call, row["calls"]))
    return Reply(row["value"], row["why"], calls, failed=row["provider_failed"])


def ask_once(session: Session, key: str) -> Reply:
    """The reply to the unit at `key`, asked once."""
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
    """What `read` makes of the reply to `signature`; one that it refuses is asked for once more.

    Nothing is mended: a label that a lenient reader would guess at counts as unreadable here.
    `read` raises `UnusableError` where it cannot use the reply. The second call is filed as a
    fallback.
    """
    adapter: dspy.Adapter = LenientJSON() if lm.supports_response_schema else _ChatOnce()
    predictor = predict(signature)
    why = ""
    for attempt_lm in (lm, _again(lm)):
        counts: Counter[str] = Counter()
        context = replace(current(), counts=counts)
        if attempt_lm is not lm:
            context = context.plus(SecondTry())
        with use(context, lm=attempt_lm, adapter=adapter):
            try:
                reply = predictor(**inputs)
                if not counts["label_repair"]:
                    return read(reply)
                why = "the reply had to be mended"
            except (AdapterParseError, UnusableError) as error:
                why = str(error)
    raise UnusableError(why.strip().partition("\n")[0][:200] or "unreadable")


class _ChatOnce(LenientChat):
    """`LenientChat` without its second call: a reply is asked for again by `ask_strictly`."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As `dspy.ChatAdapter`."""
        return list(dspy.ChatAdapter.__call__(self, *args, **kwargs))


def _again(lm: RagbenchLM) -> RagbenchLM:
    """`lm` for asking the same once more: another seed, some temperature, other cached replies."""
    settings: dict[str, Any] = {"rollout_id": (lm.kwargs.get("rollout_id") or 1000) + 1}
    if lm.kwargs.get("temperature") is not None:  # some models refuse it
        settings["temperature"] = AGAIN_TEMPERATURE
    copied = lm.copy(**settings)
    assert isinstance(copied, RagbenchLM)
    return copied


def uncached(lm: RagbenchLM, repeat: int) -> RagbenchLM:
    """Return `lm` for asking the same again: with another seed, and without a cache of replies."""
    settings: dict[str, Any] = {"cache": False}
    if lm.kwargs.get("seed") is not None:
        settings["seed"] = lm.kwargs["seed"] + repeat
    copied = lm.copy(**settings)
    assert isinstance(copied, RagbenchLM)
    return copied


def ask_directly(session: Session, todo: Sequence[str]) -> None:
    """Ask several of the units at `todo` at once, and keep each reply as it comes."""
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
