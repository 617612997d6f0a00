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

from typing import Literal, get_args

from dspy import AdapterParseError, CodeInterpreterError, LMError

from ragbench.errors import DataError
from ragbench.lms.calls import CallRefusedError
from ragbench.own_code import message_of
from ragbench.record import Failure
from ragbench.redact import redact

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
_LONGEST = 2000


def classify(error: BaseException) -> Failure:
    """The failure that `error` is."""
    return Failure(_boundary(error), type(error).__name__, redact(message_of(error))[:_LONGEST])


def _boundary(error: BaseException) -> Boundary:
    for kind, boundary in _BY_CLASS:
        if isinstance(error, kind):
            return boundary
    marked = getattr(error, "ragbench_boundary", None)
    return marked if marked in BOUNDARIES else "program"
