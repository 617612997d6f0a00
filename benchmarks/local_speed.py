"""llama.cpp of the wheel beside a `llama-server` that was compiled here, on one thread each.

    python benchmarks/local_speed.py PROGRAM [--model qwen2.5-coder-0.5b] [--rounds 3]

Prints prompt and generated tokens per second of both, in turns, and the ratio of their medians.
"""

import argparse
import json
import os
import statistics
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

from ragbench.lms.local import PROGRAM_VARIABLE, LocalServer, LocalSpec, ensure, settings_for

SENTENCE = "The director of the film was born in a small town and later moved to Oslo to study. "


def speeds(url: str, key: str, mark: str) -> tuple[float, float]:
    """Prompt and generated tokens per second of one call; `mark` keeps its prompt uncached."""
    prompt = f"{mark} {SENTENCE * 25}Go on with this story."
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 50, "temperature": 0}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urlopen(Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)) as got:
        timings = json.load(got)["timings"]
    return timings["prompt_per_second"], timings["predicted_per_second"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="path of the compiled llama-server")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ensure(options.model)
    settings = replace(settings_for(LocalSpec(options.model), slots=1), threads=1)
    found: dict[str, list[tuple[float, float]]] = {"wheel": [], "built": []}
    for name, path in (("wheel", ""), ("built", options.program)) * options.rounds:
        os.environ[PROGRAM_VARIABLE] = path
        one = LocalServer(settings)
        try:
            found[name].append(speeds(one.url(), one.key, f"{name} {len(found[name])}"))
        finally:
            one.stop()
    median = {n: [statistics.median(s) for s in zip(*v, strict=True)] for n, v in found.items()}
    for i, what in enumerate(("prompt", "generated")):
        wheel, built = median["wheel"][i], median["built"][i]
        print(f"{what} tokens/s: wheel {wheel:.1f}, built {built:.1f}, ratio {built / wheel:.2f}")
    print(f"load {os.getloadavg()[0]:.1f}, {Path(settings.gguf).name}")


if __name__ == "__main__":
    main()
