"""Runs the arms of a verdict, or continues them: each an ordinary run, over held-out questions.

Data and retriever are built once. What was cut off is continued by the same command. With
`max_questions` the verdict looks at growing numbers of questions, by tests (betting) that may be
looked at as often as one likes: looking again and again at a test made for one look claims
differences that are none. Every look is kept in `verdict.json`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
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
    VERDICT,
    VOTES,
    ZERO_SHOT,
    Design,
    Look,
    Verdict,
    VerdictRequest,
    assemble,
    looks_of,
    schedule,
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
from ragbench.experiments.store import locked, read_object
from ragbench.experiments.watch import SILENT, Watch
from ragbench.metrics import get_metric


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
        if request.max_questions is None:
            return arms.verdict(config.limit)
        most = min(request.max_questions, len(run_context.dataset.splits["test"]))
        return _until_decided(arms, config.limit or 20, most)


def _check(config: RunConfig, request: VerdictRequest) -> None:
    for name, least in (("seeds", 1), ("max_questions", 2), ("repeats", 1)):
        value = getattr(request, name)
        if value is not None and value < least:
            raise ConfigError(f"{name}={value} is not allowed; give {least} or more")
    if config.split != "test":
        raise DataError(
            f"a verdict is on held-out questions; leave out --split {config.split}, "
            "which compiling uses"
        )
    for metric in request.metrics if request.max_questions else ():
        if get_metric(metric).score_range is None:
            raise ConfigError(f"{metric} has no bounds, which --until decided needs")


def _until_decided(arms: _Arms, start: int, most: int) -> Verdict:
    path = arms.folder / VERDICT
    arms.looks = looks_of(read_object(path)) if path.is_file() else []
    if arms.looks:
        arms.votes = arms.looks[0].votes
    for limit in schedule(start, most):
        verdict = arms.verdict(limit)
        metric, c = next(iter(verdict.contrasts[ZERO_SHOT, COMPILED].items()))
        decided = verdict.decided()
        votes = verdict.design.votes
        look = Look(verdict.questions, most, decided, votes, metric, c.difference, c.corrected_p)
        if look not in arms.looks:
            arms.looks.append(look)
        verdict = replace(verdict, looks=tuple(arms.looks))
        verdict.keep()
        if decided or verdict.questions < limit:
            break
    return verdict


@dataclass
class _Arms:
    """The arms of one verdict as they are run, at one number of questions or at several."""

    config: RunConfig
    settings: CompileConfig
    request: VerdictRequest
    folder: Path
    run_context: RunContext
    on_message: OnMessage
    watch: Watch
    looks: list[Look] = field(default_factory=list)
    #: Votes at equal tokens; None until both arms were run once.
    votes: int | None = None

    def verdict(self, limit: int | None) -> Verdict:
        """The verdict on the first `limit` questions (None: all), kept in the folder."""
        request = self.request
        first_seed = self.settings.optimizer_seed
        seeds = tuple(range(first_seed, first_seed + request.seeds))
        zero_shot = self._run(ZERO_SHOT, limit)
        self._run(FORM, limit, form=True)
        compiled: list[Evaluation] = []
        for seed in seeds:
            program = self._program(seed)
            compiled += self._run(f"{COMPILED}-{seed}", limit, compiled=program)
            self._run(f"{COMPILED_FORM}-{seed}", limit, compiled=program, form=True)
        votes = self._vote(zero_shot, compiled, limit) if request.equal_cost else 0
        anytime = request.max_questions is not None
        design = Design(
            seeds, votes, tuple(request.metrics), request.margin, anytime, request.repeats
        )
        verdict = assemble(self.folder, design, tuple(self.looks))
        verdict.keep()
        return verdict

    def _run(self, name: str, limit: int | None, **over: Any) -> list[Evaluation]:
        self.on_message(f"arm {name}")
        config = self.config.but(**over, limit=limit, out=self.folder / name)
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

    def _vote(self, zero_shot: Arm, compiled: Arm, limit: int | None) -> int:
        """Run the arm of votes; how many a question, 0 where there is no such arm."""
        if self.votes is None:
            self.votes = votes_for(zero_shot, compiled)
        if not self.votes:
            self.on_message("no equal-cost arm: compiled costs no more than zero-shot, within 10 %")
            return 0
        try:
            self._run(f"{VOTES}-{self.votes}", limit, votes=self.votes)
        except StoppedError as stop:
            self.on_message(f"the verdict is without the arm at equal cost: {stop}")
            return 0
        return self.votes


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
