"""The commands `list` and `fetch`: names, stored results, and downloads."""

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

import ragbench
from ragbench.cli.command import PATH, command, option, output_options
from ragbench.cli.printing import for_machines, print_table, say, show
from ragbench.experiments.report.table import Column, Table
from ragbench.paths import cache_root

#: Kind -> module and name of its registry.
_REGISTRIES = {
    "program": ("ragbench.programs", "PROGRAMS"),
    "retriever": ("ragbench.retrievers", "RETRIEVERS"),
    "optimizer": ("ragbench.optimizers", "OPTIMIZERS"),
    "dataset": ("ragbench.data", "DATASETS"),
}
#: Kinds that ragbench provides by name.
NAMED = ("programs", "retrievers", "optimizers", "metrics", "protocols", "datasets", "configs")
#: Kinds that are stored on this machine.
STORED = ("models", "runs", "compiled", "indexes")
KINDS = (*NAMED, *STORED)


@command(
    "list",
    examples="""
ragbench list programs
ragbench list runs verdicts/FOLDER --format csv
ragbench list indexes --delete 3f2a
""",
)
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("folder", type=PATH, required=False)
@option("--delete", "deleted", multiple=True, metavar="NAME", group="Indexes",
        help="Delete the index with this name or prefix, or all. Does not delete collections on "
        "servers.")  # fmt: skip
@output_options
def list_command(kind: str, folder: Path | None, deleted: tuple[str, ...]) -> None:
    """List everything of one KIND, one line each.

    KIND is programs, retrievers, optimizers, metrics, protocols, datasets, configs, models, runs,
    compiled or indexes. FOLDER holds the runs (default `runs`) or the compiled programs (default
    `compiled`).
    """
    if folder is not None and kind not in ("runs", "compiled"):
        raise click.UsageError(f"list {kind} does not accept a folder; remove {folder}")
    if deleted and kind != "indexes":
        raise click.UsageError(f"--delete is for indexes, not for {kind}")
    if kind == "runs":
        from ragbench.experiments.report.run_list import run_list_report

        show(run_list_report(folder or Path("runs")))
    elif kind == "compiled":
        from ragbench.experiments.report.sweep import programs_report

        show(programs_report(folder or Path("compiled")))
    elif kind == "models":
        _list_models()
    elif deleted:
        _delete_indexes(deleted)
    elif kind == "indexes":
        _list_indexes()
    else:
        _list_names(kind)


def _list_names(kind: str) -> None:
    """Print the name and description of each item of one kind."""
    rows = remembered(kind, lambda: list(map(list, _listed(kind[:-1]))))
    if for_machines():
        columns = (Column("name"), Column("about"))
        print_table(Table(kind, columns, [{"name": name, "about": text} for name, text in rows]))
        return
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        say(f"{name:<{width}}  {text}")


def _list_models() -> None:
    """Print the models that can be downloaded, and which are installed."""
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


def _list_indexes() -> None:
    """Print the stored indexes, the newest first."""
    from ragbench.retrievers import IndexStore

    store = IndexStore()
    columns = (Column("index"), Column("passages", kind="count"), Column("mb", "MB", "number"),
               Column("build_s", "built in s", "seconds"), Column("created"))  # fmt: skip
    rows = []
    for entry in store.entries():
        rows.append({**vars(entry), "index": entry.key, "mb": entry.size / 1e6})
    if rows or for_machines():
        print_table(Table("indexes", columns, rows))
    say(f"{len(rows)} indexes in {store.root}")


def _delete_indexes(keys: tuple[str, ...]) -> None:
    """Delete the indexes with these names or prefixes, after checking that all exist."""
    from ragbench.retrievers import IndexStore

    store = IndexStore()
    entries = store.entries()
    if keys != ("all",):
        entries = list(map(store.find, keys))
    for entry in entries:
        store.drop(entry.key)
        say(f"deleted {entry.key}  {entry.size / 1e6:.1f} MB")


@command(
    "fetch",
    examples="""
ragbench fetch qwen2.5-coder-1.5b
ragbench fetch hotpotqa musique
""",
)
@click.argument("wanted_names", nargs=-1, metavar="[NAMES]...")
@option("--hub-config", metavar="NAME",
        help="Configuration of a data set on the hub, such as fullwiki or novel.")  # fmt: skip
