"""Runs as logs of inspect_ai, which `inspect view` opens and `read_eval_log` reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from ragbench.errors import ConfigError, needs_extra
from ragbench.experiments.export.rows import ExportedRun
from ragbench.experiments.store import CARD, read_texts
from ragbench.record import Call, Record, total

if TYPE_CHECKING:
    from inspect_ai.event import Event
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ModelUsage


def to_inspect(runs: Sequence[ExportedRun], path: Path) -> str:
    """Write one log, or one per run where `path` is a folder, and say what was written.

    Raises:
        MissingExtraError: inspect_ai is not installed.
        ConfigError: several runs for one file, or a file of another name.
    """
    with needs_extra("a log of inspect_ai"):
        from inspect_ai.log import write_eval_log
    if path.suffix not in (".eval", ".json", ""):
        raise ConfigError(f"{path}: a log's name ends in .eval or .json; name one, or a folder")
    if path.suffix and len(runs) > 1:
        raise ConfigError(f"{path} can hold one run; name a folder for {len(runs)} logs")
    if not path.suffix:
        path.mkdir(parents=True, exist_ok=True)
    for run in runs:
        write_eval_log(log_of(run), str(path if path.suffix else path / f"{run.name}.eval"))
    questions = sum(len(run.records) for run in runs)
    folder = path.parent if path.suffix else path
    return f"{path}: {questions} questions; open with: inspect view --log-dir {folder}"


def log_of(run: ExportedRun) -> EvalLog:
    """The run as a log: a sample per question, with scores, steps, calls and the error, if any."""
    from inspect_ai import log

    evaluation, card = run.evaluation, run.evaluation.card
    texts = read_texts(evaluation.folder, run.records)
    written = (evaluation.folder / CARD).stat().st_mtime
    questions = card.questions or len(run.records)
    scores = []
    for name, column in run.scores.items():
        known = [value for value in column if value is not None]
        means = {"mean": log.EvalMetric(name="mean", value=fmean(known))} if known else {}
        scores.append(log.EvalScore(name=name, scorer=name, metrics=means))
    return log.EvalLog(
        status="success" if len(run.records) >= questions else "cancelled",
        eval=log.EvalSpec(
            created=datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds"),
            task=f"{card.data.name}_{card.program}",
            task_id=hashlib.sha256(str(card.identity).encode()).hexdigest()[:22],
            run_id=hashlib.sha256(run.name.encode()).hexdigest()[:22],
            model=card.model,
            dataset=log.EvalDataset(name=card.data.name, samples=questions),
            config=log.EvalConfig(epochs=1, limit=card.limit, fail_on_error=False),
            task_args=card.knobs,
            packages={"ragbench": str(card.versions.get("ragbench", ""))},
            metadata={"folder": run.name, "identity": card.identity, "digest": card.data.digest},
        ),
        plan=log.EvalPlan(steps=[log.EvalPlanStep(solver=card.program, params=card.knobs)]),
        results=log.EvalResults(
            total_samples=questions,
            completed_samples=sum(not record.failed for record in run.records),
            scores=scores,
        ),
        stats=log.EvalStats(
            model_usage=_usage([call for record in run.records for call in record.ledger.calls])
        ),
        samples=[_sample(run, place, texts) for place in range(len(run.records))],
    )


def _sample(run: ExportedRun, place: int, texts: Mapping[str, str]) -> EvalSample:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput
    from inspect_ai.scorer import Score

    record, error = run.records[place], None
    if record.failed:
        failure = record.failure
        said = f"{failure.name}: {failure.message}" if failure else "no answer"
        error = EvalError(message=said, traceback=said, traceback_ansi=said)
    answer = [] if record.answer is None else [ChatMessageAssistant(content=record.answer)]
    return EvalSample(
        id=record.qid,
        epoch=1,
        input=record.question,
        target=record.answers,
        messages=[ChatMessageUser(content=record.question), *answer],
        output=ModelOutput.from_content(run.evaluation.card.model, record.answer_text),
        scores={
            name: Score(value=column[place], answer=record.answer)
            for name, column in run.scores.items()
            if column[place] is not None
        },
        metadata={
            "type": record.qtype,
            "hops": record.hops,
            "failed": record.failed,
            "error": record.failure.error if record.failure else None,
            "stop_reason": record.stop_reason,
            "gold_pids": list(record.gold_pids),
            "pids": [passage.pid for passage in record.passages],
            "counts": record.counts,
        },
        events=_events(record, texts),
        model_usage=_usage(record.ledger.calls),
        total_time=record.latency_s,
        error=error,
    )


def _events(record: Record, texts: Mapping[str, str]) -> list[Event]:
    """The steps, each after the calls that were made for it, and the calls of no step."""
    from inspect_ai.event import InfoEvent

    events: list[Event] = []
    calls = dict(enumerate(record.ledger.calls))
    for step in record.steps:
        events += [_call(record.ledger.calls[place], texts) for place in step.calls]
        calls = {place: call for place, call in calls.items() if place not in step.calls}
        told = {"input": step.input, "thought": step.thought, "observation": step.observation}
        events.append(InfoEvent(source=step.action, data={**told, "pids": list(step.pids)}))
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

    models = {call.model for call in calls}
    sums = {model: total(call for call in calls if call.model == model) for model in models}
    return {
        model: ModelUsage(
            input_tokens=took.prompt_tokens,
            output_tokens=took.completion_tokens,
            total_tokens=took.tokens,
            total_cost=took.cost_usd,
        )
        for model, took in sums.items()
    }
