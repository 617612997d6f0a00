"""Child processes import nothing from the working folder and get no key that they do not need."""

import ast
from pathlib import Path

import pytest

from ragbench.children import available_cores, child_environment
from ragbench.errors import ModelError
from ragbench.experiments.config import make_config
from ragbench.experiments.runs.runner import evaluate
from ragbench.lms import local
from ragbench.programs.rlm_repl.sandbox import Limits, Sandbox
from tests.experiments.towns import write_towns
from tests.fake_server import FakeServer
from tests.trees import trees

NAMES = ("dspy", "ragbench", "yaml", "pydantic", "pip", "json", "multiprocessing", "typing")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose modules write their name into the file that is returned."""
    marker = tmp_path / "ran"
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in NAMES:
        code = f"open({str(marker)!r}, 'a').write({name!r})\nraise SystemExit(3)\n"
        (folder / f"{name}.py").write_text(code)
    monkeypatch.chdir(folder)
    return marker


def test_shards_in_a_hostile_folder_import_nothing_from_it(hostile: Path, tmp_path: Path) -> None:
    questions = write_towns(tmp_path)
    with FakeServer() as server:
        config = make_config(
            {
                "program": "vanilla", "dataset": "jsonl", "data_file": questions, "split": "all",
                "limit": 4, "lm": "openai/fake", "api_base": server.url, "processes": 2,
                "out": tmp_path / "run",
            }
        )  # fmt: skip
        found = evaluate(config)
    assert len(found.records) == 4
    assert not hostile.exists()


@pytest.mark.parametrize(
    ("text", "cores"),
    [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None), ("x", None)],
)
def test_cores_are_those_of_the_container(text: str, cores: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    unlimited = available_cores(tmp_path / "absent")
    assert available_cores(tmp_path / "cpu.max") == (cores or unlimited)


def test_pip_in_a_hostile_folder_is_the_installed_one(hostile: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pip could not download"):
        local._pip_download("/nowhere/none.whl", tmp_path)
    assert not hostile.exists()


def test_sandbox_in_a_hostile_folder_runs_its_own_worker(hostile: Path) -> None:
    sandbox = Sandbox(Limits())
    try:
        assert "3" in str(sandbox.execute("print(1 + 2)"))
    finally:
        sandbox.shutdown()
    assert not hostile.exists()


def test_child_environment_has_only_the_named_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "db_password"):
        monkeypatch.setenv(name, "canary")
    environment = child_environment(["HF_TOKEN"])
    keys = {name for name, value in environment.items() if value == "canary"}
    assert keys == {"HF_TOKEN"}
    assert "PATH" in environment


def test_every_child_process_of_python_is_built_in_one_place() -> None:
    """`sys.executable` occurs only in `children`, so no child can lack `-P`."""
    for path, tree in trees().items():
        attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        names = {ast.unparse(node) for node in attributes if node.attr == "executable"}
        assert path.name == "children.py" or "sys.executable" not in names, path