def fetch_command(wanted_names: tuple[str, ...], hub_config: str | None) -> None:
    """Download the models and data sets NAMES, by default the local LM.

    `ragbench list models` lists the models. A data set comes from the Hugging Face hub, for
    `--dataset NAME --hub`. ragbench verifies the checksums of downloaded files each time it reads
    them.
    """
    from ragbench.data import DATASETS, DataSettings, hub
    from ragbench.errors import UnknownNameError
    from ragbench.lms.local import CATALOGUE, DEFAULT_LM, ensure, find, is_installed

    known = [*CATALOGUE, *DATASETS.names()]
    for name in wanted_names:  # check all names before the first download
        if name not in known:
            raise UnknownNameError("model or data set", name, known)
    for name in wanted_names or (DEFAULT_LM,):
        if name in CATALOGUE:
            done = "already installed" if is_installed(name) else "downloaded and verified"
            ensure(name)
            say(f"{name}: {done}, {', '.join(map(str, find(name).paths().values()))}")
            continue
        for path in hub.fetched(DataSettings(dataset=name, hub=True, hub_config=hub_config)):
            size = path.stat().st_size / 1e6
            say(f"{name}: {hub.checked(path)}, {size:,.1f} MB, as recorded")


def registry(kind: str) -> Any:
    """Return the registry of `kind`, such as `program`."""
    module, name = _REGISTRIES[kind]
    return getattr(import_module(module), name)


def about(thing: Any) -> str:
    """Return the description of `thing`, or the first line of its docstring."""
    described: str = getattr(thing, "description", "") or inspect.getdoc(thing) or ""
    return described.partition("\n")[0]


def remembered(name: str, make: Callable[[], list[Any]]) -> list[Any]:
    """Return the result of `make`, from the cache if no code has changed since.

    Without the cache, listing programs imports all of them, and DSPy.

    Args:
        name: Key of the result in the cache.
        make: Computes the result, as JSON values.
    """
    stamp = _code_stamp()
    path = cache_root() / "lists.json"
    lists: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        lists = json.loads(path.read_text("utf-8"))
    if not isinstance(lists, dict) or lists.get("stamp") != stamp:
        lists = {"stamp": stamp}
    if not isinstance(lists.get(name), list):
        lists[name] = make()
        with suppress(OSError):  # the next call computes it again
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(lists), "utf-8")
    rows: list[Any] = lists[name]
    return rows


def _code_stamp() -> str:
    """Return a stamp that changes if the code of ragbench or of a plug-in package changes."""
    folder = Path(ragbench.__file__).parent
    files = [path for path in folder.rglob("*.*") if path.suffix in (".py", ".yaml")]
    newest = max(path.stat().st_mtime_ns for path in files)
    packages = []
    for entry in entry_points(group="ragbench"):
        packages.append(f"{entry.value} {entry.dist.version if entry.dist else ''}")
    return f"{folder} {ragbench.__version__} {len(files)} {newest} {' '.join(sorted(packages))}"


def _listed(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the name and description of each item of `kind`."""
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
    for name, thing in registry(kind) if kind in _REGISTRIES else ():
        extra = ""
        if kind == "program":
            extra = f" ({thing.family}, autonomy {'/'.join(thing.autonomy)})"
            extra += f" [{', '.join(thing.variants)}]" if len(thing.variants) > 1 else ""
            if thing.single_passage:
                extra += f" ({', '.join(thing.single_passage)}: answers from one passage at a time)"
        if kind == "dataset":
            thing = thing.load  # the loader has the docstring
        yield name, about(thing) + extra


def _configs() -> Iterator[tuple[str, str]]:
    from ragbench.experiments import config

    for name in config.shipped_sweeps():
        yield name, "sweep: " + config.config_text(name).partition("\n")[0].lstrip("# ")
    for name in config.shipped_configs():
        fields = config.load_config(name)
        on = f"{fields['dataset']}, {fields['lm']}"
        yield name, f"{fields.get('program', '-')} on {on}"
