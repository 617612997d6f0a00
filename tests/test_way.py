"""The files of ragbench that one question passes, held to a number."""

from pathlib import Path

import pytest

import ragbench
from benchmarks.way import Way, followed
from tests.fake_server import FakeServer, plausible

#: Number that may only become smaller.
MOST_FILES = 30


def test_question_to_vanilla_passes_a_bounded_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    way = Way(("asking.py", "ask_one"))
    with FakeServer(plausible) as server, followed(way):
        ragbench.evaluate(
            "vanilla", "synthetic", lm="openai/fake", api_base=server.url, cache=False, limit=1,
            workers=1, out=tmp_path / "run",
        )  # fmt: skip
    files = sorted({Path(code.co_filename).name for code in way.code})
    assert 10 < len({code.co_filename for code in way.code}) <= MOST_FILES, files
