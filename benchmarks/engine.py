"""What the harness costs beside the model: `ragbench eval` against plain `dspy.Evaluate`.

    python -m benchmarks.engine                       # 2,000 questions, 100 ms a call, 64 threads
    python -m benchmarks.engine --latency 1 --workers 256 --questions 2560
    python -m benchmarks.engine --processes 2 --inspect ENVIRONMENT/bin/python

An LM server in a process of its own answers after a fixed latency. Each side is a process that asks
it the same questions, one call each (`direct`; `dspy.Predict` with exact match); they take turns,
and each is shown by its median and range. An unmeasured run of ten questions writes the bytecode.
CPU is that of the whole process, start included, and of
its workers; *ideal* is calls x latency / workers. `--processes` adds `ragbench eval --processes`,
and `--inspect` an evaluation by inspect_ai, by the Python of an environment that has it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from benchmarks import loopback

ROOT = Path(__file__).resolve().parents[1]
SERVER_ARGUMENT, PLAIN_ARGUMENT = "--as-server", "--as-plain-dspy"
INSPECT_ARGUMENT = "--as-inspect"


def plain_dspy(url: str, questions: str, workers: str) -> None:
    """The named alternative: a dozen lines of DSPy over the same questions."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"
    import dspy

    lm = dspy.LM("openai/fake", api_base=url, api_key="none", cache=False)
    dspy.configure(lm=lm)
    rows = map(json.loads, Path(questions).read_text().splitlines())
    devset = [dspy.Example(**row).with_inputs("question") for row in rows]
    evaluate = dspy.Evaluate(
        devset=devset,
        metric=lambda example, prediction, trace=None: prediction.answer == example.answer,
        num_threads=int(workers),
    )
    evaluate(dspy.Predict("question -> answer"))


def by_inspect(url: str, questions: str, workers: str) -> None:
    """Another harness: `generate` and `match` of inspect_ai over the same questions."""
    from inspect_ai import Task, eval as run
    from inspect_ai.dataset import Sample
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate

    rows = map(json.loads, Path(questions).read_text().splitlines())
    samples = [Sample(id=r["id"], input=r["question"], target=r["answer"]) for r in rows]
    task = Task(dataset=samples, solver=generate(), scorer=match(location="any"))
    config = GenerateConfig(max_connections=int(workers))
    model = get_model("openai-api/fake/fake", base_url=url, api_key="none", config=config)
    (log,) = run(task, model=model, display="none", max_samples=int(workers))
    assert log.status == "success", log.error


@dataclass(frozen=True)
class Used:
    """What one process took: seconds of wall and of CPU, and its largest memory in MB."""

    wall_s: float
    cpu_s: float
    memory_mb: float


def timed(command: list[str], folder: str) -> Used:
    """Run `command` to its end.

    Raises:
        RuntimeError: it failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
    # Every side starts from bytecode, like an installed package.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
    start = time.monotonic()
    child = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{command} failed")
    cpu = used.ru_utime + used.ru_stime
    return Used(time.monotonic() - start, cpu, used.ru_maxrss / 1024)


def commands(
    url: str, questions: str, workers: int, out: str, *, processes: int = 1, inspect: str = ""
) -> dict[str, list[str]]:
    """The sides; `out` is a new folder."""
    corpus = str(Path(questions).with_name("corpus.json"))
    ours = ["--program", "direct", "--data-file", questions]
    ours += ["--setting", "pooled", "--corpus-file", corpus]
    ours += ["--lm", "openai/fake", "--api-base", url, "--adapter", "chat", "--no-cache"]
    ours += ["--workers", str(workers)]
    asked = [url, questions, str(workers)]
    sides = {
        "plain dspy.Evaluate": [sys.executable, __file__, PLAIN_ARGUMENT, *asked],
        "ragbench eval": [sys.executable, "-m", "ragbench", "eval", *ours, "--out", out],
    }
    if processes > 1:
        more = ["--processes", str(processes), "--out", f"{out}-spread"]
        sides["its processes"] = [sys.executable, "-m", "ragbench", "eval", *ours, *more]
    if inspect:
        sides["inspect_ai"] = [inspect, __file__, INSPECT_ARGUMENT, *asked]
    return sides


def shown(values: list[float], form: str) -> str:
    """Median and range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def report(used: dict[str, list[Used]], questions: int, ideal_s: float) -> None:
    """Print a line for each side, and the ratios."""
    for name, runs in used.items():
        cpu = shown([1000 * run.cpu_s / questions for run in runs], ".2f")
        wall = shown([run.wall_s for run in runs], ".1f")
        memory = shown([run.memory_mb for run in runs], ".0f")
        print(f"{name:20} CPU ms a question {cpu}, wall s {wall}, memory MB {memory}")
    plain, ours, *_ = used.values()
    cpu_ratio = statistics.median(b.cpu_s / a.cpu_s for a, b in zip(plain, ours, strict=True))
    floors = [max(run.wall_s, ideal_s) for run in plain]
    wall_ratio = statistics.median(b.wall_s / a for a, b in zip(floors, ours, strict=True))
    own = statistics.median(run.wall_s for run in ours)
    print(f"CPU: {cpu_ratio:.2f} of plain DSPy's")
    print(f"wall: {wall_ratio:.2f} of the greater of ideal ({ideal_s:.1f} s) and plain DSPy's")
    print(f"wall: {own / ideal_s:.2f} of ideal")


@click.command()
@click.option("--questions", type=int, default=2000, show_default=True)
@click.option("--latency", type=float, default=0.1, show_default=True, help="Seconds a call.")
@click.option("--workers", type=int, default=64, show_default=True)
@click.option("--repeats", type=int, default=3, show_default=True)
@click.option("--processes", type=int, default=1, show_default=True)
@click.option("--inspect", default="", metavar="PYTHON")
def main(
    questions: int, latency: float, workers: int, repeats: int, processes: int, inspect: str
) -> None:
    """Print CPU a question, wall and memory of all sides, and the ratios of the first two."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "questions.jsonl"
        rows = ({"id": str(i), "question": f"What is {i}?", "answer": "Paris"}
                for i in range(questions))  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        first = path.with_name("first.jsonl")  # A run that writes the bytecode
        first.write_text("\n".join(path.read_text().splitlines()[:10]))
        passages = [{"title": "Paris", "text": "Paris is a city."}]
        path.with_name("corpus.json").write_text(json.dumps(passages))
        server = subprocess.Popen(
            [sys.executable, __file__, SERVER_ARGUMENT, str(latency)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        used: dict[str, list[Used]] = {}
        try:
            for turn in range(repeats + 1):
                out = str(Path(folder) / f"run{turn}")
                asked = str(path if turn else first)
                sides = commands(url, asked, workers, out, processes=processes, inspect=inspect)
                for name, command in sides.items():
                    taken = timed(command, folder)
                    if turn:
                        used.setdefault(name, []).append(taken)
        finally:
            server.communicate()
    report(used, questions, questions * latency / workers)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [first, latency] if first == SERVER_ARGUMENT:
            loopback.serve(float(latency))
        case [first, *rest] if first == PLAIN_ARGUMENT:
            plain_dspy(*rest)
        case [first, *rest] if first == INSPECT_ARGUMENT:
            by_inspect(*rest)
        case _:
            main()
