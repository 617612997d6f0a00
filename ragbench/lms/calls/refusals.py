"""The meaning of a failed reply, read from the provider's words by the table `refusals.txt`.

Providers report the same problem with different statuses: exhausted credit is HTTP 400, 402, 403 or
429. An error gets the class of its meaning and keeps its words. If no row of the table matches, the
error keeps the class of its status.
"""

import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from dspy import lm15
from dspy.lm15 import LM15Error

_TABLE = "refusals.txt"
_COLUMNS = re.compile(r"\s{2,}")
#: First column of the table -> the error that is raised.
_CLASSES: dict[str, type[LM15Error]] = {
    "key": lm15.AuthError,
    "account": lm15.AuthError,
    "money": lm15.BillingError,
    "busy": lm15.ServerError,
    "rate": lm15.RateLimitError,
    "large": lm15.ContextLengthError,
    "content": lm15.InvalidRequestError,
}
#: Maximum number of characters to search, because a server may append the whole prompt.
_LONGEST = 4_000
#: A shorter match is a status, or can occur in any prompt.
_SHORTEST = 4
#: Characters of a body without a message that are shown.
_SHOWN = 200
#: Names under which servers put the message of a failed reply, the best first.
_MESSAGES = ("message", "detail", "error", "base_resp", "status_msg", "error_msg", "msg", "errors",
             "title", "reason")  # fmt: skip
_KEPT = ("provider", "provider_code", "status", "request_id", "retry_after")


class Refusal(NamedTuple):
    """A line of the table. An empty provider and no statuses match all."""

    means: str
    provider: str
    statuses: frozenset[int]
    words: re.Pattern[str]


@lru_cache(maxsize=1)
def table() -> tuple[Refusal, ...]:
    """Return the lines of the table, in their order."""
    text = files("ragbench.lms.calls").joinpath(_TABLE).read_text(encoding="utf-8")
    rows: list[Refusal] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        means, provider, listed, words = _COLUMNS.split(line, maxsplit=3)
        statuses: frozenset[int] = frozenset()
        if listed != "*":
            statuses = frozenset(map(int, listed.split(",")))
        rows.append(Refusal(means, provider.strip("*"), statuses, re.compile(words, re.I | re.S)))
    return tuple(rows)


def meaning(provider: str, status: int, words: str, sent: str = "") -> str:
    """Return the table's meaning of a failed reply.

    Args:
        provider: Name of the provider in DSPy.
        status: HTTP status.
        words: Message, code and body of the reply.
        sent: Body of the request. Its text does not count, because a server may quote the prompt.

    Returns:
        A word of the first column, such as `money`. Empty if no row matches.
    """
    for means, match in _matches(provider, status, words[:_LONGEST]):
        if len(match) < _SHORTEST or match not in sent:
            return means
    return ""


@lru_cache(maxsize=64)  # a server may repeat a rejection thousands of times
def _matches(provider: str, status: int, words: str) -> list[tuple[str, str]]:
    found = []
    for row in table():
        is_of = row.provider in ("", provider) and (not row.statuses or status in row.statuses)
        if is_of and (match := row.words.search(words)):
            found.append((row.means, match[0]))
    return found


def stated(body: str) -> str:
    """Return the message in the body of a failed reply, or else the beginning of the body."""
    try:
        return _message_in(json.loads(body))
    except (ValueError, RecursionError):
        return " ".join(re.sub(r"<[^>]*>", " ", body[:_LONGEST]).split())[:_SHOWN]


def _message_in(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, map(_message_in, value[:3])))
    if not isinstance(value, dict):
        return ""
    for name in _MESSAGES:
        if message := _message_in(value.get(name)):
            place = value.get("loc") or ()
            raw = (value.get("metadata") or {}).get("raw") or ""  # from the server behind a gateway
            return ": ".join(filter(None, [".".join(map(str, place)), message, str(raw)[:_SHOWN]]))
    return ""


def classed(error: LM15Error, *, provider: str = "", body: str = "", sent: str = "") -> LM15Error:
    """Give `error` the class of its meaning, and the server's own message.

    Args:
        error: Error from the protocol's client. A network error is returned unchanged.
        provider: Name of the provider in DSPy.
        body: Body of the reply.
        sent: Body of the request.

    Returns:
        The error. Its attribute `means` is a word of the table.
    """
    status = getattr(error, "status", None) or 0
    if (status < 400 and status != 200) or not isinstance(error, lm15.ProviderError):
        return error
    if status != 200 and (message := stated(body)):
        error.message = message
        error.args = (message,)
    code = getattr(error, "provider_code", None) or ""
    as_refused = 400 if status == 200 else status
    means = meaning(provider, as_refused, f"{error.message}\n{code}\n{body}", sent)
    kind = _CLASSES.get(means)
    if kind is None:
        return error
    if type(error) is not kind:
        details = {name: getattr(error, name, None) for name in _KEPT}
        new = kind(error.message, **details)
        new.__cause__ = error
        error = new
    error.means = means
    return error


def means_of(error: BaseException | None) -> str:
    """Return the meaning that the table gave `error`, or an empty string if no row matched."""
    return str(getattr(error, "means", ""))


def is_of_prompt(error: BaseException | None) -> bool:
    """Return True if the server refuses only this prompt, so that another one may succeed."""
    return isinstance(error, lm15.ContextLengthError) or means_of(error) == "content"
