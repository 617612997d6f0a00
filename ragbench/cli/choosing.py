"""The command `ragbench choose`, which races programs and decides from their records."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ragbench.cli import options as shared
from ragbench.cli.command import PATH, FiniteRange, command, option, output_options
from ragbench.cli.printing import say, show
from ragbench.errors import ConfigError
from ragbench.experiments.config import RunConfig, plain_name

#: The cheapest program of each family that works on multi-hop questions.
DEFAULT_PROGRAMS = "vanilla,react,ircot,rlm,linear_rag,lookahead"


@command(
    "choose",
    examples="""
ragbench choose --docs contracts/ --data-file questions.jsonl --max-cost 5
ragbench choose --data-file dev.json --lm openai/gpt-4o-mini --max-p95 3 --min-gain .02
ragbench choose --programs vanilla,ircot,rag.py:MyRAG,compiled/FOLDER
ragbench choose --programs vanilla,rag.py:MyRAG,rag.py:MyRAG@mine.json
ragbench choose --replay runs/vanilla --replay runs/ircot
""",
    common=(
        "docs data_file programs min_gain max_p95 metric replay lm api_base retriever limit "
        "max_cost out"
    ),
)
@option("--docs", type=PATH, group="Data",
        help="Folder of documents to search instead of the questions' own passages.")  # fmt: skip
@option("--programs", default=DEFAULT_PROGRAMS, metavar="A,B,...", group="Race",
        help="Programs that race, by name, as FILE.py:Class, with a state that plain DSPy saved "
             "as FILE.py:Class@STATE.json, or as a compiled folder; all for all.")  # fmt: skip
@option("--min-gain", type=FiniteRange(min=0, max=1, max_open=True), default=0.05, group="Race",
        help="Smallest gain that justifies a more expensive program. 0: any gain.")  # fmt: skip
@option("--max-p95", type=FiniteRange(min=0, min_open=True), metavar="SECONDS", group="Race",
        help="Maximum latency of 95 % of the questions, in seconds.")  # fmt: skip
@option("--metric", default="f1", metavar="NAME", group="Race", help="Metric to compare.")
@option("--replay", type=PATH, multiple=True, metavar="RUN", group="Race",
        help="Race two or more recorded runs, without LM calls. Repeatable.")  # fmt: skip
@shared.data_options
@shared.how_options
@shared.answering_options
@output_options
def choose_command(
    docs: Path | None,
    programs: str,
    min_gain: float,
    max_p95: float | None,
    metric: str,
    replay: tuple[Path, ...],
    **options: Any,
) -> None:
    """Race programs over the same questions and stop when the decision is clear.

    After each block of questions, a program is dropped if another one scores significantly more, if
    it costs more and gains significantly less than --min-gain, or if it is significantly too slow.
    The probability of dropping the best program is at most 5 %, for any number of looks. Repeat the
    command to continue. Exits with 3 if a limit ended the race.
    """
    from ragbench.experiments.cells.cell import Cell
    from ragbench.experiments.cells.choose import choose, replay as race_again
    from ragbench.experiments.cells.estimate import estimate_cells
    from ragbench.experiments.choose.racing import Rule
    from ragbench.experiments.report.choice import race_report
    from ragbench.experiments.report.names import label_runs
    from ragbench.experiments.runs.summary import reopen

    rule = Rule(min_gain=min_gain, max_p95=max_p95)
    if replay:
        runs = list(map(reopen, replay))
        named = dict(zip(label_runs(runs), runs, strict=True))
        show(race_report(race_again(named, rule=rule, metric=metric)))
        return
    how = shared.take_how(options)
    folder = options.pop("out") or Path("choose")
    if docs is not None:
        options |= {"corpus_file": docs, "setting": "pooled"}
    configs = _configs(programs, folder, options)
    cells = [Cell(name, config, arm=name) for name, config in configs.items()]
    with how.working(folder) as progress:
        if how.only_estimate:
            note = f"all questions with {len(cells)} programs; a race asks only part of them"
            say(*estimate_cells(cells, pilot=how.pilot, watch=progress, notes=[note]))
            return
        choice = choose(cells, folder, rule=rule, metric=metric, watch=progress)
    show(race_report(choice))
    if choice.stopped_by:
        raise click.exceptions.Exit(3)


def _configs(programs: str, folder: Path, options: Mapping[str, Any]) -> dict[str, RunConfig]:
    """Return the config of each program by name; `options` apply to all."""
    from ragbench.programs import PROGRAMS

    names = list(filter(None, map(str.strip, programs.split(","))))
    if names == ["all"]:
        names = [name for name, program in PROGRAMS if not program.needs_gold]
    fields: list[dict[str, Any]] = []
    for name in names:
        program, _, state = name.rpartition("@")
        if Path(name, "sidecar.json").is_file():
            fields.append({"compiled": Path(name)})
        elif program and state.endswith(".json"):
            fields.append({"program": program, "compiled": Path(state)})
        elif PROGRAMS.get(name).needs_gold:
            raise ConfigError(f"--programs: {name} is an upper bound (gold passages)")
        else:
            fields.append({"program": name})
    # If a program is compiled, all programs need held-out questions.
    complete = not any("compiled" in chosen for chosen in fields)
    configs: dict[str, RunConfig] = {}
    for name, chosen in zip(names, fields, strict=True):
        config = shared.to_config(**options, **chosen, complete=complete)
        cell = folder / "cells" / plain_name(name)
        if any(earlier.out == cell for earlier in configs.values()):
            raise ConfigError(f"--programs names {name} twice")
        configs[name] = config.but(out=cell)
    return configs
