"""Examples run whole, over a server on loopback."""

import json
import os
import re
import runpy
import shutil
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ragbench.data import DataSettings, load_dataset
from ragbench.experiments.cells.sweep_file import load_sweep
from tests.fake_server import FakeServer, Fault
from tests.page_world import knowing, write_files

FOLDER = Path(__file__).parents[1] / "examples"
COMPILED = Path(__file__).parent / "goldens/compiled/vanilla"
GIVEN = '{"lm": "openai/gpt-4o-mini"}'


def code_of(path: Path) -> list[str]:
    """The code of a script, or of each cell of a notebook."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return [text]
    book = json.loads(text)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert all(cell.get("outputs", []) == [] for cell in book["cells"])
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize(
    "name", ["ten_lines.py", "evaluate_and_compare.ipynb", "own_program.ipynb"]
)
def test_it_runs_from_the_first_cell_to_the_last(
    name: str, server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    cells = code_of(FOLDER / name)
    server.script = knowing(
        {example.question: example.answers[0] for example in load_dataset(DataSettings()).questions}
    )
    assert sum(GIVEN in cell for cell in cells) == 1
    given = f'{{"lm": "openai/fake", "api_base": {server.url!r}}}'
    for number, cell in enumerate(cells, 1):
        exec(compile(cell.replace(GIVEN, given), f"{name}, cell {number}", "exec"), names)
    assert len(server.hits) > 10
    assert len([*tmp_path.glob("runs/*/run.db")]) >= 2
    if name == "ten_lines.py":
        assert "f1: +0.000" in capsys.readouterr().out
        assert len((tmp_path / "ircot.csv").read_text("utf-8").splitlines()) > 20
    elif name == "own_program.ipynb":
        assert "4 demonstrations" in capsys.readouterr().out
        assert names["compiled"].evaluation.card.compiled
        sidecar = json.loads((names["folder"] / "sidecar.json").read_text("utf-8"))
        assert sidecar["cost"]["as_if"]["zero_shot"]["calls"] == 2 * 8


def test_a_compiled_program_is_served_over_http(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uvicorn

    Path("contracts").mkdir()
    Path("contracts/lease.txt").write_text("The notice is three months.\n")
    places = {"PROGRAM": COMPILED, "DOCS": "contracts"}
    for name, value in {**places, "LM": "openai/fake", "LM_BASE_URL": server.url}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
    app = runpy.run_path(str(FOLDER / "serve.py"))["app"]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=served.run, kwargs={"sockets": [listening]})
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/ask"
        with ThreadPoolExecutor(4) as threads:
            question = {"question": "What is the notice?"}
            replies = list(threads.map(lambda _: httpx.post(address, json=question), range(4)))
        server.script = lambda hit: Fault("400")
        refused = httpx.post(address, json={"question": "And this?"})
        malformed = httpx.post(address, json={"query": 1})
        served.should_exit = True
        thread.join()
    for reply in replies:
        body = reply.json()
        assert (reply.status_code, body["answer"]) == (200, "some answer")
        assert [source["title"] for source in body["sources"]] == ["lease"]
    assert "three months" in server.hits[0].prompt
    assert len(server.hits[0].body["messages"]) > 2  # what was compiled
    assert (refused.status_code, malformed.status_code) == (502, 422)
    assert "sk-of-the-test" not in refused.text


def test_prompts_of_a_compiled_program_are_written_as_messages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["export_messages.py", str(COMPILED)])
    runpy.run_path(str(FOLDER / "export_messages.py"), run_name="__main__")
    [messages] = json.loads(capsys.readouterr().out).values()
    assert messages[0]["role"] == "system"
    assert len(messages) > 2  # its demonstrations
    assert "{{question}}" in messages[-1]["content"]


def test_mcp_server_evaluates_until_its_limit_of_calls(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import anyio
    import mcp

    env = {name: os.environ[name] for name in ("PATH", "RAGBENCH_CACHE")}
    env |= {"OPENAI_API_KEY": "sk-of-the-test", "PYTHONPATH": str(FOLDER.parent)}
    words = [str(FOLDER / "mcp_server.py"), f"openai/fake@{server.url}", "3"]
    started = mcp.StdioServerParameters(command=sys.executable, args=words, env=env)

    async def talk() -> None:
        async with mcp.Client(mcp.stdio_client(started)) as client:

            async def call(tool: str, **arguments: object) -> tuple[bool, str]:
                result = await client.call_tool(tool, arguments)
                return not result.is_error, "\n".join(part.text for part in result.content)

            assert "vanilla" in (await call("programs"))[1]
            done, text = await call("evaluate", program="vanilla", limit=2)
            assert done, text
            assert "| vanilla" in text
            folders = [text.splitlines()[0]]
            done, text = await call("evaluate", program="direct", limit=2)
            assert done, text
            folders.append(text.splitlines()[0])
            assert len(server.hits) == 3
            refused = await call("evaluate", program="react", limit=2)
            assert refused[0] is False
            assert "the limit of 3 calls is reached" in refused[1]
            assert (await call("evaluate", program="own.py:Mine"))[0] is False
            assert (await call("compare", a=folders[0], b=folders[0]))[0]

    anyio.run(talk)
    assert len(server.hits) == 3


@pytest.mark.parametrize("program", ["self_rag", "react"])
def test_a_sweep_file_takes_a_program_over_three_retrievers(program: str) -> None:
    path = f"{program}_retrievers"
    subset, whole = load_sweep(path), load_sweep(path, over={"limit": None})
    for sweep, limit in ((subset, 500), (whole, None)):
        assert [cell.config.retriever for cell in sweep.cells] == ["bm25", "dense", "hybrid"]
        assert {cell.config.program for cell in sweep.cells} == {program}
        assert {cell.config.limit for cell in sweep.cells} == {limit}
        assert len(sweep.pairs) == 2
    # The whole continues the subset: what was asked is not asked again.
    assert [c.folder for c in subset.cells] == [c.folder for c in whole.cells]


def test_gallery_has_a_line_and_a_command_for_every_example() -> None:
    page = (FOLDER.parent / "docs" / "gallery.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| [^|]+ \| [^|]*\1|^\| `(gate.yml)` ", page, re.MULTILINE)
    listed = {first or second for first, second in rows}
    modules = {"serve.py"}  # named as a module in its command
    files = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert listed | modules == files
    assert "uvicorn serve:app" in page


def test_transfer_sweep_compares_each_model_and_data_set_with_the_uncompiled_program(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(COMPILED, "compiled/mine")
    text = (
        (FOLDER / "transfer.yaml").read_text("utf-8").replace("program: ircot", "program: vanilla")
    )
    Path("transfer.yaml").write_text(text)
    write_files()
    Path("dev.jsonl").rename("musique_ans_v1.0_dev.jsonl")
    code, out, err = command("sweep", "transfer.yaml", "--dry-run")
    assert code == 0, err
    assert out.count("gpt-4.1-nano") >= 4


SIGNED = re.compile(r":[+]z?[,]?[.]\d+[f%]")


def test_signed_number_if_it_rounds_to_zero_has_no_minus() -> None:
    root = FOLDER.parent
    files = [
        path
        for name in ("ragbench", "examples", "benchmarks")
        for path in (root / name).rglob("*.py")
    ]
    formats = {path: SIGNED.findall(path.read_text("utf-8")) for path in files}
    assert sum(map(len, formats.values())) >= 9
    unsafe = {
        path.name: found for path, found in formats.items() if any("z" not in f for f in found)
    }
    assert unsafe == {}, "use `+z`, which prints -0.0001 as +0.000"
