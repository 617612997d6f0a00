"""The `ragbench` command. Commands are imported when used, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ragbench import __version__
from ragbench.logs import to_terminal
from ragbench.redact import redact

if TYPE_CHECKING:
    from ragbench.errors import RagbenchError

#: command -> (module, attribute, one line of help)
COMMANDS = {
    "ask": ("ask", "ask_command", "Answer one question and show how."),
    "compare": ("compare", "compare_command", "Compare two runs, question by question."),
    "compile": ("compile", "compile_command", "Compile a program's prompts with an optimizer."),
    "doctor": ("doctor", "doctor_command", "Check the folder of a run, and mend it."),
    "errors": ("errors", "errors_command", "Show why answers are wrong, with examples."),
    "eval": ("eval", "eval_command", "Run a program over questions and print the table."),
    "index": ("index", "index_group", "Build, list and drop search indexes."),
    "list": (
        "listing",
        "list_command",
        "List programs, retrievers, optimizers, metrics, protocols, datasets.",
    ),
    "models": ("models", "models_group", "Fetch and serve the local models."),
    "programs": ("programs", "programs_command", "List the compiled programs in a folder."),
    "retrieve": (
        "retrieve",
        "retrieve_command",
        "Measure retrievers by themselves, without an LM.",
    ),
    "score": ("score", "score_command", "Add scores to finished runs; judge their answers."),
    "search": ("search", "search_command", "Look at what a retriever finds for a query."),
    "show": ("listing", "show_command", "Show one program, retriever, metric, protocol or config."),
    "summarize": ("summarize", "summarize_command", "Rebuild a run's summary from its records."),
    "sweep": ("sweep", "sweep_command", "Run a matrix of cells from a file, and compare them."),
    "transfer": (
        "programs",
        "transfer_command",
        "Ask one compiled program on other LMs and other data.",
    ),
    "tune": ("tune", "tune_command", "Search a program's knobs for the best trade-offs."),
    "verdict": ("verdict", "verdict_command", "Does compiling help? All arms and the verdict."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"ragbench.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the commands from their one line each, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in sorted(COMMANDS)])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with the near names of an unknown command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from ragbench.errors import UnknownNameError

            raise UnknownNameError("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={
        "auto_envvar_prefix": "RAGBENCH",
        "show_default": True,
        "help_option_names": ["-h", "--help"],
    },
)
@click.version_option(__version__, prog_name="ragbench")
def cli() -> None:
    """Which way of doing multi-hop RAG is worth it, and does compiling its prompts help?"""


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2, a limit reached 3."""
    # Without this, the first priced call asks the network for a price list.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    to_terminal()
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped; what is finished is kept, the same command continues", err=True)
        sys.exit(130)
    except click.UsageError as error:
        click.echo(f"error: {one_line(error.format_message())}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        click.echo(f"error: {one_line(error.format_message())}", err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        from ragbench.errors import RagbenchError

        if not isinstance(error, RagbenchError):
            _defect(error)
        _show(error)
        sys.exit(error.exit_code)


def _show(error: RagbenchError) -> None:
    from ragbench.errors import StoppedError

    if error.partial:
        from ragbench.experiments.report import print_runs

        print_runs(error.partial)
    what = "" if isinstance(error, StoppedError) else "error: "
    click.echo(what + one_line(str(error)), err=True)


def one_line(text: str) -> str:
    """`text` on one line, without control characters and keys."""
    return visible(" ".join(redact(text).split()))


def visible(text: str) -> str:
    """`text` with a blank for each control character, line ends too: nothing moves the cursor."""
    return "".join(c if c.isprintable() else " " for c in text)


def say(line: str) -> None:
    """Print one line of what a command tells while it works; it may quote data and models."""
    click.echo(visible(line))


def _defect(error: Exception) -> NoReturn:
    """Print the traceback of what nobody foresaw, without keys, and end with 1."""
    import traceback

    for line in "".join(traceback.format_exception(error)).splitlines():
        click.echo(visible(redact(line)), err=True)
    click.echo("this is a defect of ragbench; what is finished is kept", err=True)
    sys.exit(1)
