"""Options that several commands share, and how they become configs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ragbench.cli.command import FiniteRange, option, stack
from ragbench.cli.fields import field_options
from ragbench.experiments.config import (
    CompileConfig,
    DataConfig,
    LMConfig,
    RetrieverConfig,
    RunConfig,
    option_of,
)
from ragbench.logs import LEVELS, set_level

if TYPE_CHECKING:
    from ragbench.lms.calls import Limits

program_options = stack(
    [
        option(
            "--config", "config_file", metavar="FILE|NAME", group="Program",
            help="YAML file, or the name of a shipped config (`ragbench list configs`).",
        ),
        *field_options(RunConfig, "Program", only=["program", "set"]),
        option(
            "--k", type=int, group="Program",
            help="Passages per search; same as --set k=INTEGER. [default: the program's]",
        ),
        *field_options(RunConfig, "Program", only=["compiled", "policy"]),
    ]
)  # fmt: skip
control_options = stack(field_options(RunConfig, "Program", only=["form", "votes"]))

data_source_options = stack(
    field_options(DataConfig, "Data", without=["dataset"], defaults={"split": "test"})
)
data_options = stack(field_options(DataConfig, "Data", defaults={"split": "test"}))
whole_data_options = stack(field_options(DataConfig, "Data"))
tune_data_options = stack(
    field_options(DataConfig, "Data", defaults={"split": "validation", "limit": "50"})
)
#: For commands that choose no questions.
corpus_options = stack(field_options(DataConfig, "Data", defaults={"split": None, "limit": None}))
retriever_options = stack(field_options(RetrieverConfig, "Retrieval"))

_reply_option = option(
    "--max-tokens", type=int, group="Model",
    help="Same as --reply-tokens. (--max-total-tokens limits a whole command.)",
)  # fmt: skip
lm_setting_options = stack([*field_options(LMConfig, "Model", without=["model"]), _reply_option])
lm_options = stack([*field_options(LMConfig, "Model"), _reply_option])


def _set_level(ctx: click.Context, param: click.Parameter, value: str) -> None:
    set_level(value)


#: Sets the level by itself: no command needs to pass it on.
log_option = option(
    "--log-level", type=click.Choice(LEVELS), default="info", expose_value=False, group="Output",
    callback=_set_level, help="Lowest level of the events written to log.jsonl. [default: info]",
    show_default=False,
)  # fmt: skip
_RUN_FIELDS = [
    name
    for name, field in RunConfig.model_fields.items()
    if option_of(field).group in ("run", "limits")
]
run_options = stack(
    [
        *field_options(RunConfig, "Run", only=_RUN_FIELDS),
        log_option,
    ]
)
spread_options = stack(field_options(RunConfig, "Run", only=["processes", "engine"]))
shard_options = stack(field_options(RunConfig, "Run", only=["processes", "engine", "shard"]))
dry_run_option = option(
    "--dry-run", is_flag=True, group="Limits", help="Print the estimated cost, and stop."
)


limit_options = stack(
    [
        option("--max-cost", type=FiniteRange(min=0, min_open=True), metavar="USD", group="Limits",
               help="Stop before spending more than this."),
        option("--max-total-tokens", type=click.IntRange(min=1), group="Limits", metavar="N",
               help="Stop before using more tokens than this, prompts and replies together."),
        option("--max-calls", type=click.IntRange(min=1), group="Limits", metavar="N",
               help="Stop after this many LM calls, retries included."),
        option("--max-minutes", type=FiniteRange(min=0, min_open=True), group="Limits",
               metavar="MINUTES", help="Start no more calls after this many minutes."),
    ]
)  # fmt: skip

#: For commands that answer questions: what searches and answers, how, and within which limits.
answering_options = stack([retriever_options, lm_options, run_options, limit_options])

compile_options = stack(
    [
        *field_options(CompileConfig, "Compiling", without=["out"]),
        option(
            "--seeds", type=click.IntRange(min=1), default=1, group="Compiling",
            help="Compile this many times, with seeds from --optimizer-seed upwards. [default: 1]",
            show_default=False,
        ),
    ]
)  # fmt: skip


def given_fields(options: dict[str, Any], names: Any) -> dict[str, Any]:
    """The options in `names` that were given, removed from `options`; a limit of 0 becomes None."""
    values = {name: options.pop(name, None) for name in names}
    given = {name: value for name, value in values.items() if value not in (None, {}, ())}
    return {n: None if n.endswith("limit") and v == 0 else v for n, v in given.items()}


def take_compile_config(options: dict[str, Any], **given: Any) -> CompileConfig:
    """The `CompileConfig` of the options, which are taken out of `options`; `given` win.

    Raises:
        KnobError: a value that is not allowed.
    """
    from ragbench.knobs import resolve

    names = CompileConfig.model_fields.keys() - given.keys()
    return resolve(CompileConfig, "compile", {**given_fields(options, names), **given})


def take_limits(options: dict[str, Any]) -> Limits:
    """The limits of the options, which are taken out of `options`."""
    from ragbench.lms.calls import Limits

    return Limits(
        cost=options.pop("max_cost"),
        tokens=options.pop("max_total_tokens"),
        calls=options.pop("max_calls"),
        minutes=options.pop("max_minutes"),
    )


def to_config(config_file: str | None = None, *, whole: bool = False, **options: Any) -> RunConfig:
    """The config of the options given, over the config file if any.

    With `whole`, a file of questions is asked whole where no split is given and nothing compiled.

    Raises:
        RagbenchError: a value that is not allowed.
    """
    from ragbench.experiments.config import ask_whole, load_config, make_config

    reply_tokens = options.pop("max_tokens", None)
    given = given_fields(options, list(options))
    if reply_tokens is not None:
        click.echo("note: --max-tokens is the same as --reply-tokens; "
                   "--max-total-tokens limits what a whole command uses", err=True)  # fmt: skip
        given["reply_tokens"] = reply_tokens
    base = load_config(config_file) if config_file else {}
    if "compiled" in given:
        from ragbench.experiments.config import RunConfig, compiled_folder, flatten, merge, nest
        from ragbench.experiments.runs import compiled_fields, compiled_sources

        program = given.get("program")
        default = base.get("program") or RunConfig.model_fields["program"].default
        given["compiled"] = compiled_folder(given["compiled"], program or default)
        sources = compiled_sources(given["compiled"], {**flatten(base), **given})
        base = merge(nest(sources), base) | compiled_fields(given["compiled"], program)
    config = make_config(given, base=base)
    return ask_whole(config, given, base) if whole else config
