"""Counts the files and functions of ragbench that one question, or one comparison, enters.

    python -m benchmarks.way                 # a question to `vanilla`, one to `react`, one compare
    python -m benchmarks.way --list vanilla  # with their names

A question counts from the moment when the runner takes it until its record is written; all threads
count. Against a server on loopback.
"""

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ragbench
from tests.fake_server import FakeServer, plausible

PACKAGE = str(Path(ragbench.__file__).parent)
#: Code that is no function of its own.
_PARTS = ("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>")


class Way:
    """The code of the package that is entered, from `start` on where there is one."""

    def __init__(self, start: tuple[str, str] | None = None) -> None:
        self.code: set[CodeType] = set()
        self._start, self._depth = start, 0 if start else 1

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """As `sys.setprofile` calls it."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        if (Path(code.co_filename).name, code.co_name) == self._start:
            self._depth += 1 if event == "call" else -1
        if event == "call" and self._depth > 0 and code.co_name not in _PARTS:
            self.code.add(code)

    def counts(self) -> str:
        """The numbers, those of the LM part beside them."""
        files = {code.co_filename for code in self.code}
        lm = {code for code in self.code if code.co_filename.startswith(f"{PACKAGE}/lms/")}
        return (
            f"{len(files)} files, {len(self.code)} functions "
            f"(lms: {len({code.co_filename for code in lm})}, {len(lm)})"
        )

    def names(self) -> list[str]:
        """Each function by its file."""
        found = ((Path(code.co_filename).relative_to(PACKAGE), code) for code in self.code)
        return sorted(f"{file}:{code.co_qualname}" for file, code in found)


@contextmanager
def followed(way: Way) -> Iterator[None]:
    """Inside the block, `way` is told of what is entered, in threads that begin there too."""
    threading.setprofile(way)
    sys.setprofile(way)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", metavar="WAY", help="vanilla, react or compare")
    listed = parser.parse_args().list
    os.environ["OPENAI_API_KEY"] = "none"
    runs, ways = [], {}
    with tempfile.TemporaryDirectory() as folder, FakeServer(plausible) as server:
        os.environ["RAGBENCH_CACHE"] = f"{folder}/cache"
        for program in ("vanilla", "react"):
            ways[program] = Way(("asking.py", "ask_one"))
            with followed(ways[program]):
                run = ragbench.evaluate(
                    program, "synthetic", lm="openai/fake", api_base=server.url, cache=False,
                    limit=1, workers=1, out=f"{folder}/{program}",
                )  # fmt: skip
            runs.append(run.folder)
        ways["compare"] = Way()
        with followed(ways["compare"]):
            ragbench.compare(*runs)
    for name, way in ways.items():
        print(f"{name}: {way.counts()}")
        if name == listed:
            print(*way.names(), sep="\n")


if __name__ == "__main__":
    main()
