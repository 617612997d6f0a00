"""What `ragbench doctor` finds wrong in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ragbench.errors import RagbenchError


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where, what, its cure; and `mend`, or `lines` to leave out, if any.

    One with neither can be mended by a person alone.
    """

    path: Path
    what: str
    cure: str
    lines: tuple[int, ...] = ()
    mend: Callable[[], object] | None = None

    @property
    def mendable(self) -> bool:
        """Whether `repair` can mend it."""
        return bool(self.lines or self.mend)

    def line(self, *, mended: bool = False) -> str:
        """The finding for a person."""
        return f"{self.path}: {self.what}; {'mended' if mended else self.cure}"


def told_by(path: Path, error: RagbenchError, cure: str) -> Finding:
    """What `error` says of `path`; the cure is its own, or else `cure`."""
    what, _, own = str(error).removeprefix(f"{path} ").partition("; ")
    return Finding(path, what, own or cure)
