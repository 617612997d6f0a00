"""Options that several commands share, and how they become a `RunConfig`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ragbench.logs import LEVELS, set_level

if TYPE_CHECKING:
    from ragbench.experiments.compile import CompileConfig
    from ragbench.experiments.config import RunConfig
    from ragbench.lms.limits import Limits

F = TypeVar("F", bound=Callable[..., Any])


def pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """`key=value` strings as a mapping; values are read as YAML scalars (6, true, seed)."""
    import yaml

    found: dict[str, Any] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not of the form name=value", param=param)
        try:
            read = yaml.safe_load(value)
        except yaml.YAMLError:
            read = value
        found[key.replace("-", "_")] = value if isinstance(read, dict | list) else read
    return found


def _stack(options: list[Callable[[F], F]]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


# No option has a default here: an absent one leaves the config file's value, or RunConfig's own.
program_options = _stack(
    [
        click.option(
            "--config", "config_file", help="YAML file or shipped name; `inherits:` works."
        ),
        click.option(
            "--program", help="Architecture; see `ragbench list programs`. [default: ircot]"
        ),
        click.option(
            "--set",
            "set_",
            multiple=True,
            callback=pairs,
            metavar="KNOB=VALUE",
            help="A knob of the program; repeat for more.",
        ),
        click.option("--k", type=int, help="Passages per search."),
        click.option("--compiled", type=click.Path(), help="Folder of a compiled program."),
    ]
)

data_source_options = _stack(
    [
        click.option("--data-file", type=click.Path(), help="Questions in the official format."),
        click.option("--corpus-file", type=click.Path(), help="Passages, where kept apart."),
        click.option("--chunk-file", type=click.Path(), help="Fixed-length chunks."),
        click.option("--alias-file", type=click.Path(), help="2WikiMultiHopQA's aliases."),
        click.option("--hub-config", help="Configuration of the hub's data set."),
        click.option("--hub/--no-hub", default=None, help="Take the data from the hub."),
        click.option("--setting", help="distractor: a question's own passages; pooled: all."),
        click.option("--view", help="paragraph or chunk. [default: the data set's]"),
        click.option("--size", type=int, help="Passages of the synthetic world. [default: 2000]"),
        click.option("--split", help="train, validation or test. [default: test]"),
        click.option("--limit", type=int, help="First questions; 0 for all. [default: 20]"),
    ]
)  # fmt: skip

data_options = _stack(
    [
        click.option("--dataset", help="See `ragbench list datasets`. [default: synthetic]"),
        data_source_options,
    ]
)

lm_setting_options = _stack(
    [
        click.option(
            "--lm-for", multiple=True, callback=pairs, metavar="ROLE=LM",
            help="Another LM for one role of the program.",
        ),
        click.option("--api-base", help="URL of an OpenAI-compatible server."),
        click.option("--price", help="in=USD,out=USD per million tokens, where unknown."),
        click.option("--temperature", type=float, help="[default: 0]"),
        click.option("--reply-tokens", type=int, help="Tokens of one reply. [default: 512]"),
        click.option(
            "--timeout", type=float, help="Seconds without a byte. [default: 120, local 600]"
        ),
        click.option(
            "--question-timeout", type=float, help="Seconds until a question's calls are refused."
        ),
        click.option("--rpm", type=float, help="Requests a minute. [default: the server's]"),
        click.option("--tpm", type=float, help="Tokens a minute. [default: the server's]"),
        click.option(
            "--patience", type=float, help="Seconds to wait for an LM that is down. [default: 600]"
        ),
        click.option("--adapter", help="auto, json, chat or xml. [default: auto]"),
        click.option("--cache/--no-cache", default=None, help="Reuse replies. [default: cache]"),
    ]
)  # fmt: skip

lm_options = _stack(
    [
        click.option("--lm", help="local, local:NAME or .gguf, openai/..., ... [default: local]"),
        lm_setting_options,
    ]
)

retriever_options = _stack(
    [
        click.option("--retriever", help="See `ragbench list retrievers`. [default: bm25]"),
        click.option(
            "--retriever-set", multiple=True, callback=pairs, metavar="NAME=VALUE",
            help="A setting of the retriever; repeat for more.",
        ),
    ]
)  # fmt: skip


def _set_level(ctx: click.Context, param: click.Parameter, value: str) -> None:
    set_level(value)


#: Sets the level by itself: no command needs to pass it on.
log_option = click.option(
    "--log-level", type=click.Choice(LEVELS), default="info", expose_value=False,
    callback=_set_level, help="What goes to log.jsonl in the run folder.",
)  # fmt: skip

run_options = _stack(
    [
        log_option,
        click.option("--workers", type=int, help="Questions answered at once. [default: 4]"),
        click.option("--seed", type=int, help="Seeds everything. [default: 42]"),
        click.option(
            "--out", type=click.Path(), help="Run folder. [default: runs/<name of the run>]"
        ),
    ]
)

closed_book_option = click.option(
    "--closed-book", type=click.Path(path_type=Path),
    help="Run without retrieval; breaks down by whether it has the answer.",
)  # fmt: skip

group_options = _stack(
    [
        click.option("--by-group", is_flag=True, help="Add breakdowns by kind of question."),
        closed_book_option,
    ]
)

limit_options = _stack(
    [
        click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD",
                     help="Stop before more than this is spent."),
        click.option("--max-tokens", type=click.IntRange(min=1),
                     help="Stop before more tokens than this are spent, in prompts and replies."),
        click.option("--max-calls", type=click.IntRange(min=1),
                     help="Stop after this many calls, retries among them."),
        click.option("--max-minutes", type=click.FloatRange(min=0, min_open=True),
                     help="Begin nothing after this time."),
    ]
)  # fmt: skip


compile_options = _stack(
    [
        click.option("--optimizer", help="See `ragbench list optimizers`. [default: bootstrap]"),
        click.option("--preset", help="Spend: light, medium or heavy. [default: light]"),
        click.option(
            "--opt-set", multiple=True, callback=pairs, metavar="KNOB=VALUE",
            help="A knob of the optimizer; repeat for more.",
        ),
        click.option("--metric", help="What candidates are scored by: em or f1. [default: f1]"),
        click.option(
            "--train-limit", type=int, help="Training questions; 0 for all. [default: 50]"
        ),
        click.option(
            "--val-limit", type=int, help="Validation questions; 0 for all. [default: 50]"
        ),
        click.option("--teacher", help="LM that answers training questions. [default: the LM]"),
        click.option("--prompt-lm", help="LM that writes instructions. [default: the LM]"),
        click.option("--optimizer-seed", type=int, help="Seeds the optimizer. [default: 0]"),
        click.option(
            "--seeds", type=click.IntRange(min=1), default=1, show_default=True,
            help="Compile this many times, from --optimizer-seed upwards.",
        ),
    ]
)  # fmt: skip


def take_compile_config(options: dict[str, Any], **given: Any) -> CompileConfig:
    """The `CompileConfig` of the options, which are taken out of `options`; `given` win.

    Raises:
        KnobError: a value that is not allowed.
    """
    from ragbench.experiments.compile import CompileConfig
    from ragbench.knobs import resolve

    fields = {}
    for name in CompileConfig.model_fields.keys() - given.keys():
        value = options.pop(name, None)
        if value not in (None, {}):
            fields[name] = None if name.endswith("_limit") and value == 0 else value
    return resolve(CompileConfig, "compile", {**fields, **given})


def take_limits(options: dict[str, Any]) -> Limits:
    """The limits of the options, which are taken out of `options`."""
    from ragbench.lms.limits import Limits

    return Limits(
        **{name: options.pop(f"max_{name}") for name in ("cost", "tokens", "calls", "minutes")}
    )


def to_config(config_file: str | None = None, **options: Any) -> RunConfig:
    """The config of the options given, over the config file if any.

    Raises:
        RagbenchError: a value that is not allowed.
    """
    from ragbench.experiments.config import load_config, make_config

    given = {
        name.rstrip("_"): value for name, value in options.items() if value not in (None, {}, ())
    }
    base = load_config(config_file) if config_file else {}
    if "compiled" in given:
        from ragbench.experiments.evaluate import compiled_fields

        base = {**base, **compiled_fields(Path(given["compiled"]))}
    if given.get("limit") == 0:
        given.pop("limit")
        base = {**base, "limit": None}
    return make_config(given, base=base)
