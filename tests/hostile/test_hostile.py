"""Every hostile case ends in one clear line or in a result: no traceback, no hang, nothing lost."""

import copy
import json
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dspy
import pytest
import yaml

from ragbench.cli.main import main
from ragbench.experiments.artifacts import SIDECAR
from ragbench.experiments.compile.compiler import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.runs import ask, reopen
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.experiments.store import read_card
from ragbench.lms import make_lm
from ragbench.lms.adapters import make_adapter
from ragbench.programs import PROGRAMS
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.factory import make_retriever
from tests.experiments.scored_runs import four, make_run
from tests.experiments.towns import World
from tests.fuzzing import GOOD, QUESTIONS
from tests.hostile.bases import COMPLETION, CONFIG, FULL_CARD
from tests.hostile.cases import cases
from tests.runs import query, sign

SECONDS = 20  # a case that takes longer hangs
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f‮]")
Case = dict[str, Any]


def of_kind(kind: str) -> list[Case]:
    rows = [json.loads(json.dumps(case)) for case in cases()]
    return [row for row in rows if row["kind"] == kind]


def damaged(case: Case, good: Any, write: Callable[[Any], bytes]) -> bytes:
    """What the case makes of `good`, as bytes."""
    if case["how"] == "raw":
        return bytes.fromhex(case["hex"]) * case.get("times", 1)
    if case["how"] in ("cut", "flip"):
        content = write(good)
        at = int(len(content) * case["share"])
        if case["how"] == "cut":
            return content[:at]
        return content[:at] + bytes([content[at] ^ (1 << case["bit"])]) + content[at + 1 :]
    value = copy.deepcopy(good)
    target = value
    *path, last = _resolved(case["at"], value)
    for key in path:
        target = target[key]
    if case["how"] == "drop":
        del target[last]
    else:
        target[last] = case["to"]
    return write(value)


def _resolved(path: list[Any], value: Any) -> list[Any]:
    """`path`, where "." stands for the first predictor of a state."""
    first = next((k for k in value if k != "metadata"), "") if isinstance(value, dict) else ""
    return [first if key == "." else key for key in path]


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


@contextmanager
def in_time(case: Case) -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"case {case} hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Runs `ragbench ARGS` in this process, and checks what it wrote; gives the exit code."""

    def run(case: Case, *args: object) -> int:
        monkeypatch.setattr(sys, "argv", ["ragbench", *map(str, args)])
        with in_time(case), pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        told = json.dumps(case)[:300]
        assert "Traceback" not in err, f"{told}\n{err[-1500:]}"
        assert not CONTROL.findall(out + err), told
        code = int(stop.value.code or 0)
        assert code in (0, 1, 2), told
        lines = [x for x in err.splitlines() if x.strip() and "questions to ask" not in x]
        if code == 2 and not out:
            *warnings, error = lines
            assert all(line.startswith("warning: ") for line in warnings), f"{told}\n{err[-1500:]}"
            assert error.startswith("error: ")
            assert len(error) < 2000, told
        return code

    return run


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path, monkeypatch)


def test_data_files(world: World, command: Callable[..., int], tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(json.dumps(QUESTIONS))
    refused = 0
    for case in of_kind("data"):
        path = tmp_path / f"data-{case['id']}.json"
        path.write_bytes(damaged(case, GOOD[case["of"]], as_json))
        files = ["--data-file", path]
        if case["of"] == "arag":
            files = ["--data-file", "q.json", "--corpus-file", path]
        args = ("--program", "vanilla", "--k", 1, "--dataset", case["of"], *files)
        code = command(case, "eval", *args, "--lm", "x", "--limit", 1, "--out", f"o{case['id']}")
        refused += code == 2
    assert refused > 40


def test_configs(world: World, command: Callable[..., int], tmp_path: Path) -> None:
    def write(value: Any) -> bytes:
        return yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass")

    refused = 0
    for case in of_kind("config"):
        path = tmp_path / "itself.yaml"
        path.write_bytes(damaged(case, CONFIG, write))
        some = ("--lm", "x", "--limit", 1, "--size", 100)
        refused += command(case, "eval", "--config", "itself.yaml", *some) == 2
    assert refused > 40


def test_run_folders(world: World, command: Callable[..., int], tmp_path: Path) -> None:
    good = make_run(tmp_path / "good", four(), **FULL_CARD)
    score_run(good, ScoreRequest())
    (good / "summary.json").write_bytes(as_json(reopen(good).summary.to_dict()))
    commands = ("summarize", "score", "errors", "compare", "report")
    for number, case in enumerate(of_kind("run")):
        folder = shutil.copytree(good, tmp_path / f"run-{case['id']}")
        if case["of"] == "card":
            changed = damaged(case, read_card(good).model_dump(mode="json"), as_json).decode()
            query(folder, "UPDATE run SET value = ? WHERE name = 'card'", changed)
        elif case["of"] == "record":
            sign(folder, 1, damaged(case, four()[0].to_dict(), as_json).decode())
        else:
            path = folder / case["of"]
            path.write_bytes(damaged(case, path.read_bytes(), bytes))
        name = commands[number % len(commands)]
        more = {"compare": [good], "report": ["-o", tmp_path / "page.html"]}.get(name, [])
        command(case, name, folder, *more)
        command(case, "doctor", folder)


def test_compiled_programs(world: World, command: Callable[..., int], tmp_path: Path) -> None:
    how = CompileConfig(optimizer="labeled", train_limit=4, val_limit=2, out=tmp_path / "good")
    good = compile_program(world.config(), how, on_message=lambda line: None)
    refused = 0
    for case in of_kind("artefact"):
        folder = tmp_path / f"made-{case['id']}"
        shutil.copytree(good, folder)
        path = folder / case["of"]
        path.write_bytes(damaged(case, json.loads(path.read_bytes()), as_json))
        if case.get("signed"):
            sidecar = json.loads((folder / SIDECAR).read_bytes())
            sidecar["program_sha256"] = sha256(path.read_bytes()).hexdigest()
            (folder / SIDECAR).write_text(json.dumps(sidecar))
        run = ["--dataset", "jsonl", "--data-file", world.data, "--lm", "x", "--limit", 1]
        out = ["--out", tmp_path / f"o{case['id']}"]
        refused += command(case, "eval", *run, *out, "--compiled", folder) == 2
        command(case, "doctor", folder)
        shutil.rmtree(folder)
    assert refused > 25


class _Raw(BaseHTTPRequestHandler):
    body = b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


def test_replies() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Raw)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    lm = make_lm("openai/m", api_base=url, cache=False, retries=0, timeout=5)
    program = PROGRAMS.get("direct")(make_retriever("bm25", Corpus(()), setting="pooled"))
    example = dspy.Example(qid="q", question="Where?", answers=["Oslo"])
    try:
        for case in of_kind("reply"):
            _Raw.body = damaged(case, COMPLETION, as_json)
            with in_time(case), dspy.context(lm=lm, adapter=make_adapter("chat", lm)):
                record = ask(program, example)
            if record.failure:
                assert record.failure.boundary in ("provider", "parse"), (case, record)
                assert "\n" not in record.failure.error
            assert json.loads(json.dumps(record.to_dict()))["qid"] == "q"
    finally:
        lm.close()
        server.shutdown()
        server.server_close()
