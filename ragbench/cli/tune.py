"""`ragbench tune`: search a program's knobs for the best trade-offs."""

from __future__ import annotations

import sys
from typing import Any

import click

from ragbench.cli.main import say
from ragbench.cli.options import (
    data_options,
    limit_options,
    lm_options,
    pairs,
    program_options,
    retriever_options,
    run_options,
    take_limits,
    to_config,
)


@click.command("tune")
@program_options
@click.option(
    "--objective",
    default="f1,cost",
    show_default=True,
    help="Metrics, and of cost, tokens, calls, latency; the first ranks.",
)
@click.option("--trials", type=click.IntRange(min=1), default=20, help="Combinations to try.")
@click.option("--sampler", help="tpe, nsga2 or random. [default: tpe]")
@click.option(
    "--space",
    multiple=True,
    callback=pairs,
    metavar="KNOB=LOW:HIGH|A,B",
    help="Narrow a knob; repeat for more.",
)
@click.option("--only", help="Knobs to search, separated by commas. [default: all]")
@click.option("--tune-seed", type=int, help="Seeds the sampler. [default: 0]")
@click.option(
    "--demos", type=int, help="Search 0 to so many demonstrations too, of training questions."
)
@click.option("--prune/--no-prune", default=True, help="Give up early, with one objective.")
@click.option("--dry-run", is_flag=True, help="Print what it would spend, and stop.")
@data_options
@retriever_options
@lm_options
@run_options
@limit_options
def tune_command(
    objective: str, trials: int, sampler: str | None, space: dict[str, Any], only: str | None,
    tune_seed: int | None, demos: int | None, prune: bool, dry_run: bool, **options: Any,
) -> None:  # fmt: skip
    """Search a program's knobs with Optuna and keep the Pareto front.

    Asks validation questions (50 unless --limit says otherwise), or those of --split train. Give
    the same command again to continue, with more --trials to search on. Use a result by
    `ragbench eval --compiled`, on the test split.
    """
    from ragbench.experiments.limited import limited
    from ragbench.experiments.tune import folder_of, tune
    from ragbench.experiments.tune_estimate import estimate_tune
    from ragbench.experiments.tune_report import print_tuned
    from ragbench.experiments.tune_search import TuneConfig
    from ragbench.knobs import resolve

    options["split"] = options["split"] or "validation"
    options["limit"] = 50 if options["limit"] is None else options["limit"]
    given = {
        "objectives": tuple(_names(objective)),
        "trials": trials,
        "sampler": sampler,
        "space": {name: str(value) for name, value in space.items()},
        "only": tuple(_names(only or "")),
        "tune_seed": tune_seed,
        "demos": demos,
        "prune": prune,
    }
    how = resolve(TuneConfig, "tune", {k: v for k, v in given.items() if v is not None})
    limits = take_limits(options)
    config = to_config(**options)
    if dry_run:
        demonstrations, found = estimate_tune(config, how)
        for line in (*demonstrations, *found.lines()):
            click.echo(line)
        return
    with limited(limits, folder_of(config)):
        tuned = tune(config, how, say=say)
        print_tuned(tuned)  # here: where an LM is down, the block ends with its error
    if tuned.stopped:
        click.echo(tuned.stopped, err=True)
        sys.exit(3)


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
