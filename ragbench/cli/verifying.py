"""The command `ragbench verify`, which checks bundles and the folders of runs."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from ragbench.cli.command import PATH, command, option, output_options
from ragbench.cli.main import one_line
from ragbench.cli.printing import for_machines, print_table, say
from ragbench.errors import ConfigError
from ragbench.experiments.report.table import Column, Table


@command(
    "verify",
    examples="""
ragbench verify bundle.zip
ragbench verify bundle.zip --claim ircot.f1=0.688
ragbench verify runs/A compiled/B
""",
)
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="BUNDLE|FOLDER...")
@option("--claim", "claims", multiple=True, metavar="RUN.FIGURE=VALUE", group="Check",
        help="External figure to compare, such as one from a paper. Repeatable.")  # fmt: skip
@output_options
def verify_command(paths: tuple[Path, ...], claims: tuple[str, ...]) -> None:
    """Check a BUNDLE, or the FOLDERs of runs, compiled programs, verdicts, tunings and sweeps.

    For a bundle, recomputes every figure from its records, offline. Prints one line per problem
    and changes nothing. Exits with 1 if there is a problem, and with 2 if
    a path is neither.
    """
    from ragbench.logs import quiet_libraries

    quiet_libraries()
    if claims and any(map(Path.is_dir, paths)):
        raise click.UsageError("--claim works only for a bundle; remove it")
    stated = dict(map(_claim, claims))
    rows = []
    wrong = 0
    for path in paths:
        for where, finding, is_problem in _findings(path, stated):
            line = one_line(finding)
            wrong += is_problem
            rows.append({"path": str(where), "finding": line})
            if not for_machines():
                say(f"{where}: {line}")
    if for_machines():
        print_table(Table("findings", [Column("path"), Column("finding")], rows))
    if wrong:
        raise click.exceptions.Exit(1)


def _findings(path: Path, claims: Mapping[str, str]) -> Iterator[tuple[Path, str, bool]]:
    """Yield what was found, its path, and whether it is a problem."""
    from ragbench.experiments.doctor import examine, folders_under
    from ragbench.experiments.publish import verify

    if not path.is_dir():
        figures, problems = verify(path, claims)
        for problem in problems:
            yield path, problem, True
        if not problems:
            yield path, f"all {figures} figures come out of the records", False
        return
    for folder in folders_under(path):
        sound = True
        for where, problem in examine(folder):
            sound = False
            yield where, problem, True
        if sound:
            yield folder, "nothing is wrong", False


def _claim(text: str) -> tuple[str, str]:
    address, _, value = text.partition("=")
    if not re.fullmatch(r"-?\d+(\.\d+)?", value):
        raise ConfigError(f"--claim {text!r}: give RUN.FIGURE=NUMBER, such as ircot.f1=0.688")
    return address, value
