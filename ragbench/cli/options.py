"""Options that several commands share, and their conversion to configs.

Most options are made from the fields of a config model: the field provides the name, type,
choices, help and default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from ragbench.cli.command import PATH, FiniteRange, option, pairs, stack
from ragbench.cli.progress import RunProgress
from ragbench.cli.user_settings import taken, without_other_lm
from ragbench.experiments.config import CompileConfig, RunConfig
from ragbench.knobs import Knobs
from ragbench.logs import LEVELS, set_level
from ragbench.settings import (
    DataSettings,
    LMSettings,
    QuestionSettings,
    RetrieverSettings,
    option_of,
)

if TYPE_CHECKING:
    from ragbench.experiments.score.asking import JudgeSession
    from ragbench.lms.calls import Limits

K = TypeVar("K", bound=Knobs)


#: Headings of the groups that fields name.
_TITLES = {"limits": "Limits", "run": "Run"}
#: Type of a field -> its value in the help.
_VALUES = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


def field_options(
    model: type[Knobs], group: str, *, only: Iterable[str] = (), without: Iterable[str] = ()
) -> list[Callable[[Any], Any]]:
    """Return an option for each field of `model`, in declared order.

    Args:
        model: Config model.
        group: Default heading in the help.
        only: Names of the fields to include. Empty: all.
        without: Names of fields to omit.
    """
    fields = [n for n in only or model.model_fields if n not in {*without}]
    return [field_option(n, model.model_fields[n], group) for n in fields]


def field_option(name: str, field: FieldInfo, group: str, *aliases: str) -> Callable[[Any], Any]:
    """Return the option that sets `field`.

    Its default is None, so that the value of a config file applies.

    Args:
        name: Name of the field and of the parameter.
        field: The field, with its description and default.
        group: Default heading in the help.
        aliases: Further names of the option.
    """
    described = option_of(field)
    flags = ["--" + alias.replace("_", "-") for alias in (name, *described.aliases, *aliases)]
    kind: Any = field.annotation
    if get_origin(kind) is not Literal and NoneType in get_args(kind):
        kind = next(choice for choice in get_args(kind) if choice is not NoneType)
    default = described.default or _shown(field.default)
    text = field.description or ""
    settings: dict[str, Any] = {
        "default": None,
        "help": f"{text[:1].upper()}{text[1:]}." + f" [default: {default}]" * bool(default),
        "metavar": described.metavar or None,
    }
    if kind is bool:
        flags[0] += f"/--no-{flags[0][2:]}"
    elif get_origin(kind) is dict:
        settings |= {"multiple": True, "callback": pairs, "default": ()}
    elif get_origin(kind) is Literal:
        settings["type"] = click.Choice(list(map(str, get_args(kind))))
    elif kind is Path:
        settings["type"] = PATH
    else:  # The config checks the text.
        settings["metavar"] = described.metavar or _VALUES.get(kind, "NUMBER|none")
    return option(*flags, name, group=_TITLES.get(described.group, group), **settings)


def _shown(value: Any) -> str:
    if value is None or value is False or value in ({}, ()):
        return ""
    if value is True:
        return "yes"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _set_level(ctx: click.Context, param: click.Parameter, value: str) -> None:
    set_level(value)


#: Its callback sets the level, so commands do not pass it on.
log_option = option(
    "--log-level", type=click.Choice(LEVELS), default="info", expose_value=False, group="Output",
    callback=_set_level, help="Lowest level of the events written to log.jsonl.",
)  # fmt: skip
program_options = stack(
    option("--config", "config_file", metavar="FILE|NAME", group="Program",
           help="YAML file, or the name of a shipped config (`ragbench list configs`)."),
    *field_options(RunConfig, "Program", only=["program", "set"]),
    option("--k", type=int, group="Program",
           help="Passages per search; same as --set k=INTEGER. [default: the program's]"),
    *field_options(RunConfig, "Program", only=["compiled"]),
)  # fmt: skip
control_options = stack(*field_options(RunConfig, "Program", only=["form", "votes"]))
data_options = stack(*field_options(QuestionSettings, "Data"))
#: Data options of commands without a selection of questions.
corpus_options = stack(*field_options(DataSettings, "Data"))
retriever_options = stack(*field_options(RetrieverSettings, "Retrieval"))
lm_options = stack(*field_options(LMSettings, "Model"))
_RUN_FIELDS = [
    name
    for name, field in RunConfig.model_fields.items()
    if option_of(field).group in _TITLES and name not in LMSettings.model_fields
]
seed_option = stack(*field_options(RunConfig, "Run", only=["seed"]))
repeat_option = stack(*field_options(RunConfig, "Run", only=["repeat"]))
repeats_option = option("--repeats", type=click.IntRange(1, 1000), default=1, group="Run",
                        help="Number of repeats of every question, from --repeat.")  # fmt: skip
spread_options = stack(*field_options(RunConfig, "Run", only=["processes", "engine"]))
dry_run_option = option(
    "--dry-run", is_flag=True, group="Limits", help="Print bounds of the cost and exit."
)
#: Options that `take_how` reads, in addition to the limits.
how_options = stack(
    option("--fresh", is_flag=True, group="Run",
           help="Rename an earlier result with the same settings and start again."),
    dry_run_option,
    option("--pilot", type=click.IntRange(min=3), metavar="N", group="Limits",
           help="Run the first N questions, print the projected cost and time, and exit."),
)  # fmt: skip
limit_options = stack(
    option("--max-cost", type=FiniteRange(min=0, min_open=True), metavar="USD", group="Limits",
           help="Maximum cost in US dollars; stop before exceeding it."),
    option("--max-total-tokens", type=click.IntRange(min=1), group="Limits", metavar="N",
           help="Maximum tokens, prompts and replies together."),
    option("--max-calls", type=click.IntRange(min=1), group="Limits", metavar="N",
           help="Maximum LM calls, retries included."),
    option("--max-minutes", type=FiniteRange(min=0, min_open=True), group="Limits",
           metavar="MINUTES", help="Minutes after which no call starts."),
)  # fmt: skip

#: Retriever, LM, run and limit options, for commands that answer questions.
answering_options = stack(
    retriever_options,
    lm_options,
    *field_options(RunConfig, "Run", only=_RUN_FIELDS),
    log_option,
    limit_options,
)
compile_options = stack(
    *field_options(CompileConfig, "Compiling", without=["out", "optimizer_metric"])
)
#: The optimizer's metric. In a verdict, `--metric` is the compared metric.
_METRIC = CompileConfig.model_fields["optimizer_metric"]
compile_metric_option = field_option("optimizer_metric", _METRIC, "Compiling", "metric")
optimizer_metric_option = field_option("optimizer_metric", _METRIC, "Compiling")


def take_settings(model: type[K], owner: str, options: dict[str, Any], **overrides: Any) -> K:
    """Remove the fields of `model` from `options` and return them as a `model`.

    Args:
        model: Class of the settings.
        owner: Name for error messages.
        options: All options of the command. Changed in place.
        overrides: Values that replace those of the options.

    Raises:
        KnobError: A value is not allowed.
    """
    from ragbench.knobs import resolve

    taken = _given(options, [name for name in model.model_fields if name not in overrides])
    return resolve(model, owner, {**taken, **overrides})


def _given(options: dict[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Remove `fields` from `options` and return those that are set; a limit of 0 becomes None."""
    values = {name: options.pop(name, None) for name in fields}
    entered = {name: value for name, value in values.items() if value not in (None, {}, ())}
    for name, value in entered.items():
        if name.endswith("limit") and value in (0, "0"):
            entered[name] = None
    return entered


