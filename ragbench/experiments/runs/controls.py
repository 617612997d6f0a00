"""Compiled state and controls, put on what a run needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artifacts import (
    assert_held_out,
    assert_not_learned_from,
    load_artefact,
    read_sidecar,
)
from ragbench.experiments.config import RunConfig
from ragbench.experiments.runs.context import RunContext, build
from ragbench.programs.core import RAGProgram
from ragbench.programs.routing import Router
from ragbench.programs.wrappers import Voting, repair_form, with_more_votes


def ready(config: RunConfig, *, like: RunContext | None = None) -> RunContext:
    """The run context of `config`, with compiled state and controls applied; calls no LM.

    Raises:
        RagbenchError: something the user can mend.
    """
    run_context = build(config, like=like)
    if config.compiled is not None:
        sidecar = load_artefact(config.compiled, run_context.program)
        assert_held_out(sidecar.data, run_context.examples, dataset=run_context.dataset.name)
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

    Raises:
        RunError: `folder` is no compiled program, or one of another program than `program`.
    """
    sidecar = read_sidecar(folder)
    if program not in (None, sidecar.program):
        raise RunError(
            f"{folder} is a compiled {sidecar.program}, not {program}; leave --program out"
        )
    return {"program": sidecar.program, "set": sidecar.knobs}
