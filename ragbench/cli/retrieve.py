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
    from rich import box
    from rich.table import Table

    from ragbench.experiments.report import console, plain, print_table

    table = Table(box=box.MARKDOWN)
    scores = [row.scores(gold, ks) for row in measured]
    shown = {f"R@{k}": f"recall@{k}" for k in ks} | {f"all@{k}": f"all_recall@{k}" for k in ks}
    shown |= {"MRR": f"mrr@{ks[-1]}", "nDCG": f"ndcg@{ks[-1]}"}
    table.add_column("retriever", overflow="fold")
    for name in (*shown, "p50 ms", "p95 ms", "index s", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    for row, values in zip(measured, scores, strict=True):
        size = "-" if row.index_bytes is None else f"{row.index_bytes / 1e6:.1f}"
        part = "" if len(row.rankings) == len(gold) else f", first {len(row.rankings)}"
        cells = [row.spec + part, *(f"{values[name]:.3f}" for name in shown.values())]
        cells += [f"{row.percentile_ms(q):.2f}" for q in (50, 95)]
        table.add_row(*map(plain, [*cells, f"{row.index_s:.2f}", size]))
    out = console()
    known, asked = about["questions_with_gold"], about["questions"]
    without = f" ({asked - known} more have no known gold passages)" if asked > known else ""
    title = f"{about['dataset']} {about['split']} ({about['setting']}): "
    title += f"{known} questions{without}, {about['passages']} passages"
    out.print(plain(title), soft_wrap=True)
    print_table(table, "retrievers", drop=("MB", "index s", "p95 ms", "MRR"))
    key = "R: recall; all: questions with every gold passage found; MRR and nDCG at"
    kept = f"; rankings and index cards: {path}" if path else ""
    out.print(plain(f"{key} {ks[-1]}{kept}"), soft_wrap=True)
