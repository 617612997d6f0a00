"""Processes for shards on this machine. Imports little, so that they can be started early.

One process imports ragbench and DSPy, and forks the others before it has a thread. A pipe to each
carries its job, its messages, and an answer to each commit.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any

from ragbench.children import child_environment, python_command

#: Module that runs a shard in its own process.
_MODULE = "ragbench.experiments.runs.shard_process"
#: Most processes that an unchecked option starts.
_MOST_EARLY = 64
#: Seconds in which a process ends by itself after its last message, with all that it printed.
_EXIT_S = 2.0
#: Processes that the command started before it imported DSPy.
_early: list["ShardProcesses"] = []


class ShardProcesses:
    """`count` processes that wait for a job, with all keys of this process: they are its parts."""

    def __init__(self, count: int) -> None:
        pipes = [Pipe() for _ in range(count)]
        self._idle = iter([own for own, _ in pipes])
        numbers = [pipe.fileno() for _, pipe in pipes]
        # macOS libraries do not work after a fork.
        groups = [numbers] if sys.platform == "linux" else [[number] for number in numbers]
        self._processes = []
        for group in groups:
            process = subprocess.Popen(
                python_command("-m", _MODULE, *map(str, group)),
                stdin=subprocess.DEVNULL,
                stdout=2,  # Prints of the user's code are not output of the command.
                env=child_environment(os.environ),
                pass_fds=group,
                start_new_session=True,  # Ctrl-C only reaches this process.
            )
            self._processes.append(process)
        for _, pipe in pipes:
            pipe.close()

    def run(self, job: object) -> Iterator[Any]:
        """Give `job` to an idle process and yield its messages until the process ends."""
        with next(self._idle) as pipe, suppress(EOFError, OSError):
            pipe.send(job)
            while True:
                message = pipe.recv()
                yield message
                if message[0] == "commit":  # It is on disk: the next question may begin.
                    with suppress(OSError):
                        pipe.send(None)

    def stop(self, *, force: bool = False) -> None:
        """Let the processes end their running calls, or kill those that do not end."""
        for pipe in self._idle:
            pipe.close()
        for process in self._processes:
            if force:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_EXIT_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL if force else signal.SIGTERM)
            if force:
                process.wait()


def start_early(count: str) -> None:
    """Start processes now, for the next `take_processes` and the unchecked option `count`."""
    if count.isdecimal() and 2 <= int(count) <= _MOST_EARLY:
        _early.append(ShardProcesses(int(count)))


def take_processes(count: int) -> ShardProcesses:
    """Return `count` or more processes, started now or by `start_early`."""
    return _early.pop() if _early else ShardProcesses(count)
