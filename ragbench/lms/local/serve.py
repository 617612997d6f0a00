"""llama.cpp's server in a process of its own: `python -m ragbench.lms.local.serve OPTIONS`.

Run by `ragbench.lms.local.server`. It reads the API key from the environment (an argument would be
seen by every user of the machine), writes its address as one line of JSON once it can answer, and
ends when its parent does, however that ends.

llama.cpp comes with the wheel `xllamacpp`; a `llama-server` that the user has compiled (`--binary`)
serves as a child of this process.
"""

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn

KEY_VARIABLE = "RAGBENCH_SERVER_KEY"


def main() -> None:
    """Serve until standard input is closed or the parent process is gone."""
    options = _options()
    # Ctrl-C reaches the whole group of processes; the parent decides when the server may go.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: list[subprocess.Popen[str]] = []
    threading.Thread(target=_exit_with_parent, args=(os.getppid(), children), daemon=True).start()
    key = os.environ.pop(KEY_VARIABLE)
    if options.binary:
        url = _start_binary(options, key, children)
    else:
        server = _start(options, key)
        url = server.listening_address
    print(json.dumps({"url": url}), flush=True)
    sys.stdin.buffer.read()  # the parent holds the other end, and never writes
    _exit(children)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ragbench.lms.local.serve")
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--binary", help="a llama-server to run in the place of the wheel")
    for name in ("port", "slots", "context", "threads", "cache-mib"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--life", type=int, help="a pipe that only what serves holds open")
    return parser.parse_args()


def _start(options: argparse.Namespace, key: str) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.api_keys = [key]
    params.n_parallel = options.slots
    params.n_ctx = options.slots * options.context
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.cache_prompt = True
    params.cache_ram_mib = options.cache_mib
    params.ctx_shift = False  # an overlong prompt is an error, not a prompt with a hole
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = 1
    return xllamacpp.Server(params)


def _start_binary(
    options: argparse.Namespace, key: str, children: list[subprocess.Popen[str]]
) -> str:
    """The address of the `llama-server`, once it can answer; its process joins `children`."""
    command = [
        options.binary, "--model", options.model, "--alias", options.alias,
        "--host", "127.0.0.1", "--port", str(options.port), "--parallel", str(options.slots),
        "--ctx-size", str(options.slots * options.context), "--threads", str(options.threads),
        "--cache-ram", str(options.cache_mib), "--no-context-shift", "--no-slots", "--no-ui",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "LLAMA_API_KEY": key},
        preexec_fn=_die_with_parent,
        pass_fds=() if options.life is None else (options.life,),
    )
    if options.life is not None:
        os.close(options.life)
    children.append(process)
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(r"listening on (http://\S+)", line):
            threading.Thread(target=_forward, args=(process,), daemon=True).start()
            return match[1]
        print(line, end="", file=sys.stderr)
    sys.exit(process.wait() or 1)


def _forward(process: subprocess.Popen[str]) -> None:
    """Read what the server says until it ends, and end with it; its errors are handed on."""
    for line in process.stdout or ():
        if "error" in line.lower():
            print(line, end="", file=sys.stderr, flush=True)
    process.wait()
    os._exit(1)


def _die_with_parent() -> None:
    """Ask Linux to end this process with the one that started it, even if that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _exit_with_parent(parent: int, children: list[subprocess.Popen[str]]) -> None:
    # A process forked from the parent may hold the pipe open after it; the parent's id tells.
    while os.getppid() == parent:
        time.sleep(0.5)
    _exit(children)


def _exit(children: list[subprocess.Popen[str]]) -> NoReturn:
    for child in children:
        child.kill()
        child.wait()  # its port is free then
    os._exit(0)  # llama.cpp's own shutdown waits for the slots


if __name__ == "__main__":
    main()
