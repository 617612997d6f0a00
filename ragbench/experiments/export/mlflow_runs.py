"""Runs as runs of MLflow: params, metrics, tags, and the run's files as artifacts."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragbench.errors import ConfigError, needs_extra
from ragbench.experiments.export.rows import ExportedRun
from ragbench.experiments.runs import SUMMARY
from ragbench.experiments.store import CARD, DATABASE

#: Longest value of a param that MLflow takes.
_LONGEST = 6000


def to_mlflow(runs: Sequence[ExportedRun], path: Path | None) -> str:
    """Log every run, and say where: in the folder `path`, or at MLflow's own tracking URI.

    A folder holds a database, `mlflow.db`, and the artifacts. An experiment is a data set.

    Raises:
        MissingExtraError: MLflow is not installed.
        ConfigError: MLflow refuses, such as for a server that does not answer.
    """
    with needs_extra("MLflow"):
        import mlflow
        from mlflow.exceptions import MlflowException
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{path / 'mlflow.db'}" if path else mlflow.get_tracking_uri()
    try:
        client = mlflow.MlflowClient(uri)
        for run in runs:
            name = run.evaluation.card.data.name
            experiment = client.get_experiment_by_name(name)
            where = (path / "artifacts" / name).resolve().as_uri() if path else None
            made = experiment is None and client.create_experiment(name, artifact_location=where)
            _log(client, run, str(made or experiment.experiment_id))
    except MlflowException as error:
        raise ConfigError(f"MLflow at {uri}: {str(error).splitlines()[0]}") from None
    return f"{uri}: {len(runs)} runs; open with: mlflow ui --backend-store-uri {uri}"


def _log(client: Any, run: ExportedRun, experiment: str) -> None:
    from mlflow.entities import Metric, Param, RunTag

    evaluation, card, now = run.evaluation, run.evaluation.card, int(time.time() * 1000)
    tags = {
        "ragbench.folder": evaluation.folder,
        "ragbench.version": card.versions.get("ragbench", ""),
        "ragbench.git": card.git or "",
        "ragbench.data_digest": card.data.digest,
        "ragbench.model": card.model,
        "ragbench.compiled": card.compiled,
    }
    run_id = client.create_run(experiment, run_name=run.name).info.run_id
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in _metrics(run)],
        params=[Param(name, str(value)[:_LONGEST]) for name, value in _flat(card.identity)],
        tags=[RunTag(name, str(value)) for name, value in tags.items()],
    )
    for name in (CARD, SUMMARY, DATABASE):
        if (evaluation.folder / name).is_file():
            client.log_artifact(run_id, str(evaluation.folder / name))
    client.set_terminated(run_id, "FINISHED" if evaluation.progress.complete else "KILLED")


def _metrics(run: ExportedRun) -> Iterator[tuple[str, float]]:
    """Means of the scores, counts of questions, and spending; only what is known."""
    summary = run.evaluation.summary.to_dict()
    for name, column in run.scores.items():
        known = [value for value in column if value is not None]
        if known:
            yield name.replace("@", "_at_"), sum(known) / len(known)
    counted = {"questions": len(run.records), "failed": sum(r.failed for r in run.records)}
    parts = {part: summary[part] for part in ("as_if", "billed", "latency_s", "errors")}
    for name, value in _flat({**counted, **parts}):
        if value is not None and not isinstance(value, Mapping):
            yield name, float(value)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`values`, nested names joined by dots."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
