"""Commands whose calls to files are made to fail, beside those of `tests.kills`.

Those that build indexes have their cache folder where faults and kills reach it; their finished
work are the replies and vectors that were paid for.
"""

import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.kills import (
    Finished,
    Job,
    Make,
    compile_job,
    eval_job,
    judge_job,
    sweep_job,
    write_questions,
)
from tests.runs import record_rows


def bootstrap_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench compile`; the lines of its journal are not to outlive the machine."""
    job = compile_job(folder, url, n, optimizer="bootstrap")
    return replace(job, finished=dict, summary=(folder / "compiled" / "program.json").read_text)


def index_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench retrieve --build` of BM25 and of vectors from a server."""
    settings = f"dense=dense(embedder=openai/fake-embedder,api_base={url})"
    argv = ["retrieve", "--build", "--retriever", "hybrid", "--retriever-set", settings]
    return _building(folder, [*argv, *_pooled(folder, n)], lambda: "")


def tree_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench eval` of one question with a tree of summaries over `n` passages."""
    return _eval_job(folder, url, n, "tree_rag", "cluster_tokens=50", "top_size=4")


def graph_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench eval` of one question with a graph of entities that the LM reads off `n` passages.

    One of fewer than 100 passages is not stored, but the replies are.
    """
    return _eval_job(folder, url, n, "linear_rag")


def primed(folder: Path, url: str, n: int) -> Job:
    """A run before the others, so that the cache of answers is there: to make it takes long."""
    argv = ["eval", "--program", "direct", *_pooled(folder, n), "--limit", "1", "--adapter", "chat"]
    argv += ["--lm", "openai/fake", "--api-base", url, "--out", str(folder / "first")]
    return _building(folder, argv, lambda: "")


def _pooled(folder: Path, n: int) -> list[str]:
    data = str(write_questions(folder, n))
    return ["--dataset", "jsonl", "--data-file", data, "--setting", "pooled"]


def _eval_job(folder: Path, url: str, n: int, program: str, *knobs: str) -> Job:
    out = folder / "run"
    argv = ["eval", "--program", program, *_pooled(folder, n), "--limit", "1", "--no-cache"]
    argv += ["--lm", "openai/fake", "--api-base", url, "--workers", "2", "--adapter", "json"]
    argv += ["--out", str(out)]
    for knob in ("embedder=openai/fake-embedder", f"embedder_base={url}", *knobs):
        argv += ["--set", knob]

    def answers() -> str:
        rows = record_rows(out)
        tokens = ("prompt_tokens", "completion_tokens")
        calls = [[each[name] for name in tokens] for row in rows for each in row["ledger"]["calls"]]
        hits = [each["hits"] for row in rows for each in row["searches"]]
        return json.dumps([[row["answer"], row["failure"]] for row in rows] + hits + calls)

    return _building(folder, argv, answers)


def _building(folder: Path, argv: list[str], answers: Callable[[], str]) -> Job:
    cache = folder / "cache"
    return Job(
        argv=argv,
        finished=lambda: _bought(cache),
        summary=lambda: json.dumps([_indexes(cache / "indexes"), answers()]),
        replays=lambda hit: "input" in hit.body or "ntities" in hit.prompt,
        cache=cache,
    )


def _indexes(folder: Path) -> dict[str, str]:
    """Every stored index with a digest of what is in it; anything left over beside them, too."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            files = {
                file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                for file in sorted(path.iterdir())
                if file.name not in ("manifest.json", "checked.json", "calls.json")
            }
            found[path.name] = json.dumps(files)
        elif ".lock" not in path.name and ".sqlite" not in path.name:
            found[path.name] = "left over"
    return found


def _bought(cache: Path) -> Finished:
    """What is kept of replies and vectors, by key."""
    found = {}
    for path in (cache / "indexes/replies.sqlite", cache / "embeddings.sqlite"):
        with tempfile.TemporaryDirectory() as folder:  # to open the file itself would mend it
            for file in path.parent.glob(f"{path.name}*"):
                shutil.copy(file, folder)
            try:
                with closing(sqlite3.connect(Path(folder, path.name))) as db:
                    rows = db.execute("SELECT * FROM kept").fetchall()
            except sqlite3.Error:
                continue
        found.update({f"{path.name} {row[0]!r}": str(row[1:]) for row in rows})
    return found


#: Command -> the job, what must have run before it, and how many questions its data set has.
JOBS: dict[str, tuple[Make, Make | None, int]] = {
    "eval": (eval_job, None, 5),
    "judge": (judge_job, eval_job, 5),
    "compile": (bootstrap_job, None, 20),
    "sweep": (sweep_job, None, 10),
    "index": (index_job, None, 20),
    "tree": (tree_job, primed, 24),
    "graph": (graph_job, primed, 100),
}
