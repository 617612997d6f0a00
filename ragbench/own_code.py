"""Code of a user's own, or of a plug-in: whatever it raises, it does not end the command unseen.

An `except Exception` lets `SystemExit`, `KeyboardInterrupt` and the like pass, and the first of
them would end a command as if all were done.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ragbench import stopping
from ragbench.errors import ConfigError, RagbenchError, StopSignal


@contextmanager
def contained(name: str) -> Iterator[None]:
    """Let what leaves the block be an `Exception`: of anything else a RuntimeError is made.

    `name` says what ran inside. Ctrl-C and ragbench's own `StopSignal` pass.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as end:
        if is_stop(end):
            raise
        raise RuntimeError(f"{name} left by {type(end).__name__}({message_of(end)})") from end


@contextmanager
def blamed_on(owner: object, name: str) -> Iterator[None]:
    """Make one line of any error inside the block where `owner` is none of ragbench's own.

    `owner` is an object, a class or a function; `name` is what people call it.

    Raises:
        ConfigError: names what failed; errors of LMs and of ragbench pass.
    """
    if is_ours(owner):
        yield
        return
    try:
        with contained(name):
            yield
    except RagbenchError:
        raise
    except Exception as error:
        from dspy import LMError

        if isinstance(error, LMError):
            raise
        raise ConfigError(f"{name} failed: {type(error).__name__}: {message_of(error)}") from error


def is_ours(owner: object) -> bool:
    """Whether `owner` (an object, a class or a function) is defined by ragbench."""
    module = getattr(owner, "__module__", None) or type(owner).__module__
    return str(module).partition(".")[0] == "ragbench"


def is_stop(end: BaseException) -> bool:
    """Whether `end` is to end what runs: Ctrl-C reaches the main thread, others see its stop."""
    if isinstance(end, KeyboardInterrupt) and not isinstance(end, StopSignal):
        return stopping.stopped() or threading.current_thread() is threading.main_thread()
    return isinstance(end, StopSignal)


def message_of(error: BaseException) -> str:
    """The text of `error`; "no message" where its own `__str__` fails."""
    try:
        return str(error)
    except Exception:  # a stranger's __str__ may itself be what is broken
        return "no message"
