"""The sandbox for Python code that a model writes. See docs/architecture.md for its limits.

Monty (`pydantic-monty`) interprets a subset of Python without files, sockets, processes or
environment, in a separate worker process. A second process (`sandbox_worker`) converts and formats
its output, and is killed if that takes too long. This process only sees short texts.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dspy import CodeExecutionError, FinalOutput
from pydantic import ConfigDict, ValidationError, validate_call

from ragbench.children import python_command

_RESET = "; the sandbox was reset and all variables were lost"
_WORKER = Path(__file__).with_name("sandbox_worker.py")
#: Environment variables of the worker.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR")
_ERROR_CHARS = 500


class Limits(NamedTuple):
    """Limits of one block of code, and of tool calls per question."""

    seconds: float = 5.0  # without tools
    memory_mb: int = 256
    output_chars: int = 10_000  # printed or submitted
    argument_chars: int = 100_000  # per tool call
    tool_calls: int = 1000


def rules(limits: Limits) -> str:
    """Describe the runtime for a prompt."""
    return (
        "Python runs in a sandbox without files, network, processes or environment variables. "
        "Variables persist. Import only these modules: re, json, math, datetime, "
        "collections, itertools, functools, dataclasses, random, unicodedata, bisect. "
        "Generator functions (yield) and class inheritance are not available; "
        "pass a lambda instead of a method, as in sorted(items, key=lambda s: s.lower()). "
        f"Of what a block prints, {limits.output_chars:,} characters are shown: "
        "beyond that its beginning and its end."
    )


class Sandbox:
    """A DSPy interpreter for one question, which runs each block of code within `limits`.

    Reaching a limit raises `CodeExecutionError`, which the model sees as the block's output. The
    session continues, but variables are lost if the worker had to be replaced.
    """

    def __init__(
        self, limits: Limits, tools: Mapping[str, Callable[..., Any]] = MappingProxyType({})
    ) -> None:
        strict = validate_call(config=ConfigDict(strict=True))
        self.limits = limits
        self.tools = {name: strict(tool) for name, tool in tools.items()}
        self._calls_left = self.limits.tool_calls
        self._process: subprocess.Popen[str] | None = None

    def shutdown(self) -> None:
        process = self._process
        self._process = None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Closing the input flushes data that a killed worker did not read.
        with suppress(BrokenPipeError), process:
            pass

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Run a block of code.

        Args:
            code: Python code.
            variables: Values to define before the code runs.

        Returns:
            The printed text, the last value, or a `FinalOutput` if the code called SUBMIT.

        Raises:
            CodeExecutionError: The code raised an error or reached a limit.
            SyntaxError: Monty does not support the syntax.
        """
        message = {"code": code, "inputs": variables or {}, "tools": list(self.tools)}
        try:
            reply = self._exchange(message)
            while "call" in reply:
                if not self._calls_left:
                    limit = self.limits.tool_calls
                    raise CodeExecutionError(f"tool call limit ({limit} per question)" + _RESET)
                self._calls_left -= 1
                reply = self._exchange(self._use(**reply))
        except (EOFError, BrokenPipeError):
            self.shutdown()
            raise CodeExecutionError("the code was stopped at a limit" + _RESET) from None
        except BaseException:
            self.shutdown()
            raise
        if "submitted" in reply:
            return FinalOutput(reply["submitted"])
        if "syntax_error" in reply:
            raise SyntaxError(reply["syntax_error"])
        printed = reply["printed"].removesuffix("\n")
        if "error" in reply:
            before = f"\nPrinted before that:\n{printed}" if printed else ""
            raise CodeExecutionError(reply["error"] + _RESET * reply["reset"] + before)
        return printed or reply["result"] or None

    def _exchange(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message to the worker, which starts if needed, and return its next message."""
        if self._process is None:
            self._process = subprocess.Popen(
                python_command(str(_WORKER), json.dumps(self.limits._asdict())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                encoding="utf-8",
                start_new_session=True,  # a separate process group, to end all of it
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise EOFError
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _use(self, call: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return its value or error, as a message for the worker."""
        try:
            return {"value": self.tools[call](*args, **kwargs)}
        except ValidationError as error:
            first = error.errors()[0]
            message = f"{call}(): argument {first['loc'][0]}: {first['msg']}"
            return {"error": "TypeError", "message": message[:_ERROR_CHARS]}
        except Exception as error:
            return {"error": type(error).__name__, "message": str(error)[:_ERROR_CHARS]}
