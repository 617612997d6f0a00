"""What a full run of each shipped config takes, estimated as `--dry-run` does; asks no LM.

    python -m benchmarks.config_costs hotpot_train_v1.1_100.json [--write]

Rehearses every config over the questions of a HotpotQA file, in the distractor setting. With
`--write`, the line that says so is replaced in each config. What an index, embeddings or reranking
cost comes on top.
"""

import argparse
import os
import re
from pathlib import Path

from ragbench.errors import RagbenchError
from ragbench.experiments.config import load_config, make_config, shipped_configs
from ragbench.experiments.estimates import estimate_run
from ragbench.experiments.runs.context import ready

SHIPPED = Path(__file__).parents[1] / "ragbench" / "experiments" / "config" / "shipped"
START = "# A question takes"


def line_of(name: str, data: Path) -> str:
    """What a question takes by the config `name`."""
    given = {"data_file": data, "split": "all", "limit": None}
    config = make_config(given, base=load_config(name))
    context = ready(config)
    found, n = estimate_run(context, afresh=True), len(context.examples)
    low, high = round(found.low.calls / n), round(found.high.calls / n)
    calls = f"{low} to {high} calls" if low < high else f"{high} call{'s' * (high != 1)}"
    tokens = f"{found.low.tokens / n:,.0f} to {found.high.tokens / n:,.0f} tokens"
    return f"{START} {calls} and {tokens}, estimated by --dry-run; --limit 0 asks the whole split."


def main() -> None:
    """Print a line per config, and write it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "none")
    for path in sorted(SHIPPED.glob("*.yaml")):
        name = path.stem
        assert name in shipped_configs()
        try:
            line = line_of(name, given.data)
        except RagbenchError as error:
            print(f"{name}: {error}", flush=True)
            continue
        print(f"{name}: {line}", flush=True)
        if given.write:
            text = path.read_text("utf-8")
            path.write_text(re.sub(f"^{START} .*$", line, text, flags=re.MULTILINE), "utf-8")


if __name__ == "__main__":
    main()
