"""The sandbox that runs the Python which a model writes.

Monty (`pydantic-monty`) is an interpreter of a subset of Python, written in Rust, that has no
files, sockets, processes or environment to give, and runs in a worker process of its own.
`dspy-monty-interpreter` makes it a DSPy interpreter. `Sandbox` adds what that leaves open: a limit
on output (which is collected in this process), on the size of errors and submitted values, and a
fresh worker after a limit has stopped one. See docs/sandbox.md for the attacks this was tried on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput
from dspy_monty_interpreter import MontyInterpreter
from pydantic import Field

from ragbench.knobs import Knobs

#: Errors after which the worker's memory or counters are spent: start again in a new one.
_EXHAUSTED = ("MemoryError", "RuntimeError: suspension limit")
_RESET = "; the sandbox was reset and all variables were lost"


class Limits(Knobs):
    """What one block of code may use."""

    seconds: float = Field(
        default=5.0, gt=0, le=600, description="running time; waiting for tools is not counted"
    )
    memory_mb: int = Field(default=256, ge=8, le=65_536, description="memory of the worker")
    output_chars: int = Field(
        default=20_000, ge=100, le=10_000_000, description="what is printed, raised or submitted"
    )
    depth: int = Field(default=300, ge=10, le=1000, description="nested calls")
    tool_calls: int = Field(
        default=1000, ge=1, le=1_000_000, description="calls to tools per question"
    )


class SandboxFactory:
    """A maker of sandboxes with the given limits, in the form that `dspy.RLM` takes.

    `execution_instructions` is what the prompt says about the runtime.
    """

    execution_instructions = (
        "Python runs in a sandbox without files, network, processes or environment variables. "
        "Variables persist. Import only these modules: re, json, math, datetime, "
        "collections, itertools, functools, dataclasses, random, unicodedata, bisect. "
        "Generator functions (yield) and class inheritance are not available; "
        "pass a lambda instead of a method, as in sorted(items, key=lambda s: s.lower())."
    )

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()

    def __call__(self) -> Sandbox:
        """A new sandbox; its worker starts with the first block of code."""
        return Sandbox(self.limits)


class Sandbox(MontyInterpreter):
    """A DSPy interpreter that runs each block of code within `limits`.

    Every breach of a limit is a `CodeExecutionError`, which the model sees as the block's output;
    none ends the session, though one that spent the worker loses its variables.
    """

    def __init__(
        self, limits: Limits | None = None, tools: dict[str, Callable[..., Any]] | None = None
    ) -> None:
        self.limits = limits or Limits()
        super().__init__(
            tools=tools,
            resource_limits={
                "max_feed_duration_secs": self.limits.seconds,
                "max_memory": self.limits.memory_mb * 2**20,
                "max_recursion_depth": self.limits.depth,
                "max_suspensions": self.limits.tool_calls,
            },
            # Kills a worker that does not stop by itself; the limits above should always act first.
            request_timeout=2 * self.limits.seconds + 1,
            max_processes=1,
        )

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """What `code` printed, or a `FinalOutput` if it called SUBMIT.

        Raises:
            CodeExecutionError: the code raised, or reached a limit.
            SyntaxError: the code is not Python, or uses what Monty lacks.
        """
        try:
            result = super().execute(code, variables)
        except CodeExecutionError as error:
            raise self._refusal(str(error)) from None
        except (CodeInterpreterError, RuntimeError) as error:  # the worker is gone
            self._discard_session()
            raise CodeExecutionError(self._cut(str(error)) + _RESET) from None
        except SyntaxError as error:
            raise SyntaxError(self._cut(str(error))) from None
        if isinstance(result, FinalOutput) and len(str(result.output)) > self.limits.output_chars:
            raise CodeExecutionError(f"SUBMIT takes {self.limits.output_chars} characters at most")
        return result

    def _refusal(self, message: str) -> CodeExecutionError:
        if message.startswith(_EXHAUSTED):
            self._discard_session()
            return CodeExecutionError(self._cut(message) + _RESET)
        return CodeExecutionError(self._cut(message))

    def _cut(self, text: str) -> str:
        limit = min(self.limits.output_chars, 2000)
        return text if len(text) <= limit else text[:limit] + " ..."

    def _ensure_session(self) -> Any:
        return _Metered(super()._ensure_session(), self.limits.output_chars)


class _Metered:
    """A Monty session whose code may print `limit` characters at a time."""

    def __init__(self, session: Any, limit: int) -> None:
        self._session, self._limit = session, limit

    def feed_run(
        self, code: str, *, print_callback: Callable[[str, str], None], **options: Any
    ) -> Any:
        left = self._limit

        def count(stream: str, text: str) -> None:
            nonlocal left
            left -= len(text)
            if left < 0:  # generated code cannot catch this
                raise ValueError(f"more than {self._limit} characters were printed")
            print_callback(stream, text)

        return self._session.feed_run(code, print_callback=count, **options)
