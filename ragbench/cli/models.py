"""`ragbench models`: the local models: what there is, where it is, fetching and serving it."""

from __future__ import annotations

import os
import time

import click


@click.group("models")
def models_group() -> None:
    """Fetch and serve the local models."""


@models_group.command("list")
def list_models() -> None:
    """List the models that can be fetched, and which of them are here."""
    from ragbench.lms.store import cache_root, installed_models

    for model, here in installed_models():
        state = "here" if here else "not here"
        size = f"{model.size / 1e6:,.0f} MB"
        click.echo(f"{model.name:<20}{size:>9}  {state:<10}{model.about}; {model.licence}")
    click.echo(f"kept in {cache_root() / 'models'} (set RAGBENCH_CACHE for another place)")


@models_group.command("pull")
@click.argument("names", nargs=-1)
def pull_models(names: tuple[str, ...]) -> None:
    """Fetch NAMES (by default the default LM), verified by SHA-256."""
    from ragbench.lms.catalogue import DEFAULT_LM, find
    from ragbench.lms.store import is_installed, pull

    chosen = names or (DEFAULT_LM,)
    for name in chosen:
        find(name)  # a misspelt second name should not wait for the first one's bytes
    for name in chosen:
        here = is_installed(name)
        pull(name)
        click.echo(f"{name}: {'was here already' if here else 'fetched and verified'}")


@models_group.command("path")
@click.argument("name")
def path_of_model(name: str) -> None:
    """Print the path of each file of the model NAME."""
    from ragbench.errors import ModelError
    from ragbench.lms.store import is_installed, paths

    if not is_installed(name):
        raise ModelError(f"{name} is not here; fetch it with: ragbench models pull {name}")
    for path in paths(name).values():
        click.echo(str(path))


@models_group.command("serve")
@click.argument("spec", default="local")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0 takes a free one.")
@click.option("--slots", type=click.IntRange(min=1), help="Calls answered at once.")
@click.option("--context", type=click.IntRange(min=256), help="Tokens of one call.")
def serve_model(spec: str, port: int, slots: int | None, context: int | None) -> None:
    """Serve a local model to other programs on this machine until Ctrl-C.

    SPEC is local, local:NAME or local:/path/to/model.gguf. The server wants a key: the one in
    RAGBENCH_SERVER_KEY, or a random one, which is shown.
    """
    from ragbench.errors import LMSetupError
    from ragbench.lms.serve_local import KEY_VARIABLE
    from ragbench.lms.server import LocalServer, settings_for
    from ragbench.lms.specs import LocalSpec, parse_spec

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
