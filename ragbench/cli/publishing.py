"""`ragbench publish` bundles runs; `ragbench verify` checks every figure of a bundle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragbench.cli.command import PATH, command, force_option, option, output_options, runs_argument
from ragbench.cli.printing import print_table, say
from ragbench.experiments.report.table import Column, Table

if TYPE_CHECKING:
    from ragbench.experiments.publish import Checked


@command("publish", examples=["ragbench publish runs/vanilla runs/ircot -o bundle.zip"])
@runs_argument
@option("-o", "--output", type=PATH, required=True, group="Output", help="File to write.")
@force_option
def publish_command(runs: tuple[Path, ...], output: Path, force: bool) -> None:
    """Write RUNS as one file that anyone can check: records, cards, prompts, hashes, figures.

    It holds questions, answers, the passages that were shown, and paths of the config.
    """
    from ragbench.experiments.publish import publish

    stated = publish(runs, output, force=force)
    count = len(stated["runs"])
    say(f"{output}: {count} runs; check it with: ragbench verify {output}")


@command(
    "verify",
    examples=[
        "ragbench verify bundle.zip",
        "ragbench verify bundle.zip --claim ircot.f1=0.688",
    ],
)
@click.argument("bundle", type=PATH)
@option("--claim", "claims", multiple=True, metavar="RUN.FIGURE=VALUE", group="Check",
        help="A figure from elsewhere, as from a paper, to be set beside; repeat.")  # fmt: skip
@output_options
def verify_command(bundle: Path, claims: tuple[str, ...]) -> None:
    """Recompute every figure of a BUNDLE from its records, and name what was changed.

    Asks no network. Exits with 1 where something was changed or a figure does not come out.
    """
    from ragbench.experiments.publish import verify

    checked = verify(bundle, dict(map(_claim, claims)))
    _print(checked, named=claims)
    if not checked.holds:
        raise click.exceptions.Exit(1)


def _claim(text: str) -> tuple[str, str]:
    from ragbench.errors import ConfigError

    address, _, value = text.partition("=")
    if not re.fullmatch(r"-?\d+(\.\d+)?", value):
        raise ConfigError(f"--claim {text!r}: give RUN.FIGURE=NUMBER, such as ircot.f1=0.688")
    return address, value


def _print(checked: Checked, named: Sequence[str]) -> None:
    wrong = [figure for figure in checked.figures if not figure.holds]
    if checked.holds:
        say(f"holds: all {len(checked.figures)} figures come out of the records, nothing changed")
    else:
        say(f"does not hold: {len(wrong)} figures differ, {len(checked.changes)} changes")
    say(*(f"changed: {line}" for line in checked.changes))
    addresses = {claim.partition("=")[0] for claim in named}
    rows = []
    for figure in checked.figures:
        if not figure.holds or f"{figure.run}.{figure.name}" in addresses:
            rows.append(
                {
                    "run": figure.run,
                    "figure": figure.name,
                    "claimed": str(figure.claimed),
                    "recomputed": str(figure.recomputed),
                    "holds": "yes" if figure.holds else "no",
                }
            )
    if rows:
        columns = ("run", "figure", "claimed", "recomputed", "holds")
        print_table(Table("figures", tuple(map(Column, columns)), rows))
    for run, reasons in checked.not_citable.items():
        if reasons:
            say(f"{run}: not citable: {'; '.join(reasons)}")
        else:
            say(f"{run}: citable")
