"""The report as a page: what it computes, and what a real browser makes of it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import socket
import struct
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.errors import MissingExtraError, UnknownNameError
from ragbench.experiments.records.prompts import PromptLog
from ragbench.experiments.report.page.board import make_board
from ragbench.experiments.report.page.charts import charts
from ragbench.experiments.report.page.html import page_of, render_page, write_parts
from ragbench.experiments.report.page.server import make_server
from ragbench.experiments.report.page.traces import PIECE, pieces
from ragbench.experiments.runs import reopen
from ragbench.record import Record
from tests.experiments.scored_runs import CARD, answered, make_run
from tests.metrics.records import call

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    "<img src=x onerror='window.hacked = 3'>",
    "{{ 7 * 7 }} {% raw %}",
    "<!--<script>",
    "]]><svg onload=window.hacked=4>",
    "\u202eevil\u202c \u0000 \ud800 \u2028 \x1b[31m",
    "javascript:window.hacked=5",
    "\\u003cscript>window.hacked=6\\u003c/script>",
    "x" * 20_000,
]


def rows(answers: dict[str, str], **fields: Any) -> list[Record]:
    return [
        answered(
            qid, answer, question=f"Where was {qid} born?", qtype=qtype, gold_pids=["a"], **fields
        )
        for (qid, answer), qtype in zip(
            answers.items(), ["bridge", "comparison"] * 50, strict=False
        )
    ]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Three runs over four questions: a plain one, the same compiled, and another program."""
    plain = {"q1": "Norway", "q2": "Sweden", "q3": "Sweden", "q4": "Norway"}
    identity = {**CARD["identity"], "compiled": "abc"}
    other = {**CARD["identity"], "program": "ircot"}
    return [
        make_run(tmp_path / "vanilla", rows(plain)),
        make_run(tmp_path / "compiled", rows({**plain, "q2": "Norway"}), identity=identity),
        make_run(tmp_path / "ircot", rows({"q1": "Norway", "q9": "Oslo"}), identity=other),
    ]


def test_the_board_has_means_groups_and_pairs(runs: list[Path]) -> None:
    board = make_board([reopen(run) for run in runs], "em")
    assert [run.score.mean for run in board.runs if run.score] == [0.5, 0.75, 0.5]
    score = board.runs[0].score
    assert score is not None
    assert score.low < score.mean < score.high
    assert [record.qid for record in board.questions] == ["q1", "q2", "q3", "q4", "q9"]
    [pair] = board.pairs
    assert (pair.before, pair.after, pair.fixed, pair.broken) == (0, 1, 1, 0)
    assert {(g.run, g.name, g.score.mean) for g in board.groups if g.run == 0} >= {
        (0, "bridge", 0.5), (0, "comparison", 0.5)
    }  # fmt: skip


def test_what_another_run_beats_at_no_greater_cost_is_dominated(runs: list[Path]) -> None:
    board = make_board([reopen(run) for run in runs], "em")
    assert board.dominated("calls") == {0, 2}


