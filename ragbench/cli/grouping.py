"""Options of commands that break results down; reading runs needs no other option of a run."""

from __future__ import annotations

from pathlib import Path

import click

from ragbench.cli.command import option, stack

closed_book_option = option(
    "--closed-book", type=click.Path(path_type=Path), metavar="RUN", group="Output",
    help="Break results down by whether RUN, which used no retrieval, answers the question.",
)  # fmt: skip
group_options = stack(
    [
        option("--by-group", is_flag=True, group="Output",
               help="Add tables by question type, hops and kind of answer."),
        closed_book_option,
    ]
)  # fmt: skip
