"""`ragbench list` and `ragbench show`: what there is, and what its knobs are."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from ragbench.cli.command import command, output_options
from ragbench.experiments.report.table import Column, Table, for_machines, print_table

KINDS = ("programs", "retrievers", "optimizers", "metrics", "protocols", "datasets", "configs")
ONE = ("program", "retriever", "optimizer", "metric", "protocol", "config", "run")


@command("list", examples=["ragbench list programs", "ragbench list metrics --format json"])
@click.argument("kind", type=click.Choice(KINDS))
@output_options
def list_command(kind: str) -> None:
    """List everything of one KIND, one line each."""
    rows = list(_LISTERS[kind]())
    if for_machines():
        columns = (Column("name"), Column("about"))
        print_table(Table(kind, columns, [{"name": n, "about": text} for n, text in rows]))
        return
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}")


@command(
    "show",
    examples=[
        "ragbench show program ircot",
        "ragbench show config ircot_full > mine.yaml",
        "ragbench show run runs/A --format csv",
        "ragbench show run runs/A q17",
    ],
)
@click.argument("kind", type=click.Choice(ONE), metavar="KIND")
@click.argument("name")
@click.argument("qid", required=False)
@output_options
def show_command(kind: str, name: str, qid: str | None) -> None:
    """Show one program, retriever, optimizer, metric, protocol, config or run.

    KIND is program, retriever, optimizer, metric, protocol, config or run. For a run, NAME is its
    folder, and QID one of its questions, shown with its steps, passages and calls. --format is
    for a run's table of questions; all else is text.
    """
    if kind == "run":
        from ragbench.experiments.report.trace import print_run

        print_run(Path(name), qid)
        return
    if qid is not None:
        raise click.UsageError(f"{kind} takes one name; leave out {qid!r}")
    for line in _SHOWERS[kind](name):
        click.echo(line)


def names_of(kind: str) -> list[str]:
    """The names of all things of `kind`, such as "program"."""
    return [name for name, _ in _LISTERS[f"{kind}s"]()]


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _programs() -> Iterable[tuple[str, str]]:
    from ragbench.programs import PROGRAMS

    for name, program in PROGRAMS:
        variants = ", ".join(program.variants)
        more = f" [{variants}]" if len(program.variants) > 1 else ""
        marks = "/".join(program.autonomy)
        yield name, f"{_first_line(program)} ({program.family}, autonomy {marks}){more}"


def _retrievers() -> Iterable[tuple[str, str]]:
    from ragbench.retrievers import RETRIEVERS

    return ((name, _first_line(retriever)) for name, retriever in RETRIEVERS)


def _optimizers() -> Iterable[tuple[str, str]]:
    from ragbench.optimizers import OPTIMIZERS

    return ((name, optimizer.description) for name, optimizer in OPTIMIZERS)


def _metrics() -> Iterable[tuple[str, str]]:
    from ragbench.metrics import get_metric, metric_names

    for name in metric_names():
        yield name, get_metric(name.replace("@K", "@5").replace("@k", "@5")).description


def _protocols() -> Iterable[tuple[str, str]]:
    from ragbench.experiments.score.protocols import PROTOCOLS

    return ((name, protocol.description) for name, protocol in sorted(PROTOCOLS.items()))


def _datasets() -> Iterable[tuple[str, str]]:
    from ragbench.data import DATASETS

    return ((name, _first_line(loader)) for name, loader in DATASETS)


def _configs() -> Iterable[tuple[str, str]]:
    from ragbench.experiments.config import (
        config_text,
        load_config,
        shipped_configs,
        shipped_sweeps,
    )

    for name in shipped_sweeps():
        yield name, "sweep: " + config_text(name).partition("\n")[0].lstrip("# ")
    for name in shipped_configs():
        fields = load_config(name)
        yield (
            name,
            f"{fields.get('program', '-')} on {fields['data']['dataset']}, {fields['lm']['model']}",
        )


def _knob_lines(model: Any, defaults: Any = None, *, variants: Sequence[str] = ()) -> Iterable[str]:
    from ragbench.knobs import describe

    if variants:  # which of them a program has is not in its knobs
        defaults = {**(defaults or {}), "variant": variants[0]}
    rows = [
        (
            k.name,
            str(k.default),
            " | ".join(variants) if variants and k.name == "variant" else k.allowed or k.type,
            k.description,
        )
        for k in describe(model, defaults)
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    for name, default, allowed, text in rows:
        yield f"  {name:<{widths[0]}}  {default:<{widths[1]}}  {allowed:<{widths[2]}}  {text}"


def _show_program(name: str) -> Iterable[str]:
    from ragbench.programs import PROGRAMS
    from ragbench.user_code import allow

    allow(name)
    program = PROGRAMS.get(name)
    yield f"{name}: {_first_line(program)}"
    yield f"family: {program.family}"
    yield f"paper: {program.paper or '-'}"
    yield f"LM calls per question: {program.calls}"
    marks = zip(("strategy", "iterative", "interleaved"), program.autonomy, strict=True)
    yield "autonomy (A-RAG, Table 4): " + ", ".join(f"{k} {v}" for k, v in marks)
    for variant, changes in program.variants.items():
        changed = ", ".join(f"{knob}={value}" for knob, value in changes.items())
        yield f"variant {variant}: {changed or 'the defaults below'}"
        yield from (f"  role {role}: {used}" for role, used in _roles(program, variant))
    yield "knobs (--set NAME=VALUE): name, default, allowed, meaning"
    yield from _knob_lines(program.Knobs, variants=list(program.variants))


def _roles(program: Any, variant: str) -> Iterable[tuple[str, str]]:
    from ragbench.programs.core import calls_of
    from ragbench.retrievers import Corpus, make_retriever

    built = program(make_retriever("bm25", Corpus(()), setting="pooled"), variant=variant)
    roles: dict[str, list[str]] = {}
    for row in calls_of(built):
        roles.setdefault(row.role, []).append(f"{row.predictor} ({row.signature})")
    return [(role, ", ".join(used)) for role, used in roles.items()]


def _show_class(kind: str, settings: str) -> Callable[[str], Iterable[str]]:
    def lines(name: str) -> Iterable[str]:
        from ragbench.optimizers import OPTIMIZERS
        from ragbench.retrievers import RETRIEVERS

        thing: Any = (RETRIEVERS if kind == "retriever" else OPTIMIZERS).get(name)
        yield f"{name}: {getattr(thing, 'description', None) or _first_line(thing)}"
        for field in ("needs", "formula"):
            if hasattr(thing, field):
                yield f"{field}: {getattr(thing, field)}"
        yield f"settings (--{settings} NAME=VALUE): name, default, allowed, meaning"
        yield from _knob_lines(getattr(thing, "Settings", None) or thing.Knobs)

    return lines


def _show_metric(name: str) -> Iterable[str]:
    from ragbench.metrics import get_metric

    metric = get_metric(name)
    yield f"{metric.name}: {metric.description}"
    yield f"source: {metric.source or 'this project'}"
    yield f"score of a failed question: {metric.worst:g}"


def _show_protocol(name: str) -> Iterable[str]:
    from ragbench.experiments.score.protocols import get_protocol

    return get_protocol(name).lines()


def _show_config(name: str) -> Iterable[str]:
    from ragbench.experiments.config import config_text, load_config, make_config, shipped_sweeps

    if name in shipped_sweeps():
        yield from config_text(name).splitlines()
        return
    config = make_config(load_config(name))
    given = _set_fields(config.model_dump(mode="json"), make_config({}).model_dump(mode="json"))
    yield f"# {name}, with what it inherits and every default; can be saved as a config of your own"
    yield from yaml.safe_dump(given, sort_keys=False, allow_unicode=True).splitlines()


def _set_fields(fields: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """`fields` without those that are None by default and as given."""
    return {
        name: _set_fields(value, defaults[name])
        if isinstance(value, dict) and isinstance(defaults.get(name), dict)
        else value
        for name, value in fields.items()
        if value is not None or defaults.get(name) is not None
    }


_LISTERS: dict[str, Callable[[], Iterable[tuple[str, str]]]] = {
    "programs": _programs,
    "retrievers": _retrievers,
    "optimizers": _optimizers,
    "metrics": _metrics,
    "protocols": _protocols,
    "datasets": _datasets,
    "configs": _configs,
}

_SHOWERS: dict[str, Callable[[str], Iterable[str]]] = {
    "program": _show_program,
    "retriever": _show_class("retriever", "retriever-set"),
    "optimizer": _show_class("optimizer", "opt-set"),
    "metric": _show_metric,
    "protocol": _show_protocol,
    "config": _show_config,
}
