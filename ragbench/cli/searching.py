"""The command `ragbench retrieve`, which searches and measures retrievers without an LM."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from ragbench.cli import options as shared
from ragbench.cli.command import PATH, Numbers, command, force_option, option, output_options
from ragbench.cli.printing import print_table, say
from ragbench.cli.progress import RunProgress
from ragbench.cli.user_settings import taken
from ragbench.experiments.config import RunConfig
from ragbench.experiments.report.table import Column, Table
from ragbench.settings import DataSettings, QuestionSettings

#: Default number of passages for a query, and default depths of a measured ranking.
_SHOWN = 5
_DEPTHS = [2, 5, 10]


@command(
    "retrieve",
    examples="""
ragbench retrieve --dataset musique --data-file FILE --retriever bm25,dense,hybrid
ragbench retrieve "film director" --dataset hotpotqa --data-file dev.json
ragbench retrieve --build --data-file dev.json --retriever dense --max-cost 1
""",
    common=(
        "build dataset data_file corpus_file docs setting split limit retriever retriever_set "
        "run_files ks out force max_cost"
    ),
)
@click.argument("query", required=False)
@option("--build", is_flag=True, group="Retrieval",
        help="Build the index of the retriever, unless it exists.")  # fmt: skip
@shared.data_options
@shared.retriever_options
@option("--run", "run_files", multiple=True, type=PATH, metavar="FILE", group="Retrieval",
        help="Also measure the rankings in FILE, a TREC run or BEIR's JSON. Repeatable. "
        "Without --retriever, only these.")  # fmt: skip
@option("--k", "ks", type=Numbers(), metavar="K,K", group="Retrieval",
        help="Depths at which rankings are measured (default 2,5,10), or the number of "
        "passages to show for QUERY (default 5).")  # fmt: skip
@option("--out", type=PATH, group="Output",
        help="JSON file for scores and rankings.")  # fmt: skip
@force_option
@shared.limit_options
@output_options
def retrieve_command(
    query: str | None,
    build: bool,
    ks: list[int] | None,
    out: Path | None,
    run_files: tuple[Path, ...],
    force: bool,
    **options: Any,
) -> None:
    """Search once per question with each retriever and print recall, MRR, nDCG and latency.

    --retriever takes several, separated by commas, such as 'bm25,dense,hybrid(fusion=minmax)'. With
    QUERY, print the best passages for it from the whole corpus of the data set.
    """
    from ragbench.data import load_dataset
    from ragbench.lms.calls import spending
    from ragbench.logs import quiet_libraries
    from ragbench.retrievers import IndexStore, make_retriever

    quiet_libraries()
    limits = shared.take_limits(options)
    if build or query is not None:
        if (build and query is not None) or len(ks or ()) > 1 or (build and ks) or out or run_files:
            raise click.UsageError("QUERY takes one --k, --build none, and neither --run or --out")
        defaults = taken(click.get_current_context())
        for name in QuestionSettings.model_fields.keys() - DataSettings.model_fields.keys():
            if options.pop(name, None) is not None and name not in defaults:
                raise click.UsageError(f"--{name} does not apply to QUERY and --build")
    with spending(limits):
        if not (build or query is not None):
            _measure(sorted({*(ks or _DEPTHS)}), out, run_files, force, options)
            return
        config = shared.to_config(**options)
        dataset = load_dataset(config.data_settings())
        # A query searches the whole corpus.
        setting = dataset.setting if build else "pooled"
        retriever = make_retriever(
            config.retriever, dataset.corpus, setting=setting, **config.retriever_set
        )
        store = IndexStore()
        before = {entry.key for entry in store.entries()}
        with RunProgress(f"indexing {dataset.name}") as progress:
            retriever.build(store, progress.prepare)
        if query is not None:
            _search(query, ks[0] if ks else _SHOWN, config, retriever)
            return
        built = [entry for entry in store.entries() if entry.key not in before]
        for entry in built:
            say(f"{entry.key}  {entry.passages} passages  {entry.size / 1e6:.1f} MB  {store.root}")
        if not built:
            say("nothing to build: the index exists already, or none is stored")


def _search(query: str, k: int, config: RunConfig, retriever: Any) -> None:
    """Print the best passages for `query`."""
    start = time.perf_counter()
    hits = retriever.search(query, k=k)
    elapsed = 1000 * (time.perf_counter() - start)
    columns = (Column("rank", kind="count"), Column("score", kind="number"),
               Column("pid", drop=1), Column("title"), Column("text", most=300))  # fmt: skip
    rows = []
    for rank, hit in enumerate(hits, start=1):
        row = {name: getattr(hit, name) for name in ("score", "pid", "title", "text")}
        rows.append({"rank": rank, **row})
    print_table(Table("passages", columns, rows))
    size = len(retriever.corpus)
    say(f"{len(hits)} of {size} passages by {config.retriever} in {elapsed:.1f} ms")


def _measure(
    ks: list[int],
    out: Path | None,
    run_files: tuple[Path, ...],
    force: bool,
    options: dict[str, Any],
) -> None:
    """Measure each retriever over the questions of a data set."""
    from ragbench import retrievers
    from ragbench.data import load_dataset
    from ragbench.experiments.retrieval import gold_of, measure, measure_run
    from ragbench.outputs import Output

    options["limit"] = options["limit"] or 0  # 0: all
    config = shared.to_config(**options, complete=True)
    specs = retrievers.split_specs(config.retriever)
    if run_files and options.get("retriever") is None:
        specs = []
    for spec in specs:  # check the specs before reading data or building an index
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
    examples = dataset.select(split, config.limit)
    gold = gold_of(examples)
    questions = {e.qid: e.question for e in examples if e.qid in gold}
    card = {
        "dataset": dataset.name, "setting": dataset.setting, "split": split,
        "passages": len(dataset.corpus), "corpus": dataset.corpus.digest,
        "questions": len(examples), "questions_with_gold": len(gold), "ks": ks,
    }  # fmt: skip
    measured = [measure_run(file, dataset.corpus, gold, ks=ks) for file in run_files]
    for spec in specs:
        with RunProgress(f"{spec}: indexing") as progress:
            measured.append(measure(
                spec, dataset, questions, gold, ks=ks, settings=config.retriever_set,
                progress=progress.prepare,
            ))  # fmt: skip
    output.write(json.dumps({**card, "gold": gold, "retrievers": measured}, indent=2).encode())
    rows = []
    for row in measured:
        size = row["index_bytes"]
        rows.append({**row, **row["scores"], "mb": None if size is None else size / 1e6})
    columns = [
        Column("retriever"),
        *(Column(f"recall@{k}", f"R@{k}", "score") for k in ks),
        *(Column(f"all_recall@{k}", f"all@{k}", "score") for k in ks),
        Column(f"mrr@{ks[-1]}", "MRR", "score", drop=1),
        Column(f"ndcg@{ks[-1]}", "nDCG", "score"),
        Column("p50_ms", "p50 ms", "number"),
        Column("p95_ms", "p95 ms", "number", drop=2),
        Column("index_s", "index s", "number", drop=3),
        Column("mb", "MB", "number", drop=4),
    ]
    title = (
        f"{dataset.name} {split} ({dataset.setting}): {len(gold)} of {len(examples)} questions "
        f"have known gold passages, {len(dataset.corpus)} passages"
    )
    key = (
        "R: recall; all: questions with every gold passage found; MRR and nDCG at "
        f"{ks[-1]}; rankings and index cards: {path}"
    )
    print_table(Table("retrievers", columns, rows, title, [key]))
