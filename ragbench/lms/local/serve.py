"""llama.cpp's server in a process of its own: `python -m ragbench.lms.local.serve OPTIONS`.

Run by `ragbench.lms.local.server`. It reads the API key from the environment (an argument would be
seen by every user of the machine), writes its address as one line of JSON once it can answer, and
ends when its parent does, however that ends.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time

KEY_VARIABLE = "RAGBENCH_SERVER_KEY"


def main() -> None:
    """Serve until standard input is closed or the parent process is gone."""
    parser = argparse.ArgumentParser(prog="ragbench.lms.local.serve")
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    for name in ("port", "slots", "context", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    # Ctrl-C reaches the whole group of processes; the parent decides when the server may go.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.api_keys = [os.environ.pop(KEY_VARIABLE)]
    params.n_parallel = options.slots
    params.n_ctx = options.slots * options.context
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.cache_prompt = True
    params.cache_ram_mib = 512  # for the prompt caches of slots that are reused
    params.ctx_shift = False  # an overlong prompt is an error, not a prompt with a hole
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = 1
    server = xllamacpp.Server(params)
    print(json.dumps({"url": server.listening_address}), flush=True)
    sys.stdin.buffer.read()  # the parent holds the other end, and never writes
    os._exit(0)  # llama.cpp's own shutdown waits for the slots


def _exit_with_parent(parent: int) -> None:
    # A process forked from the parent may hold the pipe open after it; the parent's id tells.
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


if __name__ == "__main__":
    main()
