"""`ragbench list` and `ragbench show`: what there is, and what its knobs are.

What they print is kept in the cache folder until a file of ragbench or a plug-in changes, so that
neither has to import every architecture.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ragbench import __version__
from ragbench.cli.command import command, output_options
from ragbench.experiments.report import Grid, for_machines, print_grid
from ragbench.paths import cache_root

KINDS = ("programs", "retrievers", "optimizers", "metrics", "protocols", "datasets", "configs")
ONE = ("program", "retriever", "optimizer", "metric", "protocol", "config", "run")


@command("list", examples=["ragbench list programs", "ragbench list metrics --format json"])
@click.argument("kind", type=click.Choice(KINDS))
@output_options
def list_command(kind: str) -> None:
    """List everything of one KIND, one line each."""
    rows = _kept()["list"][kind]
    if for_machines():
        print_grid(Grid(("name", "about"), rows, frozenset({"name", "about"})), kind)
        return
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}")


@command(
    "show",
    examples=[
        "ragbench show program ircot",
        "ragbench show config ircot_full > mine.yaml",
        "ragbench show run runs/A --format csv",
        "ragbench show run runs/A q17",
    ],
)
@click.argument("kind", type=click.Choice(ONE), metavar="KIND")
@click.argument("name")
@click.argument("qid", required=False)
@output_options
def show_command(kind: str, name: str, qid: str | None) -> None:
    """Show one program, retriever, optimizer, metric, protocol, config or run.

    KIND is program, retriever, optimizer, metric, protocol, config or run. For a run, NAME is its
    folder, and QID one of its questions, shown with its steps, passages and calls. --format is
    for a run's table of questions; all else is text.
    """
    if kind == "run":
        from ragbench.experiments.report import print_run

        print_run(Path(name), qid)
        return
    if qid is not None:
        raise click.UsageError(f"{kind} takes one name; leave out {qid!r}")
    lines = _kept()["show"].get(kind, {}).get(name)
    if lines is None:
        from ragbench.cli.catalog import shown

        lines = shown(kind, name)
    for line in lines:
        click.echo(line)


def names_of(kind: str) -> list[str]:
    """The names of all things of `kind`, such as "program"."""
    return [name for name, _ in _kept()["list"][f"{kind}s"]]


def _kept() -> Any:
    """The result of `ragbench.cli.catalog.everything`, kept from an earlier command if current."""
    path = cache_root() / f"catalog-{_fingerprint()}.json"
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text("utf-8"))
    from ragbench.cli.catalog import everything

    names = everything()
    with contextlib.suppress(OSError):  # a cache that cannot be written is none
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob("catalog-*.json"):
            old.unlink()
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(names), "utf-8")
        partial.replace(path)
    return names


def _fingerprint() -> str:
    """A hash of the version, size and time of each source file, and of what plug-ins register."""
    state = hashlib.sha256(f"{__version__} {sys.version}".encode())
    for path in sorted(_sources(str(Path(__file__).parents[1]))):
        stat = os.stat(path)
        state.update(f"{path} {stat.st_size} {stat.st_mtime_ns}".encode())
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for entry in sorted(os.listdir(folder or ".")):
                if entry.endswith((".dist-info", ".egg-info")):
                    state.update(_plugins(os.path.join(folder, entry, "entry_points.txt")))
    return state.hexdigest()[:16]


def _plugins(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        text = file.read()
        if b"[ragbench]" in text:
            return text + str(os.stat(path).st_mtime_ns).encode()
    return b""


def _sources(folder: str) -> Iterator[str]:
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _sources(entry.path)
        elif entry.name.endswith((".py", ".yaml")):
            yield entry.path
