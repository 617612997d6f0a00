"""Measures how fast an old run is scored again with every metric that asks no model.

A run folder of 1,000 made-up records of the size of an IRCoT run on HotpotQA (four thoughts, four
searches of three passages, eight passages of about ninety words in all) is scored as `ragbench
score` does it: records read and checked, all metrics, causes and breakdowns computed, both files
written. That is set against 1,000 calls of 100 ms to a model, of which 20 are waited for. The
ratio is of wall times; CPU time stands beside it, because another load slows the one and not the
other. The ratio must be at least 100.

    python -m benchmarks.score_speed [--records 1000] [--times 3]
"""

import argparse
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.experiments.store import RunCard, Store
from ragbench.metrics import METRICS, get_metric
from ragbench.record import Call, Step, parse_record

TARGET = 100
CALL_S = 0.1
CUTOFFS = ("recall@5", "all_recall@5", "mrr@5", "ndcg@5", "search_recall@5", "search_ndcg@5")


#: What stands most often in English, most frequent first; half of a text is of these.
FUNCTION_WORDS = re.findall(
    r"\w+",
    "the of and in to a is was for as on with by he that it his at from her she which an were are "
    "be this had has have their but also who its not been or they one after when him them into",
)


def vocabulary(rng: random.Random) -> tuple[list[str], list[float]]:
    """20,000 words, by Zipf's law: English function words, then made-up ones, some capitalised."""
    made = ["".join(rng.choices("aeiourstlnmdcghp", k=rng.randrange(3, 11))) for _ in range(20_000)]
    every = FUNCTION_WORDS + [w.title() if rng.random() < 0.2 else w for w in made]
    return every, list(accumulate(1 / rank for rank in range(1, len(every) + 1)))


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
    call = asdict(Call("made-up", "NextThought", "reason", "lm", 900, 40, 1e-4, 0.4))
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
        "steps": [asdict(Step("think", thought=words(18, rng))) for _ in range(4)],
        "counts": {},
        "ledger": {"calls": [call] * 5, "path": {"calls": 5, "latency_s": 2.0}},
        "latency_s": 2.0,
        "failure": None,
        "scores": {},
    }


def write_run(folder: Path, n: int, rng: random.Random) -> None:
    """A run folder of `n` made-up records."""
    card = {
        "identity": {"program": "ircot", "split": "test", "view": None, "temperature": 0.0},
        "knobs": {"k": 5, "variant": "default"},
        "model": "made-up",
        "data": {"name": "hotpotqa", "setting": "distractor", "digest": "0"},
        "compiled": "",
    }
    with Store(folder, RunCard.model_validate(card)) as store:
        for number in range(n):
            store.write(parse_record(json.dumps(made_record(number, rng))))


def measured(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of `call`."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Print the times and the ratios of every repetition."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    n = options.records
    calls = measured(lambda: time.sleep(20 * CALL_S))[0] / 20 * n
    metrics = (*METRICS.names(), *CUTOFFS)
    for metric in metrics:  # imports are not what is measured
        get_metric(metric).score(parse_record(json.dumps(made_record(0, random.Random(1)))))
    print(f"{len(metrics)} metrics, {n} records; {n} calls of 100 ms {calls:.1f} s")
    for number in range(options.times):
        with tempfile.TemporaryDirectory() as folder:
            write_run(Path(folder), n, random.Random(number))
            wall, cpu = measured(
                lambda folder=folder: score_run(Path(folder), ScoreRequest(metrics=metrics))  # type: ignore[misc]
            )
        load = os.getloadavg()[0]
        print(
            f"scored in {wall:.2f} s (CPU {cpu:.2f} s), ratio {calls / wall:.0f} "
            f"(by CPU {calls / cpu:.0f}; target {TARGET}), load {load:.1f}"
        )


if __name__ == "__main__":
    main()
