"""Options of the commands that ask a model about the records of finished runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ragbench.cli.command import option, stack
from ragbench.cli.options import limit_options

if TYPE_CHECKING:
    from ragbench.experiments.score.annotate.asking import Asking

#: What `make_asking` reads, and the limits.
asking_options = stack(
    [
        option("--batch", is_flag=True, group="Judge",
               help="Use the provider's batch API: half the price, replies within a day."),
        option("--api-base", "--model-base-url", "api_base", metavar="URL", group="Judge",
               help="Address of an OpenAI-compatible server, for the judging LMs."),
        option("--price", metavar="in=USD,out=USD[,cached=USD]", group="Judge",
               help="Price per million tokens, where it is not known."),
        option("--reply-tokens", "--max-tokens", "reply_tokens", type=click.IntRange(min=16),
               default=1024, group="Judge", help="Maximum tokens of one reply."),
        option("--workers", "--num-threads", "workers", type=click.IntRange(1, 1024), default=4,
               group="Judge", help="Calls made in parallel."),
        option("--cache/--no-cache", default=True, group="Judge",
               help="Reuse the replies to identical calls."),
        limit_options,
    ]
)  # fmt: skip


def make_asking(options: dict[str, Any], spec: str | None, task: str) -> Asking | None:
    """The LM of `spec` with the options' settings; None without one. `task` is for the progress.

    Raises:
        RagbenchError: a malformed spec, or one whose provider has no batches.
    """
    if spec is None:
        return None
    from ragbench.experiments.score.annotate.asking import Asking
    from ragbench.lms import configure_cache, make_lm
    from ragbench.lms.batch import batched
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
    return Asking(lm, options["workers"], _progress(task))


def _progress(task: str) -> Any:
    """A line on the terminal that counts the replies; silent where stderr is a file."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, n: int) -> None:
        click.echo(f"\r{task}: {done} of {n}", nl=done == n, err=True)

    return show
