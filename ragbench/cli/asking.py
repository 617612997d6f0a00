"""Options of the commands that ask a model about the records of finished runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ragbench.cli.options import limit_options

if TYPE_CHECKING:
    from ragbench.experiments.passes import Asking

F = TypeVar("F", bound=Callable[..., Any])


def asking_options(function: F) -> F:
    """Add the options that `take_asking` reads, and those of limits."""
    options = (
        click.option("--batch", is_flag=True,
                     help="Ask through the provider's batches: half the price, within a day."),
        click.option("--api-base", help="URL of an OpenAI-compatible server, for these LMs."),
        click.option("--price", help="in=USD,out=USD per million tokens, where unknown."),
        click.option("--reply-tokens", type=click.IntRange(min=16), default=1024,
                     help="Tokens of one reply."),
        click.option("--workers", type=click.IntRange(1, 1024), default=4, help="Calls at once."),
        click.option("--cache/--no-cache", default=True, help="Reuse replies."),
        limit_options,
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def make_asking(options: dict[str, Any], spec: str | None, what: str) -> Asking | None:
    """The LM of `spec` with the options' settings; None without one. `what` is for the progress.

    Raises:
        RagbenchError: a malformed spec, or one whose provider has no batches.
    """
    if spec is None:
        return None
    from ragbench.experiments.passes import Asking
    from ragbench.lms.batch import batched
    from ragbench.lms.cache import configure_cache
    from ragbench.lms.factory import make_lm
    from ragbench.logs import quiet_libraries

    quiet_libraries()
    configure_cache()
    lm = make_lm(
        spec,
        api_base=options["api_base"],
        price=options["price"],
        max_tokens=options["reply_tokens"],
        cache=options["cache"],
    )
    if options["batch"]:
        lm = batched(lm)
    return Asking(lm, options["workers"], _progress(what))


def _progress(what: str) -> Any:
    """A line on the terminal that counts the replies; silent where stderr is a file."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, n: int) -> None:
        click.echo(f"\r{what}: {done} of {n}", nl=done == n, err=True)

    return show
