"""The contract of rerankers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragbench.retrievers.base import Passage

if TYPE_CHECKING:
    from ragbench.lms.calls import Service


class Reranker(ABC):
    """Scores passages for a query. Thread-safe; files its calls in the ledger."""

    identity: str = "reranker"
    #: Whether what it costs is known; work done on this machine costs nothing.
    priced: bool = True
    #: Whether it computes here, by threads of its own, and asks nobody.
    in_process: bool = True
    #: The server that is asked, if one is.
    service: Service | None = None

    @abstractmethod
    def score(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """A score per passage, in their order; higher is better. At least one passage is given."""


def titled(passage: Passage) -> str:
    """The text that rerankers read."""
    return f"{passage.title} {passage.text}".strip()