@dataclass(frozen=True)
class How:
    """Whether a command starts again, only estimates or runs a pilot, and its limits."""

    limits: Limits
    fresh: bool
    dry_run: bool
    pilot: int | None

    @property
    def only_estimate(self) -> bool:
        """True if the command prints a cost and exits."""
        return self.dry_run or self.pilot is not None

    @contextmanager
    def working(self, *folders: Path) -> Iterator[RunProgress]:
        """Keep the limits and show progress inside the block.

        Args:
            folders: Folders of the results. --fresh renames earlier ones first.
        """
        from ragbench.experiments.runs.context import limited
        from ragbench.experiments.runs.reuse import set_aside

        if self.fresh and not self.dry_run:
            for folder in folders:
                set_aside(folder)
        with limited(self.limits, *folders), RunProgress() as progress:
            yield progress


def take_how(options: dict[str, Any]) -> How:
    """Remove the limits and `how_options` from `options` and return them."""
    limits = take_limits(options)
    return How(limits, options.pop("fresh"), options.pop("dry_run"), options.pop("pilot"))


def take_limits(options: dict[str, Any]) -> Limits:
    """Remove the limits from `options` and return them."""
    from ragbench.lms.calls import Limits

    return Limits(
        cost=options.pop("max_cost"),
        tokens=options.pop("max_total_tokens"),
        calls=options.pop("max_calls"),
        minutes=options.pop("max_minutes"),
    )


