"""`evaluate`: from a config to a finished run folder with its summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.experiments.config import RunConfig
from ragbench.experiments.records import Record, read_records
from ragbench.experiments.rundir import SUMMARY, RunDir, write_json
from ragbench.experiments.runner import OnRecord, run
from ragbench.experiments.setup import build
from ragbench.experiments.summary import summarize

#: Called once before the first question with the run's title, the questions to ask and those done.
OnStart = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Evaluation:
    """A run as it is on disk: folder, config card, records by question id, summary."""

    folder: Path
    card: dict[str, Any]
    records: dict[str, Record]
    summary: dict[str, Any]
    corrupt: tuple[int, ...] = ()


def evaluate(
    config: RunConfig, *, on_start: OnStart | None = None, on_record: OnRecord | None = None
) -> Evaluation:
    """Run `config`, or continue it, and write its summary.

    Raises:
        RagbenchError: something the user can mend.
    """
    bench = build(config)
    if config.compiled is not None:
        from ragbench.experiments.artefact import assert_held_out, load_artefact

        sidecar = load_artefact(config.compiled, bench.program)
        assert_held_out(sidecar, bench.examples)
    finished = read_records(config.folder()).finished
    todo = sum(e.qid not in finished for e in bench.examples)
    if todo:
        bench.check_lms()
    if on_start:
        title = f"{config.program} on {bench.dataset.name} {config.split}, {bench.lm.model}"
        on_start(title, todo, len(bench.examples) - todo)
    result = run(bench, on_record=on_record)
    return _finish(result.folder, result.loaded.records, result.loaded.corrupt)


def reopen(folder: Path) -> Evaluation:
    """The run in `folder`, its summary computed again from its records and written.

    Raises:
        RunError: it is not a run folder.
    """
    rundir = RunDir(folder)
    rundir.config()
    loaded = read_records(folder)
    return _finish(rundir, loaded.records, loaded.corrupt)


def _finish(rundir: RunDir, records: dict[str, Record], corrupt: list[int]) -> Evaluation:
    summary = summarize(records.values())
    write_json(rundir.path / SUMMARY, summary)
    return Evaluation(rundir.path, rundir.config(), records, summary, tuple(corrupt))
