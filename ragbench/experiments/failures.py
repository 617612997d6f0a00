"""What went wrong while a question was answered, filed by the boundary that failed.

provider    the LM's server: refused, timed out, out of quota, context too long
parse       a reply that no adapter could read
retriever   a search
limit       a limit of the run
program     anything else that left `forward`: a defect of ours or of a third-party program
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from dspy.utils.exceptions import AdapterParseError, LMError

from ragbench.errors import DataError

Boundary = Literal["provider", "parse", "retriever", "limit", "program"]

_KEY_LIKE = re.compile(r"\b(sk|gsk|xai|AIza|key|Bearer)[-_ ][A-Za-z0-9_\-]{12,}")


@dataclass(frozen=True)
class Failure:
    """The boundary that failed, the class of the error and its message, keys taken out."""

    boundary: Boundary
    error: str
    message: str


def classify(error: BaseException) -> Failure:
    """The failure that `error` is."""
    boundary: Boundary = "program"
    if isinstance(error, LMError):
        boundary = "provider"
    elif isinstance(error, AdapterParseError):
        boundary = "parse"
    elif isinstance(error, DataError):
        boundary = "retriever"
    return Failure(boundary, type(error).__name__, redact(str(error))[:2000])


def redact(text: str) -> str:
    """`text` without the value of any key in the environment and without key-like strings."""
    for name, value in os.environ.items():
        if name.endswith(("_KEY", "_TOKEN", "_SECRET")) and len(value) >= 8:
            text = text.replace(value, f"[{name}]")
    return _KEY_LIKE.sub("[key]", text)
