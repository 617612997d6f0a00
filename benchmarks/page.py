"""Size and speed of the page: 5,000 questions by eight programs, in a real browser.

    python -m benchmarks.page --browser /usr/bin/chromium

Prints how long the page took to make, its size, how long it takes to open (bound 2 s), and the
slowest of the filters and of opening a question (bound 100 ms), as measured in the page.
"""

import argparse
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import sync_playwright

from ragbench.experiments.report.page import make_board, write_page
from ragbench.experiments.store import RunCard, Store
from tests.experiments.scored_runs import CARD, one

#: Milliseconds from an input to the frame after it.
TIMED = """async ([selector, value]) => {
  const target = document.querySelector(selector);
  const begin = performance.now();
  if (value === null) target.click();
  else {
    if (target.type === "checkbox") target.checked = value; else target.value = value;
    for (const kind of ["input", "change"]) target.dispatchEvent(new Event(kind, {bubbles: true}));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begin;
}"""


def main() -> None:
    """Print the measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--questions", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for at in range(given.runs):
            rng = random.Random(at)
            records = (one(n, rng, 0.7, 0.8, 2, 400, 40) for n in range(given.questions))
            card = {"identity": {**CARD["identity"], "program": f"program{at}"}}
            runs.append(Path(folder) / str(at))
            store = Store(runs[-1], RunCard.model_validate({**CARD, **card}))
            with store, ThreadPoolExecutor(64) as pool:  # threads that write at once share a commit
                list(pool.map(store.write, records))
        start, cpu = time.perf_counter(), time.process_time()
        path = Path(folder) / "report.html"
        size = write_page(make_board(runs, "f1"), path)
        print(f"made in {time.perf_counter() - start:.1f} s, {time.process_time() - cpu:.1f} s CPU")
        print(f"size {size / 1e6:.1f} MB")
        _measure(path, given.browser)


def _measure(path: Path, browser: str) -> None:
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport={"width": 1400, "height": 900})
        begin = time.perf_counter()
        page.goto(path.as_uri())
        page.locator("#list tbody tr").first.wait_for()
        print(f"open {time.perf_counter() - begin:.2f} s (bound 2)")
        page.wait_for_timeout(1000)
        filters = [page.evaluate(TIMED, ["#find", f"word{n}"]) for n in range(20)]
        filters += [page.evaluate(TIMED, ["#find", ""])]
        buttons = ("#buttons button:last-child", "#buttons button:first-child") * 5
        filters += [page.evaluate(TIMED, [button, None]) for button in buttons]
        metric = [page.evaluate(TIMED, ["#metric", name]) for name in ("em", "f1")]
        clicks = [page.evaluate(TIMED, ["#list tbody button", None]) for _ in range(5)]
        for name, taken in (
            ("filters", sorted(filters)),
            ("another metric", sorted(metric)),
            ("opening a question", sorted(clicks)),
        ):
            middle = taken[len(taken) // 2]
            print(f"{name}: median {middle:.0f} ms, slowest {taken[-1]:.0f} ms (bound 100)")
        opened.close()


if __name__ == "__main__":
    main()
