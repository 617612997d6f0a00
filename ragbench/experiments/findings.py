"""What `ragbench doctor` finds wrong in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ragbench.errors import RagbenchError


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong in the file `path`: the problem and its cure.

    `mend` repairs it, or leaving out the `lines` does; one with neither can be mended by a person
    alone.
    """

    path: Path
    problem: str
    cure: str
    lines: tuple[int, ...] = ()
    mend: Callable[[], object] | None = None

    @property
    def mendable(self) -> bool:
        """Whether `repair` can mend it."""
        return bool(self.lines or self.mend)

    def line(self, *, mended: bool = False) -> str:
        """The finding for a person."""
        return f"{self.path}: {self.problem}; {'mended' if mended else self.cure}"


def told_by(path: Path, error: RagbenchError, cure: str) -> Finding:
    """The finding of `error` on `path`, with the cure in its message, or else `cure`."""
    problem, _, own = str(error).removeprefix(f"{path} ").partition("; ")
    return Finding(path, problem, own or cure)
