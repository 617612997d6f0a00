"""`ragbench import`: predictions of another system as a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragbench.cli.command import command, option, output_options
from ragbench.cli.options import to_config, whole_data_options


@command(
    "import",
    examples=[
        "ragbench import predictions.jsonl --name langgraph --data-file dev.json",
        "ragbench import hotpot_pred.json --name paper --data-file hotpot_dev_distractor_v1.json",
        "ragbench compare runs/vanilla runs/imported-langgraph",
    ],
)
@click.argument("file", type=click.Path(path_type=Path))
@option("--name", default="imported", group="Program", help="What the system is called in tables.")
@option("--lm", "model", default="unknown", metavar="NAME", group="Program",
        help="The model that it asked, for tables.")  # fmt: skip
@whole_data_options
@option("--seed", type=click.IntRange(min=0), group="Data", show_default=False,
        help="Seed of the splits. [default: 42]")  # fmt: skip
@option("--out", type=click.Path(path_type=Path), group="Output",
        help="Run folder. [default: runs/imported-NAME]", show_default=False)  # fmt: skip
@output_options
def import_command(file: Path, name: str, model: str, out: Path | None, **options: Any) -> None:
    """Make a run of the predictions in FILE, which another system made for a data set's questions.

    FILE is JSON lines, JSON or CSV with an id (or question) and an answer, and where they are known
    passages, tokens, calls, cost_usd and latency_s; or HotpotQA's official prediction file.
    """
    from ragbench.experiments.importing import import_run
    from ragbench.experiments.report.tables import print_runs

    config = to_config(**options, whole=True)
    folder = out or Path("runs") / f"imported-{name}"
    print_runs([import_run(config, file, name, model, folder)])
