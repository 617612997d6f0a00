"""Measures how fast an old run is scored again with every metric that asks no model.

1,000 made-up records of the size of an IRCoT run on HotpotQA (four thoughts, four searches of three
passages, eight passages of about ninety words in all) against 1,000 calls of 100 ms to a model, of
which 20 are waited for. Scoring is measured in CPU time, so that a busy machine counts less. The
ratio must be at least 100.

    python benchmarks/score_speed.py [--records 1000]
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from ragbench.metrics import METRICS, get_metric
from ragbench.metrics.aggregate import summarize
from ragbench.metrics.errors import cause_of

TARGET = 100
CALL_S = 0.1
CUTOFFS = ("recall@5", "all_recall@5", "mrr@5", "ndcg@5", "search_recall@5", "search_ndcg@5")


def vocabulary(rng: random.Random) -> tuple[list[str], list[float]]:
    """20,000 made-up words, some capitalised, and how often each is used (Zipf's law)."""
    made = ["".join(rng.choices("aeiourstlnm", k=rng.randrange(2, 9))) for _ in range(20_000)]
    weights = accumulate(1 / rank for rank in range(1, len(made) + 1))
    return [w.title() if rng.random() < 0.2 else w for w in made], list(weights)


VOCABULARY, WEIGHTS = vocabulary(random.Random(1))


def words(n: int, rng: random.Random) -> str:
    """A sentence of `n` made-up words."""
    return " ".join(rng.choices(VOCABULARY, cum_weights=WEIGHTS, k=n)).capitalize() + "."


def made_record(number: int, rng: random.Random) -> dict[str, Any]:
    """One record, in the shape that runs store."""
    passages = []
    for p in range(8):
        lines = [words(22, rng) for _ in range(4)]
        title = words(2, rng).rstrip(".")
        passages.append(
            {"pid": f"{number}-{p}", "title": title, "text": " ".join(lines), "sentences": lines}
        )
    pids = [p["pid"] for p in passages]
    hits = [[[pid, 1.0] for pid in rng.sample(pids, 3)] for _ in range(4)]
    call = {"prompt_tokens": 900, "completion_tokens": 40, "cost_usd": 1e-4, "error": None}
    return {
        "qid": str(number),
        "question": words(15, rng),
        "answers": [words(2, rng)],
        "qtype": "bridge",
        "hops": 2,
        "support": [[passages[0]["title"], 0], [passages[1]["title"], 1]],
        "gold_pids": pids[:2],
        "decomposition": [],
        "extra": {},
        "answer": words(2, rng).rstrip("."),
        "stop_reason": "answered",
        "citations": [[passages[0]["title"], 0]],
        "passages": passages,
        "searches": [
            {"query": words(8, rng), "k": 5, "hits": h, "latency_s": 0.01, "cached": False}
            for h in hits
        ],
        "steps": [{"action": "think", "thought": words(18, rng), "notes": {}} for _ in range(4)],
        "counts": {},
        "ledger": {"calls": [call] * 5, "path": {"calls": 5, "latency_s": 2.0}},
        "latency_s": 2.0,
        "failure": None,
        "scores": {},
    }


def score_all(records: list[Mapping[str, Any]]) -> dict[str, float]:
    """CPU seconds by metric, and those of the causes; what else the machine does is left out."""
    for name in (*METRICS.names(), *CUTOFFS):  # imports and caches are not what is measured
        get_metric(name).score(records[0])
    spent = {}
    for name in (*METRICS.names(), *CUTOFFS):
        score, start = get_metric(name).score, time.process_time()
        for record in records:
            score(record)
        spent[name] = time.process_time() - start
    start = time.process_time()
    for record in records:
        cause_of(record)
    spent["(causes)"] = time.process_time() - start
    return spent


def main() -> None:
    """Print the slowest metrics and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000)
    n = parser.parse_args().records
    rng = random.Random(0)
    records: list[Mapping[str, Any]] = [made_record(i, rng) for i in range(n)]
    start = time.perf_counter()
    for _ in range(20):
        time.sleep(CALL_S)
    calls = (time.perf_counter() - start) / 20 * n
    spent = score_all(records)
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1])[:6]:
        print(f"  {name:20s} {seconds / n * 1e6:8.0f} us per record")
    total = sum(spent.values())
    start = time.process_time()
    summarize(records)
    print(f"summary of {n} records {time.process_time() - start:.2f} s")
    print(f"{len(spent)} metrics over {n} records {total:.2f} s; {n} calls of 100 ms {calls:.1f} s")
    print(f"ratio {calls / total:.0f} (target {TARGET})")


if __name__ == "__main__":
    main()
