"""`ragbench models` and `data`: local models to fetch and serve, published data sets to fetch."""

import os
import time

import click

from ragbench.cli.command import Command, option, output_options
from ragbench.experiments.report.table import Column, Table, print_table, say


@click.group("models")
def models_command() -> None:
    """Fetch and serve the local models."""


@models_command.command("list", cls=Command, examples=["ragbench models list --format json"])
@output_options
def list_models() -> None:
    """List the models that can be downloaded, and which are installed."""
    from ragbench.lms.local import CATALOGUE, cache_root, is_installed

    rows = [
        {"model": name, "mb": model.size / 1e6, "about": model.about, "licence": model.licence,
         "installed": "yes" if is_installed(name) else "no"}
        for name, model in CATALOGUE.items()
    ]  # fmt: skip
    columns = (Column("model"), Column("mb", "MB", "amount"), Column("installed"),
               Column("about"), Column("licence"))  # fmt: skip
    print_table(Table("models", columns, rows))
    say(f"stored in {cache_root() / 'models'} (set RAGBENCH_CACHE to change)")


@models_command.command("pull", cls=Command, examples=["ragbench models pull qwen2.5-coder-1.5b"])
@click.argument("names", nargs=-1)
def pull_models(names: tuple[str, ...]) -> None:
    """Download the models NAMES (by default the default LM), and verify their SHA-256."""
    from ragbench.lms.local import DEFAULT_LM, ensure, find, is_installed

    chosen = names or (DEFAULT_LM,)
    for name in chosen:
        find(name)  # a misspelt second name should not wait for the first one's bytes
    for name in chosen:
        here = is_installed(name)
        ensure(name)
        say(f"{name}: {'already installed' if here else 'downloaded and verified'}")


@models_command.command("path", cls=Command, examples=["ragbench models path qwen2.5-coder-0.5b"])
@click.argument("name")
def path_of_model(name: str) -> None:
    """Print the path of each file of the model NAME."""
    from ragbench.errors import ModelError
    from ragbench.lms.local import find, is_installed

    if not is_installed(name):
        raise ModelError(f"{name} is not here; fetch it with: ragbench models pull {name}")
    for path in find(name).paths().values():
        click.echo(str(path))


@models_command.command(
    "serve", cls=Command, examples=["ragbench models serve local --port 8000 --slots 4"]
)
@click.argument("spec", default="local")
@option("--port", type=click.IntRange(0, 65535), default=0,
        help="Port on 127.0.0.1; 0 takes a free one.")  # fmt: skip
@option("--slots", type=click.IntRange(min=1), help="Calls answered in parallel. [default: 4]")
@option("--context", type=click.IntRange(min=256),
        help="Maximum tokens of a call, prompt and reply together. [default: 8192]")  # fmt: skip
def serve_model(spec: str, port: int, slots: int | None, context: int | None) -> None:
    """Serve a local model to other programs on this machine until Ctrl-C.

    SPEC is local, local:NAME or local:/path/to/model.gguf. Clients need a key: the value of the
    environment variable RAGBENCH_SERVER_KEY, or a random one, which is printed.
    """
    from ragbench.errors import LMSetupError
    from ragbench.lms import LocalSpec, parse_spec
    from ragbench.lms.local import KEY_VARIABLE, LocalServer, settings_for

    parsed = parse_spec(spec)
    if not isinstance(parsed, LocalSpec):
        raise LMSetupError(f"{spec!r} is not served here; give local, local:NAME or a .gguf path")
    server = LocalServer(
        settings_for(parsed, slots=slots, context=context, port=port),
        key=os.environ.get(KEY_VARIABLE),
    )
    try:
        url = server.url()
        click.echo(f"serving {parsed.name} at {url}/v1 (Ctrl-C ends it)")
        shown = f"${KEY_VARIABLE}" if os.environ.get(KEY_VARIABLE) else server.key
        click.echo(f"use it with: OPENAI_API_KEY={shown} --lm openai/{parsed.name} ", nl=False)
        click.echo(f"--api-base {url}/v1")
        while server.pid is not None:
            time.sleep(0.5)
        raise LMSetupError("the server has ended by itself")
    except KeyboardInterrupt:
        click.echo("stopped")
    finally:
        server.stop()


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
