"""Commands and environments of child processes: the one place that builds them.

A child never imports from the working folder, and it gets only the keys that it needs.
"""

import os
import sys
from collections.abc import Iterable

from ragbench.redact import is_secret


def python_command(*arguments: str) -> list[str]:
    """Build the command of a Python child process.

    `-P` keeps the working folder and the script's folder off `sys.path`: a `dspy.py` or `pip.py`
    of an untrusted folder must not be imported in place of the library.
    """
    return [sys.executable, "-P", *arguments]


def child_environment(keys: Iterable[str] = ()) -> dict[str, str]:
    """Return this process's environment with no secret variable except those in `keys`."""
    needed = frozenset(keys)
    environment = {}
    for name, value in os.environ.items():
        if name in needed or not is_secret(name):
            environment[name] = value
    return environment
