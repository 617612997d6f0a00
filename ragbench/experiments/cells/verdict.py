"""Verdicts on compiling: zero-shot, form, each compiled program, and votes at equal cost.

Every cell runs over held-out questions. The same command continues an interrupted verdict.
"""

from __future__ import annotations

import math
from itertools import chain
from pathlib import Path

from ragbench.errors import ConfigError, DataError, RunError, StoppedError
from ragbench.experiments.artifacts import read_sidecar
from ragbench.experiments.cells.cell import CELLS, PROGRAMS, Cell, read_experiment, repeat_cells
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.compare.paired import Arm, read_for
from ragbench.experiments.compare.spending import per_question
from ragbench.experiments.compare.verdicts import (
    COMPILED,
    COMPILED_FORM,
    EQUAL,
    FORM,
    VOTES,
    ZERO_SHOT,
    Design,
    Opener,
    Verdict,
    VerdictRequest,
    assemble,
    verdict_folder,
)
from ragbench.experiments.compile import OnMessage
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.summary import Evaluation, reopen


def run_verdict(
    config: RunConfig,
    settings: CompileConfig,
    request: VerdictRequest,
    *,
    on_message: OnMessage = print,
    watch: ProgressListener = SILENT,
) -> Verdict:
    """Run every cell, or continue, and write the verdict to `experiment.json`.

    Args:
        config: The run.
        settings: The compile.
        request: The arms and their contrasts.
        on_message: The receiver of a line for each step.
        watch: The receiver of progress.

    Raises:
        StoppedError: A limit was reached before there was a verdict.
    """
    cells = verdict_cells(config, settings, request)
    folder = verdict_folder(config, settings)
    scheduler = Scheduler(folder, "verdict", watch, on_message=on_message)
    for _ in scheduler.check(cells):  # Refuse invalid settings before a cell is paid for.
        pass
    arms: dict[str, list[Evaluation]] = {}

    def run(cell: Cell) -> None:
        outcome = scheduler.run(cell, cell.label)
        arms.setdefault(cell.arm, []).append(outcome.finished())

    with scheduler.working():
        for cell in cells:
            run(cell)
        votes = 0
        if request.equal_cost:
            votes = votes_for(arms[ZERO_SHOT], arms[COMPILED])
            if not votes:
                on_message("no equal-cost arm: compiled costs no more than zero-shot, within 10 %")
        if votes:
            place = folder / CELLS / f"{VOTES}-{votes}"
            cell = Cell(place.name, config.but(votes=votes, out=place), arm=VOTES)
            try:
                for repeat in repeat_cells(cell, request.repeats):
                    run(repeat)
            except StoppedError as stop:
                on_message(f"the verdict is without the arm at equal cost: {stop}")
                votes = 0
        scheduler.write({})
        verdict = _assembled(folder, Design(votes, tuple(request.metrics), request.margin))
        scheduler.write(verdict.to_dict())
        return verdict


def verdict_cells(
    config: RunConfig, settings: CompileConfig, request: VerdictRequest
) -> list[Cell]:
    """List the cells of a verdict, without that of equal cost.

    Args:
        config: The run.
        settings: The compile.
        request: The arms.

    Returns:
        Zero-shot, form, and both of each compiled program, each with its repeats.
    """
    for name in ("seeds", "repeats"):
        value = getattr(request, name)
        if value < 1:
            raise ConfigError(f"{name}={value} is not allowed; give 1 or more")
    if config.split != "test":
        raise DataError(
            f"a verdict is on held-out questions; leave out --split {config.split}, "
            "which compiling uses"
        )
    folder = verdict_folder(config, settings)
    cells = []
    for arm, form in ((ZERO_SHOT, False), (FORM, True)):
        cells.append(Cell(arm, config.but(form=form, out=folder / CELLS / arm), arm=arm))
    for seed in range(settings.optimizer_seed, settings.optimizer_seed + request.seeds):
        program = folder / PROGRAMS / f"program-{seed}"
        compiling = settings.model_copy(update={"optimizer_seed": seed, "out": program})
        for arm, form in ((COMPILED, False), (COMPILED_FORM, True)):
            place = folder / CELLS / f"{arm}-{seed}"
            cell_config = config.but(form=form, compiled=program, out=place)
            cells.append(Cell(place.name, cell_config, compiling, arm=arm))
    return list(chain.from_iterable(repeat_cells(cell, request.repeats) for cell in cells))


def votes_for(zero_shot: Arm, compiled: Arm) -> int:
    """Compute the votes per question that use at least as many tokens as the compiled arm.

    Args:
        zero_shot: Runs of the uncompiled program.
        compiled: Runs of the compiled programs.

    Returns:
        The number of votes, within a tenth. 0 if one answer is enough. Never 2, which cannot change
        an answer.
    """
    before = per_question(zero_shot, "tokens") or 0.0
    after = per_question(compiled, "tokens") or 0.0
    ratio = after / before if before else 0.0
    if ratio <= 1 + EQUAL:
        return 0
    return min(max(math.ceil(ratio / (1 + EQUAL)), 3), 99)


def reread(folder: Path, reopen: Opener = reopen) -> Verdict:
    """Recompute the verdict in `folder` from its records. Sends no request.

    Args:
        folder: Folder of the verdict.
        reopen: Opens the run in a folder.

    Raises:
        RunError: It has no finished verdict.
    """
    results = read_experiment(folder, "verdict").results
    if not results:
        raise RunError(f"{folder} has no finished verdict; the same command continues it")
    try:
        fields = results["design"]
        design = Design(**{**fields, "metrics": tuple(fields["metrics"])})
    except (TypeError, KeyError):
        raise RunError(f"{folder} has no design of a verdict; run it again") from None
    return _assembled(folder, design, reopen)


def _assembled(folder: Path, design: Design, reopen: Opener = reopen) -> Verdict:
    """Compute the verdict on the cells that `experiment.json` lists."""
    arms: dict[str, list[Evaluation]] = {}
    programs: dict[str, None] = {}
    for row in read_experiment(folder, "verdict").cells:
        if row.arm == VOTES and not design.votes:  # a limit ended it
            continue
        run = reopen(folder / row.folder)
        read_for(run, design.metrics)
        arms.setdefault(row.arm, []).append(run)
        if row.program:
            programs[row.program] = None
    sidecars = [read_sidecar(folder / program) for program in programs]
    return assemble(folder, design, arms, sidecars)
