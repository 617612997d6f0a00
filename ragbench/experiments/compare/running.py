"""Runs the arms of a verdict, or continues them: each an ordinary run, over held-out questions.

Data and retriever are built once. What was cut off is continued by the same command.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, DataError, StoppedError
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
    Verdict,
    VerdictRequest,
    assemble,
    verdict_folder,
)
from ragbench.experiments.compile import OnMessage, compile_program
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.estimates import (
    estimate_compile,
    estimate_run,
    in_all,
    question_cost,
    run_pilot,
)
from ragbench.experiments.plans import make_plan
from ragbench.experiments.runs.context import RunContext, ready
from ragbench.experiments.runs.repeats import evaluate_repeats, repeat_configs
from ragbench.experiments.runs.summary import Evaluation
from ragbench.experiments.store import locked
from ragbench.experiments.watch import SILENT, Watch


def run_verdict(
    config: RunConfig,
    settings: CompileConfig,
    request: VerdictRequest,
    *,
    on_message: OnMessage = print,
    watch: Watch = SILENT,
) -> Verdict:
    """Run every arm, or continue them, and give the verdict, written to `verdict.json`."""
    _check(config, request)
    # What compiling would refuse is refused before an arm is paid for.
    run_context = make_plan(config, settings).run_context
    folder = verdict_folder(config, settings)
    arms = _Arms(config, settings, request, folder, run_context, on_message, watch)
    with locked(folder):
        return arms.verdict()


def _check(config: RunConfig, request: VerdictRequest) -> None:
    for name in ("seeds", "repeats"):
        value = getattr(request, name)
        if value < 1:
            raise ConfigError(f"{name}={value} is not allowed; give 1 or more")
    if config.split != "test":
        raise DataError(
            f"a verdict is on held-out questions; leave out --split {config.split}, "
            "which compiling uses"
        )


@dataclass
class _Arms:
    """The arms of one verdict as they are run,."""

    config: RunConfig
    settings: CompileConfig
    request: VerdictRequest
    folder: Path
    run_context: RunContext
    on_message: OnMessage
    watch: Watch

    def verdict(self) -> Verdict:
        """The verdict, kept in the folder."""
        request = self.request
        first_seed = self.settings.optimizer_seed
        seeds = tuple(range(first_seed, first_seed + request.seeds))
        zero_shot = self._run(ZERO_SHOT)
        self._run(FORM, form=True)
        compiled: list[Evaluation] = []
        for seed in seeds:
            program = self._program(seed)
            compiled += self._run(f"{COMPILED}-{seed}", compiled=program)
            self._run(f"{COMPILED_FORM}-{seed}", compiled=program, form=True)
        votes = self._vote(zero_shot, compiled) if request.equal_cost else 0
        design = Design(seeds, votes, tuple(request.metrics), request.margin, request.repeats)
        verdict = assemble(self.folder, design)
        verdict.keep()
        return verdict

    def _run(self, name: str, **over: Any) -> list[Evaluation]:
        self.on_message(f"arm {name}")
        config = self.config.but(**over, out=self.folder / name)
        repeats = self.request.repeats
        runs = evaluate_repeats(config, repeats, like=self.run_context, watch=self.watch)
        stopped = runs[-1]
        if stopped.stopped_by:
            raise StoppedError(f"{stopped.stopped_by} in arm {name}, {stopped.progress.words()}")
        return runs

    def _program(self, seed: int) -> Path:
        changes = {"optimizer_seed": seed, "out": self.folder / f"program-{seed}"}
        settings = self.settings.model_copy(update=changes)
        return compile_program(
            self.config, settings, on_message=self.on_message, like=self.run_context,
            watch=self.watch,
        )  # fmt: skip

    def _vote(self, zero_shot: Arm, compiled: Arm) -> int:
        """Run the arm of votes; how many a question, 0 where there is no such arm."""
        votes = votes_for(zero_shot, compiled)
        if not votes:
            self.on_message("no equal-cost arm: compiled costs no more than zero-shot, within 10 %")
            return 0
        try:
            self._run(f"{VOTES}-{votes}", votes=votes)
        except StoppedError as stop:
            self.on_message(f"the verdict is without the arm at equal cost: {stop}")
            return 0
        return votes


def votes_for(zero_shot: Arm, compiled: Arm) -> int:
    """Returns the votes a question that take as many tokens as the compiled arm, or more.

    Within a tenth; 0 where one answer does, and never 2, which cannot change an answer.
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
    watch: Watch = SILENT,
) -> list[str]:
    """Estimate the arms of a verdict and its compiles, each arm by the questions of zero-shot.

    Args:
        config: The run.
        settings: The compile.
        request: The arms.
        pilot: Questions to run first, in the arm zero-shot.
        watch: The receiver of the pilot's progress.

    Returns:
        Lines to print.
    """
    folder = verdict_folder(config, settings)
    repeat_config = repeat_configs(config.but(out=folder / ZERO_SHOT), request.repeats)[0]
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
