"""`ragbench data`: published data sets, fetched once into the cache."""

import click

from ragbench.cli.command import Command

#: What people also call them.
_NAMES = {"2wiki": "2wikimultihopqa", "graphrag-bench": "graphrag_bench"}


@click.group("data")
def data_command() -> None:
    """Fetch published data sets into the cache."""


@data_command.command(
    "get", cls=Command, examples=["ragbench data get hotpotqa", "ragbench data get musique 2wiki"]
)
@click.argument("names", nargs=-1, required=True)
@click.option("--hub-config", help="Its configuration on the hub, such as fullwiki or novel.")
def get_data(names: tuple[str, ...], hub_config: str | None) -> None:
    """Fetch the data sets NAMES from the Hugging Face hub, once, for `--dataset NAME --hub`.

    SHA256SUMS beside the files has what came; it is checked here and whenever they are read.
    """
    from ragbench.data import DATASETS, DataSpec, hub

    for name in (_NAMES.get(name, name) for name in names):
        DATASETS.get(name)
        for path in hub.fetched(DataSpec(name, hub=True, hub_config=hub_config)):
            size = path.stat().st_size / 1e6
            click.echo(f"{name}: {hub.checked(path)}, {size:,.1f} MB, as recorded")
