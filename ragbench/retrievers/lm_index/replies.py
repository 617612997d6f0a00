"""Calls of the LM that builds an index, with a cache of replies and a count of lost ones.

A complete, readable reply is cached in one SQLite file next to the indexes, by LM, signature and
inputs, before the next call. So an interrupted build resumes, and a build with other settings pays
only for new inputs. An incomplete reply is used as far as it is readable, counted, and requested
again by the next build.
"""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any, TypeVar

import dspy
from dspy import AdapterParseError, ContextWindowExceededError
from pydantic_core import to_jsonable_python

from ragbench.context import current, use
from ragbench.ledger import file_call, open_ledger
from ragbench.logs import get
from ragbench.record import Call, parse_call
from ragbench.retrievers.base import Progress
from ragbench.signatures import Summarize, role_of
from ragbench.sqlite_cache import CachedRows

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Names of the counts of replies that are not whole: cut at their limit twice, or unreadable.
LOSSES = CUT, UNREADABLE = "cut_replies", "unreadable_replies"

_log = get(__name__)
#: Minimum token limit of a reply.
_REPLY_TOKENS = 4096
#: Maximum number of halvings of an input that the LM rejects as too long.
_HALVINGS = 8


@dataclass(frozen=True)
class IndexReply:
    """Output fields of a reply as JSON, and its calls.

    `loss` is CUT or UNREADABLE if the reply is incomplete. `shortened` is True if the input was too
    long and was truncated.
    """

    values: Mapping[str, Any]
    calls: tuple[Call, ...]
    loss: str = ""
    shortened: bool = False


class IndexLM:
    """The current LM as the builder of an index. Cached replies are not requested again."""

    def __init__(self, rows: CachedRows) -> None:
        self._rows = rows
        self._lock = threading.Lock()
        self._used: dict[bytes, IndexReply] = {}

    @property
    def calls(self) -> list[Call]:
        """The calls of all replies used so far, those of earlier processes too, in fixed order."""
        return [call for key in sorted(self._used) for call in self._used[key].calls]

    @property
    def counts(self) -> dict[str, int]:
        """Number of incomplete replies by kind, and of truncated inputs."""
        replies = list(self._used.values())
        counted = Counter(reply.loss for reply in replies)
        losses = {loss: counted[loss] for loss in LOSSES}
        if 2 * sum(losses.values()) > len(replies):
            _log.warning("Most LM replies for the index could not be read: %s", losses)
        return {**losses, "cut_passages": sum(reply.shortened for reply in replies)}

    def ask(self, signature: type[dspy.Signature], **inputs: Any) -> IndexReply:
        """Return the cached reply to `inputs`, or a new one. File its calls as they end.

        Args:
            signature: Signature of the prompt.
            **inputs: Inputs of the signature.
        """
        key = reply_key(signature, inputs)
        reply = self.kept(key)
        if reply is None:
            reply = _new(signature, inputs)
            if not reply.loss:
                self._rows.put({key: json.dumps(asdict(reply)).encode()})
        with self._lock:
            self._used[key] = reply
        return reply

    def kept(self, key: bytes) -> IndexReply | None:
        """Return the complete reply that is cached under `key`, or None."""
        value = self._rows.get([key]).get(key)
        if value is None:
            return None
        row = json.loads(value)
        return IndexReply(**{**row, "calls": tuple(map(parse_call, row["calls"]))})


def map_concurrently(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    progress: Progress | None = None,
    stage: str = "index",
) -> list[Result]:
    """Apply `function` to each item concurrently and return the results in input order.

    Args:
        function: Called with one item, at most as many at a time as the run has workers.
        items: The items.
        progress: Called with the number done, the total and `stage`.
        stage: Name of the step.

    Raises:
        Exception: The first error, after the running items ended. The others do not start.
    """
    if not items:
        return []
    numbers = count(1)
    telling = threading.Lock()

    def told(item: Item) -> Result:
        result = function(item)
        if progress:
            with telling:  # Before the thread's next item, whose calls are not of those done.
                progress(next(numbers), len(items), stage)
        return result

    workers = min(len(items), max(int(dspy.settings.get("num_threads") or 1), 1))
    with ThreadPoolExecutor(workers, thread_name_prefix="index") as pool:
        futures = []
        for item in items:
            futures.append(pool.submit(copy_context().run, told, item))
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def summarize(lm: IndexLM, texts: Sequence[str], words: int, *, fallback: str) -> str:
    """Return a summary of `texts` on one line.

    Args:
        lm: LM of the index.
        texts: Texts to summarize.
        words: Maximum number of words.
        fallback: Text whose first words are the summary if the LM writes none.
    """
    reply = lm.ask(Summarize, texts=list(texts), max_words=words)
    return one_line(reply.values.get("summary")) or " ".join(fallback.split()[:words])


