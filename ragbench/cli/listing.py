"""`list`, `show`, `models` and `data`: what there is, and local models and data sets to fetch."""

import inspect
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import yaml

import ragbench
from ragbench.cli.command import Command, command, output_options
from ragbench.cli.printing import for_machines, print_table, say, show
from ragbench.experiments.report.table import Column, Table
from ragbench.paths import cache_root

#: Kind -> module and name of the registry of its things.
_REGISTRIES = {
    "program": ("ragbench.programs", "PROGRAMS"),
    "retriever": ("ragbench.retrievers", "RETRIEVERS"),
    "optimizer": ("ragbench.optimizers", "OPTIMIZERS"),
    "dataset": ("ragbench.data", "DATASETS"),
}
KINDS = ("programs", "retrievers", "optimizers", "metrics", "protocols", "datasets", "configs")
ONE = ("program", "retriever", "optimizer", "metric", "protocol", "config", "run")


@command("list", examples=["ragbench list programs", "ragbench list metrics --format json"])
@click.argument("kind", type=click.Choice(KINDS))
@output_options
def list_command(kind: str) -> None:
    """List everything of one KIND, one line each."""
    rows = stored_list(kind[:-1])
    if for_machines():
        columns = (Column("name"), Column("about"))
        print_table(Table(kind, columns, [{"name": n, "about": text} for n, text in rows]))
        return
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        say(f"{name:<{width}}  {text}")


