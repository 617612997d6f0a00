"""What a verdict is expected to spend, before it spends anything, and what more seeds would."""

from __future__ import annotations

from ragbench.errors import RagbenchError
from ragbench.experiments.compare.design import VerdictRequest, verdict_folder
from ragbench.experiments.compile import estimate_compile, make_plan
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.experiments.estimates import Estimate, estimate_run, in_all
from ragbench.experiments.runs import RunContext, ready
from ragbench.metrics import LEAST_SEEDS


def estimate_verdict(
    config: RunConfig, settings: CompileConfig, request: VerdictRequest
) -> list[str]:
    """What the arms of a verdict take and what its compiles take, in lines for people.

    Raises:
        RagbenchError: something the user can mend.
    """
    arms, compiling, seed = _parts(config, settings, request)
    lines = [line for name, arm in arms.items() for line in (f"arm {name}", *arm.lines())]
    lines += [f"compile, {request.seeds} times", *compiling.lines()]
    lines += [f"arm compiled, {request.seeds} times: as zero-shot"]
    if request.form_too:
        lines += [f"arm compiled-form, {request.seeds} times: as form"]
    notes = ["without the demonstrations that compiling may add to the prompts of its arms"]
    if request.equal_cost:
        notes += ["without the votes at equal cost, which take as much as one compiled arm"]
    whole = in_all("in all", [*arms.values(), *([seed] * request.seeds)], notes)
    return [*lines, *whole.lines(), *more_seeds(config, settings, request, seed=seed)]


def more_seeds(
    config: RunConfig, settings: CompileConfig, request: VerdictRequest,
    *, seed: Estimate | None = None, like: RunContext | None = None,
) -> list[str]:  # fmt: skip
    """What a verdict on the optimizer would take beside one on the programs at hand.

    Empty where it has the seeds for one. `seed` is what one seed takes, where that is known;
    data and retriever are shared with `like`.
    """
    missing = LEAST_SEEDS - request.seeds
    if missing <= 0:
        return []
    on = "this compiled program" if request.seeds == 1 else f"these {request.seeds} programs"
    title = (
        f"the verdict will be on {on} alone; for one on the optimizer give --seeds {LEAST_SEEDS}, "
        f"which takes {missing} times more:"
    )
    try:
        estimate = seed or _parts(config, settings, request, like=like)[2]
    except RagbenchError as error:
        return [title, f"  no estimate: {error}"]
    return [title, *estimate.lines()[1:]]


def _parts(
    config: RunConfig,
    settings: CompileConfig,
    request: VerdictRequest,
    *,
    like: RunContext | None = None,
) -> tuple[dict[str, Estimate], Estimate, Estimate]:
    """The arms that are not compiled, one compile, and all that one seed takes."""
    folder = verdict_folder(config, settings)
    zero_shot = config.but(out=folder / "zero-shot")
    form = config.but(out=folder / "form", form=True)
    run_context = ready(zero_shot, like=like)
    arms = {
        "zero-shot": estimate_run(run_context),
        "form": estimate_run(ready(form, like=run_context)),
    }
    compiling = estimate_compile(make_plan(config, settings, like=run_context))
    each = [compiling, arms["zero-shot"], *([arms["form"]] if request.form_too else [])]
    return arms, compiling, in_all("one seed", each)