def one_line(value: Any) -> str:
    """Return a value as text with single spaces. Blank if there is none."""
    return " ".join(str(value or "").split())


def reply_key(signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> bytes:
    """Return the key of the reply to `inputs`: a hash of LM, signature and inputs.

    Args:
        signature: Signature of the prompt.
        inputs: Inputs of the signature.
    """
    fields = {}
    for name, field in signature.output_fields.items():
        fields[name] = [str(field.annotation), field.json_schema_extra.get("desc", "")]
    model = str(getattr(dspy.settings.lm, "model", ""))
    key = [model, signature.__name__, signature.instructions, fields, inputs]
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).digest()


def reply_tokens(inputs: Mapping[str, Any]) -> int:
    """Return the token limit of a reply: twice the requested words, at least 4,096."""
    return max(_REPLY_TOKENS, 2 * int(inputs.get("max_words", 0)) * 4 // 3)


def _new(signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> IndexReply:
    """Request a reply. If it is truncated, request it again with twice the limit."""
    outer = current()

    def book(call: Call) -> None:
        with use(outer):
            file_call(call)

    caller = (signature.__name__, role_of(signature))
    with open_ledger(also=book) as ledger, use(replace(current(), caller=caller), trace=None):
        reply = _attempt(signature, inputs)
        if reply.loss == CUT:
            reply = _attempt(signature, inputs, times=2)
    values = dict(reply.values)
    if reply.loss == CUT and values:  # the last item or sentence may be half
        name, final = list(values.items())[-1]
        if isinstance(final, list):
            values[name] = final[:-1]
        elif isinstance(final, str):
            values[name] = final[: final.rfind(".") + 1]
    return replace(reply, values=values, calls=tuple(ledger.calls))


def _attempt(
    signature: type[dspy.Signature], inputs: Mapping[str, Any], *, times: int = 1
) -> IndexReply:
    """Request one reply with `times` the usual token limit. Its calls are added later."""
    kwargs = dspy.settings.lm.kwargs
    if kwargs.get("max_completion_tokens"):
        limit = "max_completion_tokens"
    else:
        limit = "max_tokens"
    own = kwargs.get(limit)
    # The index caches replies itself. DSPy's cache would repeat an unreadable reply.
    config: dict[str, Any] = {"cache": False}
    if own:  # else the LM's replies have no limit
        config[limit] = times * max(own, reply_tokens(inputs))
    shortened = False
    loss = UNREADABLE
    values: Mapping[str, Any] = {}
    for _ in range(_HALVINGS):
        events: Counter[str] = Counter()
        with use(replace(current(), counts=events)):
            try:
                reply = dspy.Predict(signature)(**inputs, config=config)
            except ContextWindowExceededError:
                if own and config[limit] > own:  # room for the reply that there is not
                    config[limit] = own
                else:  # the longest text, or list, is cut in half
                    name = max(inputs, key=lambda name: len(str(inputs[name])))
                    inputs = {**inputs, name: inputs[name][: len(inputs[name]) // 2]}
                    shortened = True
                continue
            except AdapterParseError as error:
                values = getattr(error, "read", {})
            else:
                values = {name: reply[name] for name in signature.output_fields}
                if any(v or isinstance(v, list) for v in values.values()):
                    loss = ""
        loss = CUT if events["truncated"] else loss
        break
    return IndexReply(to_jsonable_python(dict(values)), (), loss, shortened)
