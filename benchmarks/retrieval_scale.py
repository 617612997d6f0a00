"""A corpus file of generated passages: copied, indexed, loaded, searched, and a run over it.

    python -m benchmarks.retrieval_scale [--passages 1000000] [--queries 300]

The passages come from a JSON lines file and stay on disk, as with `--corpus-file`. Three processes:
one makes the copy and the index, one loads them, one is `ragbench eval --program vanilla` with an
LM server that answers at once. Printed of each are wall and CPU seconds, milliseconds of a single
search (and of the CPU alone), and the most memory: its own, and with the pages of mapped files.
Then the bytes on disk. The bounds for 5.2 million passages (HotpotQA's fullwiki) stand beside.
"""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.engine import SERVER_ARGUMENT
from benchmarks.retrieval_corpus import GeneratedPassages, generated_queries
from ragbench.data import DataSettings, load_dataset
from ragbench.retrievers import Corpus, IndexStore, make_retriever

ROOT = Path(__file__).resolve().parents[1]
BOUNDS = (
    "bounds at 5.2 million: made in 900 s and 12,288 MB; loaded (corpus_s + index_s) in 3 s; "
    "p50_ms 20; a run's own memory 2,048 MB"
)


def memory_mb(pid: int) -> dict[str, float]:
    """What a process holds by itself (`own`), and with the pages of mapped files (`all`)."""
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    held = {row.split(":")[0]: int(row.split()[1]) / 1024 for row in rows if row.startswith("Rss")}
    return {"own": held["RssAnon"], "all": sum(held.values())} if held else {}


def run_measured(command: list[str], environment: dict[str, str]) -> tuple[str, dict[str, float]]:
    """What `command` prints, and its wall and CPU seconds and its most memory in MB.

    Raises:
        RuntimeError: it failed.
    """
    start = time.perf_counter()
    peak = {"own": 0.0, "all": 0.0}
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, stdout=output, env=environment)
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.2):
                for name, value in memory_mb(child.pid).items():
                    peak[name] = max(peak[name], value)

        watcher = threading.Thread(target=watch)
        watcher.start()
        _, status, used = os.wait4(child.pid, 0)
        ended.set()
        watcher.join()
        child.returncode = status
        output.seek(0)
        printed = output.read()
    if status:
        raise RuntimeError(f"{command} failed: {printed[-500:]}")
    took = {"wall_s": time.perf_counter() - start, "cpu_s": used.ru_utime + used.ru_stime}
    return printed, {**took, "own_mb": peak["own"], "all_mb": peak["all"]}


def write_files(n: int, queries: int, folder: Path) -> None:
    """The corpus file, and a question per query."""
    passages = GeneratedPassages(n)
    with (folder / "corpus.jsonl").open("w") as file:
        for passage in passages:
            row = {"id": passage.pid, "title": passage.title, "text": passage.text}
            file.write(json.dumps(row) + "\n")
    with (folder / "questions.jsonl").open("w") as file:
        for i, query in enumerate(generated_queries(Corpus(passages), queries)):
            file.write(json.dumps({"question": f"{query} {i}", "answer": "x"}) + "\n")


def work(folder: Path) -> dict[str, float]:
    """Load the corpus and the index, made first where they are not stored, then search."""
    start, cpu = time.perf_counter(), time.process_time()
    questions, corpus = folder / "questions.jsonl", folder / "corpus.jsonl"
    data = load_dataset(DataSettings(dataset="jsonl", data_file=questions, corpus_file=corpus))
    data.corpus.digest  # noqa: B018 (part of opening an index)
    corpus_s, corpus_cpu_s = time.perf_counter() - start, time.process_time() - cpu
    start, cpu = time.perf_counter(), time.process_time()
    retriever = make_retriever("bm25", data.corpus).build(IndexStore())
    index_s, index_cpu_s = time.perf_counter() - start, time.process_time() - cpu
    first, *queries = [example.question for example in data.questions]
    retriever.search(first, k=10)
    times, cpu_times = [], []
    for query in queries:
        start, cpu = time.perf_counter(), time.thread_time()
        retriever.search(query, k=10)
        times.append(1000 * (time.perf_counter() - start))
        cpu_times.append(1000 * (time.thread_time() - cpu))
    took = {"corpus_s": corpus_s, "corpus_cpu_s": corpus_cpu_s}
    took |= {"index_s": index_s, "index_cpu_s": index_cpu_s}
    p50, p95 = np.percentile(times, [50, 95])
    return {**took, "p50_ms": p50, "p95_ms": p95, "p50_cpu_ms": float(np.median(cpu_times))}


@contextmanager
def lm_server() -> Iterator[str]:
    """The address of an LM server that answers at once."""
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "benchmarks" / "engine.py"), SERVER_ARGUMENT, "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.communicate()


def eval_command(folder: Path, url: str) -> list[str]:
    """`ragbench eval` of a program that searches once a question."""
    command = [sys.executable, "-m", "ragbench", "eval", "--program", "vanilla"]
    command += ["--data-file", str(folder / "questions.jsonl"), "--setting", "pooled"]
    command += ["--corpus-file", str(folder / "corpus.jsonl"), "--lm", "openai/fake"]
    command += ["--api-base", url, "--adapter", "chat", "--no-cache", "--workers", "16"]
    return [*command, "--out", str(folder / "run")]


def show(label: str, values: dict[str, float]) -> None:
    """One line."""
    shown = "  ".join(f"{key} {value:,.2f}" for key, value in values.items())
    print(f"{label:7s} {shown}  load {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    """Make everything, load it, and run over it, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        print(json.dumps(work(args.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(args.passages, args.queries + 1, folder)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment["RAGBENCH_CACHE"] = str(folder / "cache")
        command = [sys.executable, "-m", "benchmarks.retrieval_scale", "--folder", name]
        for label in ("made", "loaded"):
            printed, took = run_measured(command, environment)
            show(label, {**json.loads(printed), **took})
        with lm_server() as url:
            show("run", run_measured(eval_command(folder, url), environment)[1])
        stored = sum(p.stat().st_size for p in (folder / "cache").rglob("*") if p.is_file())
        print(f"on disk {stored / 1e6:,.0f} MB: passages and index\n{BOUNDS}")


if __name__ == "__main__":
    main()
