"""Code that the user names: it is what runs, and nothing runs that the user did not name."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import ragbench as rb
from ragbench import user_code
from ragbench.cli.main import COMMANDS, cli
from ragbench.errors import ConfigError
from ragbench.programs import PROGRAMS
from tests.fake_server import FakeServer

MODULE = """
import dspy

class Own(dspy.Module):
    def forward(self, question):
        return dspy.Prediction(answer="ANSWER")
"""
#: Commands that are given run folders, and those that are not.
READERS = {
    "compare", "compiled", "doctor", "errors", "export", "recommend", "report", "runs", "score",
    "show", "summarize",
}  # fmt: skip
OTHERS = {
    "ask", "compile", "data", "demo", "eval", "import", "index", "list", "models", "retrieve",
    "search", "sweep", "tune", "verdict", "view",
}  # fmt: skip


def asked(server: FakeServer, spec: str, limit: int = 2) -> list[str | None]:
    """The answers of the program `spec`, in the folder `run`."""
    run = rb.evaluate(spec, lm="hosted_vllm/fake", api_base=server.url, limit=limit, size=100)
    return [record.answer for record in run.records]


@pytest.mark.parametrize("spec", ["own.py:Own", "own:Own"])
def test_an_edited_module_or_file_that_it_imports_is_another_program(
    server: FakeServer, spec: str
) -> None:
    Path("own.py").write_text(MODULE.replace("ANSWER", "old"))
    assert asked(server, spec) == ["old", "old"]
    text = MODULE.replace('"ANSWER"', "ANSWER")
    Path("helper_of_own.py").write_text("ANSWER = 'newer'")
    Path("own.py").write_text(f"from helper_of_own import ANSWER\n{text}")
    assert asked(server, spec) == ["newer", "newer"]
    Path("helper_of_own.py").write_text("ANSWER = 'another'")
    assert asked(server, spec, limit=3) == ["another"] * 3
    for name in ("own", "helper_of_own"):
        sys.modules.pop(name, None)


def test_no_command_over_folders_runs_the_code_that_they_name(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(COMMANDS) <= READERS | OTHERS, "say whether the new command is given run folders"
    Path("own.py").write_text(MODULE)
    run = rb.evaluate(
        "own.py:Own", lm="hosted_vllm/fake", api_base=server.url, limit=2, size=100, out="run"
    )
    compiled = _compiled(Path("compiled"))
    marker = Path("was_imported")
    Path("own.py").write_text(f"open({str(marker)!r}, 'w').close()\n{MODULE}")
    monkeypatch.setattr(user_code, "_allowed", set())
    for name in sorted(READERS & set(COMMANDS)):
        for folders in ([str(run.folder)], [str(run.folder)] * 2, [str(compiled)], ["."]):
            given = ["run", *folders] if name == "show" else folders
            result = CliRunner().invoke(cli, [name, *given])
            assert not marker.exists(), (name, given)
            assert not isinstance(result.exception, AttributeError), (name, given)
    for more in ([], ["--limit", "1", "--lm", "hosted_vllm/fake"]):
        result = CliRunner().invoke(cli, ["eval", "--compiled", str(compiled), *more])
        assert "give --program own.py:Own if you trust it" in str(result.exception)
    with pytest.raises(ConfigError, match="was not loaded"):
        PROGRAMS.get("own.py:Own")
    assert not marker.exists()


def _compiled(folder: Path) -> Path:
    """A compiled program's folder, as it would arrive from a stranger."""
    shipped = Path(rb.__file__).parent / "experiments/config/shipped/compiled/vanilla"
    folder.mkdir()
    for name in ("program.json", "sidecar.json"):
        (folder / name).write_text((shipped / name).read_text())
    sidecar = json.loads((folder / "sidecar.json").read_text())
    sidecar = {**sidecar, "program": "own.py:Own"}
    (folder / "sidecar.json").write_text(json.dumps(sidecar))
    return folder
