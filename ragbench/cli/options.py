"""Options that several commands share, and how they become configs.

Most are made of the fields of a config model: name, type, choices, help and default of an option
come from its field, so that nothing is said twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem
from pydantic.fields import FieldInfo

from ragbench.cli.command import Finite, FiniteRange, option, pairs, stack
from ragbench.experiments.config import (
    CompileConfig,
    DataConfig,
    LMConfig,
    Option,
    RetrieverConfig,
    RunConfig,
    option_of,
)
from ragbench.knobs import Knobs
from ragbench.logs import LEVELS, set_level

if TYPE_CHECKING:
    from ragbench.experiments.score.asking import Asking
    from ragbench.lms.calls import Limits


class Name(click.ParamType[str]):
    """The name of a registered thing of `kind`, which a shell completes; checked where it is used.

    Retrievers may be specs with settings, and plug-ins may add names, so any text is taken here.
    """

    name = "name"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin as what was typed."""
        from ragbench.cli.listing import names_of

        return [CompletionItem(name) for name in names_of(self.kind) if name.startswith(incomplete)]


def field_options(
    model: type[Knobs],
    group: str,
    *,
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    defaults: Mapping[str, str | None] = MappingProxyType({}),
) -> list[Callable[[Any], Any]]:
    """An option for each field of `model`, or for those in `only`, in declared order.

    `defaults` are what the help of a command says in place of a field's default; a field whose
    default is None there is taken by the command and not in its help.
    """
    names = [n for n in only or model.model_fields if n not in {*without}]
    return [field_option(n, model.model_fields[n], group, defaults.get(n, "")) for n in names]


def field_option(
    name: str, field: FieldInfo, group: str, default: str | None
) -> Callable[[Any], Any]:
    """The option that sets `field`; not given, it is None, so that a config file's value holds."""
    about = option_of(field)
    flat = about.name or name
    flags = ["--" + each.replace("_", "-") for each in (flat, *about.aliases)]
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    kind = field.annotation
    if get_origin(kind) is not Literal and NoneType in get_args(kind):
        kind = kinds[0]
    settings: dict[str, Any] = {"default": None, "help": _help(field, default or about.default)}
    settings["hidden"] = default is None
    if about.metavar:
        settings["metavar"] = about.metavar
    if kind is bool:
        flags[0] += f"/--no-{flags[0][2:]}"
    elif get_origin(kind) is dict:
        settings |= {"multiple": True, "callback": pairs, "default": ()}
    else:
        settings["type"] = _type(kind, about)
    return option(*flags, flat, group=_TITLES.get(about.group, group), **settings)


_TITLES = {"limits": "Limits", "run": "Run", "program": "Program", "control": "Program"}


def _type(kind: Any, about: Option) -> Any:
    if about.choices:
        return Name(about.choices)
    if get_origin(kind) is Literal:
        return click.Choice([str(choice) for choice in get_args(kind)])
    if kind is Path:
        return click.Path(path_type=Path)
    return Finite() if kind is float else str if get_origin(kind) is tuple else kind


def _help(field: FieldInfo, default: str) -> str:
    text = field.description or ""
    default = default or _shown(field.default)
    shown = f" [default: {default}]" if default else ""
    return f"{text[:1].upper()}{text[1:]}.{shown}"


def _shown(value: Any) -> str:
    if value is None or value is False or value in ({}, ()):
        return ""
    return "yes" if value is True else f"{value:g}" if isinstance(value, float) else str(value)


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
run_options = stack([*field_options(RunConfig, "Run", only=_RUN_FIELDS), log_option])
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
        from ragbench.experiments.config import compiled_folder, flatten, merge, nest
        from ragbench.experiments.runs import compiled_fields, compiled_sources

        program = given.get("program")
        default = base.get("program") or RunConfig.model_fields["program"].default
        given["compiled"] = compiled_folder(given["compiled"], program or default)
        sources = compiled_sources(given["compiled"], {**flatten(base), **given})
        base = merge(nest(sources), base) | compiled_fields(given["compiled"], program)
    config = make_config(given, base=base)
    return ask_whole(config, given, base) if whole else config


#: What `make_asking` reads, and the limits.
asking_options = stack(
    [
        option("--batch", is_flag=True, group="Judge",
               help="Use the provider's batch API: half the price, replies within a day."),
        option("--api-base", "--model-base-url", "api_base", metavar="URL", group="Judge",
               help="Address of an OpenAI-compatible server, for the judging LMs."),
        option("--price", metavar="in=USD,out=USD[,cached=USD]", group="Judge",
               help="Price per million tokens, where it is not known."),
        option("--reply-tokens", "--max-tokens", "reply_tokens", type=click.IntRange(min=16),
               default=1024, group="Judge", help="Maximum tokens of one reply."),
        option("--workers", "--num-threads", "workers", type=click.IntRange(1, 1024), default=4,
               group="Judge", help="Calls made in parallel."),
        option("--cache/--no-cache", default=True, group="Judge",
               help="Reuse the replies to identical calls."),
        limit_options,
    ]
)  # fmt: skip


def make_asking(
    options: dict[str, Any], spec: str | None, on_reply: Callable[[int, int], None] | None = None
) -> Asking | None:
    """The LM of `spec` with the options' settings; None without one.

    Raises:
        RagbenchError: a malformed spec, or one whose provider has no batches.
    """
    if spec is None:
        return None
    from ragbench.experiments.score.asking import Asking
    from ragbench.lms import configure_cache, make_lm
    from ragbench.lms.batch import batched
    from ragbench.logs import quiet_libraries

    quiet_libraries()
    configure_cache()
    lm = make_lm(
        spec,
        api_base=options["api_base"],
        price=options["price"],
        max_tokens=options["reply_tokens"],
        cache=options["cache"],
    )
    return Asking(batched(lm) if options["batch"] else lm, options["workers"], on_reply)
