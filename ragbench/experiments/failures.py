"""What went wrong while a question was answered, filed by the boundary that failed.

    the question
    ├── limit        a limit of the run or of the question refused its next call
    ├── provider     the LM's server: refused, timed out, out of quota, context too long
    ├── parse        a reply that no adapter could read
    ├── retriever    a search: an index, or a server of embeddings or rerankings
    ├── tool         a tool that the model used: page, chunk, sandbox
    └── program      anything else that left `forward`: a defect of ours or of a third party

The class of the error decides where it says enough, else the innermost `crossing` that it passed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from dspy.primitives.code_interpreter import CodeInterpreterError
from dspy.utils.exceptions import AdapterParseError, LMError

from ragbench.errors import DataError
from ragbench.lms.governor import CallRefusedError

Boundary = Literal["limit", "provider", "parse", "retriever", "tool", "program"]
BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)

#: Classes of error that name their boundary; the first that fits counts.
_BY_CLASS: tuple[tuple[type[BaseException], Boundary], ...] = (
    (CallRefusedError, "limit"),
    (LMError, "provider"),
    (AdapterParseError, "parse"),
    (CodeInterpreterError, "tool"),
    (DataError, "retriever"),
)
_KEY_LIKE = re.compile(
    r"\b(?:(?:sk|gsk|xai|hf|pk|rk)[-_]|AIza|(?:key|Bearer|token)[-_ =:]{1,2})[A-Za-z0-9_\-.]{12,}"
)
_LONGEST = 2000


@dataclass(frozen=True)
class Failure:
    """The boundary that failed, the class of the error and its message, keys taken out."""

    boundary: Boundary
    error: str
    message: str

    @property
    def name(self) -> str:
        """Boundary and class, as `provider/LMServerError`."""
        return f"{self.boundary}/{self.error}"


def classify(error: BaseException) -> Failure:
    """The failure that `error` is."""
    return Failure(_boundary(error), type(error).__name__, redact(_text(error))[:_LONGEST])


def _boundary(error: BaseException) -> Boundary:
    for kind, boundary in _BY_CLASS:
        if isinstance(error, kind):
            return boundary
    marked = getattr(error, "ragbench_boundary", None)
    return marked if marked in BOUNDARIES else "program"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a third party's __str__ may itself be what is broken
        return "no message"


def redact(text: str) -> str:
    """`text` without the value of any key in the environment and without key-like strings."""
    for name, value in _secrets():
        text = text.replace(value, f"[{name}]")
    return _KEY_LIKE.sub("[key]", text)


def _secrets() -> Iterator[tuple[str, str]]:
    # The longest first: one key may be the beginning of another.
    named = ((name, value) for name, value in os.environ.items() if _is_secret(name))
    yield from sorted(named, key=lambda pair: (-len(pair[1]), pair[0]))


def _is_secret(name: str) -> bool:
    ends = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
    return name.upper().endswith(ends) and len(os.environ.get(name, "")) >= 8
