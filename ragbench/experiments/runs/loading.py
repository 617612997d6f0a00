"""A finished program from its parts: compiled state, form and votes, as in a run.

Runs, `ragbench ask` and `load_program`, which gives a program to take home, all make it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import dspy

from ragbench.context import use
from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artifacts import Sidecar
from ragbench.experiments.config import compiled_digest, compiled_folder
from ragbench.experiments.config.provenance import check_stored
from ragbench.experiments.runs.compiled import compiled_fields
from ragbench.experiments.saved_state import load_compiled
from ragbench.experiments.store import is_run, read_card
from ragbench.external import label_of
from ragbench.programs import PROGRAMS
from ragbench.programs.core import RAGProgram
from ragbench.programs.core.question_state import asking
from ragbench.programs.external import adapter_of
from ragbench.programs.wrappers import Voting, WrapperProgram, repair_form
from ragbench.retrievers import Retriever


class AssembledProgram(NamedTuple):
    """A program with its state and its controls, and the sidecar of its compiled folder, if any."""

    program: RAGProgram
    sidecar: Sidecar | None


def finish(
    program: RAGProgram,
    *,
    compiled: Path | None = None,
    form: bool = False,
    votes: int = 1,
) -> AssembledProgram:
    """Apply compiled state, form and votes to the fresh `program`, which is modified.

    Args:
        program: Program, as its constructor made it.
        compiled: A compiled folder, or a state that plain DSPy saved.
        form: True repairs the form of answers.
        votes: Number of sampled answers per question.

    Raises:
        RunError: The compiled state is of another program.
    """
    sidecar = None
    if compiled is not None:
        sidecar = load_compiled(compiled, program)
    if form:
        program = repair_form(program)
    if votes > 1:
        program = Voting(program, votes)
    return AssembledProgram(program, sidecar)


class LoadedProgram(WrapperProgram):
    """Ask another program."""

    def forward(self, question: str, **inputs: Any) -> dspy.Prediction:
        """Answer as in a run, by the adapter that `adapter="auto"` of a run is."""
        program = self.inner
        while isinstance(program, WrapperProgram):
            program = program.inner
        adapter = dspy.settings.adapter or adapter_of(program, "auto", dspy.settings.lm)
        with use(asking(question, inputs), adapter=adapter):
            return self.inner(question=question)


def load_program(
    folder: Path,
    retriever: Retriever,
    *,
    program: str | None = None,
    knobs: Mapping[str, Any] = MappingProxyType({}),
    compiled: Path | None = None,
    form: bool | None = None,
    votes: int | None = None,
) -> LoadedProgram:
    """Load the program in `folder`, with its knobs and its state, over `retriever`.

    Args:
        folder: A compiled program, a run, or a state that plain DSPy saved.
        retriever: Retriever of the program.
        program: Its name. Required for external code and for a state.
        knobs: Knobs that the user sets. Required for a free-text knob.
        compiled: Compiled program of the run.
        form: True repairs the form of answers. Default: as in the run, else False.
        votes: Number of sampled answers. Default: as in the run, else 1.

    Raises:
        RunError: The folder is of another program, or `compiled` is not that of the run.
        ConfigError: The folder names code, an address or a file, which the user has to pass.
    """
    label = None if program is None else label_of(program)
    stated = {"set": knobs, "program": program}
    if is_run(folder):
        card = read_card(folder)
        settings = card.config or {}
        if not settings:
            raise RunError(f"{folder} has answers of another system, whose program is not here")
        fields: dict[str, Any] = {"program": card.program, "set": card.knobs}
        if label not in (None, card.program):
            raise RunError(f"{folder} is a run of {card.program}, not {label}")
        _check_compiled(folder, card.compiled, settings.get("compiled"), compiled)
        if form is None:
            form = settings.get("form")
        if votes is None:
            votes = settings.get("votes")
    else:
        if compiled is not None:
            raise ConfigError(f"{folder} is not a run; omit compiled")
        compiled = compiled_folder(folder)
        fields = {"program": label, **compiled_fields(compiled, label)}
        if fields["program"] is None:
            raise ConfigError(
                f"{folder} does not say of which program it is the state; give program="
            )
    if program is not None:
        fields["program"] = program
    check_stored(fields, str(folder), stated)
    kind = PROGRAMS.get(str(fields["program"]))
    program_object = kind(retriever, **{**fields.get("set", {}), **knobs})
    finished = finish(program_object, compiled=compiled, form=bool(form), votes=votes or 1)
    return LoadedProgram(finished.program)


def _check_compiled(run: Path, digest: str, named: Any, compiled: Path | None) -> None:
    """Check that `compiled`, which the user passed, is the program of the run."""
    if compiled is None:
        if digest:
            raise ConfigError(
                f"{run} is a run of a compiled program, {named}; give compiled={str(named)!r} if "
                "you trust it"
            )
        return
    try:
        actual = compiled_digest(compiled)
    except (OSError, ValueError) as error:
        raise RunError(f"{compiled} is not a compiled program: {error}") from None
    if actual.removeprefix("sha256:") != digest.removeprefix("sha256:"):
        raise RunError(f"{compiled} is not the compiled program that {run} was of")
