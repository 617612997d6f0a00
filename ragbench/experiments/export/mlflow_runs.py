"""Runs as runs of MLflow: params, metrics, tags, and the run's files as artifacts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError, needs_extra
from ragbench.experiments.export.rows import ExportedRun
from ragbench.experiments.runs import SUMMARY
from ragbench.experiments.store import CARD, DATABASE

if TYPE_CHECKING:
    from mlflow import MlflowClient

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
            _log(client, run, _experiment(client, run.evaluation.card.data.name, path))
    except MlflowException as error:
        raise ConfigError(f"MLflow at {uri}: {str(error).splitlines()[0]}") from None
    return f"{uri}: {len(runs)} runs; open with: mlflow ui --backend-store-uri {uri}"


def _experiment(client: MlflowClient, name: str, path: Path | None) -> str:
    """The id of the experiment called `name`, made where there is none."""
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    where = (path / "artifacts" / name).resolve().as_uri() if path else None
    return str(client.create_experiment(name, artifact_location=where))


def _log(client: MlflowClient, run: ExportedRun, experiment: str) -> None:
    from mlflow.entities import Metric, Param, RunTag

    evaluation = run.evaluation
    run_id = client.create_run(experiment, run_name=run.name).info.run_id
    params = [Param(name, value[:_LONGEST]) for name, value in _flat(evaluation.card.identity)]
    now = int(time.time() * 1000)
    metrics = [Metric(name, value, now, 0) for name, value in _metrics(run).items()]
    tags = [RunTag(name, str(value)) for name, value in _tags(run).items()]
    client.log_batch(run_id, metrics=metrics, params=params, tags=tags)
    for name in (CARD, SUMMARY, DATABASE):
        if (evaluation.folder / name).is_file():
            client.log_artifact(run_id, str(evaluation.folder / name))
    client.set_terminated(run_id, "FINISHED" if evaluation.progress.complete else "KILLED")


def _flat(identity: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """What identifies a run as names and texts, nested names joined by dots."""
    for name, value in identity.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)


def _metrics(run: ExportedRun) -> dict[str, float]:
    """Means of the scores, counts of questions, and spending; only what is known."""
    summary = run.evaluation.summary.to_dict()
    values: dict[str, float | None] = {}
    for name, column in run.scores.items():
        known = [value for value in column if value is not None]
        values[name.replace("@", "_at_")] = sum(known) / len(known) if known else None
    values |= {"questions": len(run.records), "failed": sum(r.failed for r in run.records)}
    for kind in ("as_if", "billed"):
        values |= {f"{kind}.{name}": value for name, value in summary[kind].items()}
    values |= {f"latency_s.{name}": value for name, value in summary["latency_s"].items()}
    values |= {f"errors.{name}": n for name, n in summary["errors"].items()}
    return {name: float(value) for name, value in values.items() if value is not None}


def _tags(run: ExportedRun) -> dict[str, Any]:
    card = run.evaluation.card
    return {
        "ragbench.folder": str(run.evaluation.folder),
        "ragbench.version": card.versions.get("ragbench", ""),
        "ragbench.git": card.git or "",
        "ragbench.data_digest": card.data.digest,
        "ragbench.model": card.model,
        "ragbench.compiled": card.compiled,
    }
