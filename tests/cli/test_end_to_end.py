"""The real chain on the real local model: eval, compile, eval of what was compiled, compare."""

from pathlib import Path

import pytest

from ragbench.lms import RagbenchLM
from tests.cli.test_mistakes import run
from tests.runs import record_rows


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_eval_compile_eval_compare(
    capsys: pytest.CaptureFixture[str], elsewhere: Path, local_lm: RagbenchLM
) -> None:
    common = ["--program", "vanilla", "--k", "2", "--size", "200", "--reply-tokens", "64"]
    code, out, err = run(capsys, "eval", *common, "--limit", "2", "--out", "zero")
    assert code == 0, err
    assert "| vanilla" in out
    first = record_rows(elsewhere / "zero")
    assert len(first) == 2
    assert all(r["failure"] is None and r["answer"] for r in first)
    assert all(call["prompt_tokens"] > 0 for r in first for call in r["ledger"]["calls"])  # type: ignore[index]

    code, _, err = run(
        capsys, "compile", *common, "--optimizer", "labeled", "--train-limit", "2",
        "--val-limit", "1", "--opt-set", "labeled=1", "--out", "compiled",
    )  # fmt: skip
    assert code == 0, err
    code, out, err = run(
        capsys, "eval", "--compiled", "compiled", "--size", "200", "--reply-tokens", "64",
        "--limit", "2", "--out", "one",
    )  # fmt: skip
    assert code == 0, err
    assert "vanilla compiled" in out

    code, out, err = run(capsys, "compare", "zero", "one")
    assert code == 0, err
    assert "no difference shown" in out