@command(
    "show",
    examples=[
        "ragbench show program ircot",
        "ragbench show config ircot > mine.yaml",
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
        from ragbench.experiments.report.trace import run_report

        show(run_report(Path(name), qid))
        return
    if qid is not None:
        raise click.UsageError(f"{kind} takes one name; leave out {qid!r}")
    if kind == "config":  # to be pasted
        click.echo(_config(name), nl=False)
        return
    if kind == "protocol":
        from ragbench.experiments.score.protocols import get_protocol

        say(*get_protocol(name).lines())
        return
    pages = {"metric": _metric, "program": _program}
    say(*(pages[kind](name) if kind in pages else _settings(kind, name)))


def _registry(kind: str) -> Any:
    module, name = _REGISTRIES[kind]
    return getattr(import_module(module), name)


def _about(thing: Any) -> str:
    """The description of a thing, or the first line of its docstring."""
    described: str = getattr(thing, "description", "") or inspect.getdoc(thing) or ""
    return described.partition("\n")[0]


def stored_list(kind: str) -> list[tuple[str, str]]:
    """Returns what `_listed` gives, from the cache where no code has changed since.

    To name the programs takes all of them, and DSPy, to be imported.
    """
    stamp = _code_stamp()
    path = cache_root() / "lists.json"
    lists: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        lists = json.loads(path.read_text("utf-8"))
    if not isinstance(lists, dict) or lists.get("stamp") != stamp:
        lists = {"stamp": stamp}
    if kind not in lists:
        lists[kind] = list(_listed(kind))
        with suppress(OSError):  # it is made again next time
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(lists), "utf-8")
    return [(str(name), str(text)) for name, text in lists[kind]]


def _code_stamp() -> str:
    """Returns what changes when a file of ragbench, or a package that adds to it, does."""
    folder = Path(ragbench.__file__).parent
    newest = 0
    files = 0
    for path in folder.rglob("*.*"):
        if path.suffix in (".py", ".yaml"):
            files += 1
            newest = max(newest, path.stat().st_mtime_ns)
    packages = []
    for entry in entry_points(group="ragbench"):
        packages.append(f"{entry.value} {entry.dist.version if entry.dist else ''}")
    return f"{folder} {ragbench.__version__} {files} {newest} {' '.join(sorted(packages))}"


def _listed(kind: str) -> Iterator[tuple[str, str]]:
    """Name and description of everything of `kind`."""
    if kind == "metric":
        from ragbench.metrics import get_metric, metric_names

        for name in metric_names():
            description = get_metric(name.replace("@K", "@5").replace("@k", "@5")).description
            yield name, description.replace("first 5 ", "first K ")
    elif kind == "protocol":
        from ragbench.experiments.score.protocols import protocols

        yield from ((name, protocol.description) for name, protocol in sorted(protocols().items()))
    elif kind == "config":
        yield from _configs()
    for name, thing in _registry(kind) if kind in _REGISTRIES else ():
        extra = ""
        if kind == "program":
            extra = f" ({thing.family}, autonomy {'/'.join(thing.autonomy)})"
            extra += f" [{', '.join(thing.variants)}]" if len(thing.variants) > 1 else ""
        if kind == "dataset":
            thing = thing.load  # whose loader says what it is
        yield name, _about(thing) + extra


def _configs() -> Iterator[tuple[str, str]]:
    from ragbench.experiments import config

    for name in config.shipped_sweeps():
        yield name, "sweep: " + config.config_text(name).partition("\n")[0].lstrip("# ")
    for name in config.shipped_configs():
        fields = config.load_config(name)
        on = f"{fields['dataset']}, {fields['lm']}"
        yield name, f"{fields.get('program', '-')} on {on}"


def _knobs(model: Any, *, variants: Sequence[str] = ()) -> Iterator[str]:
    """A line for each knob of `model`: name, default, what is allowed, and what it is."""
    from ragbench.knobs import describe

    rows = []
    for row in describe(model, {"variant": variants[0]} if variants else None):
        name, default, allowed, text = row
        if variants and name == "variant":  # which of them there are is not in the knobs
            allowed = " | ".join(variants)
        rows.append((name, default, allowed, text))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(padded).rstrip()


def _program(name: str) -> Iterator[str]:
    from ragbench.user_code import allow

    allow(name)
    program = _registry("program").get(name)
    yield f"{name}: {_about(program)}"
    yield f"family: {program.family}"
    yield f"paper: {program.paper or '-'}"
    yield f"LM calls per question: {program.calls}"
    marks = zip(("strategy", "iterative", "interleaved"), program.autonomy, strict=True)
    yield "autonomy (A-RAG, Table 4): " + ", ".join(f"{k} {v}" for k, v in marks)
    for variant, changes in program.variants.items():
        changed = ", ".join(f"{knob}={value}" for knob, value in changes.items())
        yield f"variant {variant}: {changed or 'the defaults below'}"
        yield from _roles(program, variant)
    yield from _departures(name)
    yield "knobs (--set NAME=VALUE): name, default, allowed, meaning"
    yield from _knobs(program.Knobs, variants=list(program.variants))


def _departures(name: str) -> Iterator[str]:
    from ragbench.programs.core.departures import sources

    if name not in sources():
        return
    source = sources()[name]
    yield f"source: {source.source}"
    for departure in source.departures:
        yield f"  departs: {departure.line()}"


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
    thing = _registry(kind).get(name)
    yield f"{name}: {_about(thing)}"
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
    from ragbench.experiments.config import config_text, load_config, make_config, shipped_sweeps

    if name in shipped_sweeps():
        return config_text(name)
    fields = make_config(load_config(name)).model_dump(mode="json")
    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
    return f"# {name}, with what it inherits and every default; can be saved as your own\n{text}"


@click.group("models")
def models_command() -> None:
    """Fetch the local models."""


@models_command.command("list", cls=Command, examples=["ragbench models list --format json"])
@output_options
def list_models() -> None:
    """List the models that can be downloaded, and which are installed."""
    from ragbench.lms.local import CATALOGUE, cache_root, is_installed

    rows = []
    for name, model in CATALOGUE.items():
        row: dict[str, Any] = {
            "model": name,
            "mb": sum(file.size for file in model.files) / 1e6,
            "about": model.about,
            "installed": "yes" if is_installed(name) else "no",
        }
        rows.append(row)
    columns = (Column("model"), Column("mb", "MB", "amount"), Column("installed"), Column("about"))
    print_table(Table("models", columns, rows))
    say(f"all under Apache-2.0; stored in {cache_root() / 'models'} (set RAGBENCH_CACHE to change)")


@models_command.command("pull", cls=Command, examples=["ragbench models pull qwen2.5-coder-1.5b"])
@click.argument("names", nargs=-1)
def pull_models(names: tuple[str, ...]) -> None:
    """Download and verify the models NAMES (by default the default LM); says where they are."""
    from ragbench.lms.local import DEFAULT_LM, ensure, find, is_installed

    chosen = names or (DEFAULT_LM,)
    for name in chosen:
        find(name)  # a misspelt second name should not wait for the first one's bytes
    for name in chosen:
        here = is_installed(name)
        ensure(name)
        where = ", ".join(map(str, find(name).paths().values()))
        say(f"{name}: {'already installed' if here else 'downloaded and verified'}, {where}")


@click.group("data")
def data_command() -> None:
    """Fetch published data sets into the cache."""


@data_command.command(
    "get", cls=Command, examples=["ragbench data get hotpotqa", "ragbench data get musique 2wiki"]
)
@click.argument("names", nargs=-1, required=True)
@click.option("--hub-config", help="Its configuration on the hub, such as fullwiki or novel.")
def get_data(names: tuple[str, ...], hub_config: str | None) -> None:
    """Fetch the data sets NAMES from the Hugging Face hub, once, for `--dataset NAME --hub`.

    SHA256SUMS beside the files has what came; it is checked here and whenever they are read.
    """
    from ragbench.data import DATASETS, DataSettings, hub

    nicknames = {}
    for name, spec in DATASETS:
        nicknames.update(dict.fromkeys(spec.nicknames, name))
    for name in (nicknames.get(name, name) for name in names):
        DATASETS.get(name)
        for path in hub.fetched(DataSettings(dataset=name, hub=True, hub_config=hub_config)):
            size = path.stat().st_size / 1e6
            click.echo(f"{name}: {hub.checked(path)}, {size:,.1f} MB, as recorded")
