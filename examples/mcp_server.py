"""Tools for a coding agent (Model Context Protocol), which makes at most so many LM calls.

pip install . mcp   # in a checkout of ragbench
claude mcp add ragbench -- python mcp_server.py openai/gpt-4o-mini 500
"""

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import ragbench as rb
from ragbench.errors import RagbenchError
from ragbench.programs import PROGRAMS

LM, CALLS = sys.argv[1], int(sys.argv[2])
server = MCPServer("ragbench", log_level="WARNING")
spent: dict[str, int] = {}


@server.tool()
def programs() -> list[str]:
    """List the programs."""
    return PROGRAMS.names()


@server.tool()
def evaluate(program: str, dataset: str = "synthetic", limit: int = 20) -> str:
    """Run a program over the first questions of a data set; repeat the call to continue it."""
    if program not in PROGRAMS.names():  # no code of a file is loaded
        raise ToolError(f"no program {program!r}; programs() lists them")
    left = CALLS - sum(spent.values())
    if left <= 0:
        raise ToolError(f"the limit of {CALLS} calls is reached")
    try:
        run = rb.evaluate(program, rb.load_dataset(dataset), lm=LM, limit=limit, max_calls=left)
    except RagbenchError as error:
        raise ToolError(str(error)) from None
    spent[str(run.folder)] = run.evaluation.summary.billed.calls
    return f"{run.folder}\n{rb.table(run)}"


@server.tool()
def compare(a: str, b: str) -> str:
    """Compare two runs, question by question."""
    scores = rb.compare(a, b).scores
    return "\n".join(f"{name}: {c.difference:+z.3f}, {c.verdict}" for name, c in scores.items())


@server.tool()
def recommend(runs: list[str]) -> str:
    """Recommend the cheapest program that is about as good as the best."""
    return "\n".join(rb.recommend(*runs).sentences())


if __name__ == "__main__":
    server.run("stdio")
