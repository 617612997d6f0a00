"""`evaluate`: from a config to a finished run folder with its summary."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.artifacts import (
    assert_held_out,
    assert_not_learned_from,
    load_artefact,
    read_sidecar,
)
from ragbench.experiments.config import RunConfig
from ragbench.experiments.records import (
    RunCard,
    StoredRecords,
    lost_calls,
    read_card,
    read_records,
    write_json,
)
from ragbench.experiments.runs.context import Bench, build
from ragbench.experiments.runs.runner import OnPrepare, OnRecord, OnStart, RunResult, run
from ragbench.experiments.runs.spend import WHOLE, Progress
from ragbench.experiments.runs.summary import SUMMARY, shown, stop_reason, summary_of
from ragbench.programs.core import RAGProgram
from ragbench.programs.routing import Router
from ragbench.programs.wrappers import Voting, repair_form, with_more_votes
from ragbench.record import Totals, billed


@dataclass(frozen=True)
class Evaluation:
    """A run as it is on disk: folder, config card, records by question id, summary."""

    folder: Path
    card: RunCard
    records: StoredRecords
    first: StoredRecords  # the first record of each question
    summary: dict[str, Any]
    corrupt: tuple[int, ...] = ()
    replaced: int = 0  # records that a later one of the same question replaced
    progress: Progress = WHOLE
    stopped_by: str = ""  # the limit of spending that ended it just now, where one did
    #: What questions were billed that a kill kept from leaving a record.
    lost: Totals = field(default_factory=Totals)

    @property
    def unreadable(self) -> int:
        """Questions that ended without one reply of the model that could be read."""
        return sum(why == "parse_fallback" for why in self.records.column(stop_reason).values())


def evaluate(
    config: RunConfig,
    *,
    like: Bench | None = None,
    on_start: OnStart | None = None,
    on_record: OnRecord | None = None,
    on_prepare: OnPrepare | None = None,
) -> Evaluation:
    """Run `config`, or continue it, write its summary, and give the questions that it asks for.

    The folder may hold more of them, from a run with a larger limit. Data and retriever are shared
    with `like` where that is of the same ones. A run that a limit of spending ended is given as far
    as it came; see `stopped_by`.

    Raises:
        RagbenchError: something the user can mend.
    """
    bench = ready(config, like=like)
    result = run(bench, on_start=on_start, on_record=on_record, on_prepare=on_prepare)
    asked = {str(example.qid) for example in bench.examples}
    whole = asked.issuperset(result.loaded.records)
    return _evaluation(result if whole else _only(result, asked))


def _only(result: RunResult, asked: Set[str]) -> RunResult:
    """`result` without the questions that are not among those `asked`."""
    kept = result.loaded.only(asked)
    return replace(result, loaded=kept, summary=summary_of(kept, len(asked)))


def ready(config: RunConfig, *, like: Bench | None = None) -> Bench:
    """What `config` runs on, with its compiled state and controls in place; asks no LM.

    Raises:
        RagbenchError: something the user can mend.
    """
    bench = build(config, like=like)
    if config.compiled is not None:
        sidecar = load_artefact(config.compiled, bench.program)
        assert_held_out(sidecar.data, bench.examples, dataset=bench.dataset.name)
        bench = replace(bench, compiled=sidecar.program_sha256)
    if isinstance(bench.program, Router):
        assert_not_learned_from(bench.program.policy, bench.examples, dataset=bench.dataset.name)
    return replace(bench, program=_controlled(bench.program, config, bench))


def _controlled(program: RAGProgram, config: RunConfig, bench: Bench) -> RAGProgram:
    """`program`, or what the config's controls put around it."""
    if config.form and config.policy:
        raise ConfigError("a router runs its programs as they are; leave form out")
    if config.form:
        program = repair_form(program)
    if config.votes == 1:
        return program
    asked = [example.question for example in bench.examples]
    return Voting(program, config.votes, with_more_votes(asked, config.votes))


def compiled_fields(folder: Path, program: str | None = None) -> dict[str, Any]:
    """The config fields that a compiled program decides: its architecture and its knobs.

    Raises:
        RunError: `folder` is no compiled program, or one of another program than `program`.
    """
    sidecar = read_sidecar(folder)
    if program not in (None, sidecar.program):
        raise RunError(
            f"{folder} is a compiled {sidecar.program}, not {program}; leave --program out"
        )
    return {"program": sidecar.program, "set": sidecar.knobs}


def reopen(folder: Path) -> Evaluation:
    """The run in `folder`, its summary computed from its records; writes nothing.

    Raises:
        RunError: it is not a run folder.
    """
    card, loaded = read_card(folder), read_records(folder, shown())
    return _evaluation(RunResult(folder, card, loaded, summary_of(loaded, card.questions)))


def write_summary(folder: Path) -> None:
    """Write the summary of the run in `folder`, which this process holds, from its records.

    Raises:
        RunError: it is not a run folder, or cannot be written.
    """
    write_json(folder / SUMMARY, reopen(folder).summary)


def _evaluation(result: RunResult) -> Evaluation:
    loaded = result.loaded
    return Evaluation(
        folder=result.folder,
        card=result.card,
        records=loaded.records,
        first=loaded.first,
        summary=result.summary,
        corrupt=tuple(loaded.corrupt),
        replaced=len(loaded.earlier),
        progress=Progress.of(loaded, result.card.questions),
        stopped_by=result.stopped_by,
        lost=billed(lost_calls(result.folder)),
    )
