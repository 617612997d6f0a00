"""The twenty tasks of a new user, as docs/tasks.md has them, in order, over a loopback server."""

import json
import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from tests.fake_server import FakeServer
from tests.kills import script

PAGE = Path(__file__).parents[1] / "docs" / "tasks.md"
MODEL = "openai/gpt-4o-mini"
N = 12


def files() -> None:
    """What the page says that there is, in the working folder."""
    questions = [f"Which town number {i} lies on river number {i}?" for i in range(N)]
    passages = [(f"Town {i}", f"Town {i} lies on river number {i}.") for i in range(N)]
    rows = [f"c{i},{question},Town {i}" for i, question in enumerate(questions)]
    Path("questions.csv").write_text("\n".join(["id,question,answer", *rows]) + "\n")
    rows = [f"p{i},{title},{text}" for i, (title, text) in enumerate(passages)]
    Path("passages.csv").write_text("\n".join(["id,title,text", *rows]) + "\n")
    hotpot = [
        {
            "_id": f"h{i}", "question": question, "answer": f"Town {i}", "type": "bridge",
            "level": "easy", "supporting_facts": [[passages[i][0], 0]],
            "context": [[title, [text]] for title, text in (passages[i], passages[i - 1])],
        }
        for i, question in enumerate(questions)
    ]  # fmt: skip
    Path("dev.json").write_text(json.dumps(hotpot))
    Path("contracts").mkdir()
    Path("contracts/lease.txt").write_text("The notice is three months.\n")


def blocks() -> list[tuple[str, str]]:
    """Language and text of every block of the page, in order."""
    found = re.findall(r"^( *)```(\w+)\n(.*?)^\1```", PAGE.read_text("utf-8"), re.M | re.S)
    return [(language, textwrap.dedent(text)) for _, language, text in found]


def test_each_is_done_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    files()
    numbers = re.findall(r"^(\d+)\. ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 21))
    said: dict[str, str] = {}
    with FakeServer(script) as server:
        for number, (language, text) in enumerate(blocks()):
            if number == 0:
                Path("rag.py").write_text(text)
            elif language == "python":
                names: dict[str, Any] = {"__name__": "task"}
                text = text.replace("lm=lm)", f"lm=lm, api_base={server.url!r})")
                exec(compile(text, f"block {number}", "exec"), names)
            else:
                for line in text.strip().splitlines():
                    said[line] = typed(line, server.url)
    printed = capsys.readouterr().out
    assert "4 demonstrations" in printed
    assert json.loads(Path("runs/whole/card.json").read_text())["questions"] == N
    assert json.loads(Path("runs/csv/card.json").read_text())["questions"] == N
    assert json.loads(Path("runs/compiled/card.json").read_text())["questions"] < N
    assert "\\begin{tabular}" in next(v for k, v in said.items() if "latex" in k)
    assert "Which town number 3" in said["ragbench show run runs/whole h3"]
    assert "nothing is wrong" in said["ragbench doctor runs/whole runs/mine"]
    assert "three months" in next(v for k, v in said.items() if k.startswith("ragbench ask"))


def typed(line: str, url: str) -> str:
    """What a command prints, with the server in the place of the provider."""
    words = shlex.split(line)[1:]
    words = [f"{word}@{url}" if word.endswith(f"={MODEL}") else word for word in words]
    if MODEL in words:
        words += ["--model-base-url", url]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, (line, done.output, done.exception)
    return done.output
