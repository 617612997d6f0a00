"""What each program is, and does otherwise than its source, as data: `programs.yaml` beside them.

The documentation, `ragbench show program` and the deviations that a protocol prints are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import TypeAdapter

_FILE = Path(__file__).parents[1] / "programs.yaml"


Family = Literal["baseline", "agentic", "recursive", "rlm", "graph", "workflow"]


class Autonomy(NamedTuple):
    """The three marks of A-RAG's Table 4 (Du et al. 2026): "yes", "partly" or "no" each."""

    strategy: str = "no"
    iterative: str = "no"
    interleaved: str = "no"


@dataclass(frozen=True)
class Departure:
    """What a source does, where it says so, and what is done here since version `since`.

    `undo` are the knobs, as `name=value`, with which it is done as in the source; empty for none.
    `variants` are those that depart so; empty for all.
    """

    theirs: str
    where: str
    ours: str
    undo: str = ""
    since: str = "0.1.0"
    variants: tuple[str, ...] = ()

    @property
    def knobs(self) -> dict[str, Any]:
        """The knobs that undo it, with their values."""
        values: dict[str, Any] = {}
        for setting in self.undo.split():
            name, _, value = setting.partition("=")
            values[name] = yaml.safe_load(value)
        return values

    def holds(self, knobs: Mapping[str, Any]) -> bool:
        """Whether a run with `knobs` departs so."""
        if self.variants and knobs.get("variant") not in self.variants:
            return False
        undone = self.knobs
        if not undone:
            return True
        return any(_plain(knobs.get(name)) != value for name, value in undone.items())

    def line(self) -> str:
        """The departure in one sentence."""
        undo = f"; undone by {self.undo}" if self.undo else ""
        if self.variants:
            variants = f" (of {', '.join(self.variants)})"
        else:
            variants = ""
        return f"{self.theirs} ({self.where}); here: {self.ours}{undo}{variants}"


def _plain(value: Any) -> Any:
    """A knob as the file has it: no guards at all are `false`."""
    if value in ((), []):
        return False
    return value


@dataclass(frozen=True)
class Source:
    """What was read of a program's source, and the departures from it.

    `family`, `paper`, `calls` and `autonomy` are those of `RAGProgram`.
    """

    source: str
    family: Family
    calls: str
    paper: str = ""
    autonomy: Autonomy = field(default=Autonomy())
    departures: tuple[Departure, ...] = ()


@lru_cache(maxsize=1)
def sources() -> Mapping[str, Source]:
    """The source of each program that ships, by its name."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(_FILE.read_text("utf-8"), loader)  # it is a safe one
    return TypeAdapter(dict[str, Source]).validate_python(entries)
