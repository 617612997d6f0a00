"""Runs as logs of inspect_ai, which `inspect view` opens and `read_eval_log` reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError, needs_extra
from ragbench.experiments.export.rows import ExportedRun
from ragbench.experiments.store import CARD, read_texts
from ragbench.record import Call, Record, total

if TYPE_CHECKING:
    from inspect_ai.event import Event
    from inspect_ai.log import EvalLog, EvalSample, EvalScore
    from inspect_ai.model import ModelUsage


def to_inspect(runs: Sequence[ExportedRun], path: Path) -> str:
    """Write one log, or one per run where `path` is a folder, and say what was written.

    Raises:
        MissingExtraError: inspect_ai is not installed.
        ConfigError: several runs for one file, or a file of another name.
    """
    with needs_extra("a log of inspect_ai"):
        from inspect_ai.log import write_eval_log
    if path.suffix in (".eval", ".json"):
        if len(runs) > 1:
            raise ConfigError(f"{path} can hold one run; name a folder for {len(runs)} logs")
        files = [path]
    elif path.suffix:
        raise ConfigError(f"{path}: a log's name ends in .eval or .json; name one, or a folder")
    else:
        path.mkdir(parents=True, exist_ok=True)
        files = [path / f"{run.name}.eval" for run in runs]
    for run, file in zip(runs, files, strict=True):
        write_eval_log(log_of(run), str(file))
    questions = sum(len(run.records) for run in runs)
    return f"{path}: {questions} questions; open with: inspect view --log-dir {files[0].parent}"


def log_of(run: ExportedRun) -> EvalLog:
    """The run as a log: a sample per question, with scores, steps, calls and the error, if any."""
    from inspect_ai import log

    evaluation, card = run.evaluation, run.evaluation.card
    texts = read_texts(evaluation.folder, run.records)
    written = (evaluation.folder / CARD).stat().st_mtime
    samples = [_sample(run, place, texts) for place in range(len(run.records))]
    questions = card.questions or len(samples)
    spec = log.EvalSpec(
        created=datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds"),
        task=f"{card.data.name}_{card.program}",
        task_id=_id(str(card.identity)),
        run_id=_id(run.name),
        model=card.model,
        dataset=log.EvalDataset(
            name=card.data.name, samples=questions, sample_ids=[str(r.qid) for r in run.records]
        ),
        config=log.EvalConfig(epochs=1, limit=card.limit, fail_on_error=False),
        task_args=card.knobs,
        packages={"ragbench": str(card.versions.get("ragbench", ""))},
        metadata={"folder": run.name, "identity": card.identity, "digest": card.data.digest},
    )
    results = log.EvalResults(
        total_samples=questions,
        completed_samples=sum(not record.failed for record in run.records),
        scores=[_mean(name, column) for name, column in run.scores.items()],
    )
    plan = log.EvalPlan(steps=[log.EvalPlanStep(solver=card.program, params=card.knobs)])
    calls = [call for record in run.records for call in record.ledger.calls]
    return log.EvalLog(
        status="success" if len(samples) >= questions else "cancelled",
        eval=spec,
        plan=plan,
        results=results,
        stats=log.EvalStats(model_usage=_usage(calls)),
        samples=samples,
    )


def _sample(run: ExportedRun, place: int, texts: Mapping[str, str]) -> EvalSample:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput
    from inspect_ai.scorer import Score

    record = run.records[place]
    failure = record.failure
    name = failure.name if failure else "no answer"
    why = f"failed: {name}" if record.failed else None
    said = f"{name}: {failure.message}" if failure else name
    answer = [] if record.answer is None else [ChatMessageAssistant(content=record.answer)]
    return EvalSample(
        id=record.qid,
        epoch=1,
        input=record.question,
        target=record.answers,
        messages=[ChatMessageUser(content=record.question), *answer],
        output=ModelOutput.from_content(run.evaluation.card.model, record.answer_text),
        scores={
            name: Score(value=column[place], answer=record.answer, explanation=why)
            for name, column in run.scores.items()
            if column[place] is not None
        },
        metadata={
            "type": record.qtype,
            "hops": record.hops,
            "failed": record.failed,
            "error": failure.error if failure else None,
            "stop_reason": record.stop_reason,
            "gold_pids": list(record.gold_pids),
            "pids": [passage.pid for passage in record.passages],
            "counts": record.counts,
        },
        events=_events(record, texts),
        model_usage=_usage(record.ledger.calls),
        total_time=record.latency_s,
        error=EvalError(message=said, traceback=said, traceback_ansi=said)
        if record.failed
        else None,
    )


def _events(record: Record, texts: Mapping[str, str]) -> list[Event]:
    """The steps, each after the calls that were made for it, and the calls of no step."""
    from inspect_ai.event import InfoEvent

    events: list[Event] = []
    calls = dict(enumerate(record.ledger.calls))
    for step in record.steps:
        events += [_call(record.ledger.calls[place], texts) for place in step.calls]
        told: dict[str, Any] = {
            "input": step.input,
            "thought": step.thought,
            "observation": step.observation,
            "pids": list(step.pids),
            "notes": {name: str(note) for name, note in step.notes.items()},
        }
        told = {name: value for name, value in told.items() if value}
        events.append(InfoEvent(source=step.action, data=told))
        for place in step.calls:
            calls.pop(place, None)
    return [*events, *(_call(call, texts) for call in calls.values())]


def _call(call: Call, texts: Mapping[str, str]) -> Event:
    """A call, with what was sent and received where the run kept it."""
    from inspect_ai.event import ModelEvent
    from inspect_ai.model import ChatMessageUser, GenerateConfig, ModelOutput

    output = ModelOutput.from_content(call.model, texts.get(call.reply, ""))
    output.usage = _usage([call])[call.model]
    return ModelEvent(
        model=call.model,
        role=call.role or None,
        input=[ChatMessageUser(content=texts[name]) for name in call.prompt if name in texts],
        tools=[],
        tool_choice="none",
        config=GenerateConfig(),
        output=output,
        retries=call.attempts - 1,
        error=call.error,
        cache="read" if call.cached else None,
        working_time=call.latency_s,
        metadata={"signature": call.signature, "kind": call.kind},
    )


def _usage(calls: Sequence[Call]) -> dict[str, ModelUsage]:
    """What each model took, as if nothing had been cached."""
    from inspect_ai.model import ModelUsage

    usage = {}
    for model in dict.fromkeys(call.model for call in calls):
        sums = total(call for call in calls if call.model == model)
        usage[model] = ModelUsage(
            input_tokens=sums.prompt_tokens,
            output_tokens=sums.completion_tokens,
            total_tokens=sums.tokens,
            total_cost=sums.cost_usd,
        )
    return usage


def _mean(name: str, column: Sequence[float | None]) -> EvalScore:
    """The mean over the questions that have the score, failed ones among them."""
    from inspect_ai.log import EvalMetric, EvalScore

    known = [value for value in column if value is not None]
    stats = {"mean": fmean(known)} if known else {}
    if len(known) > 1:
        stats["stderr"] = stdev(known) / len(known) ** 0.5
    return EvalScore(
        name=name,
        scorer=name,
        scored_samples=len(known),
        unscored_samples=len(column) - len(known),
        metrics={key: EvalMetric(name=key, value=value) for key, value in stats.items()},
    )


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:22]
