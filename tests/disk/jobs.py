"""The commands whose calls to files are made to fail, beside those of `tests.kills`."""

import json
from pathlib import Path

from tests.disk.index_jobs import graph_job, index_job, primed, tree_job
from tests.kills import (
    Job,
    Make,
    compile_job,
    eval_job,
    judge_job,
    sweep_job,
    timeless,
    write_questions,
)


def _job(argv: list[str], result: Path) -> Job:
    """A job of which only the result is looked at."""
    return Job(argv, dict, list, lambda hit: None, lambda: timeless(result))


def _asking(folder: Path, url: str, n: int) -> list[str]:
    data = str(write_questions(folder, n))
    return [
        "--dataset", "jsonl", "--data-file", data, "--api-base", url, "--adapter", "chat",
        "--workers", "1", "--lm", "openai/fake",
    ]  # fmt: skip


def verdict_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench verdict` on one compile."""
    out = folder / "verdict"
    argv = ["verdict", "--program", "vanilla", "--k", "1", "--optimizer", "bootstrap"]
    argv += ["--opt-set", "rounds=1", "--limit", "0", "--out", str(out), *_asking(folder, url, n)]
    job = _job(argv, out / "verdict.json")

    def shown() -> str:
        # What was billed depends on what the cache had when the command was given again.
        found = json.loads(job.summary())
        return json.dumps({k: found[k] for k in ("contrasts", "conclusions", "fixed", "broken")})

    return Job(argv, dict, list, lambda hit: None, shown)


def tune_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench tune` over two values of one knob."""
    out = folder / "tuned"
    argv = ["tune", "--program", "vanilla", "--objective", "f1", "--space", "k=1:2", "--only", "k"]
    argv += ["--trials", "2", "--limit", "4", "--out", str(out), *_asking(folder, url, n)]

    def front() -> str:
        found = [json.loads(path.read_text()) for path in sorted(out.glob("front/*/sidecar.json"))]
        if not found:
            raise ValueError("there is no front")
        return json.dumps([[each["knobs"], each["scores"]] for each in found])

    return Job(argv, dict, list, lambda hit: None, front)


def bootstrap_job(folder: Path, url: str, n: int) -> Job:
    """`ragbench compile`; the lines of its journal are not to outlive the machine."""
    job = compile_job(folder, url, n, optimizer="bootstrap")
    return _job(list(job.argv), folder / "compiled" / "program.json")


#: Command -> the job, what must have run before it, and how many questions its data set has.
JOBS: dict[str, tuple[Make, Make | None, int]] = {
    "eval": (eval_job, None, 5),
    "judge": (judge_job, eval_job, 5),
    "compile": (bootstrap_job, None, 20),
    "sweep": (sweep_job, None, 10),
    "verdict": (verdict_job, None, 20),
    "tune": (tune_job, None, 20),
    "index": (index_job, None, 20),
    "tree": (tree_job, primed, 24),
    "graph": (graph_job, primed, 100),
}