def to_config(
    config_file: str | None = None, *, complete: bool = False, **options: Any
) -> RunConfig:
    """Return the config of the options, over the config file if any.

    Args:
        config_file: Path of a config, or the name of a shipped one.
        complete: True: if no split is given and nothing is compiled, ask all questions of a file.
        options: Options of the command, by field name.
    """
    from ragbench.experiments.config import (
        ask_whole,
        check_one_run,
        compiled_folder,
        load_config,
        make_config,
    )
    from ragbench.experiments.config.model import merge

    context = click.get_current_context()
    values = _given(options, list(options))
    base = load_config(config_file) if config_file else {}
    from_user = {}
    for name in taken(context) & values.keys():
        from_user[name] = values.pop(name)
    base = merge(without_other_lm(from_user, {**base, **values}), base)
    if "compiled" not in values:
        config = make_config(values, base=base)
    else:
        from ragbench.experiments.runs.compiled import check_sources_named, compiled_fields

        program = values.get("program")
        folder = values["compiled"] = compiled_folder(values["compiled"])
        stored = compiled_fields(folder, program)
        config = make_config(values, base=base, stored=stored, owner=str(folder))
        words = context.meta.get("ragbench.words", [])
        check_sources_named(folder, config, {**base, **values}, words)
    if complete:
        check_one_run(config, values, base)
        return ask_whole(config, values, base)
    return config


#: Options that `make_asking` reads, and the limits.
_OF_THE_JUDGE = ("api_base", "price", "reply_tokens", "cache")
asking_options = stack(
    option("--batch", is_flag=True, group="Judge",
           help="Use the provider's batch API: half the price, replies within a day."),
    *field_options(LMSettings, "Judge", only=["api_base", "price", "cache"]),
    option("--reply-tokens", "--max-tokens", "reply_tokens", default="1024", group="Judge",
           metavar="INTEGER|none", help="Maximum tokens of one reply; none to send no limit."),
    option("--workers", "--num-threads", "workers", type=click.IntRange(1, 1024), default=4,
           group="Judge", help="Calls made in parallel."),
    limit_options,
)  # fmt: skip


def make_asking(
    options: dict[str, Any],
    spec: str | None,
    on_reply: Callable[[int, int, str], None] | None = None,
) -> JudgeSession | None:
    """Return the LM of `spec` with the settings of `options`, or None without a spec.

    Args:
        options: Options of the command, among them `asking_options`.
        spec: LM spec, such as openai/gpt-4o-mini.
        on_reply: Progress callback: the number done, the total, and further text.
    """
    if spec is None:
        return None
    from ragbench.experiments.score.asking import JudgeSession
    from ragbench.knobs import resolve
    from ragbench.lms.batch import batched
    from ragbench.lms.factory import make_lm
    from ragbench.lms.reply_cache import configure_cache
    from ragbench.logs import quiet_libraries

    quiet_libraries()
    configure_cache()
    given = {name: options[name] for name in _OF_THE_JUDGE if options[name] is not None}
    settings = resolve(LMSettings, "judge", given)
    lm = make_lm(spec, settings)
    return JudgeSession(batched(lm) if options["batch"] else lm, options["workers"], on_reply)
