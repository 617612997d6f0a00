"""`ragbench doctor`: check the folders of runs and compiled programs, and repair them."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import command, option, output_options


@command(
    "doctor",
    examples=[
        "ragbench doctor runs/A --repair",
    ],
)
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--repair", is_flag=True, group="Run",
        help="Repair what can be repaired; keeps old records as records.jsonl.bak.")  # fmt: skip
@option("--data/--no-data", default=True, group="Data",
        help="Compare question ids with those of the data set.")  # fmt: skip
@output_options
def doctor_command(folders: tuple[Path, ...], repair: bool, data: bool) -> None:
    """Check the FOLDERS of runs, compiled programs, verdicts, tunings and sweeps.

    Prints a line for each problem, with what to do about it. Exits with 0 if there is none (or all
    were repaired), with 1 if there are some, and with 2 if a folder is none of these.
    """
    from ragbench.cli.main import one_line
    from ragbench.experiments.doctor import examine, folders_under, repair as mend
    from ragbench.experiments.report import Grid, for_machines, print_grid
    from ragbench.logs import quiet_libraries

    quiet_libraries()
    left, rows = 0, []
    columns = ("folder", "state", "path", "finding", "cure")
    for folder in [folder for given in folders for folder in folders_under(given)]:
        findings = examine(folder, data=data)
        if repair and any(finding.mendable for finding in findings):
            mend(folder, findings)
        for finding in findings:
            mended = repair and finding.mendable
            left += not mended
            state = "mended" if mended else "wrong"
            rows.append((str(folder), state, str(finding.path), finding.problem, finding.cure))
            if not for_machines():
                click.echo(one_line(finding.line(mended=mended)))
        if not findings:
            rows.append((str(folder), "good", "", "", ""))
            if not for_machines():
                click.echo(one_line(f"{folder}: nothing is wrong"))
    if for_machines():
        cells = [[one_line(cell) for cell in row] for row in rows]
        print_grid(Grid(columns, cells, frozenset(columns)), "findings")
    raise click.exceptions.Exit(1 if left else 0)
