"""The local server: llama.cpp in a child process, shared by all who use the same model.

It listens on loopback only and wants a random key. It ends with this process, however this process
ends: `stop` at exit, and else the child sees its end of the pipe close (see `serve`).
"""

import atexit
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO

from ragbench.environment import child_environment
from ragbench.errors import LMSetupError
from ragbench.lms.local.serve import KEY_VARIABLE
from ragbench.lms.local.store import LocalSpec, ensure, paths, say

START_TIMEOUT_S = 120.0
#: A server that has died by itself this often is not started again.
MAX_DEATHS = 5


@dataclass(frozen=True)
class ServerSettings:
    """What a local server is started with; equal settings share one server."""

    gguf: Path
    alias: str
    model: str | None = None  # its name in the catalogue, to be fetched before the first start
    slots: int = 4
    context: int = 8192  # tokens per slot
    port: int = 0  # 0: a free one


def settings_for(
    spec: LocalSpec, *, slots: int | None = None, context: int | None = None, port: int = 0
) -> ServerSettings:
    """The settings of a server for `spec`; `slots` and `context` default to ServerSettings'.

    Raises:
        LMSetupError: fewer than one slot, or a context too small for any prompt.
    """
    slots = ServerSettings.slots if slots is None else slots
    context = ServerSettings.context if context is None else context
    if slots < 1 or context < 256:
        raise LMSetupError(f"slots={slots} must be at least 1 and context={context} at least 256")
    gguf, model = spec.gguf or paths(spec.name)["gguf"], None if spec.gguf else spec.name
    return ServerSettings(gguf, spec.name, model, slots, context, port)


class LocalServer:
    """A llama.cpp server that starts at first use and again if it dies."""

    def __init__(self, settings: ServerSettings, *, key: str | None = None) -> None:
        self.settings = settings
        self.key = key or secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._log: IO[bytes] | None = None
        self._url = ""
        self._deaths = 0
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Process id of the running server, if it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def runs_at(self, url: str) -> bool:
        """Whether the server runs, at `url`: else whatever answers there is another's."""
        return self._url == url and self.pid is not None

    def url(self) -> str:
        """Address of the server, such as `http://127.0.0.1:41234`; starts it if it is not up.

        Raises:
            LMSetupError: it does not start.
        """
        with self._lock:
            if self.pid is None:
                self._start()
            return self._url

    def stop(self) -> None:
        """End the server and wait until it is gone; it starts again at the next `url`."""
        with self._lock:
            self._end()
            if self._log is not None and os.getpid() == self._owner:
                self._log.close()
                self._log = None

    def _start(self) -> None:
        self._deaths += self._process is not None
        self._end()
        if self._deaths >= MAX_DEATHS:
            raise LMSetupError(f"the local server ended {self._deaths} times: {self._last_words()}")
        settings = self.settings
        if settings.model:
            ensure(settings.model)
        say(f"starting llama.cpp: {settings.alias}, {settings.slots} x {settings.context} tokens")
        if self._log is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the server runs
        if settings.port:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that is closing
                try:
                    probe.bind(("127.0.0.1", settings.port))
                except OSError as error:
                    raise LMSetupError(
                        f"port {settings.port} cannot be had: {error.strerror}; give another, or 0"
                    ) from None
        # llama.cpp's threads wait for each other thousands of times a second. By default they spin,
        # and where other work wants the cores each wait costs a whole time slice.
        given = child_environment("OMP_WAIT_POLICY", prefixes=("GGML_", "LLAMA_"))
        self._process = subprocess.Popen(
            _command(settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={"OMP_WAIT_POLICY": "passive", **given, KEY_VARIABLE: self.key},
        )
        line = _first_line(self._process)
        if not line:
            self._deaths += 1
            self._end()
            raise LMSetupError(
                f"llama.cpp cannot serve {settings.gguf}: {self._last_words()}; "
                "give a GGUF model file that fits in memory"
            )
        self._url = str(json.loads(line)["url"])

    def _end(self) -> None:
        # After a fork the child process has the handle too, but the server is not its own.
        process = self._process
        if process is None or os.getpid() != self._owner:
            return
        self._process = None
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()

    def _last_words(self) -> str:
        if self._log is not None:
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").strip().splitlines()
            if lines:
                return lines[-1].strip()
        return "it said nothing"


_shared: dict[ServerSettings, LocalServer] = {}
_shared_lock = threading.Lock()


def shared_server(settings: ServerSettings) -> LocalServer:
    """This process's one server with these settings."""
    with _shared_lock:
        if settings not in _shared:
            _shared[settings] = LocalServer(settings)
            atexit.register(_shared[settings].stop)
        return _shared[settings]


def server_version() -> str:
    """Which llama.cpp serves: a part of the identity of a local LM.

    Raises:
        PackageNotFoundError: its wheel is not installed.
    """
    return version("xllamacpp")


def _command(settings: ServerSettings) -> list[str]:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    values = {"model": settings.gguf, "threads": cores}
    values |= {n: getattr(settings, n) for n in ("alias", "port", "slots", "context")}
    options = [f"--{name}={value}" for name, value in values.items()]
    # -P: a file of the working folder must not be imported in the place of a library.
    return [sys.executable, "-P", "-m", "ragbench.lms.local.serve", *options]


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """The first line of the child, or b"" when it ends or takes too long."""
    killer = threading.Timer(START_TIMEOUT_S, process.kill)
    killer.daemon = True
    killer.start()
    try:
        assert process.stdout is not None
        return process.stdout.readline()
    finally:
        killer.cancel()
