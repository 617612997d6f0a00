"""`ragbench retrieve`: measure retrievers by themselves, without any LM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragbench.cli.command import command, option, output_options
from ragbench.cli.options import retriever_options, to_config, whole_data_options
from ragbench.cli.so_far import so_far, until_stopped

if TYPE_CHECKING:
    from ragbench.experiments.retrieval import Measured


def _depths(ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    try:
        depths = sorted({int(part) for part in value.split(",")})
    except ValueError:
        depths = []
    if not depths or depths[0] < 1:
        raise click.BadParameter(f"{value!r} is no list of depths; give one such as 2,5,10")
    return depths


@command(
    "retrieve",
    examples=[
        "ragbench retrieve --dataset musique --data-file FILE --retriever bm25,dense,hybrid",
    ],
)
@whole_data_options
@retriever_options
@option("--k", "ks", default="2,5,10", callback=_depths, metavar="K,K",
        group="Retrieval", help="Depths of the rankings that are measured.")  # fmt: skip
@option("--out", type=click.Path(path_type=Path), group="Output",
        help="JSON file for scores and rankings.")  # fmt: skip
@output_options
def retrieve_command(ks: list[int], out: Path | None, **options: Any) -> None:
    """Search once per question with each retriever and print recall, MRR, nDCG and latency.

    --retriever takes several, separated by commas, such as 'bm25,dense,hybrid(fusion=minmax)'.
    """
    from ragbench.cli.index import index_progress
    from ragbench.data import load_dataset
    from ragbench.experiments.retrieval import gold_of, measure, save
    from ragbench.logs import quiet_libraries
    from ragbench.retrievers import IndexStore, parse_spec, split_specs

    quiet_libraries()
    options["limit"] = options["limit"] or 0  # 0: all
    config = to_config(**options, whole=True)
    specs = split_specs(config.retriever.name)
    for spec in specs:
        _check(parse_spec(spec), config.retriever.settings)
    dataset = load_dataset(config.data_spec())
    split = config.data.split
    examples = dataset.select(split, config.data.limit, answered=False)
    gold = gold_of(examples)
    asked = [example for example in examples if example.qid in gold]
    about = {
        "dataset": dataset.name,
        "setting": dataset.setting,
        "split": split,
        "passages": len(dataset.corpus),
        "corpus": dataset.corpus.digest,
        "questions": len(examples),
        "questions_with_gold": len(gold),
        "ks": ks,
    }
    measured: list[Measured] = []
    with so_far(measured, partial(_print, gold=gold, ks=ks, about=about)):
        for spec in until_stopped(specs):
            with index_progress(f"{spec}: indexing") as progress:
                measured.append(
                    measure(
                        spec,
                        dataset,
                        asked,
                        k=ks[-1],
                        settings=config.retriever.settings,
                        store=IndexStore(),
                        progress=progress,
                    )
                )
    path = out or Path("runs") / f"retrieve-{dataset.name}-{dataset.setting}-{split}.json"
    save(path, measured, gold, ks, about)
    _print(measured, gold, ks, about, path)


def _check(spec: tuple[str, dict[str, str]], settings: Mapping[str, Any]) -> None:
    """Refuse an unknown name or setting before any data is read or index made."""
    from ragbench.retrievers import Corpus, make_retriever, make_spec

    make_retriever(make_spec(*spec), Corpus(()), **settings)


def _print(
    measured: Sequence[Measured],
    gold: Mapping[str, Sequence[str]],
    ks: Sequence[int],
    about: Mapping[str, Any],
    path: Path | None = None,
) -> None:
    from ragbench.experiments.report.table import Column, Table, print_table

    shown = {f"recall@{k}": f"R@{k}" for k in ks} | {f"all_recall@{k}": f"all@{k}" for k in ks}
    shown |= {f"mrr@{ks[-1]}": "MRR", f"ndcg@{ks[-1]}": "nDCG"}
    rows = []
    for row in measured:
        part = "" if len(row.rankings) == len(gold) else f", first {len(row.rankings)}"
        rows.append({
            "retriever": row.spec + part, **row.scores(gold, ks), "p50_ms": row.percentile_ms(50),
            "p95_ms": row.percentile_ms(95), "index_s": row.index_s,
            "mb": None if row.index_bytes is None else row.index_bytes / 1e6,
        })  # fmt: skip
    columns = [
        Column("retriever"),
        *(Column(name, head, "score", drop=head == "MRR") for name, head in shown.items()),
        Column("p50_ms", "p50 ms", "number"),
        Column("p95_ms", "p95 ms", "number", drop=2),
        Column("index_s", "index s", "number", drop=3),
        Column("mb", "MB", "number", drop=4),
    ]
    known, asked = about["questions_with_gold"], about["questions"]
    without = f" ({asked - known} more have no known gold passages)" if asked > known else ""
    title = f"{about['dataset']} {about['split']} ({about['setting']}): "
    title += f"{known} questions{without}, {about['passages']} passages"
    key = "R: recall; all: questions with every gold passage found; MRR and nDCG at"
    kept = f"; rankings and index cards: {path}" if path else ""
    print_table(Table("retrievers", columns, rows, title, [f"{key} {ks[-1]}{kept}"]))
