"""The command `ragbench verify`, which checks bundles and the folders of runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragbench.cli.command import PATH, command, option, output_options
from ragbench.cli.printing import for_machines, print_table, say
from ragbench.experiments.report.table import Column, Table

if TYPE_CHECKING:
    from ragbench.experiments.publish import Checked


@command(
    "verify",
    examples=[
        "ragbench verify bundle.zip",
        "ragbench verify bundle.zip --claim ircot.f1=0.688",
        "ragbench verify runs/A compiled/B",
    ],
)
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="BUNDLE|FOLDER...")
@option("--claim", "claims", multiple=True, metavar="RUN.FIGURE=VALUE", group="Check",
        help="External figure to compare, such as one from a paper. Repeatable.")  # fmt: skip
@output_options
def verify_command(paths: tuple[Path, ...], claims: tuple[str, ...]) -> None:
    """Check a BUNDLE, or the FOLDERs of runs, compiled programs, verdicts, tunings and sweeps.

    For a bundle, recomputes every figure from its records, offline. For a folder, prints one line
    per problem with its fix, and changes nothing. Exits with 1 if there is a problem, and with 2 if
    a path is neither.
    """
    from ragbench.logs import quiet_libraries

    quiet_libraries()
    folders = [path for path in paths if path.is_dir()]
    if claims and folders:
        raise click.UsageError("--claim works only for a bundle; remove it")
    holds = not folders or _verify_folders(folders)
    for path in paths:
        if not path.is_dir():
            holds = _verify_bundle(path, claims) and holds
    if not holds:
        raise click.exceptions.Exit(1)


def _verify_bundle(path: Path, claims: Sequence[str]) -> bool:
    """Print the result of each figure. Return True if all hold."""
    from ragbench.experiments.publish import verify

    checked = verify(path, dict(map(_claim, claims)))
    _print(checked, named=claims)
    return checked.holds


def _verify_folders(roots: Sequence[Path]) -> bool:
    """Print the problems in the folders. Return True if there are none."""
    from ragbench.cli.main import one_line
    from ragbench.experiments.doctor import examine, folders_under

    rows = []
    wrong = 0
    for folder in [folder for root in roots for folder in folders_under(root)]:
        findings = list(examine(folder))
        wrong += len(findings)
        for path, problem in findings or [(folder, "nothing is wrong")]:
            rows.append({"folder": str(folder), "path": str(path), "finding": one_line(problem)})
            if not for_machines():
                say(one_line(f"{path}: {problem}"))
    if for_machines():
        print_table(Table("findings", [Column("folder"), Column("path"), Column("finding")], rows))
    return not wrong


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
