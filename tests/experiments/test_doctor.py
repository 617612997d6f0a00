"""The doctor: each damage is found and told in one line, and mending loses no good record."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ragbench.cli.main import main
from ragbench.experiments.compile.compiler import compile_program
from ragbench.experiments.config import CompileConfig
from ragbench.experiments.doctor import examine, folders_under, repair
from ragbench.experiments.records.folder import locked
from ragbench.experiments.records.jsonl import RECORDS, encode
from ragbench.experiments.records.stored import read_records
from ragbench.experiments.runs import evaluate
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from tests.experiments.towns import World

Damage = Callable[[Path], None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scored run of six questions."""
    world = World(tmp_path, monkeypatch)
    folder = evaluate(world.config(out=tmp_path / "run", limit=6)).folder
    score_run(folder, ScoreRequest())
    return folder


def edit(name: str, change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    def damage(folder: Path) -> None:
        lines = (folder / name).read_bytes().splitlines(keepends=True)
        (folder / name).write_bytes(b"".join(change(lines)))

    return damage


def write(name: str, content: bytes) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return damage


def stranger(lines: list[bytes]) -> list[bytes]:
    record = json.loads(lines[0])
    del record["sum"]
    return [*lines, encode({**record, "qid": "nobody"})]


def finished_again(lines: list[bytes]) -> list[bytes]:
    record = json.loads(lines[0])
    del record["sum"]
    return [*lines, encode({**record, "answer": "another"})]


DAMAGES: dict[str, tuple[Damage, str, bool]] = {
    "changed line": (edit(RECORDS, lambda x: [x[0].replace(b"river", b"canal"), *x[1:]]),
                     "line 1 cannot be read, or was changed", True),
    "no record": (edit(RECORDS, lambda x: [*x, encode({"qid": 7})]), "line 7 cannot be", True),
    "torn line": (edit(RECORDS, lambda x: [*x[:-1], x[-1][:80]]), "was cut short", True),
    "same line": (edit(RECORDS, lambda x: [*x, x[2]]), "line 7 repeats an earlier line", True),
    "stranger": (edit(RECORDS, stranger), "line 7 is of a question that is not in the data", True),
    "finished": (edit(RECORDS, finished_again), "line 7 is of a question that was finis", False),
    "summary": (write("summary.json", b'{"n": 6, "scores": {"em": 1.0}}'), "not what the", True),
    "summary cut": (write("summary.json", b'{"n": '), "is not what the records say", True),
    "no summary": (lambda f: (f / "summary.json").unlink(), "did not come to its end", True),
    "config": (write("config.json", b"{]"), "config.json:", False),
    "config field": (write("config.json", b'{"identity": {}}'), "identity is missing", False),
    "config edited": (edit("config.json", lambda x: [y.replace(b": 6", b": 7") for y in x]),
                      "config.json: was changed after it was written", False),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json: is missing", False),
    "left over": (write(".summary.json.x1y2", b"half"), "a write that was cut off", True),
    "stray file": (write("notes.txt", b"mine"), "notes.txt: does not belong here", False),
    "scores line": (edit("scores.jsonl", lambda x: [b"{}\n", *x[1:]]), "line 1 cannot be", True),
    "no scores": (lambda f: (f / "scores.json").unlink(), "scores.json: is missing", False),
}  # fmt: skip


def test_nothing_is_wrong_with_a_run_as_it_was_left(run: Path) -> None:
    assert examine(run) == []


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_mended_without_losing_a_good_record(run: Path, name: str) -> None:
    damage, says, mendable = DAMAGES[name]
    damage(run)
    before = read_records(run).records
    found = examine(run)
    assert any(says in finding.line() for finding in found), [f.line() for f in found]
    assert all("\n" not in finding.line() for finding in found)
    repair(run, found)
    after = read_records(run)
    assert after.corrupt == []
    kept = {qid: record for qid, record in before.items() if qid != "nobody"}
    assert after.records == kept
    left = [finding.line() for finding in examine(run)]
    assert any(says in line for line in left) is not mendable, left


def test_file_as_it_was_stays_beside_and_is_never_written_over(run: Path) -> None:
    for number, backup in enumerate(("records.jsonl.bak", "records.jsonl.bak.2"), start=1):
        edit(RECORDS, lambda x: [*x, x[0]])(run)
        before = (run / RECORDS).read_bytes()
        repair(run, examine(run))
        assert (run / backup).read_bytes() == before, number


def test_other_data_are_told(run: Path, tmp_path: Path) -> None:
    data = tmp_path / "questions.jsonl"
    data.write_text(data.read_text().replace("Town 3", "Village 3"))
    assert "not what they were" in examine(run)[0].line()
    assert examine(run, data=False) == []
    data.unlink()
    assert "cannot be loaded" in examine(run)[0].line()


def test_folder_in_use_is_left_alone(run: Path) -> None:
    with locked(run):
        found = examine(run)
    assert len(found) == 1
    assert "in use by another process" in found[0].line()
    assert "not all was checked" in found[0].line()


def test_compiled_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    how = CompileConfig(optimizer="labeled", train_limit=4, val_limit=3, out=tmp_path / "made")
    folder = compile_program(world.config(), how, on_message=lambda line: None)
    assert examine(folder) == []
    calls = folder / "work" / "calls.jsonl"
    made = calls.read_text() if calls.exists() else ""
    calls.parent.mkdir(exist_ok=True)
    calls.write_text(made + '{"attempt": 1, "model": 7}\n')
    assert "so what was billed is not known; put the file back" in examine(folder)[0].line()
    calls.write_text(made)
    state = folder / "program.json"
    whole = state.read_text()
    state.write_text(whole.replace("question", "Question"))
    assert "was changed after it was compiled" in examine(folder)[0].line()
    state.unlink()
    assert "no program.json" in examine(folder)[0].line()
    state.write_text(whole)
    (folder / "sidecar.json").unlink()
    assert "unfinished compile" in examine(folder)[0].line()


def test_folders_of_a_whole_study(run: Path, tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text("{}")
    assert folders_under(tmp_path) == [run]


def command(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    before, sys.argv = sys.argv, ["ragbench", "doctor", *args]
    try:
        with pytest.raises(SystemExit) as stop:
            main()
    finally:
        sys.argv = before
    return (int(stop.value.code or 0), *capsys.readouterr())


def test_exit_codes_and_lines(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(capsys, str(run)) == (0, f"{run}: nothing is wrong\n", "")
    (run / "a\x1b[31m\nb").write_text("")
    code, out, err = command(capsys, str(run))
    assert (code, err) == (1, "")
    assert len(out.splitlines()) == 1
    assert "\x1b" not in out
    (run / "a\x1b[31m\nb").unlink()
    edit(RECORDS, lambda x: [*x, x[0]])(run)
    code, out, _ = command(capsys, str(run), "--repair")
    assert code == 0
    assert out.endswith("; mended\n")
    assert command(capsys, str(run))[0] == 0
    code, out, err = command(capsys, str(tmp_path / "cache"))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


def test_read_only_folder_is_checked(run: Path) -> None:
    """Under a user who may not write it; root may write everything."""
    script = (
        "import os, sys; from pathlib import Path\n"
        "from ragbench.experiments.doctor import examine\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "print([f.line() for f in examine(Path(sys.argv[1]), data=False)])\n"
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "run")
        shutil.copytree(run, folder)
        Path(made).chmod(0o755)
        folder.chmod(0o555)
        arguments = [sys.executable, "-c", script, str(folder)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
