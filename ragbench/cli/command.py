"""Commands whose help has option groups and examples, and custom option types."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ragbench.cli import user_settings
from ragbench.cli.printing import flush, reset_output, set_output
from ragbench.experiments.report.table import FORMATS

F = TypeVar("F", bound=Callable[..., Any])

#: Order of the groups in a command's help; options without a group come last.
GROUPS = ("Program", "Compiling", "Search", "Data", "Retrieval", "Model", "Judge", "Run", "Limits",
          "Output")  # fmt: skip
PATH = click.Path(path_type=Path)


class GroupedOption(click.Option):
    """An option with the heading of its group in the help."""

    def __init__(self, *args: Any, group: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group


class Command(click.Command):
    """A command whose help has a section per group of options, and examples.

    If `common` names options, `--help` shows only those, and `--help-all` shows all.
    """

    def __init__(self, *args: Any, examples: str = "", common: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples.strip().splitlines()
        self.common = common.split()
        if common:
            self.params.append(
                GroupedOption(
                    ["--help-all"], is_flag=True, is_eager=True, expose_value=False,
                    callback=_help_all, help="Show every option and exit.",
                )
            )  # fmt: skip

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, over the defaults of the user's settings file."""
        reset_output()
        ctx.call_on_close(flush)
        user_settings.set_defaults(ctx, self)
        unparsed = super().parse_args(ctx, args)
        if ctx.default_map and user_settings.taken(ctx):
            click.echo(f"settings of {user_settings.settings_path()}", err=True)
        return unparsed

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        by_group: dict[str, list[tuple[str, str]]] = {}
        all_ = not self.common or ctx.meta.get("ragbench.help_all")
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            group = getattr(param, "group", "")
            if record and record[1] and (all_ or not group or param.name in self.common):
                by_group.setdefault(group, []).append(record)
        for name in filter(by_group.__contains__, (*GROUPS, "")):
            title = "Options"
            if len(by_group) > 1:
                title = name or "Other options"
            with formatter.section(title):
                formatter.write_dl(by_group[name], col_max=28)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _help_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta["ragbench.help_all"] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def command(
    name: str, *, examples: str = "", common: str = ""
) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator like `click.command`, for a `Command`.

    Args:
        name: Name of the command.
        examples: Command lines at the end of the help, one per line.
        common: Names of the options that `--help` shows, separated by blanks. Empty: all.
    """
    return click.command(name, cls=Command, examples=examples, common=common)


def option(*flags: str, group: str = "", **settings: Any) -> Callable[[F], F]:
    """Return a decorator like `click.option`, for a `GroupedOption`.

    Args:
        flags: Flags and the parameter name, as for click.
        group: Heading in the help, one of `GROUPS`.
        settings: Other settings, as for click.
    """
    return click.option(*flags, cls=GroupedOption, group=group, **settings)


def stack(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds all `options`, in their order."""

    def decorate(function: F) -> F:
        for add in reversed(options):
            function = add(function)
        return function

    return decorate


def runs_argument(function: F) -> F:
    """Add the argument RUNS, without the paths that contain no run."""
    return click.argument(
        "runs", nargs=-1, required=True, type=PATH, callback=lambda _, __, paths: with_runs(paths)
    )(function)


def with_runs(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the paths that contain runs and print the others. A single path is always returned."""
    from ragbench.experiments.store import runs_under  # slow

    folders = tuple(path for path in paths if runs_under(path))
    if len(paths) == 1 or not folders:
        return paths  # the command reports the error
    for path in paths:
        if path not in folders:
            click.echo(f"Skipping {path}: it contains no run.", err=True)
    return folders


def leave_out(*omitted: str) -> Callable[[Command], Command]:
    """Return a decorator that removes options; a config file may still set their values."""

    def decorate(decorated: Command) -> Command:
        decorated.params = [param for param in decorated.params if param.name not in omitted]
        return decorated

    return decorate


class FiniteRange(click.FloatRange):
    """A finite number, optionally within bounds."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers from 1, at most `most`, separated by commas."""

    name = "numbers"

    def __init__(self, most: float = math.inf) -> None:
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            numbers = list(map(int, value.split(",")))
        except ValueError:
            numbers = [0]
        if not 1 <= min(numbers) <= max(numbers) <= self.most:
            upper = "" if math.isinf(self.most) else f" to {self.most}"
            self.fail(f"{value!r}: give numbers from 1{upper}, such as 2,2,3", param, ctx)
        return numbers


#: Options whose NAME comes from the user or a server, so it is not normalized.
_AS_WRITTEN = ("header", "price_for")


def pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse `NAME=VALUE` texts into a mapping. The values stay texts.

    Args:
        ctx: Context of click.
        param: Option.
        values: Texts `NAME=VALUE`.
    """
    parsed: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE", param=param)
        if param.name not in _AS_WRITTEN:
            key = key.replace("-", "_")
        parsed[key] = value
    return parsed


#: Options for the output of tables. Their callback applies them.
_OUTPUT: Any = {
    "expose_value": False,
    "callback": lambda _, param, value: set_output(param.name, value),
    "group": "Output",
}
output_options = stack(
    option("--format", type=click.Choice(FORMATS), default="table", **_OUTPUT,
           help="Format of tables. For all formats except table, notes go to stderr."),
    option("--table", default="", metavar="NAME", **_OUTPUT,
           help="Print only this table, such as failures."),
    option("--names", is_flag=True, **_OUTPUT,
           help="List the full name, LM and folder of each letter."),
    option("--wide", is_flag=True, **_OUTPUT,
           help="Show every column, even if the terminal is too narrow."),
)  # fmt: skip
force_option = option(
    "--force", is_flag=True, group="Output",
    help="Replace a file that this command did not write.",
)  # fmt: skip
by_group_option = option(
    "--by-group", is_flag=True, group="Output",
    help="Add tables by question type, hops and kind of answer.",
)  # fmt: skip
metrics_option = option(
    "--metric", "metrics", multiple=True, metavar="NAME", group="Output",
    help="Metric to compare. Repeatable. [default: em, f1]",
)  # fmt: skip
margin_option = option("--margin", type=FiniteRange(min=0), group="Output",
                       help="Difference too small to matter, in the metric's unit.")  # fmt: skip
