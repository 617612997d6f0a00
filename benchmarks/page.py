"""Size and speed of the report: 1,000 questions by five programs, in a real browser.

    python benchmarks/page.py --browser /usr/bin/chromium

Prints the size of the file against 15 MB, the first paint against 1 s, and the slowest of 50
interactions (filters, opening a question) against 100 ms, as measured in the page.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from ragbench.experiments.report.page import render_page
from ragbench.experiments.runs import reopen
from ragbench.record import Record
from tests.experiments.scored_runs import CARD, answered, make_run

WORDS = [f"word{n}" for n in range(4000)]
#: Milliseconds from an input to the frame after it.
TIMED = """async ([selector, value]) => {
  const target = document.querySelector(selector);
  const begin = performance.now();
  if (value === null) target.click();
  else { target.value = value; target.dispatchEvent(new Event("input", {bubbles: true})); }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begin;
}"""


def record(number: int, rng: random.Random) -> Record:
    """A record with ten passages of 100 words and four steps."""
    passages = [
        {"pid": f"p{number}-{n}", "title": f"Title {number} {n}", "text": _text(rng, 100)}
        for n in range(10)
    ]
    pids = [passage["pid"] for passage in passages]
    steps = [
        {
            "action": "think", "input": _text(rng, 12), "thought": _text(rng, 30),
            "observation": "", "pids": pids[n : n + 3], "notes": {},
        }
        for n in range(4)
    ]  # fmt: skip
    answer = rng.choice(["Norway", "Sweden"])
    question = f"Where was {_text(rng, 12)} born?"
    return answered(
        f"q{number}", answer, question=question, passages=passages, steps=steps, gold_pids=pids[:2]
    )


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def main() -> None:
    """Print the three measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--questions", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        runs = []
        for name in ("vanilla", "ircot", "react", "planner", "a_rag"):
            rng = random.Random(name)
            card = {"identity": {**CARD["identity"], "program": name}}
            records = [record(n, rng) for n in range(given.questions)]
            runs.append(reopen(make_run(Path(folder) / name, records, **card)))
        start = time.perf_counter()
        page = render_page(runs, metric="em")
        path.write_text(page, "utf-8")
        print(f"made in {time.perf_counter() - start:.1f} s")
        print(f"size {path.stat().st_size / 1e6:.1f} MB (bound 15)")
        _measure(path, given.browser)


def _measure(path: Path, browser: str) -> None:
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport={"width": 1440, "height": 900})
        page.goto(path.as_uri())
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        print(f"first paint {paint:.0f} ms (bound 1000)")
        taken = []
        for n in range(25):
            taken.append(page.evaluate(TIMED, ["#find", f"word{n}"]))
            taken.append(page.evaluate(TIMED, ["#list li", None]))
        taken.append(page.evaluate(TIMED, ["#find", ""]))
        taken.sort()
        print(f"interactions: median {taken[25]:.0f} ms, slowest {taken[-1]:.0f} ms (bound 100)")
        opened.close()


if __name__ == "__main__":
    main()
