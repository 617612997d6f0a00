"""`ragbench index`, `search` and `retrieve`: indexes, and what retrievers find without any LM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import PATH, Command, command, force_option, option, output_options
from ragbench.cli.options import corpus_options, data_options, retriever_options, to_config
from ragbench.cli.printing import for_machines, print_table, say
from ragbench.cli.progress import RunProgress
from ragbench.experiments.report.table import Column, Table


@click.group("index")
def index_command() -> None:
    """Build, list and delete search indexes. Runs build and reuse them by themselves."""


@index_command.command(
    "build",
    cls=Command,
    examples=["ragbench index build --dataset hotpotqa --data-file dev.json --retriever hybrid"],
)
@corpus_options
@retriever_options
def index_build(**options: Any) -> None:
    """Build the index of a retriever over a data set, unless it exists."""
    from ragbench.data import load_dataset
    from ragbench.retrievers import IndexStore, make_retriever

    config = to_config(**options)
    dataset = load_dataset(config.data_settings())
    retriever = make_retriever(
        config.retriever, dataset.corpus, setting=dataset.setting, **config.retriever_set
    )
    store = IndexStore()
    before = {entry.key for entry in store.entries()}
    with RunProgress(f"indexing {dataset.name}") as progress:
        retriever.build(store, progress.prepare)
    built = [entry for entry in store.entries() if entry.key not in before]
    for entry in built:
        say(f"{entry.key}  {entry.passages} passages  {entry.size / 1e6:.1f} MB  {store.root}")
    if not built:
        say("nothing to build: the index exists already, or none is stored")


@index_command.command("list", cls=Command, examples=["ragbench index list --format csv"])
@option("--check", is_flag=True, group="Output", help="Read every file: is the index whole?")
@output_options
def index_list(check: bool) -> None:
    """Print the stored indexes, newest first."""
    from ragbench.retrievers import IndexStore

    store = IndexStore()
    columns = [Column("index"), Column("passages", kind="count"), Column("mb", "MB", "number"),
               Column("build_s", "built in s", "seconds"), Column("created")]  # fmt: skip
    rows = []
    for entry in store.entries():
        row: dict[str, Any] = {
            "index": entry.key,
            "passages": entry.passages,
            "mb": entry.size / 1e6,
            "build_s": entry.build_s,
            "created": entry.created,
        }
        rows.append(row)
    if check:
        columns.append(Column("state"))
        rows = [{**row, "state": store.damage(str(row["index"])) or "whole"} for row in rows]
    if rows or for_machines():
        print_table(Table("indexes", columns, rows))
    say(f"{len(rows)} indexes in {store.root}")


@index_command.command("drop", cls=Command, examples=["ragbench index drop 3f2a"])
@click.argument("keys", nargs=-1)
@option("--all", "all_", is_flag=True, help="Drop every index.")
def index_drop(keys: tuple[str, ...], all_: bool) -> None:
    """Delete the indexes KEYS (or prefixes of them); collections on servers stay."""
    from ragbench.errors import ConfigError
    from ragbench.retrievers import IndexStore

    if all_ == bool(keys):
        raise ConfigError("name the indexes to drop (see `ragbench index list`), or give --all")
    store = IndexStore()
    if all_:
        entries = store.entries()
    else:
        entries = list(map(store.find, keys))  # before any is dropped
    for entry in entries:
        store.drop(entry.key)
        say(f"dropped {entry.key}  {entry.size / 1e6:.1f} MB")


@command(
    "search", examples=['ragbench search "film director" --dataset hotpotqa --data-file dev.json']
)
@click.argument("query")
@corpus_options
@retriever_options
@option("--k", type=click.IntRange(min=1), default=5, group="Output", help="Passages to show.")
@output_options
def search_command(query: str, k: int, **options: Any) -> None:
    """Print the passages that a retriever finds for QUERY in all of a data set's passages."""
    import time

    from ragbench.data import load_dataset
    from ragbench.retrievers import IndexStore, make_retriever

    config = to_config(**options)
    corpus = load_dataset(config.data_settings()).corpus
    retriever = make_retriever(config.retriever, corpus, **config.retriever_set)
    with RunProgress("indexing") as progress:
        retriever.build(IndexStore(), progress.prepare)
    start = time.perf_counter()
    hits = retriever.search(query, k=k)
    elapsed = 1000 * (time.perf_counter() - start)
    columns = (Column("rank", kind="count"), Column("score", kind="number"),
               Column("pid", drop=1), Column("title"), Column("text", most=300))  # fmt: skip
    rows = []
    for rank, hit in enumerate(hits, start=1):
        rows.append(
            {"rank": rank, "score": hit.score, "pid": hit.pid, "title": hit.title, "text": hit.text}
        )
    print_table(Table("passages", columns, rows))
    say(f"{len(hits)} of {len(corpus)} passages by {config.retriever} in {elapsed:.1f} ms")


