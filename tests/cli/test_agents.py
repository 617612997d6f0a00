"""`ragbench mcp` as an agent has it: the official client, over standard input and output."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client

from tests.fake_server import FakeServer
from tests.kills import write_questions

ROOT = Path(__file__).parents[2]
Call = Callable[..., Awaitable[tuple[bool, str]]]


EVIL = {"embedder_base": "http://evil"}


def talk(words: list[str], session: Callable[[Client, Call], Awaitable[None]]) -> None:
    """Start the server with `words` in the working folder, and let `session` talk to it."""
    env = {"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "sk-of-the-test-0123456789"}
    env["RAGBENCH_CACHE"] = os.environ["RAGBENCH_CACHE"]
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "ragbench", "mcp", *words], env=env, cwd=Path.cwd()
    )

    async def main() -> None:
        async with Client(stdio_client(server)) as client:

            async def call(tool: str, **arguments: Any) -> tuple[bool, str]:
                result = await client.call_tool(tool, arguments)
                text = "\n".join(part.text for part in result.content)
                assert "sk-of-the-test" not in text
                return not result.is_error, text

            await session(client, call)

    anyio.run(main)


def test_an_agent_lists_estimates_runs_compares_and_is_advised_within_the_limit(
    server: FakeServer, tmp_path: Path
) -> None:
    data = str(write_questions(tmp_path, 4).relative_to(tmp_path))
    asked = {"data_file": data, "dataset": "jsonl", "limit": 4, "retriever": "bm25"}

    async def session(client: Client, call: Call) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {*tools} == {"list", "estimate", "run", "table", "compare", "advice", "questions"}
        assert all(tool.description for tool in tools.values())
        assert "vanilla  " in (await call("list", kind="programs"))[1]
        estimate = await call("estimate", request={"program": "vanilla", **asked})
        assert estimate[0]
        assert "4 questions" in estimate[1]
        assert len(server.hits) == 0
        done, text = await call("run", request={"program": "vanilla", **asked})
        assert done, text
        assert "spent of" in text
        assert len(server.hits) == 4
        folders = [line for line in text.splitlines() if line.startswith("folder: ")]
        again = await call("run", request={"program": "vanilla", **asked})
        assert again[1].splitlines()[0] == folders[0]
        assert len(server.hits) == 4  # nothing is asked twice
        done, text = await call("run", request={"program": "direct", **asked})
        assert (done, len(server.hits)) == (True, 8)
        folders += [line for line in text.splitlines() if line.startswith("folder: ")]
        done, text = await call("run", request={"program": "ircot", **asked})
        assert done, text
        assert "stopped by --max-calls 10" in text
        assert len(server.hits) == 10
        refused = await call("run", request={"program": "react", **asked})
        assert refused[0] is False
        assert "only the person can give a larger limit" in refused[1]
        runs = [folder.removeprefix("folder: ") for folder in folders]
        assert runs[0] in (await call("list", kind="runs"))[1]
        for tool, word in (("table", "| vanilla"), ("compare", "em"), ("advice", "vanilla")):
            done, text = await call(tool, runs=runs)
            assert done, text
            assert word in text
        assert len(server.hits) == 10

    talk(["--lm", "openai/fake", "--api-base", server.url, "--max-calls", "10"], session)


def test_what_the_person_did_not_open_stays_shut(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('was run')")
    (tmp_path / "out").symlink_to("/etc")
    program = {"program": "vanilla", "limit": 1}

    async def session(client: Client, call: Call) -> None:
        wrong: list[tuple[str, dict[str, Any], str]] = [
            ("run", {"request": program}, "the person gave no limit"),
            ("questions", {"docs": ".", "output": "q.jsonl"}, "the person gave no limit"),
            ("questions", {"docs": ".", "output": "own.py"}, "no file of JSON lines"),
            ("run", {"request": {**program, "lm": "openai/gpt-4o"}}, "was not allowed"),
            ("run", {"request": {**program, "lm": "openai/fake@http://evil"}}, "was not allowed"),
            ("run", {"request": {"program": "own.py:Mine"}}, "external code"),
            ("estimate", {"request": {**program, "retriever": "own.py:Mine"}}, "external code"),
            (
                "estimate",
                {"request": {**program, "docs": "/etc", "data_file": "q"}},
                "is outside of",
            ),
            ("estimate", {"request": {**program, "data_file": "out/passwd"}}, "is outside of"),
            ("advice", {"runs": ["a", "b"], "metric": "own.py:mine"}, "external code"),
            ("compare", {"runs": ["a", "b"], "metrics": ["own.py:mine"]}, "external code"),
            (
                "run",
                {"request": {"program": "raptor", "knobs": EVIL}},
                "the call sets embedder_base",
            ),
            ("estimate", {"request": {"program": "vanila"}}, "did you mean vanilla"),
            ("table", {"runs": ["../x"]}, "is outside of"),
            ("table", {"runs": ["runs/none"]}, "not a run folder"),
            ("compare", {"runs": []}, "at least 1 item"),
        ]
        for tool, arguments, why in wrong:
            done, text = await call(tool, **arguments)
            assert not done, (tool, arguments)
            assert why in text, text
        assert server.hits == []

    talk(["--lm", "openai/fake", "--api-base", server.url], session)
