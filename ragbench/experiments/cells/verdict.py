"""Verdicts on compiling: zero-shot, form, each compiled program, and votes at equal cost.

Every cell runs over held-out questions. The same command continues an interrupted verdict.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from ragbench.errors import ConfigError, DataError, RunError, StoppedError
from ragbench.experiments.cells.cell import (
    CELLS,
    PROGRAMS,
    Cell,
    Outcome,
    read_experiment,
    write_experiment,
)
from ragbench.experiments.cells.scheduler import Scheduler
from ragbench.experiments.compare.paired import Arm
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
from ragbench.experiments.estimates import (
    estimate_compile,
    estimate_run,
    in_all,
    question_cost,
    run_pilot,
)
from ragbench.experiments.plans import make_plan
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.runs.context import ready
from ragbench.experiments.runs.repeats import repeat_configs
from ragbench.experiments.runs.summary import Evaluation, reopen
from ragbench.experiments.store import locked


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
    for name in ("seeds", "repeats"):
        value = getattr(request, name)
        if value < 1:
            raise ConfigError(f"{name}={value} is not allowed; give 1 or more")
    if config.split != "test":
        raise DataError(
            f"a verdict is on held-out questions; leave out --split {config.split}, "
            "which compiling uses"
        )
    make_plan(config, settings)  # Refuse invalid settings before a cell is paid for.
    folder = verdict_folder(config, settings)
    scheduler = Scheduler(watch, on_message=on_message)
    outcomes: list[Outcome] = []
    arms: dict[str, list[Evaluation]] = {}

    def run(cell: Cell) -> None:
        for repeat in repeat_cells(cell, request.repeats):
            outcome = scheduler.run(repeat, repeat.label)
            arms.setdefault(cell.arm, []).append(outcome.finished())
            outcomes.append(outcome)

    with locked(folder):
        for cell in cells_of(config, settings, request):
            run(cell)
        votes = 0
        if request.equal_cost:
            votes = votes_for(arms[ZERO_SHOT], arms[COMPILED])
            if not votes:
                on_message("no equal-cost arm: compiled costs no more than zero-shot, within 10 %")
        if votes:
            place = folder / CELLS / f"{VOTES}-{votes}"
            try:
                run(Cell(place.name, config.but(votes=votes, out=place), arm=VOTES))
            except StoppedError as stop:
                on_message(f"the verdict is without the arm at equal cost: {stop}")
                votes = 0
        metrics = tuple(request.metrics)
        seeds = _seeds(settings, request)
        design = Design(seeds, votes, metrics, request.margin, request.repeats)
        verdict = assemble(folder, design)
        write_experiment(folder, "verdict", outcomes, verdict.to_dict())
        return verdict


def cells_of(config: RunConfig, settings: CompileConfig, request: VerdictRequest) -> list[Cell]:
    """List the cells of a verdict, without that of equal cost.

    Args:
        config: The run.
        settings: The compile.
        request: The arms.

    Returns:
        Zero-shot, form, and both of each compiled program.
    """
    folder = verdict_folder(config, settings)
    cells = []
    for arm, form in ((ZERO_SHOT, False), (FORM, True)):
        cells.append(Cell(arm, config.but(form=form, out=folder / CELLS / arm), arm=arm))
    for seed in _seeds(settings, request):
        program = folder / PROGRAMS / f"program-{seed}"
        compiling = settings.model_copy(update={"optimizer_seed": seed, "out": program})
        for arm, form in ((COMPILED, False), (COMPILED_FORM, True)):
            place = folder / CELLS / f"{arm}-{seed}"
            cell_config = config.but(form=form, compiled=program, out=place)
            cells.append(Cell(place.name, cell_config, compiling, arm=arm))
    return cells


def repeat_cells(cell: Cell, repeats: int) -> list[Cell]:
    """List the repeats of a cell. The first one compiles.

    Args:
        cell: The cell.
        repeats: Number of repeats, >= 1.
    """
    if repeats == 1:
        repeat_configs(cell.config, 1)  # or it has repeats
        return [cell]
    cells: list[Cell] = []
    for config in repeat_configs(cell.config, repeats):
        label = f"{cell.label}, repeat {config.repeat}"
        settings = None if cells else cell.settings
        cells.append(replace(cell, label=label, config=config, settings=settings))
    return cells


def _seeds(settings: CompileConfig, request: VerdictRequest) -> tuple[int, ...]:
    return tuple(range(settings.optimizer_seed, settings.optimizer_seed + request.seeds))


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


def estimate_verdict(
    config: RunConfig,
    settings: CompileConfig,
    request: VerdictRequest,
    *,
    pilot: int | None = None,
    watch: ProgressListener = SILENT,
) -> list[str]:
    """Estimate the cost of the arms and compiles of a verdict, based on zero-shot questions.

    Args:
        config: The run.
        settings: The compile.
        request: The arms.
        pilot: Number of questions to run first, in the arm zero-shot.
        watch: The receiver of the pilot's progress.

    Returns:
        Lines to print.
    """
    folder = verdict_folder(config, settings)
    repeat_config = repeat_configs(config.but(out=folder / CELLS / ZERO_SHOT), request.repeats)[0]
    run_context = ready(repeat_config)
    if pilot:
        run_pilot(run_context, pilot, watch)
    zero_shot = estimate_run(run_context)
    cost = question_cost(run_context)
    n = len(run_context.examples)
    compiling = estimate_compile(make_plan(config, settings, like=run_context), cost)
    n_arms = 2 * request.repeats * (1 + request.seeds) - 1
    arms = cost.times(n_arms * n, n_arms * n)
    notes = [
        f"{request.seeds} compiles and {n_arms + 1} runs, without the demonstrations that "
        "compiling may add to the prompts"
    ]
    if request.equal_cost:
        notes.append("without the votes at equal cost, which take as much as one compiled arm")
    total = in_all("in all", [zero_shot, arms, *[compiling] * request.seeds], notes)
    return [f"arm {ZERO_SHOT}", *zero_shot.lines(), "compile", *compiling.lines(), *total.lines()]


def reread(folder: Path, reopen: Opener = reopen) -> Verdict:
    """Recompute the verdict in `folder` from its records. Sends no request.

    Args:
        folder: Folder of the verdict.
        reopen: Opens the run in a folder.

    Raises:
        RunError: It has no finished verdict.
    """
    results = read_experiment(folder, "verdict").results
    try:
        fields = results["design"]
        lists = {name: tuple(fields[name]) for name in ("seeds", "metrics")}
        design = Design(**{**fields, **lists})
    except (TypeError, KeyError):
        raise RunError(f"{folder} has no design of a verdict; run it again") from None
    return assemble(folder, design, reopen)
