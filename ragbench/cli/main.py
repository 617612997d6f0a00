"""The `ragbench` command. It imports a command when it is used, so that `--help` is fast."""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import signal
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ragbench import __version__
from ragbench.context import stop_all, stopped
from ragbench.redact import redact

if TYPE_CHECKING:
    from types import FrameType

#: New objects after which garbage is collected. Python's default is 700.
_COLLECT_AFTER = 50_000
#: Seconds that a thread may compute before another takes over. With 256 threads, Python's default
#: of 5 ms costs a seventh of the time.
_SWITCH_S = 0.05
#: Seconds to wait for threads after Ctrl-C.
_ENDING_S = 1.0
#: Maximum characters of an error, which may quote a text of any length.
_LONGEST = 2_000

#: Command -> the module that has it as `COMMAND_command`, and its line in the help.
COMMANDS = {
    "eval": ("answering", "Run a program over questions and print the table."),
    "compile": ("compiling", "Compile a program's prompts with an optimizer."),
    "compare": ("results", "Compare runs with the first run, question by question."),
    "verdict": ("compiling", "Test whether compiling helps, against control arms."),
    "choose": ("choosing", "Race programs and stop when the decision is clear."),
    "recommend": ("results", "Recommend a program, overall or per question group."),
    "sweep": ("compiling", "Run a matrix of cells from a file and compare them."),
    "tune": ("compiling", "Search a program's parameters for the best trade-offs."),
    "ask": ("answering", "Answer a question and show every step."),
    "retrieve": ("searching", "Search, measure retrievers, or build an index."),
    "questions": ("writing", "Write multi-hop questions from your documents."),
    "score": ("answering", "Add metrics or judge verdicts to finished runs."),
    "errors": ("answering", "Explain wrong answers, with examples."),
    "import": ("answering", "Import another system's predictions as a run."),
    "export": ("results", "Export runs for pandas and other tools, or as a bundle."),
    "verify": ("verifying", "Check a bundle or folders of runs for damage."),
    "report": ("results", "Write or serve a page of runs, with charts and traces."),
    "list": ("listing", "List programs, retrievers, runs, indexes, models and more."),
    "show": ("showing", "Show a table of runs, a question, or a program."),
    "fetch": ("listing", "Download models and data sets."),
}
#: Removed command -> its replacement.
REMOVED = {
    "compiled": "ragbench list compiled",
    "data": "ragbench fetch NAME",
    "demo": "ragbench report --demo",
    "doctor": "ragbench verify FOLDER",
    "index": "ragbench retrieve --build, or ragbench list indexes (--delete NAME)",
    "mcp": "examples/mcp_server.py",
    "models": "ragbench list models, or ragbench fetch NAME",
    "publish": "ragbench export RUN... --to bundle -o FILE",
    "runs": "ragbench list runs",
    "search": "ragbench retrieve QUERY",
    "summarize": "ragbench show RUN...",
    "view": "ragbench report FOLDER --serve",
}
#: Commands that import as little as possible and log nothing.
_WITHOUT_LOGS = frozenset({"list", "show"})


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, and allow importing the external code that `args` name."""
        if any(":" in word for word in args):
            from ragbench.user_code import allow_typed

            allow_typed(args)
        ctx.meta["ragbench.words"] = list(args)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in _WITHOUT_LOGS:
            from ragbench.logs import to_terminal

            to_terminal()
        module = import_module(f"ragbench.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] in REMOVED:
            raise click.UsageError(f"ragbench {args[0]} was removed; use {REMOVED[args[0]]}")
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from ragbench.errors import UnknownNameError

            raise UnknownNameError("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)


class _Pipe(io.FileIO):
    """A stream of the process that discards output if its reader has closed (`| head`)."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


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
    """Evaluate and compile programs for multi-hop RAG."""


def main() -> None:
    """Run the command line. A user error prints one line and exits with 2, a limit with 3."""
    # Without this, the first priced call asks the network for a price list.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    # The objects of imports stay. To scan them repeatedly takes a sixth of the start.
    gc.set_threshold(_COLLECT_AFTER)
    sys.setswitchinterval(_SWITCH_S)
    _print_whatever_happens()
    _stop_on_interrupt()
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped; finished work is saved, and the same command continues it", err=True)
        _leave(130)
    except Exception as error:
        code = _said(error)
    except BaseException as error:  # a plug-in may call `sys.exit`: exit with 1
        cause = one_line(f"{type(error).__name__}({error})")
        click.echo(f"error: {cause} ended the command; finished work is saved", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def _print_whatever_happens() -> None:
    """Escape characters that the output cannot encode, and tolerate closed pipes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            if stream is getattr(sys, f"__{name}__"):
                pipe: Any = _Pipe(stream.fileno(), "w", closefd=False)
                if not stream.write_through:  # PYTHONUNBUFFERED
                    pipe = io.BufferedWriter(pipe)
                text = io.TextIOWrapper(
                    pipe, stream.encoding, stream.errors,
                    line_buffering=stream.line_buffering, write_through=stream.write_through,
                )  # fmt: skip
                setattr(sys, name, text)


def _said(error: Exception) -> int:
    """Print an error and return the exit code: one line, or a traceback if it is unexpected."""
    from ragbench.cli.printing import say
    from ragbench.errors import RagbenchError, StoppedError, missing_extra
    from ragbench.experiments.report.table import printable

    if isinstance(error, ImportError):
        error = missing_extra(error) or error
    code = 2
    line = str(error)
    if _lacks_files(error):
        line = "too many open files; raise the limit, such as by `ulimit -n 1024`"
        error = RagbenchError(line)
    if isinstance(error, click.ClickException):
        code = error.exit_code
        line = error.format_message()
    elif isinstance(error, OSError):  # the disk is full, a file cannot be read, ...
        where = f"{error.filename}: " if error.filename else ""
        line = f"{where}{error.strerror or error}"
    elif isinstance(error, RagbenchError):
        code = error.exit_code
    else:
        import traceback

        for row in "".join(traceback.format_exception(error)).splitlines():
            click.echo(printable(redact(row)), err=True)
        click.echo("this is a bug in ragbench; finished work is saved", err=True)
        return 1
    say("error: " * (not isinstance(error, StoppedError)) + one_line(line), err=True)
    return code


def _lacks_files(error: BaseException | None) -> bool:
    """Return True if the process or the machine ran out of file descriptors."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False


def _stop_on_interrupt() -> None:
    """Make Ctrl-C stop all calls, and a second one the process, unless it is ignored."""

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped():
            os._exit(130)
        stop_all()
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)


def _leave(code: int) -> NoReturn:
    """End the process, without waiting longer than `_ENDING_S` for threads."""
    end = time.monotonic() + _ENDING_S
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, end - time.monotonic()))
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def one_line(text: str) -> str:
    """Return `text` as one printable line without API keys; a long one loses its middle."""
    from ragbench.experiments.report.table import printable

    line = printable(" ".join(redact(text).split()))
    if len(line) <= _LONGEST:
        return line
    return f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