def test_traces_come_in_pieces_that_a_page_can_unpack(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", rows({f"q{n}": "Norway" for n in range(PIECE + 3)}))
    found = [
        json.loads(gzip.decompress(base64.b64decode(piece)))
        for piece in pieces(make_board([reopen(run)], "em"))
    ]
    assert [len(piece["traces"]) for piece in found] == [PIECE, 3]
    assert found[1]["traces"][f"q{PIECE}"][0]["answer"] == "Norway"


def test_every_chart_is_drawn_for_the_page_and_for_paper(runs: list[Path], tmp_path: Path) -> None:
    board = make_board([reopen(run) for run in runs], "em")
    drawn = charts(board)
    assert {"leaderboard", "pareto_calls", "breakdown", "causes", "compiled_1"} <= set(drawn)
    n_charts, n_tables = write_parts(board, tmp_path / "figures")
    assert n_charts == len(drawn) == len([*(tmp_path / "figures").glob("*.png")])
    assert n_tables == len([*(tmp_path / "figures").glob("*.tex")]) >= 2
    table = (tmp_path / "figures" / "leaderboard.tex").read_text()
    assert r"\begin{tabular}" in table
    assert r"cost\_usd" in table
    svg = (tmp_path / "figures" / "leaderboard.svg").read_text()
    assert "var(--" not in svg
    assert "#0072b2" in svg
    assert (tmp_path / "figures" / "leaderboard.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_asks_for_nothing_outside_and_allows_nothing(runs: list[Path]) -> None:
    page = render_page([reopen(run) for run in runs], metric="em")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]
    links = re.findall(r"(?:src|href)=\"?([^\" >]+)", page)
    assert {link for link in links if not link.startswith("#")} == set()


def test_the_command_writes_the_page(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["report", *map(str, runs), "-o", str(out), "--metric", "em"])
    assert done.exit_code == 0, done.output
    assert "3 runs" in done.output
    assert "<!doctype html>" in out.read_text()


def test_the_server_follows_a_run_that_goes_on(runs: list[Path], tmp_path: Path) -> None:
    server = make_server(tmp_path, port=0, metric="em")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"

    def get(path: str, **headers: str) -> str:
        asked = urllib.request.Request(address + path, headers=headers)
        with urllib.request.urlopen(asked, timeout=30) as reply:
            return str(reply.read().decode())

    try:
        first = get("/version")
        assert "over 5 questions" in get("/")
        make_run(tmp_path / "ircot", rows({"q1": "Norway", "q9": "Oslo", "q10": "Oslo"}))
        assert get("/version") != first
        assert "over 6 questions" in get("/")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get("/", Host="evil.example:80")
    finally:
        server.shutdown()
        server.server_close()


def test_a_metric_that_there_is_not_is_refused_before_anything_is_served(
    runs: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(UnknownNameError, match="no metric named 'nope'"):
        make_server(tmp_path, port=0, metric="nope")


def test_a_browser_that_goes_away_prints_nothing(
    runs: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = make_server(tmp_path, port=0, metric="em")
    try:
        with socket.create_connection(server.server_address[:2]) as gone:
            gone.sendall(b"GET / HTTP/1.0\r\nHost: localhost:1\r\n\r\n")
            # Closed so, the next byte that comes is answered by a reset.
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.daemon_threads = False  # `server_close` waits for the answer
        server.handle_request()
    finally:
        server.server_close()
    assert "Traceback" not in capfd.readouterr().err


@pytest.fixture
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("needs a Chromium (Debian's package chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        opened = started.chromium.launch(executable_path=BROWSER, args=options)
        yield opened
        opened.close()


def opened(browser: Any, path: Path, **options: Any) -> tuple[Any, list[str]]:
    """The page in `path`, and what it complained of or asked for."""
    page = browser.new_page(**options)
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: trouble.append(request.url))
    page.goto(path.as_uri())
    assert trouble.pop(0) == path.as_uri()
    return page, trouble


def test_a_browser_shows_filters_and_links(browser: Any, runs: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    board = make_board([reopen(run) for run in runs], "em")
    path.write_text(page_of(board, title="A report"), "utf-8")
    page, trouble = opened(browser, path, viewport={"width": 1440, "height": 900})
    assert page.locator("figure svg").count() == len(charts(board))
    assert page.locator("#list li").count() == 5
    page.select_option("#status", "fixed")  # of zero-shot and compiled, which are chosen
    assert page.locator("#list li").all_text_contents()[0].startswith("Where was q2 born?")
    assert page.locator("#count").inner_text() == "1 of 5"
    page.select_option("#status", "")
    page.fill("#find", "Q3")
    assert page.locator("#list li").count() == 1
    page.locator("#list li").click()
    page.wait_for_selector(".sides")
    assert page.locator(".side").count() == 2
    link = page.url
    assert "q=q3" in link
    page.fill("#find", "")
    page.locator("#list").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url(re.compile("q=q4&"))
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    again, more = opened(browser, path)
    again.goto(link)
    again.wait_for_selector(".sides")
    assert again.locator("#trace h3").inner_text() == "Where was q3 born?"
    assert trouble + [line for line in more if not line.startswith(path.as_uri())] == []


def test_a_phone_scrolls_no_page_sideways(browser: Any, runs: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_page([reopen(run) for run in runs], metric="em"), "utf-8")
    page, trouble = opened(browser, path, viewport={"width": 390, "height": 844})
    page.locator("#list li").first.click()
    page.wait_for_selector(".sides")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert trouble == []


def test_hostile_text_is_text(browser: Any, tmp_path: Path) -> None:
    answers = {f"q{n}": text for n, text in enumerate(HOSTILE)}
    records = [
        answered(
            qid, text, question=text, answers=[text], qtype=text[:40],
            passages=[{"pid": text, "title": text, "text": text}], plan=[{"id": text}],
            steps=[{
                "action": text, "input": text, "thought": text, "observation": text,
                "pids": [text], "notes": {text: text},
            }],
        )
        for qid, text in answers.items()
    ]  # fmt: skip
    run = make_run(tmp_path / HOSTILE[0].replace("/", "_"), records, model=HOSTILE[1])
    path = tmp_path / "page.html"
    path.write_text(render_page([reopen(run)], metric="em", title=HOSTILE[1]), "utf-8")
    page, trouble = opened(browser, path)
    for number in range(len(HOSTILE)):
        page.locator(f'#list li[data-n="{number}"]').click()
        page.wait_for_selector(".sides")
    assert page.evaluate("window.hacked") is None
    assert page.locator("#trace script, #list script, #trace img").count() == 0
    page.locator('#list li[data-n="0"]').click()
    page.locator("#trace h3", has_text="hacked = 1").wait_for()
    assert trouble == []


def test_prompts_and_replies_are_shown_as_they_were_sent(browser: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with PromptLog(run) as kept:
        sent = kept.keep("Answer <b>this</b> question.")
        said = kept.keep("The reply itself")
    ledger = {"calls": [call(prompt=(sent,), reply=said)], "path": {"calls": 1, "latency_s": 0.5}}
    make_run(run, [answered("q1", "Norway", ledger=ledger)])
    path = tmp_path / "page.html"
    path.write_text(render_page([reopen(run)], metric="em"), "utf-8")
    page, trouble = opened(browser, path)
    page.locator("#list li").click()
    page.wait_for_selector(".sides")
    assert "Answer <b>this</b> question." in page.locator(".side pre").first.text_content()
    assert page.locator(".side pre").last.text_content() == "The reply itself"
    assert trouble == []


def test_steps_beside_the_page_are_loaded_when_a_question_is_opened(
    browser: Any, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", rows({f"q{n}": "Norway" for n in range(PIECE + 3)}))
    path, traces = tmp_path / "page.html", tmp_path / "the steps & more"
    given = ["report", str(run), "-o", str(path), "--metric", "em", "--traces", str(traces)]
    done = CliRunner().invoke(cli, given)
    assert "steps in 2 files" in done.output, done.output
    assert "strict-dynamic" in path.read_text()
    assert "piece-0" not in path.read_text()
    page = browser.new_page()
    asked: list[str] = []
    trouble: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: trouble.append(message.text))
    page.goto(path.as_uri())
    assert asked == [path.as_uri()]
    page.locator("#list li").last.click()
    page.wait_for_selector(".sides")
    page.locator("#trace h3", has_text=f"q{PIECE + 2}").wait_for()
    assert len(asked) == 2
    assert asked[1].startswith(traces.as_uri())
    assert trouble == []
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<script>hacked = 1</script>')")
    shutil.rmtree(traces)
    page.locator("#list li").first.click()
    page.locator("#trace", has_text="which is not beside this page").wait_for()
    assert page.evaluate("window.hacked") is None


def test_research_questions_are_sections(browser: Any, tmp_path: Path) -> None:
    made = []
    for number, program in enumerate(("vanilla", "ircot", "react")):
        answers = {f"q{n}": "Norway" if n % 3 > number else "Sweden" for n in range(60)}
        ledger = {
            "calls": [call()] * (number + 1), "path": {"calls": 1, "latency_s": 0.5}
        }  # fmt: skip
        identity = {**CARD["identity"], "program": program}
        made.append(make_run(tmp_path / program, rows(answers, ledger=ledger), identity=identity))
    deeper = {**CARD["identity"], "retriever": "dense"}
    made.append(make_run(tmp_path / "dense", rows({"q1": "Norway"}), identity=deeper))
    board = make_board([reopen(run) for run in made], "em")
    assert [run.label for run in board.runs] == [
        "vanilla",
        "ircot",
        "react",
        "vanilla, retriever=dense",
    ]
    found = {section.name: section for section in board.sections}
    assert {*found} == {"families", "retrieval", "budgets", "advice"}
    [side_by_side] = found["retrieval"].tables
    assert list(side_by_side.grid.columns)[:2] == ["program", "retriever"]
    assert [row[1] for row in side_by_side.grid.rows] == ["-", "dense"]
    [calls, *_] = found["budgets"].tables
    assert calls.grid.columns == ("run", "1", "2", "3")
    assert [row[1:] for row in calls.grid.rows][2] == ["0.000", "0.000", "0.000"]
    assert "not enough questions: 1" in found["advice"].lines[0]
    path = tmp_path / "page.html"
    path.write_text(page_of(board, title="A report"), "utf-8")
    page, trouble = opened(browser, path)
    assert page.locator("#findings section").count() == 4
    assert page.locator("#budgets svg").count() >= 1
    page.locator("#families .latex summary").first.click()
    assert "tabular" in page.locator("#families .latex pre").first.inner_text()
    assert trouble == []


@pytest.mark.parametrize("package", ["vl_convert", "jinja2"])
def test_a_package_that_is_not_installed_is_named_in_one_line(
    package: str, runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ragbench\[report\]'"):
        render_page([reopen(run) for run in runs], metric="em")


def test_a_long_list_grows_as_it_is_scrolled(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", rows({f"q{n}": "Norway" for n in range(100)}))
    more = make_run(tmp_path / "more", rows({f"r{n}": "Norway" for n in range(100)}))
    path = tmp_path / "page.html"
    path.write_text(render_page([reopen(run), reopen(more)], metric="em"), "utf-8")
    page, trouble = opened(browser, path)
    assert page.locator("#list li").count() == 100
    assert page.locator("#count").inner_text() == "200 of 200"
    page.evaluate("document.querySelector('#list').scrollTop = 1e6")
    page.locator("#list li").nth(199).wait_for()
    page.evaluate("document.querySelector('#list').scrollTop = 0")
    page.locator("#list li").nth(0).click()
    page.locator("#list").focus()
    for _ in range(12):
        page.keyboard.press("PageDown")
    page.wait_for_url(re.compile("q=r20&"))
    assert trouble == []
