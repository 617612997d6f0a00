"""Runs commands in forks of itself, with chosen calls to files failing; see `tests.disk.faults`.

Started with the shim preloaded. Reads a command as a line of JSON, runs it, and writes what came of
it as a line of JSON.
"""

import ctypes
import json
import os
import sys
import time
from typing import Any

import tests.disk.warm  # noqa: F401


class Page(ctypes.Structure):
    """What the shim counts; as in shim.c."""

    _fields_ = (
        ("calls", ctypes.c_long),
        ("failed", ctypes.c_long),
        ("copies", ctypes.c_long),
        ("what", ctypes.c_char * 64),
    )


def _run(job: dict[str, Any]) -> None:
    """The command, in the fork; does not return."""
    from ragbench.cli.main import main

    with open(job["log"], "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ.update(OPENAI_API_KEY="none", RAGBENCH_CACHE=job["cache"])
    sys.argv = ["ragbench", *job["argv"]]
    arm = [os.fsencode(job["root"]), job["first"], job["sticky"], job["error"]]
    ctypes.CDLL(None).shim_arm(arm[0], ctypes.c_long(arm[1]), *arm[2:], os.fsencode(job["copies"]))
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    else:
        code = 0
    sys.stdout.flush()
    os._exit(code)


def _wait(pid: int, patience_s: float) -> int:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return 124


def serve() -> None:
    """Run commands until standard input ends."""
    library = ctypes.CDLL(None)
    library.shim_page.restype = ctypes.POINTER(Page)
    page = library.shim_page().contents
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if not pid:
            _run(job)
        code = _wait(pid, job["patience_s"])
        found = {"code": code, "calls": page.calls, "failed": page.failed}
        print(json.dumps({**found, "what": page.what.decode()}), flush=True)


if __name__ == "__main__":
    serve()
