"""The real chain on the real local model: eval, compile, eval of what was compiled, compare."""

from pathlib import Path

import pytest

from ragbench.lms import RagbenchLM
from tests.cli.test_mistakes import run
from tests.runs import record_rows


@pytest.mark.slow
def test_eval_compile_eval_compare(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    local_lm: RagbenchLM,
) -> None:
    monkeypatch.chdir(tmp_path)

    def ragbench(words: str) -> str:
        code, out, err = run(capsys, *words.split())
        assert code == 0, err
        return out

    sizes = "--size 200 --reply-tokens 64"
    common = f"--program vanilla --k 2 {sizes}"
    assert "| vanilla" in ragbench(f"eval {common} --limit 2 --out zero")
    first = record_rows(tmp_path / "zero")
    assert len(first) == 2
    assert all(r["failure"] is None and r["answer"] for r in first)
    assert all(call["prompt_tokens"] > 0 for r in first for call in r["ledger"]["calls"])
    small = "--train-limit 2 --val-limit 1 --opt-set labeled=1"
    ragbench(f"compile {common} --optimizer labeled {small} --out compiled")
    assert "vanilla compiled" in ragbench(f"eval --compiled compiled {sizes} --limit 2 --out one")
    assert "no difference shown" in ragbench("compare zero one")
