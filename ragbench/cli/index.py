"""`ragbench index`: build, list, look at and drop search indexes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ragbench.cli.command import Command, option, output_options
from ragbench.cli.options import corpus_options, retriever_options, to_config

if TYPE_CHECKING:
    from ragbench.retrievers import Progress


@contextmanager
def index_progress(title: str) -> Iterator[Progress]:
    """A bar with the time left, on stderr; a line every 30 seconds where that is a file."""
    from ragbench.cli.progress import RunProgress

    with RunProgress(title) as shown:
        yield shown.prepare


@click.group("index")
def index_group() -> None:
    """Build, list and delete search indexes. Runs build and reuse them by themselves."""


@index_group.command(
    "build",
    cls=Command,
    examples=["ragbench index build --dataset hotpotqa --data-file dev.json --retriever hybrid"],
)
@corpus_options
@retriever_options
def build_command(**options: Any) -> None:
    """Build the index of a retriever over a data set, unless it exists."""
    from ragbench.data import load_dataset
    from ragbench.retrievers import IndexStore, make_retriever

    config = to_config(**options)
    dataset = load_dataset(config.data_spec())
    retriever = make_retriever(
        config.retriever.name,
        dataset.corpus,
        setting=dataset.setting,
        **config.retriever.settings,
    )
    store = IndexStore()
    before = {entry.key for entry in store.entries()}
    with index_progress(f"indexing {dataset.name}") as progress:
        retriever.build(store, progress)
    made = [entry for entry in store.entries() if entry.key not in before]
    for entry in made:
        click.echo(f"{entry.key}  {entry.passages} passages  {_size(entry.size)}  {store.root}")
    if not made:
        where = f"{config.retriever.name} over {len(dataset.corpus)} passages ({dataset.setting})"
        click.echo(f"nothing to build: the index of {where} exists already, or none is stored")


@index_group.command("list", cls=Command, examples=["ragbench index list --format csv"])
@output_options
def list_command() -> None:
    """Print the stored indexes, newest first."""
    from ragbench.cli.main import print_line
    from ragbench.experiments.report.table import for_machines, print_table
    from ragbench.retrievers import IndexStore

    store = IndexStore()
    entries = store.entries()
    if entries or for_machines():
        print_table(_table(entries))
    print_line(f"{len(entries)} indexes in {store.root}")


@index_group.command("info", cls=Command, examples=["ragbench index info 3f2a"])
@click.argument("key")
def info_command(key: str) -> None:
    """Print the details of the index KEY (or a prefix of it), and whether it is intact."""
    import json

    from ragbench.retrievers import IndexStore

    store = IndexStore()
    entry = store.find(key)
    shown = entry.model_dump(exclude={"files", "sum"})
    shown |= {"bytes": entry.size, "folder": str(store.root / entry.key)}
    shown["state"] = store.damage(entry.key) or "whole"
    click.echo(json.dumps(shown, indent=2))


@index_group.command("drop", cls=Command, examples=["ragbench index drop 3f2a"])
@click.argument("keys", nargs=-1)
@option("--all", "all_", is_flag=True, help="Drop every index.")
def drop_command(keys: tuple[str, ...], all_: bool) -> None:
    """Delete the indexes KEYS (or prefixes of them); collections on servers stay."""
    from ragbench.errors import ConfigError
    from ragbench.retrievers import IndexStore

    if all_ == bool(keys):
        raise ConfigError("name the indexes to drop (see `ragbench index list`), or give --all")
    store = IndexStore()
    entries = store.entries() if all_ else [store.find(key) for key in keys]
    for entry in entries:
        store.drop(entry.key)
        click.echo(f"dropped {entry.key}  {_size(entry.size)}")
        if "collection" in entry.facts:
            place = f"{entry.facts['server']}/collections/{entry.facts['collection']}"
            click.echo(f"what it has on its server stays; DELETE {place} deletes that too")


def _table(entries: Any) -> Any:
    from ragbench.experiments.report.table import Column, Table

    columns = (Column("index"), Column("passages", kind="count"), Column("mb", "MB", "number"),
               Column("build_s", "built in s", "seconds"), Column("created"))  # fmt: skip
    rows = [
        {"index": entry.key, "passages": entry.passages, "mb": entry.size / 1e6,
         "build_s": entry.build_s, "created": entry.created}
        for entry in entries
    ]  # fmt: skip
    return Table("indexes", columns, rows)


def _size(n: int) -> str:
    return f"{n / 1e6:.1f} MB"
