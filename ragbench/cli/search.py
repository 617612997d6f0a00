"""`ragbench search`: look at what a retriever finds for a query."""

from __future__ import annotations

from typing import Any

import click

from ragbench.cli.command import command, option, output_options
from ragbench.cli.options import corpus_options, retriever_options, to_config


@command(
    "search",
    examples=[
        'ragbench search "film director" --dataset hotpotqa --data-file dev.json',
    ],
)
@click.argument("query")
@corpus_options
@retriever_options
@option("--k", type=click.IntRange(min=1), default=5, group="Output", help="Passages to show.")
@option("--full", is_flag=True, group="Output",
        help="Show whole passages, not their first 300 characters.")  # fmt: skip
@output_options
def search_command(query: str, k: int, full: bool, **options: Any) -> None:
    """Print the passages that a retriever finds for QUERY in all of a data set's passages."""
    import time

    from ragbench.cli.index import index_progress
    from ragbench.data import load_dataset
    from ragbench.experiments.report.table import Column, Table, for_machines, print_table, say
    from ragbench.retrievers import IndexStore, make_retriever

    config = to_config(**options)
    corpus = load_dataset(config.data_spec()).corpus
    retriever = make_retriever(config.retriever.name, corpus, **config.retriever.settings)
    with index_progress("indexing") as progress:
        retriever.build(IndexStore(), progress)
    start = time.perf_counter()
    hits = retriever.search(query, k=k)
    elapsed = 1000 * (time.perf_counter() - start)
    if for_machines():
        columns = (Column("rank", kind="count"), Column("score", kind="number"), Column("pid"),
                   Column("title"), Column("text"))  # fmt: skip
        rows = [
            {"rank": rank, "score": hit.score, "pid": hit.pid, "title": hit.title, "text": hit.text}
            for rank, hit in enumerate(hits, start=1)
        ]
        print_table(Table("passages", columns, rows))
    for rank, hit in enumerate(() if for_machines() else hits, start=1):
        text = hit.text if full or len(hit.text) <= 300 else f"{hit.text[:300]} ..."
        title = f"  {hit.title}" if hit.title else ""
        say(f"{rank}. {hit.score:.4f}  [{hit.pid}]{title}", f"   {text}")
    counted = f"{len(hits)} of {len(corpus)} passages" if hits else "nothing found"
    say(f"{counted} by {config.retriever.name} in {elapsed:.1f} ms")
