"""What a failed reply means, by the provider's words: the table in `refusals.txt`, read.

Providers say the same thing by many statuses: that the money is spent is HTTP 400, 402, 403 or 429.
An error gets the class of what it means, and keeps its words. What no line of the table fits keeps
the class that its status has.
"""

import re
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from dspy import lm15
from dspy.lm15 import LM15Error

_TABLE = "refusals.txt"
_COLUMNS = re.compile(r"\s{2,}")
#: What the first column says -> the error that is raised.
_CLASSES: dict[str, type[LM15Error]] = {
    "key": lm15.AuthError,
    "account": lm15.AuthError,
    "money": lm15.BillingError,
    "busy": lm15.ServerError,
    "rate": lm15.RateLimitError,
    "large": lm15.ContextLengthError,
    "content": lm15.InvalidRequestError,
}
#: Words of so many characters are looked at: a server may quote the whole prompt behind them.
_LONGEST = 4_000
_KEPT = ("provider", "provider_code", "status", "request_id", "retry_after")


class Refusal(NamedTuple):
    """A line of the table; no provider and no statuses stand for all."""

    means: str
    provider: str
    statuses: frozenset[int]
    words: re.Pattern[str]


@lru_cache(maxsize=1)
def table() -> tuple[Refusal, ...]:
    """Returns the lines of the table, in their order."""
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


def meaning(provider: str, status: int, words: str) -> str:
    """Returns the table's meaning of a failed reply, such as `money`; blank if it has none."""
    for row in table():
        is_of = row.provider in ("", provider) and (not row.statuses or status in row.statuses)
        if is_of and row.words.search(words[:_LONGEST]):
            return row.means
    return ""


def classed(error: LM15Error, *, provider: str = "", body: str = "") -> LM15Error:
    """Returns `error` by what it means; `body` is what was sent with it. Its `means` says what.

    An error of the network has no words of a provider and is given back.
    """
    status = getattr(error, "status", None) or 0
    if status < 400 or not isinstance(error, lm15.ProviderError):
        return error
    code = getattr(error, "provider_code", None) or ""
    means = meaning(provider, status, f"{error.message}\n{code}\n{body}")
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
    """Returns what the table said of `error`; blank where it said nothing."""
    return str(getattr(error, "means", ""))


def is_of_prompt(error: BaseException | None) -> bool:
    """Returns whether it is this prompt alone that is refused, so that another may be answered."""
    return isinstance(error, lm15.ContextLengthError) or means_of(error) == "content"
