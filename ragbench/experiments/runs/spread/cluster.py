"""Workers on the nodes of a Ray cluster.

Ray starts them, each as one long task, and starts them anew elsewhere when a node dies. Data, index
and program go to each node once, by Ray's object store, as this process made them; calls, records
and log lines come back over connections of our own (`ragbench.lms.link`). So a node needs ragbench
and the keys in its environment, and no file of this machine.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import dspy

from ragbench import __version__, stopping
from ragbench.errors import ConfigError, RunError, needs_extra
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.runs.spread.worker import Worker
from ragbench.lms import configure_cache
from ragbench.lms.calls import Limits, active, spending
from ragbench.lms.link import Address
from ragbench.logs import get, get_level, quiet_libraries, set_level, to_terminal

_log = get(__name__)
#: Seconds that workers have to end by themselves when a run is over.
_LEAVING_S = 5.0
#: Seconds between two looks at whether the run is over: a thread that still waits when Ray is shut
#: down ends the process.
_LOOKED_S = 0.5
#: How often Ray starts a worker anew whose process or node died.
_STARTED_ANEW = 5
_LOCKS = {type(made()): made for made in (threading.Lock, threading.RLock, threading.local)}


def join() -> None:
    """Make this process part of the cluster that runs here, or that RAY_ADDRESS names.

    Raises:
        ConfigError: there is none.
        MissingExtraError: Ray is not installed.
    """
    with needs_extra("--engine ray"):
        import ray
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS", "auto")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "here" if address == "auto" else f"at {address}"
        raise ConfigError(
            f"there is no Ray cluster {where} ({str(error).splitlines()[0]}); start one by `ray "
            "start --head`, or set RAY_ADDRESS to its address"
        ) from None


def nodes() -> int:
    """How many nodes of the cluster take tasks."""
    import ray

    return sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())


class RayTasks:
    """Worker processes as Ray tasks, one for each of `shares`: the number of its threads."""

    def __init__(self, shares: Sequence[int]) -> None:
        import ray

        self._ray, self._shares = ray, shares
        self._closing = False
        self.address: Address | None = (ray.util.get_node_ip_address(), 0)

    def start(self, worker: Worker) -> None:
        """See `WorkerProcesses`."""
        packed = self._ray.put(_packed(worker))
        task = self._ray.remote(_work).options(
            num_cpus=1, max_retries=_STARTED_ANEW, scheduling_strategy="SPREAD"
        )
        about = (__version__, get_level(), len(active()))
        self._tasks = [task.remote(packed, share, *about) for share in self._shares]

    def wait(self) -> str:
        """See `WorkerProcesses`."""
        why, left = "", list(self._tasks)
        while left and not self._closing:
            ended, left = self._ray.wait(left, timeout=_LOOKED_S)
            try:
                self._ray.get(ended)
            except Exception as error:  # whatever it ended with
                cause = getattr(error, "cause", None) or error
                why = f"{type(cause).__name__}: {cause}".splitlines()[0]
                _log.warning("a worker ended (%s)", why)
        return why

    def end(self) -> None:
        """See `WorkerProcesses`."""
        self._closing = True
        _, left = self._ray.wait(
            self._tasks, num_returns=len(self._tasks), timeout=_LEAVING_S, fetch_local=False
        )
        for task in left:
            self._ray.cancel(task, force=True)
        # A reference that goes after Ray was shut down, such as with a thread that still serves a
        # worker, ends the process.
        self._tasks = []


def _packed(worker: Worker) -> bytes:
    """`worker` as bytes, with the code of a program that is no part of an installed package.

    Raises:
        RunError: something of it cannot go to another process.
    """
    from ray import cloudpickle

    class Pickler(cloudpickle.CloudPickler):
        """Lets locks and what threads have of their own go as new ones."""

        def reducer_override(self, value: Any) -> Any:
            if made := _LOCKS.get(type(value)):
                return made, ()
            return super().reducer_override(value)

    for name in _own_modules(worker.run_context):
        cloudpickle.register_pickle_by_value(sys.modules[name])
    file = io.BytesIO()
    try:
        Pickler(file).dump(worker)
    except Exception as error:
        raise RunError(
            f"--engine ray cannot send the run to other machines ({type(error).__name__}: {error}"
            "); leave --engine out, or run shards (--shard)"
        ) from error
    return file.getvalue()


def _own_modules(run_context: RunContext) -> set[str]:
    """Where the modules of the program come from that are neither ours nor DSPy's."""
    names = {type(module).__module__ for _, module in run_context.program.named_sub_modules()}
    ours = ("ragbench", "dspy")
    return {n for n in names if n.split(".")[0] not in ours and n in sys.modules}


def _work(packed: bytes, threads: int, version: str, level: str, blocks: int) -> None:
    """What a task does: be a worker, below so many blocks of limits, which are kept elsewhere."""
    if version != __version__:
        raise RunError(
            f"this node has ragbench {__version__}, and the run was started by {version}"
        )
    stopping.reset()  # the process may have been a worker before
    quiet_libraries()
    configure_cache()
    to_terminal()
    set_level(level)
    worker: Worker = pickle.loads(packed)
    with ExitStack() as stack, dspy.context():
        for _ in range(blocks):
            stack.enter_context(spending(Limits()))
        stack.enter_context(worker.run_context.active())
        worker.run_context.check_lms()  # a node without the key
        worker.run(threads, sends_log=True)
