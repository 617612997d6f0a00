"""The formats that runs can be exported to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ragbench.errors import ConfigError, RunError
from ragbench.experiments.export.inspect_logs import to_inspect
from ragbench.experiments.export.mlflow_runs import to_mlflow
from ragbench.experiments.export.source import ExportedRun, open_runs
from ragbench.experiments.export.tables import to_csv, to_parquet
from ragbench.experiments.records import check_output

#: Format -> what writes a file or folder of it.
_FILES: dict[str, Callable[[Sequence[ExportedRun], Path], str]] = {
    "parquet": to_parquet,
    "csv": to_csv,
    "inspect": to_inspect,
}
#: Every format.
TARGETS = (*_FILES, "mlflow")


def export_runs(
    folders: Sequence[Path], target: str, output: Path | None, metrics: Sequence[str] = ()
) -> str:
    """Write the runs in `folders` as `target` to `output`, and say in a line what was written.

    `metrics` are given beside the scores that are stored. Without an `output`, MLflow takes them
    at its own tracking URI.

    Raises:
        RunError: a folder is no run, or the output cannot be written.
        ConfigError: no output, or one that the format cannot be written to.
        MissingExtraError: the format's package is not installed.
    """
    runs = open_runs(folders, metrics)
    try:
        if target == "mlflow":
            return to_mlflow(runs, output)
        if output is None:
            raise ConfigError(f"--to {target} writes to a path; name it with -o PATH")
        if target != "inspect" and output.is_dir():
            raise ConfigError(f"{output} is a folder; name a file, such as {output}/runs.{target}")
        check_output(output)
        output.parent.mkdir(parents=True, exist_ok=True)
        return _FILES[target](runs, output)
    except OSError as error:
        raise RunError(f"cannot write {output}: {error.strerror or error}") from None
