"""`ragbench doctor`: check the folders of runs and compiled programs."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import command, option, output_options


@command(
    "doctor",
    examples=[
        "ragbench doctor runs/A",
    ],
)
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--data/--no-data", default=True, group="Data",
        help="Compare question ids with those of the data set.")  # fmt: skip
@output_options
def doctor_command(folders: tuple[Path, ...], data: bool) -> None:
    """Check the FOLDERS of runs, compiled programs, verdicts, tunings and sweeps.

    Prints a line for each problem, with what to do about it; nothing is changed. Exits with 0 if
    there is none, with 1 if there are some, and with 2 if a folder is none of these.
    """
    from ragbench.cli.main import one_line
    from ragbench.experiments.doctor import examine, folders_under
    from ragbench.experiments.report.table import Column, Table, for_machines, print_table
    from ragbench.logs import quiet_libraries

    quiet_libraries()
    wrong, rows = 0, []
    for folder in [folder for given in folders for folder in folders_under(given)]:
        findings = list(examine(folder, data=data))
        wrong += len(findings)
        for path, problem in findings or [(folder, "nothing is wrong")]:
            rows.append({"folder": str(folder), "path": str(path), "finding": one_line(problem)})
            if not for_machines():
                click.echo(one_line(f"{path}: {problem}"))
    if for_machines():
        print_table(Table("findings", [Column("folder"), Column("path"), Column("finding")], rows))
    raise click.exceptions.Exit(1 if wrong else 0)
