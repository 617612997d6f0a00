"""Keys reach no file and no output; no pickle is loaded; nothing in data moves the cursor."""

import io
import json
import os
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.redact import _KEY_LIKE, may_hold_key, redact
from tests.cli.test_mistakes import run
from tests.experiments.towns import World, write_towns
from tests.fake_server import FakeServer, Fault, Hit
from tests.fakes import Asked, Reply, plausible
from tests.runs import record_rows

KEY = "canary 9f3a/+=|harbour"  # nothing that a pattern would take for a key
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs `ragbench ARGS` in this process: exit code and all that it wrote."""
    return lambda *args: run(capfd, *map(str, args))


def echo(hit: Hit) -> Fault:
    """Answers, or fails, and gives the key back in headers and in every error's body."""
    error = {"error": {"message": f"the key {hit.key} is bad", "type": hit.key}}
    headers = (("X-Echo", hit.key), ("X-Request-Id", hit.key))
    return [
        Fault("changed", json={"id": hit.key}),
        Fault("400", json=error, headers=headers),
        Fault("body", json={"choices": [{"message": {"key": hit.key}}], **error}),
        Fault("500", json=error, headers=headers),
    ][hit.number % 4]


def holding(folder: Path, secret: str) -> list[Path]:
    """The files under `folder` that hold `secret`, as it is or as JSON writes it."""
    forms = {secret.encode(), json.dumps(secret)[1:-1].encode()}
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


def test_key_that_the_server_gives_back_reaches_no_file_and_no_output(
    command: Command, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("ragbench.lms.calls.limits.Scope.sleep", lambda *_: None)
    write_towns(tmp_path)
    server.script = echo
    at = ["--api-base", server.url]
    lm = ["--program", "vanilla", "--k", 1, "--workers", 1, *DATA, "--lm", "openai/m", *at]
    said = [
        command("eval", *lm, "--limit", 6, "--out", "run", "--log-level", "debug"),
        command("show", "run"),
        command("errors", "run"),
        command("score", "run", "--judge", "openai/judge", *at),
        command("compile", *lm, "--optimizer", "bootstrap", "--train-limit", 3,
                "--val-limit", 2, "--out", "made"),
        command("ask", "Who?", *lm),
        command("verify", "run"),
    ]  # fmt: skip
    assert len(server.hits) > 10
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
    monkeypatch.setattr("ragbench.experiments.runs.summary.reopen", broken)
    code, out, err = command("show", "run")
    assert (code, out) == (1, "")
    assert "ZeroDivisionError" in err
    assert KEY not in err


class Evil:
    """Makes a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


DATA = ["--dataset", "jsonl", "--data-file", "questions.jsonl"]
#: The options of a run over the towns.
RUN = ["--program", "vanilla", "--k", 1, "--lm", "scripted", *DATA, "--adapter", "chat"]


def test_a_pickle_in_the_place_of_any_file_is_not_loaded(
    world: World, command: Command, tmp_path: Path
) -> None:
    """In a run, in a compiled program with its bank of examples, and in an index."""
    evil, buffer = pickle.dumps(Evil(tmp_path / "ran")), io.BytesIO()
    np.save(buffer, np.array([Evil(tmp_path / "ran")], dtype=object), allow_pickle=True)
    search = ["retrieve", "town number 1", *DATA, "--setting", "pooled", "--retriever", "bm25"]
    command("eval", *RUN, "--limit", 2, "--out", "run")
    command("score", "run")
    small = ["--train-limit", 8, "--val-limit", 2]
    code, _, err = command("compile", *RUN, "--optimizer", "knn", *small, "--out", "made")
    assert code == 0, err
    (tmp_path / "made" / "program.pkl").write_bytes(evil)  # as DSPy would save a whole program
    code, found, err = command(*search)
    assert code == 0, err
    readers: dict[str, list[list[object]]] = {
        "run": [["show", "run"], ["score", "run"], ["errors", "run"], ["verify", "run"],
                ["compare", "run", "run"]],
        "made": [["eval", *RUN, "--limit", 1, "--compiled", "made"], ["list", "compiled", "."],
                 ["verify", "made"]],
        "cache/indexes": [search],
    }  # fmt: skip
    read = set()
    for folder, commands in readers.items():
        for path in sorted(p for p in (tmp_path / folder).rglob("*") if p.is_file()):
            if path.suffix not in (".json", ".npy", ".db", ".jsonl") or not path.exists():
                continue
            before = path.read_bytes()
            path.write_bytes(buffer.getvalue() if path.suffix == ".npy" else evil)
            for args in commands:
                code, out, err = command(*args)
                assert "Traceback" not in err, (path, args, err)
                assert code in (0, 1, 2), (path, args)
                if args == search:  # it is made anew; the last line has a time
                    assert out.splitlines()[:-1] == found.splitlines()[:-1]
            if path.parent.exists():  # an index that was made anew has another folder
                path.write_bytes(before)
            read.add(path.name)
    assert {"run.db", "card.json", "bank.json", "sidecar.json", "manifest.json"} <= read
    assert any(name.endswith(".npy") for name in read)
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
    some, small = [*RUN, "--limit", 5], ["--train-limit", 3, "--val-limit", 3]
    for args in (
        ["eval", *some, "--out", "a"],
        ["eval", *some, "--seed", 42, "--set", "context_tokens=200", "--out", "b"],
        ["show", "a", "b"],
        ["compare", "a", "b"],
        ["errors", "a", "--show", 3],
        ["score", "a", "b"],
        ["verify", "a"],
        ["ask", f"Who? {NASTY}", *RUN],
        ["retrieve", f"town {NASTY}", *DATA, "--setting", "pooled"],
        ["retrieve", *DATA, "--retriever", "bm25", "--limit", 5],
        ["compile", *RUN, *small, "--optimizer", "labeled", "--out", "made"],
        ["list", "runs", "."],
        ["eval", *some, "--compiled", "made", "--out", "c"],
        ["verdict", *some, *small, "--optimizer", "labeled", "--out", "v"],
        ["tune", *RUN, "--limit", 3, "--trials", 2, "--only", "context_tokens", "--out", "t"],
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


PARTS = [
    "sk", "gsk", "xai", "hf", "pk", "rk", "AIza", "key", "Bearer", "token", "-", "_", "=",
    " ", ":", ".", "a", "ask", "monkey", "0123456789ab", "sentence", "\n",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
def test_the_quick_look_for_keys_misses_none(seed: int) -> None:
    text = "".join(random.Random(seed).choices(PARTS, k=10))
    assert redact(text) == _KEY_LIKE.sub("[key]", text)
    assert redact("of sk-0123456789abcdef too") == "of [key] too"
    assert may_hold_key(json.dumps(text)) or redact(text) == text


@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_quick_look_sees_a_key_however_json_writes_it(
    monkeypatch: pytest.MonkeyPatch, ascii_only: bool
) -> None:
    assert not may_hold_key("a line of a log")
    monkeypatch.setenv("SOME_PASSWORD", key := 'p\u00e4"ss\\word')
    once = json.dumps({"said": key}, ensure_ascii=ascii_only)
    assert may_hold_key(once)
    assert may_hold_key(json.dumps({"body": once}, ensure_ascii=False))
