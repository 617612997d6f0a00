"""How `--engine ray` scales: the same questions over 1, 2 and 3 nodes of a local Ray cluster.

    python -m benchmarks.ray_nodes [--questions 240] [--latency 1] [--threads 8]

Each node is a Ray node of one processor with processes of its own, on this machine; each has so
many threads, and the LM server answers after a fixed latency, so that processors are idle most of
the time. `asking` is from the first request to the last reply; `whole` is the command, with its
start, that of the workers and the table. Efficiency is the time on one node over n times that on n.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from benchmarks.long_runs import write_questions
from ragbench.experiments.records import read_records
from tests.fake_server import FakeServer


def measured(
    folder: Path, nodes: int, address: str, questions: int, threads: int, latency_s: float
) -> tuple[float, float]:
    """Seconds from the first request to the last reply, and of the whole command.

    Raises:
        CalledProcessError: it failed.
    """
    with FakeServer(latency_s=latency_s) as server:
        command = [sys.executable, "-m", "ragbench", "eval", "--program", "direct", "--no-cache"]
        command += ["--dataset", "jsonl", "--data-file", str(folder / "questions.jsonl")]
        command += ["--split", "all", "--lm", "openai/fake", "--api-base", server.url]
        command += ["--engine", "ray", "--workers", str(threads * nodes)]
        command += ["--out", str(folder / f"nodes{nodes}")]
        environment = {**os.environ, "RAY_ADDRESS": address}
        start = time.monotonic()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        whole = time.monotonic() - start
        sent = [hit.at for hit in server.hits]
    answered = read_records(folder / f"nodes{nodes}").records
    assert len(answered) == len(sent) == questions
    return max(sent) + latency_s - min(sent), whole


def main() -> None:
    """Print the times, and the efficiency beside one node."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=240)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    os.environ.update(OPENAI_API_KEY="none", RAY_USAGE_STATS_ENABLED="0")
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    first: tuple[float, float] = (0.0, 0.0)
    with tempfile.TemporaryDirectory() as name:
        write_questions(Path(name) / "questions.jsonl", options.questions)
        for nodes in range(1, options.nodes + 1):
            if nodes > 1:
                cluster.add_node(**small)
            took = measured(
                Path(name), nodes, cluster.address, options.questions, options.threads,
                options.latency,
            )  # fmt: skip
            first = first if nodes > 1 else took
            ideal = options.questions * options.latency / options.threads / nodes
            asking, whole = (one / (nodes * n) for one, n in zip(first, took, strict=True))
            print(
                f"{nodes} nodes: asking {took[0]:.1f} s (ideal {ideal:.1f}), efficiency "
                f"{asking:.2f}; whole {took[1]:.1f} s, efficiency {whole:.2f}; "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
