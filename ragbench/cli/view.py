"""`ragbench view`: the report of a folder of runs, served on this machine while they go on."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from ragbench.cli.command import command


@command("view", examples=["ragbench view runs/"])
@click.argument("folder", default="runs", type=click.Path(path_type=Path))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Port on 127.0.0.1; 0 takes a free one.",
)
@click.option("--metric", default="f1", show_default=True, help="Metric of accuracy.")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser.")
def view_command(folder: Path, port: int, metric: str, browser: bool) -> None:
    """Serve the page of every run in FOLDER until Ctrl-C; it follows runs that go on."""
    from ragbench.experiments.report.page import make_server

    server = make_server(folder, port=port, metric=metric)
    address = f"http://127.0.0.1:{server.server_port}/"
    click.echo(f"{address} shows {folder}; Ctrl-C stops")
    if browser:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo("stopped")
    finally:
        server.server_close()
