"""No command replaces a file that it did not write, and nothing empty replaces a file."""

from pathlib import Path
from typing import Any

import click
import pytest

from ragbench.cli.main import COMMANDS, cli
from ragbench.errors import ConfigError, RunError
from ragbench.outputs import Output
from tests.experiments.scored_runs import four, make_run
from tests.fake_server import FakeServer, Hit
from tests.kills import write_questions

FOREIGN = "my own file\n"
#: Options that name a file or a folder to write.
OUTPUTS = {"output", "out", "page"}
#: Command and output option -> words of a command that writes there.
CASES = {
    ("ask", ""): "",
    ("choose", "out"): "choose DATA --programs direct,vanilla --out F",
    ("compile", "out"): "compile DATA --program vanilla --out F",
    ("eval", "out"): "eval DATA --program vanilla --out F",
    ("export", "output"): "export RUN --to csv -o F",
    ("import", "out"): "import p.jsonl --data-file q.jsonl --dataset jsonl --out F",
    ("questions", "output"): "questions docs LM -o F",
    ("questions", "page"): "questions docs LM -o new.jsonl --page F",
    ("report", "output"): "report RUN -o F",
    ("retrieve", "out"): "retrieve --dataset jsonl --data-file q.jsonl --out F",
    ("sweep", "out"): "sweep s.yaml --out F",
    ("tune", "out"): "tune DATA --program vanilla --out F",
    ("verdict", "out"): "verdict DATA --program vanilla --out F",
}


def outputs_of(name: str) -> set[tuple[str, str]]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return {(name, param.name or "") for param in command.params if param.name in OUTPUTS}


def test_every_output_option_has_a_case() -> None:
    named = {case for name in COMMANDS for case in outputs_of(name)}
    kept = {("ask", "out")}
    assert named - kept == CASES.keys() - {("ask", "")}


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]], ids="-".join)
def test_output_over_a_foreign_file_is_refused(
    case: tuple[str, str], command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run", four())
    write_questions(tmp_path, 12).rename("q.jsonl")
    Path("p.jsonl").write_text('{"id": "q0", "answer": "Town 1"}\n')
    Path("docs").mkdir()
    Path("docs/a.txt").write_text("Ulm lies on the Danube.\n")
    Path("foreign").write_text(FOREIGN)
    with FakeServer() as server:
        lm = f"--lm openai/fake --api-base {server.url}"
        Path("s.yaml").write_text(
            f"data_file: q.jsonl\ndataset: jsonl\nlm: openai/fake\napi_base: '{server.url}'\n"
            "matrix: {program: [direct, vanilla]}\n"
        )
        words = CASES[case].replace("DATA", f"--dataset jsonl --data-file q.jsonl {lm}")
        words = words.replace("LM", lm).replace("RUN", "run")
        code, _, err = command(*[{"F": "foreign"}.get(word, word) for word in words.split()])
        asked = len(server.hits)
    assert Path("foreign").read_text() == FOREIGN
    assert (code, asked) == (2, 0), err
    assert "foreign" in err.splitlines()[-1]


def test_questions_without_a_question_leave_the_file(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    for name, text in {"a": "Ulm lies on the Danube.", "b": "The Danube ends in Sulina."}.items():
        Path(f"docs/{name}.txt").write_text(f"{text}\n")
    out = tmp_path / "q.jsonl"
    out.write_text(FOREIGN)

    def unreadable(hit: Hit) -> str:
        return "no field at all"

    with FakeServer(unreadable) as server:
        words = ["questions", "docs", "--lm", "openai/fake", "--api-base", server.url, "-o", out]
        assert command(*words)[0] == 2
        command(*words, "--force")
    assert out.read_text() == FOREIGN


def test_output_is_replaced_if_unchanged_or_forced(tmp_path: Path) -> None:
    out = Output(tmp_path / "x.html", "report")
    assert out.write(b"one") == 3
    out.write([b"t", b"wo"])
    assert out.path.read_bytes() == b"two"
    with pytest.raises(ConfigError, match="export` wrote it"):
        Output(out.path, "export").write(b"other")
    with pytest.raises(ConfigError, match="nothing to write"):
        out.write(iter([b""]))
    out.path.write_bytes(b"edited")
    with pytest.raises(ConfigError, match="--force"):
        out.write(b"three")
    Output(out.path, "report", force=True).write(b"three")
    assert [path.name for path in tmp_path.iterdir() if "x.html" in path.name] == ["x.html"]


def test_output_over_a_link_or_a_file_of_a_run_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text(FOREIGN)
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(ConfigError):
        Output(link, "report").write(b"x")
    run = make_run(tmp_path / "run", four())
    with pytest.raises(RunError, match="is a file of"):
        Output(run / "run.db", "export", force=True).write(b"x")
    assert target.read_text() == FOREIGN
