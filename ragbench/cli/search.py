"""`ragbench search`: look at what a retriever finds for a query."""

from __future__ import annotations

from typing import Any

import click

from ragbench.cli.command import command, option
from ragbench.cli.options import data_options, retriever_options, to_config


@command(
    "search",
    examples=[
        'ragbench search "film director" --dataset hotpotqa --data-file dev.json',
    ],
)
@click.argument("query")
@data_options
@retriever_options
@option("--k", type=click.IntRange(min=1), default=5, group="Output", help="Passages to show.")
@option("--full", is_flag=True, group="Output",
        help="Show whole passages, not their first 300 characters.")  # fmt: skip
def search_command(query: str, k: int, full: bool, **options: Any) -> None:
    """Print the passages that a retriever finds for QUERY in all of a data set's passages."""
    import time

    from ragbench.cli.index import index_progress
    from ragbench.data import load_dataset
    from ragbench.experiments.report import console, plain
    from ragbench.retrievers import IndexStore, make_retriever

    config = to_config(**options)
    corpus = load_dataset(config.data_spec()).corpus
    retriever = make_retriever(config.retriever.name, corpus, **config.retriever.settings)
    with index_progress("indexing") as progress:
        retriever.build(IndexStore(), progress)
    start = time.perf_counter()
    hits = retriever.search(query, k=k)
    elapsed = 1000 * (time.perf_counter() - start)
    out = console()
    for rank, hit in enumerate(hits, start=1):
        text = hit.text if full or len(hit.text) <= 300 else f"{hit.text[:300]} ..."
        title = f"  {hit.title}" if hit.title else ""
        out.print(plain(f"{rank}. {hit.score:.4f}  [{hit.pid}]{title}"), style="bold")
        out.print(plain(f"   {text}"))
    found = f"{len(hits)} of {len(corpus)} passages" if hits else "nothing found"
    out.print(plain(f"{found} by {config.retriever.name} in {elapsed:.1f} ms"), soft_wrap=True)
