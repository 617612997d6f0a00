"""The user's settings file gives defaults, and never sends a key to another server."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fake_server import FakeServer
from tests.kills import write_questions


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine.yaml"
    monkeypatch.setenv("RAGBENCH_CONFIG", str(path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
    return path


def config_of(folder: str) -> Any:
    return json.loads(Path(folder, "card.json").read_text())["config"]


def test_settings_file_gives_defaults_that_are_recorded(
    server: FakeServer, settings: Path, command: Any, tmp_path: Path
) -> None:
    data = ["--dataset", "jsonl", "--data-file", write_questions(tmp_path, 4), "--limit", 2]
    settings.write_text(
        f"lm: openai/fake\napi_base: {server.url}\nset: {{k: 2}}\nprogram: direct\nworkers: 3\n"
        "max_calls: 2\nseed: 7\n"
    )
    code, _, err = command("eval", *data, "--program", "vanilla", "--out", "a")
    assert code == 0, err
    assert err.count(f"settings of {settings}") == 1
    card = config_of("a")
    assert (card["lm"], card["api_base"], card["program"]) == ("openai/fake", server.url, "vanilla")
    assert (card["set"], card["workers"], card["seed"]) == ({"k": "2"}, 3, 7)  # as typed
    # The limit holds, and a config file wins over the settings file.
    Path("own.yaml").write_text("seed: 8\nprogram: vanilla\n")
    code, out, err = command("eval", *data, "--config", "own.yaml", "--limit", 3, "--out", "b")
    assert config_of("b")["seed"] == 8
    assert (code, "stopped by --max-calls 2" in out + err) == (3, True)


def test_settings_file_keeps_its_address_for_its_own_lm(
    server: FakeServer, settings: Path, command: Any, tmp_path: Path
) -> None:
    data = ["--dataset", "jsonl", "--data-file", write_questions(tmp_path, 4), "--limit", 1]
    settings.write_text(f"lm: openai/fake\napi_base: {server.url}\nprice: in=1,out=2\n")
    code, _, err = command("eval", *data, "--lm", "groq/x", "--program", "direct", "--out", "a")
    assert (code, "GROQ_API_KEY" in err) == (2, True)
    assert command("eval", *data, "--program", "direct", "--out", "run")[0] == 0
    asked = len(server.hits)
    code, _, err = command("score", "run", "--judge", "groq/x")
    assert (code, "GROQ_API_KEY" in err) == (2, True)
    assert len(server.hits) == asked


def test_settings_file_of_the_working_folder_is_not_read(
    server: FakeServer, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ragbench.yaml").write_text("program: direct\nlm: openai/evil\n")
    Path(".env").write_text(f"RAGBENCH_CONFIG={tmp_path / 'ragbench.yaml'}\nOPENAI_API_KEY=x\n")
    data = ["--dataset", "jsonl", "--data-file", write_questions(tmp_path, 4), "--limit", 1]
    lm = ["--lm", "openai/fake", "--api-base", server.url]
    code, _, err = command("eval", *data, *lm, "--program", "vanilla", "--out", "a")
    assert (code, "settings of" in err) == (0, False)
    monkeypatch.setenv("RAGBENCH_CONFIG", "ragbench.yaml")
    code, _, err = command("eval", *data, *lm)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "not the absolute path" in err


def test_unknown_setting_is_one_line(settings: Path, command: Any) -> None:
    settings.write_text("lmm: x\n")
    code, _, err = command("eval", "--program", "vanilla")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "did you mean lm" in err
