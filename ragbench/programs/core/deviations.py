"""Facts about each program and its differences from its source, read from `programs.yaml`.

The documentation, `ragbench show program` and the deviations of a protocol use these facts.
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
class Deviation:
    """A difference from a source: its behavior, the place that states it, and ours.

    `since` is the version that introduced the difference. `undo` lists the knobs, as `name=value`,
    that restore the behavior of the source. It is empty if no knob does. `variants` lists the
    affected variants. It is empty if all are.
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
        """Return True if a run with `knobs` has this difference."""
        if self.variants and knobs.get("variant") not in self.variants:
            return False
        undone = self.knobs
        if not undone:
            return True
        return any(knobs.get(name) != value for name, value in undone.items())

    def line(self) -> str:
        """Describe the difference in one line."""
        undo = f"; undone by {self.undo}" if self.undo else ""
        if self.variants:
            variants = f" (of {', '.join(self.variants)})"
        else:
            variants = ""
        return f"{self.theirs} ({self.where}); here: {self.ours}{undo}{variants}"


@dataclass(frozen=True)
class Source:
    """The parts of a program's source that were read, and the differences from it.

    `family`, `paper`, `calls` and `autonomy` are attributes of `RAGProgram`. `module` is the module
    of the program in `ragbench.programs`, if it does not have the name of the program.
    """

    source: str
    family: Family
    calls: str
    paper: str = ""
    autonomy: Autonomy = field(default=Autonomy())
    module: str = ""
    deviations: tuple[Deviation, ...] = ()


@lru_cache(maxsize=1)
def sources() -> Mapping[str, Source]:
    """Return the source of each built-in program, by name."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(_FILE.read_text("utf-8"), loader)  # a safe loader
    return TypeAdapter(dict[str, Source]).validate_python(entries)
