"""What compiling did to a program's prompts: instructions and demonstrations, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.experiments.artifacts import PROGRAM, Sidecar
from ragbench.experiments.records import read_object
from ragbench.programs import PROGRAMS
from ragbench.programs.core import RAGProgram
from ragbench.retrievers import Corpus, make_retriever


@dataclass(frozen=True)
class PromptChange:
    """One predictor: its instructions before and after, and the demonstrations added."""

    predictor: str
    signature: str
    before: str
    after: str
    demos: tuple[Mapping[str, Any], ...]
    demo_tokens: int

    @property
    def changed(self) -> bool:
        """Whether anything is different."""
        return bool(self.demos) or self.before != self.after


def prompt_changes(folder: Path, sidecar: Sidecar) -> list[PromptChange]:
    """One row per predictor of the compiled program in `folder`, in DSPy's order.

    Demos that are chosen anew for each question, as by knn, are not among them.

    Raises:
        RunError: the program cannot be read.
    """
    state = read_object(folder / PROGRAM)
    before = dict(bare_program(sidecar).named_predictors())
    return [
        PromptChange(
            predictor=card.name,
            signature=card.signature,
            before=before[card.name].signature.instructions,
            after=state[card.name]["signature"]["instructions"],
            demos=tuple(dict(demo) for demo in state[card.name]["demos"]),
            demo_tokens=card.demo_tokens,
        )
        for card in sidecar.predictors
    ]


def bare_program(sidecar: Sidecar) -> RAGProgram:
    """The program of `sidecar` as it was before it was compiled, over no passages."""
    retriever = make_retriever("bm25", Corpus(()), setting="pooled")
    return PROGRAMS.get(sidecar.program)(retriever, **sidecar.knobs)
