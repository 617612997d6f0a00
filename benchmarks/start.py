"""Start of a command: CPU of `eval --dry-run`, and time to the first request of `eval`.

    python -m benchmarks.start --repeats 5

CPU is compared with `python -c pass` and `import dspy`. The time from the start of the process to
its first chat request is compared with that of a plain DSPy script (`benchmarks.engine`). Sides
take turns, and an unmeasured turn writes the bytecode. The smallest value of each side counts.
"""

import json
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from benchmarks.engine import commands, timed
from benchmarks.loopback import REPLY


class _Server(BaseHTTPRequestHandler):
    """Answers each chat request, and notes when it came."""

    requests: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "fake"}]})

    def do_POST(self) -> None:
        self.requests.append(time.monotonic())
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(REPLY)

    def _answer(self, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@click.command()
@click.option("--repeats", type=int, default=5, show_default=True)
def main(repeats: int) -> None:
    """Print the figures and their ratios."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cpu: dict[str, list[float]] = {}
    first: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        questions = Path(folder) / "questions.jsonl"
        questions.write_text(json.dumps({"id": "1", "question": "What is 1?", "answer": "Paris"}))
        corpus = questions.with_name("corpus.json")
        corpus.write_text(json.dumps([{"title": "Paris", "text": "Paris is a city."}]))
        url = f"http://127.0.0.1:{server.server_port}/v1"
        for turn in range(repeats + 1):
            sides = commands(url, str(questions), 4, str(Path(folder) / f"run{turn}"))
            plain, ours = sides.values()
            for name, command in {
                "python -c pass": [sys.executable, "-c", "pass"],
                "import dspy": [sys.executable, "-c", "import dspy"],
                "eval --dry-run": [*ours, "--dry-run"],
                "plain DSPy": plain,
                "eval": ours,
            }.items():
                _Server.requests.clear()
                start = time.monotonic()
                used = timed(command, folder)
                if turn:
                    cpu.setdefault(name, []).append(used.cpu_s)
                    if _Server.requests:
                        first.setdefault(name, []).append(_Server.requests[0] - start)
    least = min(cpu["python -c pass"])
    for name, values in cpu.items():
        print(f"{name:16} CPU {min(values):.3f} s, {min(values) / least:.0f} times python -c pass")
    for name, values in first.items():
        ratio = min(values) / min(first["plain DSPy"])
        print(f"{name:16} first request after {min(values):.2f} s, {ratio:.2f} of plain DSPy")


if __name__ == "__main__":
    main()
