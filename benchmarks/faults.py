"""Asks many questions of a server that goes wrong in every way, and says what came of it.

python -m benchmarks.faults --questions 2000 --rate 0.3

Records must be one per question, and their totals those of the server's own log; exits with 1 if
they are not.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from tests.storm import in_another_process, in_this_process, random_faults, weather


@click.command()
@click.option("--questions", type=int, default=2000, show_default=True)
@click.option("--rate", type=float, default=0.3, show_default=True, help="Share of faulty replies.")
@click.option("--program", default="vanilla", show_default=True)
@click.option("--timeout", type=float, default=10.0, show_default=True)
@click.option("--workers", type=int, default=32, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--own-process/--same-process", default=True, show_default=True, help="Of the run.")
def main(
    questions: int,
    rate: float,
    program: str,
    timeout: float,
    workers: int,
    seed: int,
    own_process: bool,
) -> None:
    """Print what came of the run."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAGBENCH_CACHE"] = str(Path(folder) / "cache")
        os.environ["OPENAI_API_KEY"] = "none"
        outcome = weather(
            Path(folder), random_faults(rate, seed),
            in_another_process if own_process else in_this_process,
            n=questions, program=program, timeout_s=timeout, workers=workers,
        )  # fmt: skip
    faulty = ", ".join(f"{kind} {n}" for kind, n in outcome.faulty.most_common())
    print(
        f"{questions} questions in {time.perf_counter() - start:.0f} s: "
        f"{outcome.answered} answered, failures {dict(outcome.failures)}\n"
        f"{outcome.calls} requests, {outcome.faulty.total()} of them faulty: {faulty}"
    )
    print("\n".join(outcome.bad) or "records and server agree; nothing lost, nothing asked twice")
    sys.exit(bool(outcome.bad))


if __name__ == "__main__":
    main()
