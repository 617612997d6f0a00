"""Questions and commands, line by line: switch program, LM or retriever and ask again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from ragbench.errors import ConfigError, RagbenchError
from ragbench.experiments.ask import answer_one, open_context, pooled
from ragbench.experiments.config import RunConfig
from ragbench.experiments.report import trace_lines

HELP = """\
a line without a slash is a question
/program NAME [VARIANT]   another program, with its default knobs
/set KNOB=VALUE           a knob of the program
/lm SPEC                  another LM
/lm ROLE=SPEC             another LM for one role of the program
/retriever SPEC           another retriever
/show                     what is asked now
/help                     this list
/quit                     leave (or end of input)"""


class AskSession:
    """The state of the conversation; `on_message` prints one line.

    Raises:
        RagbenchError: something in `config` that the user can mend.
    """

    def __init__(self, config: RunConfig, on_message: Callable[[str], None]) -> None:
        self.config, self.on_message = pooled(config), on_message
        self.run_context = open_context(self.config)
        self.run_context.check_lms()

    def run(self, lines: Iterable[str]) -> None:
        """Answer every line until /quit or the end; a mistake is told and changes nothing."""
        self.on_message(f"{self._now()}; ask a question, or /help")
        for line in filter(None, map(str.strip, lines)):
            if line == "/quit":
                return
            try:
                self._take(line)
            except RagbenchError as error:
                self.on_message(f"error: {error}")
            except KeyboardInterrupt:
                self.on_message("stopped")

    def _take(self, line: str) -> None:
        if not line.startswith("/"):
            for text in trace_lines(answer_one(self.run_context, line)):
                self.on_message(text)
            return
        command, _, rest = line[1:].partition(" ")
        commands = {
            "program": self._program,
            "set": self._set,
            "lm": self._lm,
            "retriever": self._retriever,
            "show": self._show,
            "help": self._help,
        }
        if command not in commands:
            raise ConfigError(f"no command /{command}; give /{', /'.join(commands)} or /quit")
        commands[command](rest.strip())

    def _program(self, rest: str) -> None:
        name, _, variant = rest.partition(" ")
        knobs = {"variant": variant.strip()} if variant else {}
        # Knobs, compiled state and role LMs belong to the program that goes.
        self._switch(program=name, set=knobs, compiled=None, lm_for={})

    def _set(self, rest: str) -> None:
        knob, value = _pair(rest, "KNOB=VALUE")
        self._switch(set={**self.config.set, knob: value}, compiled=None)

    def _lm(self, rest: str) -> None:
        role, equals, spec = rest.partition("=")
        if equals:
            self._switch(lm_for={**self.config.lm.roles, role.strip(): spec.strip()})
        else:
            self._switch(lm=rest, api_base=None)

    def _retriever(self, rest: str) -> None:
        self._switch(retriever=rest, retriever_set={})

    def _show(self, rest: str) -> None:
        self.on_message(self._now())

    def _help(self, rest: str) -> None:
        for line in HELP.splitlines():
            self.on_message(line)

    def _switch(self, **fields: Any) -> None:
        config = self.config.but(**fields)
        run_context = open_context(config, like=self.run_context)
        run_context.check_lms()
        self.config, self.run_context = config, run_context
        self.on_message(self._now())

    def _now(self) -> str:
        config = self.config
        knobs = ", ".join(f"{name}={value}" for name, value in config.set.items())
        roles = "".join(f", {role}: {lm.model}" for role, lm in self.run_context.role_lms.items())
        return (
            f"{config.program}{f' ({knobs})' if knobs else ''}, "
            f"{self.run_context.lm.model}{roles}, "
            f"{config.retriever.name}, {len(self.run_context.dataset.corpus):,} passages of "
            f"{self.run_context.dataset.name}"
        )


def typed(stream: TextIO) -> Iterator[str]:
    """The lines of `stream`; at a terminal, with a prompt and the usual editing keys."""
    if not stream.isatty():
        yield from stream
        return
    with contextlib.suppress(ImportError):  # input() edits lines once this is imported
        import readline  # noqa: F401
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            yield input("> ")


def _pair(text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"{text!r} is not of the form {form}")
    return name.strip(), value.strip()
