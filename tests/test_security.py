"""Keys reach no file and no output; no pickle is loaded; nothing in data moves the cursor."""

import io
import json
import os
import pickle
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ragbench.cli.main import main
from ragbench.lms.specs import PROVIDERS, load_dotenv
from ragbench.redact import _KEY_LIKE, redact
from tests.experiments.towns import World, write_towns
from tests.fakes import Asked, Reply, plausible
from tests.runs import record_rows

KEY = "canary 9f3a/+=|harbour"  # nothing that a pattern would take for a key
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs `ragbench ARGS` in this process: exit code and all that it wrote."""

    def run(*args: object) -> tuple[int, str, str]:
        before, sys.argv = sys.argv, ["ragbench", *map(str, args)]
        try:
            with pytest.raises(SystemExit) as stop:
                main()
        finally:
            sys.argv = before
        return (int(stop.value.code or 0), *capfd.readouterr())

    return run


class _Echo(BaseHTTPRequestHandler):
    """Answers, or fails, and gives the key back in every header and error body."""

    asked = 0

    def do_GET(self) -> None:
        self._send(404, {"error": {"message": self._key()}})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked += 1
        error = {"error": {"message": f"the key {self._key()} is bad", "type": self._key()}}
        turn = self.asked % 4
        if turn in (1, 3):
            return self._send({1: 400, 3: 500}[turn], error)
        if turn == 2:
            return self._send(200, {"choices": [{"message": {"key": self._key()}}], **error})
        text = "[[ ## reasoning ## ]]\nso\n\n[[ ## answer ## ]]\nTown 1\n\n[[ ## completed ## ]]"
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": text}}
        self._send(200, {"id": self._key(), "model": "m", "choices": [choice]})

    def _key(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def _send(self, status: int, body: dict[str, Any]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (("X-Echo", self._key()), ("X-Request-Id", self._key())):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[str]:
    _Echo.asked = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def holding(folder: Path, secret: str) -> list[Path]:
    """The files under `folder` that hold `secret`, as it is or as JSON writes it."""
    forms = {secret.encode(), json.dumps(secret)[1:-1].encode()}
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


def test_key_that_the_server_gives_back_reaches_no_file_and_no_output(
    echo: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ragbench.lms.calls.limits.Scope.sleep", lambda *_: None)
    data = ["--dataset", "jsonl", "--data-file", write_towns(tmp_path)]
    lm = ["--lm", "openai/m", "--api-base", echo]
    run = ["--program", "vanilla", "--k", 1, "--workers", 1]
    said = [
        command("eval", *run, *data, *lm, "--limit", 6, "--out", "run", "--log-level", "debug"),
        command("summarize", "run"),
        command("errors", "run"),
        command("score", "run", "--judge", "openai/judge", "--api-base", echo),
        command("compile", *run, *data, *lm, "--optimizer", "bootstrap", "--train-limit", 3,
                "--val-limit", 2, "--out", "made"),
        command("ask", "Who?", *run, *data, *lm),
        command("doctor", "run"),
    ]  # fmt: skip
    assert _Echo.asked > 10
    records = json.dumps(record_rows(tmp_path / "run"))
    assert "[OPENAI_API_KEY]" in records, "no error of the server was kept: nothing was tested"
    assert (tmp_path / "cache" / "lm").is_dir()
    assert "[OPENAI_API_KEY]" in (tmp_path / "run" / "log.jsonl").read_text()
    assert not [text for _, *texts in said for text in texts if KEY in text]
    assert holding(tmp_path, KEY) == []


def test_traceback_of_a_defect_has_no_key(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError(f"ours, with {KEY}")

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("ragbench.experiments.runs.reopen", broken)
    code, out, err = command("summarize", "run")
    assert (code, out) == (1, "")
    assert "ZeroDivisionError" in err
    assert KEY not in err


def test_template_names_every_key_and_holds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).resolve().parents[1]
    lines = (root / ".env.example").read_text().splitlines()
    named = {line.partition("=")[0]: line.partition("=")[2] for line in lines if "=" in line}
    assert {names[0] for names in PROVIDERS.values()} <= set(named)
    assert not any(value for name, value in named.items() if name.endswith("_KEY"))
    assert ".env" in (root / ".gitignore").read_text().splitlines()
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    load_dotenv(root / ".env.example")
    assert not os.environ.get("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


class Evil:
    """Makes a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


