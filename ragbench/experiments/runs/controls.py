"""Compiled state and controls, put on what a run needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artifacts import (
    assert_held_out,
    assert_not_learned_from,
    load_artefact,
    read_sidecar,
    warn_of_shared_passages,
)
from ragbench.experiments.config import FLAT, RunConfig
from ragbench.experiments.runs.context import RunContext, build
from ragbench.programs.core import RAGProgram
from ragbench.programs.routing import Router
from ragbench.programs.wrappers import Voting, repair_form, with_more_votes
from ragbench.user_code import is_external

#: One of these that is given takes the place of all of its group that the sidecar has.
_SOURCES = {
    "dataset", "data_file", "train_file", "val_file", "test_file", "hub_repo", "lm", "retriever",
}  # fmt: skip


def ready(config: RunConfig, *, like: RunContext | None = None) -> RunContext:
    """The run context of `config`, with compiled state and controls applied; calls no LM.

    Raises:
        RagbenchError: something the user can mend.
    """
    run_context = build(config, like=like)
    if config.compiled is not None:
        sidecar = load_artefact(config.compiled, run_context.program)
        assert_held_out(sidecar.data, run_context.examples, dataset=run_context.dataset.name)
        warn_of_shared_passages(sidecar.data, run_context.examples)
        run_context = replace(run_context, compiled=sidecar.program_sha256)
    if isinstance(run_context.program, Router):
        assert_not_learned_from(
            run_context.program.policy, run_context.examples, dataset=run_context.dataset.name
        )
    return replace(run_context, program=_controlled(run_context.program, config, run_context))


def _controlled(program: RAGProgram, config: RunConfig, run_context: RunContext) -> RAGProgram:
    """`program`, or what the config's controls put around it."""
    if config.form and config.policy:
        raise ConfigError("a router runs its programs as they are; leave form out")
    if config.form:
        program = repair_form(program)
    if config.votes == 1:
        return program
    asked = [example.question for example in run_context.examples]
    return Voting(program, config.votes, with_more_votes(asked, config.votes))


def compiled_fields(folder: Path, program: str | None = None) -> dict[str, Any]:
    """The config fields that a compiled program decides: its architecture and its knobs.

    `program` is the one that the user named, if any.

    Raises:
        RunError: `folder` is no compiled program, or one of another program than `program`, or one
            of external code that the user did not name.
    """
    sidecar = read_sidecar(folder)
    if program not in (None, sidecar.program):
        raise RunError(
            f"{folder} is a compiled {sidecar.program}, not {program}; leave --program out"
        )
    if is_external(sidecar.program) and program is None:
        raise RunError(
            f"{folder} is a compiled {sidecar.program}: external code, which is loaded only where "
            f"it is named; give --program {sidecar.program} if you trust it"
        )
    return {"program": sidecar.program, "set": sidecar.knobs}


def compiled_sources(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Data, LM and retriever that `folder` was compiled with, by flat name.

    Those for which `given`, by flat name, has others are left out.

    Raises:
        RunError: `folder` is no compiled program.
    """
    groups = {FLAT[name][0] for name in given.keys() & _SOURCES}
    own = read_sidecar(folder).given
    return {k: v for k, v in own.items() if k in FLAT and FLAT[k][0] not in groups}
