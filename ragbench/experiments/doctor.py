"""Checks of the folders of runs and compiled programs. Reads only, and prints the fixes."""

from collections.abc import Iterator
from pathlib import Path

from ragbench.errors import RagbenchError, RunError
from ragbench.experiments import store
from ragbench.experiments.artifacts import SIDECAR, load_artefact, read_sidecar
from ragbench.experiments.plans import ASKED

_TWICE = (
    "SELECT qid FROM records WHERE state = 'answered' GROUP BY qid HAVING count(*) > 1 ORDER BY qid"
)


def folders_under(folder: Path) -> list[Path]:
    """Return `folder` itself, or the folders of runs and compiled programs in it."""
    below = sorted(path for path in folder.rglob("*") if path.is_dir())
    folders = []
    for path in (folder, *below):
        if store.is_run(path) or _is_compile(path):
            folders.append(path)
    if not folders:
        raise RunError(
            f"{folder} is neither a run nor a compiled program: it has no {store.DATABASE} and no "
            f"{SIDECAR}"
        )
    if folders[0] == folder:
        return folders[:1]
    return folders


def _is_compile(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (SIDECAR, ASKED))


def examine(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each problem in the folder, with its file and the fix."""
    for is_kind, check in ((_is_compile, _compiled), (store.is_run, _run)):
        try:
            if is_kind(folder):
                yield from check(folder)
        except RagbenchError as error:
            yield folder, str(error)


def _run(folder: Path) -> Iterator[tuple[Path, str]]:
    path = folder / store.DATABASE
    cure = "put a copy back, or run again"
    run = store.RunFolder(folder, check=True)
    run.card  # noqa: B018  # it can be read, or this raises
    yield from _integrity(run.reader, cure)
    for qid in run.records.damaged:
        problem = f"the record of {qid} was damaged or changed after it was written"
        yield path, f"{problem}; the run's command asks the question again"
    for qid in run.records.with_other_facts():
        yield path, f"the facts of {qid} do not follow from its record; {cure}"
    query = "SELECT (SELECT count(*) FROM records), (SELECT value FROM run WHERE name = 'records')"
    for there, written in run.reader.rows(query):
        if there != int(written or 0):
            yield path, f"it has {there} records, and {written or 0} were written; {cure}"
    for (qid,) in run.reader.rows(_TWICE):
        yield path, f"{qid} has two finished records; the last one counts"


def _compiled(folder: Path) -> Iterator[tuple[Path, str]]:
    from ragbench.programs import PROGRAMS
    from ragbench.retrievers import Corpus, make_retriever

    if (folder / SIDECAR).is_file():
        sidecar = read_sidecar(folder)
        nothing = make_retriever("bm25", Corpus(()), setting="pooled")
        load_artefact(folder, PROGRAMS.get(sidecar.program)(nothing, **sidecar.knobs))
    if (folder / ASKED).is_file():
        store.read_object(folder / ASKED)
    yield from _integrity(store.Reader(folder / "work" / store.CALLS), "compile again")


def _integrity(reader: store.Reader, cure: str) -> Iterator[tuple[Path, str]]:
    for (fault,) in reader.rows("PRAGMA integrity_check(5)"):
        if fault != "ok":
            yield reader.path, f"the file is damaged: {fault}; {cure}"
