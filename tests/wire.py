"""An LM of a fake server, a question to it, and a run over it."""

from pathlib import Path
from typing import Any

import dspy
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.lms.adapters import make_adapter
from ragbench.lms.factory import make_lm
from ragbench.lms.lm import RagbenchLM
from tests.fake_server import FakeServer
from tests.kills import write_questions

# Made once: a signature of a string is parsed as code, which 3.11 cannot do in many threads.
PREDICT = dspy.Predict("question -> answer")


def ask(lm: dspy.LM, question: str = "Where?") -> str:
    """The answer of `lm`, asked as a chat."""
    with dspy.context(lm=lm, adapter=make_adapter("chat")):
        return str(PREDICT(question=question).answer)


def lm_at(server: FakeServer, **settings: Any) -> RagbenchLM:
    """A model of `server` that is not cached, and waits for nothing before it tries again."""
    lm = make_lm("openai/fake", api_base=server.url, **{"cache": False, **settings})
    lm.metered.caller.base_s = 0.0
    return lm


def eval_towns(folder: Path, server: FakeServer, n: int, *more: object) -> tuple[int, str]:
    """What `eval` over `n` questions ends with and says; its run is `folder`/run."""
    questions = write_questions(folder, 3 * n)  # two fifths of them are the test split
    done = CliRunner().invoke(cli, [
        "eval", "--program", "vanilla", "--no-cache", "--dataset", "jsonl",
        "--data-file", str(questions), "--limit", str(n), "--lm", "openai/fake",
        "--api-base", server.url, "--out", str(folder / "run"), *map(str, more),
    ])  # fmt: skip
    error = done.exception
    return getattr(error, "exit_code", done.exit_code), f"{done.output}{error or ''}"
