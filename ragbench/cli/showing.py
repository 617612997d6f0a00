"""The command `show`: a table of runs, one question, or one named item."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import by_group_option, command, option, output_options, with_runs
from ragbench.cli.listing import about, registry, remembered
from ragbench.cli.printing import print_table, say, show

#: Kinds that `show` takes before a name.
ONE = ("program", "retriever", "optimizer", "metric", "protocol", "config", "run")
_AXES = click.Choice(["program", "dataset", "lm", "retriever"])


@command(
    "show",
    examples="""
ragbench show runs/A runs/B
ragbench show runs/* --rows program --cols dataset --metric em,f1 --format latex
ragbench show run runs/A q17
ragbench show program ircot
ragbench show config ircot > mine.yaml
""",
)
@click.argument("words", nargs=-1, required=True, metavar="RUN...|KIND NAME")
@by_group_option
@option("--rows", type=_AXES, group="Paper table",
        help="Rows of the table; needs --cols.")  # fmt: skip
@option("--cols", type=_AXES, group="Paper table",
        help="Columns of the table; needs --rows.")  # fmt: skip
@option("--metric", default="em,f1", metavar="NAME,...", group="Paper table",
        help="Metrics of the table.")  # fmt: skip
@option("--protocol", metavar="NAME", group="Output",
        help="Add the metrics of a published protocol (`ragbench list protocols`).")  # fmt: skip
@output_options
def show_command(
    words: tuple[str, ...],
    by_group: bool,
    rows: str | None,
    cols: str | None,
    metric: str,
    protocol: str | None,
) -> None:
    """Show the table of RUN..., or one thing: KIND NAME.

    The table is computed from the records of the runs. With --rows and --cols, it is a table for a
    paper, where runs with the same row and column are pooled. The repeats of a run are shown
    pooled, then one by one. KIND is program, retriever, optimizer, metric, protocol, config or run.
    After `run RUN`, a question id shows its steps, passages and calls. Exits with 2 if a record is
    unreadable.
    """
    if words[0] in ONE and len(words) > 1:
        _show_one(words[0], words[1:])
        return
    if (rows is None) != (cols is None):
        raise click.UsageError("a paper table needs both --rows and --cols")
    from ragbench.experiments.report.paper import paper_table
    from ragbench.experiments.report.repeats import pooled_report
    from ragbench.experiments.report.tables import runs_report
    from ragbench.experiments.runs.summary import reopen_arm
    from ragbench.experiments.score.protocols import get_protocol
    from ragbench.logs import to_terminal

    to_terminal()
    followed = get_protocol(protocol) if protocol is not None else None
    arms = list(map(reopen_arm, with_runs(tuple(map(Path, words)))))
    evaluations = list(chain.from_iterable(arms))
    if rows is not None and cols is not None:
        print_table(paper_table(evaluations, rows, cols, metric.split(","), followed))
    else:
        show(pooled_report(arms))
        show(runs_report(evaluations, by_group, followed))
    if any(evaluation.records.damaged for evaluation in evaluations):
        raise click.exceptions.Exit(2)


def _show_one(kind: str, words: Sequence[str]) -> None:
    """Print the description of one item."""
    name = words[0]
    if len(words) > 1 + (kind == "run"):
        raise click.UsageError(f"show {kind} takes one name, such as `ragbench show {kind} NAME`")
    if kind == "run":
        from ragbench.experiments.report.trace import run_report

        show(run_report(Path(name), words[1] if len(words) > 1 else None))
    elif kind == "config":  # unwrapped, so that it can be saved
        click.echo(_config(name), nl=False)
    elif kind == "protocol":
        from ragbench.experiments.score.protocols import get_protocol

        say(*get_protocol(name).lines())
    else:
        pages = {"metric": _metric, "program": _program}

        def page() -> list[str]:
            return list(pages[kind](name) if kind in pages else _settings(kind, name))

        own = ":" in name  # user code may have changed
        say(*(page() if own else remembered(f"{kind} {name}", page)))


def _knobs(model: Any, *, variants: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each parameter of `model`: name, default, allowed values, meaning."""
    from ragbench.knobs import describe

    rows = []
    for row in describe(model, {"variant": variants[0]} if variants else None):
        name, default, allowed, text = row
        if variants and name == "variant":  # the parameter model does not list the variants
            allowed = " | ".join(variants)
        rows.append((name, default, allowed, text))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(padded).rstrip()


def _program(name: str) -> Iterator[str]:
    from ragbench.user_code import allow

    allow(name)
    program = registry("program").get(name)
    yield f"{name}: {about(program)}"
    yield f"family: {program.family}"
    yield f"paper: {program.paper or '-'}"
    yield f"LM calls per question: {program.calls}"
    marks = zip(("strategy", "iterative", "interleaved"), program.autonomy, strict=True)
    yield "autonomy (A-RAG, Table 4): " + ", ".join(f"{k} {v}" for k, v in marks)
    for variant, changes in program.variants.items():
        changed = ", ".join(f"{knob}={value}" for knob, value in changes.items())
        line = f"variant {variant}: {changed or 'the defaults below'}"
        if variant in program.single_passage:
            line += " (answers from one passage at a time)"
        yield line
        yield from _roles(program, variant)
    yield from _deviations(name)
    yield "knobs (--set NAME=VALUE): name, default, allowed, meaning"
    yield from _knobs(program.Knobs, variants=list(program.variants))


def _deviations(name: str) -> Iterator[str]:
    from ragbench.programs.core.deviations import sources

    if name not in sources():
        return
    source = sources()[name]
    yield f"source: {source.source}"
    for deviation in source.deviations:
        yield f"  departs: {deviation.line()}"


def _roles(program: Any, variant: str) -> Iterator[str]:
    from ragbench.programs.core.program import calls_of
    from ragbench.retrievers import Corpus, make_retriever

    built = program(make_retriever("bm25", Corpus(()), setting="pooled"), variant=variant)
    roles: dict[str, list[str]] = {}
    for row in calls_of(built):
        roles.setdefault(row.role, []).append(f"{row.predictor} ({row.signature})")
    for role, used in roles.items():
        yield f"  role {role}: {', '.join(used)}"


def _settings(kind: str, name: str) -> Iterator[str]:
    thing = registry(kind).get(name)
    yield f"{name}: {about(thing)}"
    for field in ("needs", "formula"):
        if hasattr(thing, field):
            yield f"{field}: {getattr(thing, field)}"
    flag = "retriever-set" if kind == "retriever" else "opt-set"
    yield f"settings (--{flag} NAME=VALUE): name, default, allowed, meaning"
    yield from _knobs(thing.Settings if kind == "retriever" else thing.Knobs)


def _metric(name: str) -> Iterator[str]:
    from ragbench.metrics import get_metric

    metric = get_metric(name)
    yield f"{metric.name}: {metric.description}"
    yield f"source: {metric.source or 'this project'}"
    yield f"score of a failed question: {metric.worst:g}"


def _config(name: str) -> str:
    import yaml

    from ragbench.experiments.config import config_text, load_config, make_config, shipped_sweeps

    if name in shipped_sweeps():
        return config_text(name)
    fields = make_config(load_config(name)).model_dump(mode="json")
    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
    return f"# {name}, with what it inherits and every default; can be saved as your own\n{text}"
