"""The process that holds a sandbox: `ragbench.programs.rlm_repl.sandbox` runs it as a script.

It exchanges one JSON message per line on standard input and output. It converts the sandbox's
output to Python values and then to text. Both can take exponential time: nested lists that share
parts are exponential to format, nested tuples to hash. So this process does it, not the
benchmark's, under an alarm. The alarm's default action ends the process even while the
interpreter's lock is held.

It imports only the standard library and `pydantic_monty`, because it starts once per question.
"""

import builtins
import datetime
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
    MontyStdTypeProxy,
    MontySyntaxError,
    ResourceLimits,
)

_LEAVES = (
    type(None), bool, float, complex, type(...), MontyStdTypeProxy,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
)  # fmt: skip
_MAX_DEPTH = 50
#: Maximum depth of nested calls of the code.
_MAX_CALLS = 300
_MAX_BITS = 4096
#: Errors that exhaust the session. The next block gets a new one.
_EXHAUSTED = (MemoryError, TimeoutError)
_ERROR_CHARS = 2000
#: Characters kept free for the line that marks an omission.
_MARK_CHARS = 60


class _SubmittedError(Exception):
    """Raised by SUBMIT, so that nothing after it runs."""


def check(value: Any, limit: int) -> None:
    """Check that a value is plain and small. A shared part counts each time it appears.

    Args:
        value: Value from the sandbox.
        limit: Maximum length of its text, approximate, in characters.

    Raises:
        ValueError: The value is too large or nested too deeply.
        TypeError: The value is not plain.
    """
    unchecked: list[tuple[Any, int]] = [(value, 0)]
    while unchecked:
        item, depth = unchecked.pop()
        limit -= len(item) if isinstance(item, str | bytes) else 1
        if isinstance(item, int):
            limit -= item.bit_length() // 4
            if item.bit_length() > _MAX_BITS:
                raise ValueError("a number is too large")
        if limit < 0:
            raise ValueError("it is too large")
        if depth > _MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
        for inner in _inside(item):
            unchecked.append((inner, depth + 1))


def _inside(item: Any) -> list[Any]:
    if isinstance(item, Mapping):
        return [*item.keys(), *item.values()]
    if isinstance(item, list | tuple | set | frozenset):
        return list(item)
    if isinstance(item, BaseException):
        return list(item.args)
    if isinstance(item, MontyClassProxy):
        return list(item.attributes.values())
    if isinstance(item, (str, bytes, int, *_LEAVES)):
        return []
    raise TypeError(f"a {type(item).__name__} cannot leave the sandbox")


class Printed:
    """The printed text of a block: its beginning and its end, at most `limit` characters."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.head = ""
        self.tail = ""
        self.omitted = 0

    def add(self, text: str) -> None:
        """Append `text`. Beyond the limit, only the newest characters are kept."""
        half = max(self.limit - _MARK_CHARS, 0) // 2
        room = half - len(self.head) if not self.tail else 0
        self.head += text[:room]
        tail = self.tail + text[room:]
        self.tail = tail[max(len(tail) - half, 0) :]
        self.omitted += len(tail) - len(self.tail)

    def __str__(self) -> str:
        if not self.omitted:
            return self.head + self.tail
        return f"{self.head}\n... [{self.omitted:,} characters left out] ...\n{self.tail}"


class Alarm:
    """Time limit of this process in one block. The process ends when the time is over."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def start(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self.left)

    def stop(self) -> None:
        self.left = max(signal.setitimer(signal.ITIMER_REAL, 0)[0], 0.001)


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
                print(_dump(self._block(json.loads(line))), flush=True)

    def _block(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Run one block. Return its printed text, and its result, submission or error."""
        alarm = Alarm(2 * self.seconds + 2)
        submitted: list[dict[str, Any]] = []

        def submit(*args: Any, **kwargs: Any) -> None:
            try:
                check([args, kwargs], self.output_chars)
            except ValueError:
                most = f"SUBMIT takes {self.output_chars} characters at most"
                raise ValueError(most) from None
            submitted.append({"args": json.loads(_dump(args)), "kwargs": json.loads(_dump(kwargs))})
            raise _SubmittedError

        lookup = {name: self._tool(name, alarm) for name in block["tools"]}
        printed = Printed(self.output_chars)
        alarm.start()
        outcome = self._fed(block, {**lookup, "SUBMIT": submit}, printed)
        alarm.stop()
        if submitted:
            outcome = {"submitted": submitted[0]}
        return {"printed": str(printed), **outcome}

    def _fed(
        self, block: Mapping[str, Any], lookup: dict[str, Any], printed: Printed
    ) -> dict[str, Any]:
        try:
            result = self._session().feed_run(
                block["code"],
                inputs=block["inputs"] or None,
                external_lookup=lookup,
                print_callback=lambda _, text: printed.add(text),
            )
        except MontySyntaxError as error:
            return {"syntax_error": str(error)[:_ERROR_CHARS]}
        except MontyCrashedError as error:
            self._drop()
            return {"error": str(error)[:_ERROR_CHARS], "reset": True}
        except MontyRuntimeError as error:
            reset = isinstance(error.exception(), _EXHAUSTED)
            if reset:
                self._drop()
            text = error.display("type-msg")
            mark = " ..." * (len(text) > _ERROR_CHARS)
            return {"error": text[:_ERROR_CHARS] + mark, "reset": reset}
        return {"result": self._shown(result)}

    def _shown(self, result: Any) -> str | None:
        try:
            check(result, 20 * self.output_chars)
        except (ValueError, TypeError) as error:
            return f"(the value of the last line is not shown: {error})"
        cut = Printed(self.output_chars)
        cut.add("" if result is None else str(result))
        return str(cut)

    def _tool(self, name: str, alarm: Alarm) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                check([args, kwargs], self.argument_chars)
                message = _dump({"call": name, "args": args, "kwargs": kwargs})
            except (ValueError, TypeError) as error:
                raise type(error)(f"an argument of {name} is not allowed: {error}") from None
            alarm.stop()
            print(message, flush=True)
            reply = json.loads(sys.stdin.readline())
            alarm.start()
            if "error" in reply:
                raise getattr(builtins, reply["error"], RuntimeError)(reply["message"])
            return reply["value"]

        return call

    def _session(self) -> MontySession:
        if self.session is None:
            self.session = self.pool.checkout(limits=self.limits, os_policy={"sleep": "zero"})
            self.session.__enter__()
        return self.session

    def _drop(self) -> None:
        if self.session is not None:
            self.session.__exit__(None, None, None)
        self.session = None


def _dump(value: Any) -> str:
    return json.dumps(value, default=lambda v: list(v) if isinstance(v, Set) else str(v))


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(json.loads(sys.argv[1])).run()