@pytest.fixture
def evil(tmp_path: Path) -> bytes:
    return pickle.dumps(Evil(tmp_path / "ran"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path, monkeypatch)


def over(world: World) -> list[object]:
    """The options of a run over the towns."""
    data = ["--dataset", "jsonl", "--data-file", world.data, "--adapter", "chat"]
    return ["--program", "vanilla", "--k", 1, "--lm", "scripted", *data]


def test_pickle_in_any_file_of_a_run_is_not_loaded(
    world: World, command: Command, evil: bytes, tmp_path: Path
) -> None:
    command("eval", *over(world), "--limit", 2, "--out", "run")
    command("score", "run")
    files = sorted(path.name for path in (tmp_path / "run").iterdir() if path.name[0] != ".")
    assert len(files) >= 5
    for name in files:
        before = (tmp_path / "run" / name).read_bytes()
        (tmp_path / "run" / name).write_bytes(evil)
        for args in (["summarize"], ["score"], ["errors"], ["doctor"], ["compare", "run"]):
            code, _, err = command(*args, "run")
            assert "Traceback" not in err, (name, args, err)
            assert code in (0, 1, 2)
        (tmp_path / "run" / name).write_bytes(before)
    assert not (tmp_path / "ran").exists()


def test_pickle_in_an_index_is_not_loaded(
    world: World, command: Command, tmp_path: Path, evil: bytes
) -> None:
    data = ["--dataset", "jsonl", "--data-file", world.data, "--setting", "pooled"]
    args = ("search", "town number 1", *data, "--retriever", "bm25")
    code, found, err = command(*args)
    assert code == 0, err
    indexes = tmp_path / "cache" / "indexes"
    buffer = io.BytesIO()
    np.save(buffer, np.array([Evil(tmp_path / "ran")], dtype=object), allow_pickle=True)
    arrays = sorted(indexes.rglob("*.npy"))
    others = sorted(p for p in indexes.rglob("*") if p.is_file() and p.suffix == ".json")
    assert arrays
    for path, content in [(p, buffer.getvalue()) for p in arrays] + [(p, evil) for p in others]:
        if path.exists():  # an index that is made anew may have other files
            path.write_bytes(content)
        code, again, err = command(*args)
        assert code == 0, err
        assert again.splitlines()[:-1] == found.splitlines()[:-1]  # the last has a time
    assert not (tmp_path / "ran").exists()


def test_pickle_in_a_compiled_program_is_not_loaded(
    world: World, command: Command, evil: bytes, tmp_path: Path
) -> None:
    made = ["--optimizer", "knn", "--train-limit", 8, "--val-limit", 2, "--out", "made"]
    code, _, err = command("compile", *over(world), *made)
    assert code == 0, err
    folder = tmp_path / "made"
    names = [path.name for path in folder.iterdir() if path.suffix == ".json"]
    assert "bank.json" in names
    (folder / "program.pkl").write_bytes(evil)  # as DSPy would save a whole program
    for name in names:
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(evil)
        for args in (["eval", *over(world), "--limit", 1, "--compiled", "made"],
                     ["programs", "."], ["doctor", "made"]):  # fmt: skip
            _, _, err = command(*args)
            assert "Traceback" not in err, (name, err)
        (folder / name).write_bytes(before)
    assert not (tmp_path / "ran").exists()


#: Clears the screen, sets the title, moves the cursor, turns the text round; markup of rich.
NASTY = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08‮[red]=cmd()"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f‮]")


def test_no_command_passes_control_characters_of_data_or_models_on(
    world: World, command: Command, tmp_path: Path
) -> None:
    rows = [
        {
            "id": f"../../q{i}{NASTY}",
            "question": f"Which town number {i} {NASTY} lies?",
            "answer": f"Town {i} {NASTY}",
            "type": f"bridge{NASTY}",
            "context": [{"title": f"T{i} {NASTY}", "text": f"Town number {i} lies. {NASTY}"}],
        }
        for i in range(30)
    ]
    world.data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def nasty(asked: Asked) -> Reply:
        fields = plausible(asked)
        if len(world.lm.asked) % 5 == 4:
            return RuntimeError(f"down {NASTY}")
        return {k: f"{v} {NASTY}" if isinstance(v, str) else v for k, v in fields.items()}

    world.use(nasty, cache=False)
    some = [*over(world), "--limit", 5]
    vanilla = over(world)
    small = ["--train-limit", 3, "--val-limit", 3]
    data = ["--dataset", "jsonl", "--data-file", world.data]
    for args in (
        ["eval", *some, "--out", "a"],
        ["eval", *some, "--seed", 42, "--set", "context_tokens=200", "--out", "b"],
        ["summarize", "a", "b"],
        ["compare", "a", "b"],
        ["errors", "a", "--show", 3],
        ["score", "a", "b"],
        ["doctor", "a"],
        ["ask", f"Who? {NASTY}", *vanilla],
        ["search", f"town {NASTY}", *data, "--setting", "pooled"],
        ["retrieve", *data, "--retriever", "bm25", "--limit", 5],
        ["compile", *vanilla, *small, "--optimizer", "labeled", "--out", "made"],
        ["programs", "."],
        ["eval", *some, "--compiled", "made", "--out", "c"],
        ["verdict", *some, *small, "--optimizer", "labeled", "--out", "v"],
        ["tune", *vanilla, "--limit", 3, "--trials", 2, "--only", "context_tokens", "--out", "t"],
        ["eval", *some, "--out", f"x{NASTY}".replace("/", "")],
        ["eval", *some, "--dataset", f"y{NASTY}"],
    ):
        code, out, err = command(*args)
        assert "Traceback" not in err, (args[0], err)
        assert code in (0, 1, 2), (args[0], code, err)
        found = CONTROL.findall(out.replace("\n", "") + err.replace("\n", ""))
        assert not found, (args[0], found, (out + err)[:3000])
    assert not list(tmp_path.parent.glob("q*")), "an id was taken for a path"
    assert len(list((tmp_path / "a").glob("run.db"))) == 1


@given(
    st.lists(
        st.sampled_from(
            ["sk", "gsk", "xai", "hf", "pk", "rk", "AIza", "key", "Bearer", "token", "-", "_", "=",
             " ", ":", ".", "a", "ask", "monkey", "0123456789ab", "sentence", "\n"]
        ),
        max_size=8,
    )
)  # fmt: skip
def test_the_quick_look_for_keys_misses_none(words: list[str]) -> None:
    text = "".join(words)
    assert redact(text) == _KEY_LIKE.sub("[key]", text)
