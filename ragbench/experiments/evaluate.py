"""`evaluate`: from a config to a finished run folder with its summary."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragbench.experiments.artefact import assert_held_out, load_artefact, read_sidecar
from ragbench.experiments.config import RunConfig
from ragbench.experiments.limited import WHOLE, Progress
from ragbench.experiments.records import Loaded, Record, read_records
from ragbench.experiments.rundir import SUMMARY, RunDir, write_json
from ragbench.experiments.runner import OnPrepare, OnRecord, OnStart, run
from ragbench.experiments.sent import lost_calls
from ragbench.experiments.setup import Bench, build
from ragbench.experiments.summary import summarize
from ragbench.ledger import Totals, total
from ragbench.programs.base import RAGProgram
from ragbench.programs.form import repair_form
from ragbench.programs.votes import Voting


@dataclass(frozen=True)
class Evaluation:
    """A run as it is on disk: folder, config card, records by question id, summary."""

    folder: Path
    card: dict[str, Any]
    records: dict[str, Record]
    summary: dict[str, Any]
    corrupt: tuple[int, ...] = ()
    earlier: tuple[Record, ...] = ()  # records that a later one of the same question replaced
    progress: Progress = WHOLE
    stopped_by: str = ""  # the limit of spending that ended it just now, where one did
    #: What questions were billed that a kill kept from leaving a record.
    lost: Totals = field(default_factory=Totals)


def evaluate(
    config: RunConfig,
    *,
    like: Bench | None = None,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
    on_prepare: OnPrepare | None = None,
) -> Evaluation:
    """Run `config`, or continue it, and write its summary.

    Data and retriever are shared with `like` where that is of the same ones. A run that a limit of
    spending ended is given as far as it came; see `stopped_by`.

    Raises:
        RagbenchError: something the user can mend.
    """
    result = run(
        ready(config, like=like), on_start=on_start, on_record=on_record, on_prepare=on_prepare
    )
    return _finish(result.folder, result.loaded, result.stopped_by)


def ready(config: RunConfig, *, like: Bench | None = None) -> Bench:
    """What `config` runs on, with its compiled state and controls in place; asks no LM.

    Raises:
        RagbenchError: something the user can mend.
    """
    bench = build(config, like=like)
    if config.compiled is not None:
        sidecar = load_artefact(config.compiled, bench.program)
        assert_held_out(sidecar, bench.examples, dataset=bench.dataset.name)
        bench = replace(bench, compiled=sidecar.program_sha256)
    return replace(bench, program=_controlled(bench.program, config))


def _controlled(program: RAGProgram, config: RunConfig) -> RAGProgram:
    """`program`, or what the config's controls put around it."""
    if config.form:
        program = repair_form(program)
    return Voting(program, config.votes) if config.votes > 1 else program


def compiled_fields(folder: Path) -> dict[str, Any]:
    """The config fields that a compiled program decides: its architecture and its knobs.

    Raises:
        RunError: `folder` is no compiled program.
    """
    sidecar = read_sidecar(folder)
    return {"program": sidecar.program, "set": sidecar.knobs}


def reopen(folder: Path) -> Evaluation:
    """The run in `folder`, its summary computed again from its records and written.

    Raises:
        RunError: it is not a run folder.
    """
    rundir = RunDir(folder)
    rundir.config()
    return _finish(rundir, read_records(folder))


def _finish(rundir: RunDir, loaded: Loaded, stopped_by: str = "") -> Evaluation:
    card = rundir.config()
    progress = Progress.of(loaded, card.get("questions"))
    summary = summary_of(loaded, progress)
    write_json(rundir.path / SUMMARY, summary)
    return Evaluation(
        folder=rundir.path,
        card=card,
        records=loaded.records,
        summary=summary,
        corrupt=tuple(loaded.corrupt),
        earlier=tuple(loaded.earlier),
        progress=progress,
        stopped_by=stopped_by,
        lost=total(lost_calls(rundir.path)),
    )


def summary_of(loaded: Loaded, progress: Progress) -> dict[str, Any]:
    """What `summary.json` holds."""
    found = summarize(loaded.records.values(), loaded.earlier, loaded.cut_off)
    return {**found, "progress": progress.to_dict()}
