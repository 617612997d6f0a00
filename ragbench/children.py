"""Commands, environments and cores of child processes: the one place that builds them.

A child never imports from the working folder, and it gets only the keys that it needs.
"""

import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path

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


def available_cores(cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the number of cores that this process may use, at least 1.

    Args:
        cgroup: File with the quota of the container: microseconds of CPU time, then the period.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = cgroup.read_text("ascii").split()
        limit = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # not in a container, or "max"
        return cores
    return max(1, min(cores, math.ceil(limit)))