def _depths(ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    try:
        depths = sorted(set(map(int, value.split(","))))
    except ValueError:
        depths = []
    if not depths or depths[0] < 1:
        raise click.BadParameter(f"{value!r} is no list of depths; give one such as 2,5,10")
    return depths


@command(
    "retrieve",
    examples=["ragbench retrieve --dataset musique --data-file FILE --retriever bm25,dense,hybrid"],
)
@data_options
@retriever_options
@option("--run", "run_files", multiple=True, type=PATH, metavar="FILE", group="Retrieval",
        help="Measure the rankings in FILE too, a TREC run or BEIR's JSON; repeat for more. "
        "Without --retriever, only these.")  # fmt: skip
@option("--k", "ks", default="2,5,10", callback=_depths, metavar="K,K",
        group="Retrieval", help="Depths of the rankings that are measured.")  # fmt: skip
@option("--out", type=PATH, group="Output",
        help="JSON file for scores and rankings.")  # fmt: skip
@force_option
@output_options
def retrieve_command(
    ks: list[int], out: Path | None, run_files: tuple[Path, ...], force: bool, **options: Any
) -> None:
    """Search once per question with each retriever and print recall, MRR, nDCG and latency.

    --retriever takes several, separated by commas, such as 'bm25,dense,hybrid(fusion=minmax)'.
    """
    from ragbench import retrievers
    from ragbench.data import load_dataset
    from ragbench.experiments.retrieval import gold_of, measure, measure_run
    from ragbench.logs import quiet_libraries
    from ragbench.outputs import Output

    quiet_libraries()
    options["limit"] = options["limit"] or 0  # 0: all
    config = to_config(**options, complete=True)
    specs = retrievers.split_specs(config.retriever)
    if run_files and options.get("retriever") is None:
        specs = []
    for spec in specs:  # before any data is read or index made
        retrievers.make_retriever(
            retrievers.make_spec(*retrievers.parse_spec(spec)),
            retrievers.Corpus(()),
            **config.retriever_set,
        )
    dataset = load_dataset(config.data_settings())
    split = config.split
    path = out or Path("runs") / f"retrieve-{dataset.name}-{dataset.setting}-{split}.json"
    output = Output(path, "retrieve", force)
    output.check()
    examples = dataset.select(split, config.limit, answered=False)
    gold = gold_of(examples)
    questions = {}
    for example in examples:
        if example.qid in gold:
            questions[example.qid] = example.question
    card = {
        "dataset": dataset.name, "setting": dataset.setting, "split": split,
        "passages": len(dataset.corpus), "corpus": dataset.corpus.digest,
        "questions": len(examples), "questions_with_gold": len(gold), "ks": ks,
    }  # fmt: skip
    measured = []
    for file in run_files:
        measured.append(measure_run(file, dataset.corpus, gold, ks=ks))
    for spec in specs:
        with RunProgress(f"{spec}: indexing") as progress:
            measured.append(measure(
                spec, dataset, questions, gold, ks=ks, settings=config.retriever_set,
                progress=progress.prepare,
            ))  # fmt: skip
    output.write(json.dumps({**card, "gold": gold, "retrievers": measured}, indent=2).encode())
    headings = {f"recall@{k}": f"R@{k}" for k in ks} | {f"all_recall@{k}": f"all@{k}" for k in ks}
    headings |= {f"mrr@{ks[-1]}": "MRR", f"ndcg@{ks[-1]}": "nDCG"}
    rows = []
    for row in measured:
        size = row["index_bytes"]
        rows.append({**row, **row["scores"], "mb": None if size is None else size / 1e6})
    columns = [
        Column("retriever"),
        *(Column(name, head, "score", drop=head == "MRR") for name, head in headings.items()),
        Column("p50_ms", "p50 ms", "number"),
        Column("p95_ms", "p95 ms", "number", drop=2),
        Column("index_s", "index s", "number", drop=3),
        Column("mb", "MB", "number", drop=4),
    ]
    lacking = len(examples) - len(gold)
    without = ""
    if lacking:
        without = f" ({lacking} more have no known gold passages)"
    title = f"{dataset.name} {split} ({dataset.setting}): {len(gold)} questions{without}, "
    title += f"{len(dataset.corpus)} passages"
    key = "R: recall; all: questions with every gold passage found; MRR and nDCG at"
    summary = f"{key} {ks[-1]}; rankings and index cards: {path}"
    print_table(Table("retrievers", columns, rows, title, [summary]))
