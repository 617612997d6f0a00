"""The process that holds a sandbox: `ragbench.programs.rlm_repl.sandbox` runs it as a script.

It exchanges one JSON message per line on standard input and output. It converts the sandbox's
output to Python values and then to text. Both can take exponential time: nested lists that share
parts are exponential to format, nested tuples to hash. So this process does it, not the
benchmark's, under an alarm. The alarm's default action ends the process even while the
interpreter's lock is held.

It imports only the standard library and `pydantic_monty`, because it starts once per question.
"""

import builtins
import json
import signal
import sys
from collections.abc import Callable, Mapping, Set
from typing import Any

from pydantic_monty import (
    Monty,
    MontyClassProxy,
    MontyCrashedError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    ResourceLimits,
)

#: Maximum depth of nested calls of the code.
_MAX_CALLS = 300
#: Errors that exhaust the session. The next block gets a new one.
_EXHAUSTED = (MemoryError, TimeoutError)
_ERROR_CHARS = 2000
#: Characters kept free for the line that marks an omission.
_MARK_CHARS = 60


class _SubmittedError(Exception):
    """Raised by SUBMIT, so that nothing after it runs."""


def encoded(value: Any, limit: int, *, skipkeys: bool = False) -> str:
    """Return `value` as JSON. A shared part counts each time it appears.

    Args:
        value: Value from the sandbox.
        limit: Maximum length, in characters.
        skipkeys: True to leave out keys that JSON does not have.

    Raises:
        ValueError: The value is too large or nested too deeply.
        TypeError: A key is not plain.
    """
    parts: list[str] = []
    try:
        for part in json.JSONEncoder(default=_plain, skipkeys=skipkeys).iterencode(value):
            limit -= len(part)
            if limit < 0:
                raise ValueError
            parts.append(part)
    except (ValueError, RecursionError):
        raise ValueError("it is too large or nested too deeply") from None
    return "".join(parts)


def _plain(value: Any) -> Any:
    if isinstance(value, MontyClassProxy):
        return value.attributes
    if isinstance(value, BaseException):
        return value.args
    return list(value) if isinstance(value, Set) else str(value)


class Printed:
    """The printed text of a block: its beginning and its end, at most `limit` characters."""

    def __init__(self, limit: int) -> None:
        self.half = (limit - _MARK_CHARS) // 2
        self.head = ""
        self.tail = ""
        self.omitted = 0

    def add(self, text: str) -> None:
        """Append `text`. Beyond the limit, only the newest characters are kept."""
        room = self.half - len(self.head)
        self.head += text[:room]
        self.tail += text[room:]
        self.omitted += max(len(self.tail) - self.half, 0)
        self.tail = self.tail[-self.half :]

    def __str__(self) -> str:
        if not self.omitted:
            return self.head + self.tail
        return f"{self.head}\n... [{self.omitted:,} characters left out] ...\n{self.tail}"


class Worker:
    """One sandbox, which runs blocks of code."""

    def __init__(self, limits: Mapping[str, Any]) -> None:
        self.seconds: float = limits["seconds"]
        self.output_chars: int = limits["output_chars"]
        self.argument_chars: int = limits["argument_chars"]
        self.limits: ResourceLimits = {
            "max_feed_duration_secs": self.seconds,
            "max_memory": limits["memory_mb"] * 2**20,
            "max_recursion_depth": _MAX_CALLS,
            "max_suspensions": 10**9,  # the other process counts tool calls
        }
        # Kills Monty's worker if it does not stop. The limits should act first.
        self.pool = Monty(request_timeout=2 * self.seconds + 1, max_processes=1)
        self.session: MontySession | None = None

    def run(self) -> None:
        with self.pool:
            for line in sys.stdin:
                print(json.dumps(self._block(**json.loads(line))), flush=True)

    def _block(self, code: str, inputs: dict[str, Any], tools: list[str]) -> dict[str, Any]:
        """Run one block. Return its printed text, and its result, submission or error."""
        self.left = 2 * self.seconds + 2  # the alarm ends this process
        submitted: list[Any] = []

        def submit(*args: Any, **kwargs: Any) -> None:
            try:
                value = json.loads(encoded([*args, *kwargs.values()], self.output_chars))
            except ValueError:
                most = f"SUBMIT takes {self.output_chars} characters at most"
                raise ValueError(most) from None
            submitted.append(value[0] if value else None)
            raise _SubmittedError

        functions = {**{name: self._tool(name) for name in tools}, "SUBMIT": submit}
        printed = Printed(self.output_chars)
        self._alarm(on=True)
        try:
            if self.session is None:
                self.session = self.pool.checkout(limits=self.limits, os_policy={"sleep": "zero"})
                self.session.__enter__()
            result = self.session.feed_run(
                code,
                inputs=inputs or None,
                external_lookup=functions,
                print_callback=lambda _, text: printed.add(text),
            )
            outcome: dict[str, Any] = {"result": self._shown(result)}
        except MontySyntaxError as error:
            outcome = {"syntax_error": str(error)[:_ERROR_CHARS]}
        except (MontyCrashedError, MontyRuntimeError) as error:
            outcome = self._failed(error)
        self._alarm(on=False)
        if submitted:
            outcome = {"submitted": submitted[0]}
        return {"printed": str(printed), **outcome}

    def _failed(self, error: MontyCrashedError | MontyRuntimeError) -> dict[str, Any]:
        """Describe an error, and drop the session if it cannot go on."""
        if isinstance(error, MontyCrashedError):
            text = str(error)
            reset = True
        else:
            text = error.display("type-msg")
            reset = isinstance(error.exception(), _EXHAUSTED)
        if reset and self.session is not None:
            self.session.__exit__(None, None, None)
            self.session = None
        mark = " ..." * (len(text) > _ERROR_CHARS)
        return {"error": text[:_ERROR_CHARS] + mark, "reset": reset}

    def _shown(self, result: Any) -> str | None:
        try:
            encoded(result, 20 * self.output_chars, skipkeys=True)
        except ValueError as error:
            return f"(the value of the last line is not shown: {error})"
        shown = Printed(self.output_chars)
        shown.add("" if result is None else str(result))
        return str(shown)

    def _tool(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            message = {"call": name, "args": args, "kwargs": kwargs}
            try:
                line = encoded(message, self.argument_chars)
            except (ValueError, TypeError) as error:
                raise type(error)(f"an argument of {name} is not allowed: {error}") from None
            self._alarm(on=False)
            print(line, flush=True)
            reply = json.loads(sys.stdin.readline())
            self._alarm(on=True)
            if "error" in reply:
                raise getattr(builtins, reply["error"], RuntimeError)(reply["message"])
            return reply["value"]

        return call

    def _alarm(self, *, on: bool) -> None:
        """Start or stop the clock whose end is the end of this process."""
        if on:
            signal.setitimer(signal.ITIMER_REAL, self.left)
        else:
            self.left = max(signal.setitimer(signal.ITIMER_REAL, 0)[0], 0.001)


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(json.loads(sys.argv[1])).run()
