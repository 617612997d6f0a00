"""The page in a real browser: every control, light and dark, narrow, on paper, live, hostile."""

import itertools
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from axe_playwright_python.sync_playwright import Axe

from ragbench.experiments.report.page import make_board, make_server, page_of, write_page
from ragbench.experiments.store import RunCard, Store
from tests.experiments import boards
from tests.experiments.scored_runs import CARD, answered, make_run
from tests.metrics.records import call

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="needs a Chromium (Debian's package chromium)"
)
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    "<img src=x onerror='window.hacked = 3'>",
    "@DATA@ @TITLE@ @SCRIPTS@ {{ 7 * 7 }}",
    "<!--<script>",
    "]]><svg onload=window.hacked=4>",
    "\u202eevil\u202c \u0000 \ud800 \u2028 \x1b[31m",
    "javascript:window.hacked=5",
    "x" * 20_000,
]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        opened = started.chromium.launch(executable_path=BROWSER, args=options)
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of some runs; at the end it must have complained of nothing."""
    trouble: list[str] = []

    def opened(runs: list[Path], metric: str = "f1", address: str = "", **options: Any) -> Any:
        path = tmp_path / "page.html"
        text = page_of(make_board(runs, metric))
        path.write_text(text, "utf-8", errors="replace")
        page = browser.new_page(**{"viewport": {"width": 1400, "height": 900}, **options})
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda r: r.url.startswith(path.as_uri()) or trouble.append(r.url))
        page.goto(path.as_uri() + address)
        page.locator("#list tbody tr").first.wait_for(state="attached")
        return page

    yield opened
    assert trouble == []


def listed(page: Any) -> int:
    """Return the number of questions in the list, as the page states it."""
    return int(page.locator("#count").inner_text().split()[0].replace(",", ""))


def test_first_screen_has_the_sentence_the_four_questions_and_the_table(
    show: Open, runs: list[Path]
) -> None:
    page = show(runs)
    headline = page.locator("#headline").inner_text()
    assert "scores highest" in headline
    assert page.title().startswith(headline.rstrip("."))
    assert page.locator("#headline b").count() >= 1, "names of programs are bold"
    questions = page.locator("#facts dt").all_inner_texts()
    assert questions == [
        "Is it real?", "What does it cost?", "Does compiling help?", "What is wrong with the runs?"
    ]  # fmt: skip
    assert page.locator("#programs tbody th").count() == 5
    keys = page.locator("#programs tbody td.k").all_inner_texts()
    assert [key for key in keys if key] == list("ABCDE")
    for part in ("#programs tbody tr:nth-child(5)", "#facts"):
        bottom = page.locator(part).bounding_box()
        assert bottom["y"] + bottom["height"] < 900


def test_every_control_works_and_the_address_keeps_it(show: Open, runs: list[Path]) -> None:
    page = show(runs)
    page.select_option("#metric", "em")
    assert "exact match" in page.locator("#programs thead").inner_text()
    page.select_option("#ref", index=2)
    assert "difference from B" in page.locator("#programs thead").inner_text()
    assert page.locator("#programs tbody tr").nth(1).locator(".w").inner_text() == "reference"
    page.locator("#programs thead button", has_text="tokens").click()
    assert page.locator("#programs tbody th").first.inner_text().startswith("direct")
    assert listed(page) == 60
    page.locator("#buttons button", has_text="every program right").click()
    assert 0 < listed(page) < 60
    page.locator("#buttons button", has_text="all").click()
    page.fill("#find", "Q00003")
    assert listed(page) == 1
    react = page.locator("#right option", has_text="react").get_attribute("value")
    page.select_option("#right", react)
    page.locator("#list tbody button").first.click()
    page.wait_for_selector(".sides")
    assert not page.locator("#overview").is_visible()
    assert page.locator(".side").first.locator("ol li").count() == 18
    assert page.locator(".side").last.locator(".times rect").count() == 4
    address = page.url.partition("#")[2]
    for part in ("metric=em", "find=Q00003", "react", "q=q00003", "sort=tokens"):
        assert part in address
    again = show(runs, address=f"#{address}")
    again.wait_for_selector(".sides")
    assert "react" in again.locator(".side h2").all_inner_texts()[-1]
    again.keyboard.press("Escape")
    assert again.locator("#overview").is_visible()
    assert again.input_value("#find") == "Q00003"


def test_count_selects_the_program_its_side_and_exactly_its_questions(
    show: Open, runs: list[Path]
) -> None:
    page = show(runs)
    buttons = page.locator("#programs .wrong button")
    assert buttons.count() > 2
    legend = page.locator("#programs thead th", has_text="wrong:").inner_text()
    levels = {cause.split("/")[0] for cause in page.evaluate("data.causes")}
    assert legend.count("·") == len(levels) - 1, "only causes that a program has"
    assert "stopped" not in legend
    for at in range(buttons.count()):
        words = buttons.nth(at).get_attribute("title")
        buttons.nth(at).click()
        assert listed(page) == int(words.split()[1])
        kinds = words.partition("(")[2].rstrip(")").split(", ")
        assert sum(int(kind.split()[0]) for kind in kinds) == int(words.split()[1])
        assert page.locator("#left option:checked").inner_text().startswith(words[0])
        cells = page.locator("#list tbody td.a").first.inner_text()
        assert "(" in cells, "the cause is in the list"
    page.locator("#buttons button", has_text="all").click()
    for button in page.locator("#buttons button").all()[1:]:
        count = int(button.inner_text().rpartition("· ")[2])
        button.click()
        assert listed(page) == count


def test_strip_selects_a_range_by_mouse_and_by_keys(show: Open, runs: list[Path]) -> None:
    page = show(runs)
    box = page.locator("#strip").bounding_box()
    page.locator("#strip").scroll_into_view_if_needed()
    box = page.locator("#strip").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 5)
    page.mouse.up()
    assert listed(page) == 15
    page.locator("#strip").focus()
    page.keyboard.press("Escape")
    assert listed(page) == 60
    page.keyboard.press("PageDown")
    assert listed(page) == 25
    assert page.locator("#strip").get_attribute("aria-valuenow") == "26"


def test_keys_go_from_question_to_question_and_back_to_the_list(
    show: Open, runs: list[Path]
) -> None:
    page = show(runs)
    stops = 0
    reached = False
    while not reached:
        page.keyboard.press("Tab")
        stops += 1
        if page.evaluate("document.activeElement.closest('.skip') !== null"):
            page.keyboard.press("Enter")
        reached = page.evaluate("document.activeElement.closest('#list tbody') !== null")
        assert stops < 20
    page.evaluate("scrollTo(0, 500)")
    page.keyboard.press("Enter")
    page.wait_for_selector(".sides")
    first = page.locator("#question h1").inner_text()
    assert page.evaluate("scrollY") == 0
    page.keyboard.press("j")
    page.locator("#question .bar", has_text="2 of 60").wait_for()
    assert page.locator("#question h1").inner_text() != first
    page.keyboard.press("k")
    page.locator("#question .bar", has_text="1 of 60").wait_for()
    scales = page.locator(".times .ticks").all_text_contents()
    assert len(scales) == 2
    assert scales[0] == scales[1]
    page.keyboard.press("Escape")
    page.locator("#overview").wait_for()
    assert page.evaluate("scrollY") == 500


def test_axe_finds_nothing(show: Open, decided: Path) -> None:
    """Check contrast, names, roles, headings, tables and what keys reach, of the whole page."""
    page = show([decided], address="#find=question 7", color_scheme="light")
    page.wait_for_selector("#map svg")
    assert page.locator("#compiles svg").count() == 1
    assert 0 < listed(page) <= 12, "rows of a list are alike"
    for view in ("overview", "question"):
        if view == "question":
            page.locator("#list tbody button").first.click()
            page.wait_for_selector(".sides")
        for fold in page.locator("details > summary").all():
            fold.evaluate("summary => { summary.parentElement.open = true; }")
        for scheme, options in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.emulate_media(color_scheme=scheme)
            broken = Axe().run(page, options=options).response["violations"]
            assert [
                (rule["id"], [node["html"][:99] for node in rule["nodes"]]) for rule in broken
            ] == []
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(255, 254, 251)") == (scheme == "light")


def test_page_without_scripts_has_sentence_answers_and_table(
    browser: Any, decided: Path, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    write_page(make_board([decided]), path)
    page = browser.new_page(java_script_enabled=False)
    page.goto(path.as_uri())
    text = page.locator("body").inner_text()
    page.close()
    assert re.search(r"Compiling ircot .* improves f1: 0\.\d+ to 0\.\d+", text)
    assert "Does compiling help?" in text
    assert re.search(r"A\s+ircot compiled \(m-small\)\s+0\.\d+ \[", text)


def test_compile_shows_what_it_tried_and_figures_come_from_the_same_drawings(
    show: Open, decided: Path, tmp_path: Path, command: Any, caplog: pytest.LogCaptureFixture
) -> None:
    page = show([decided])
    filled = page.evaluate("data.programs.filter((p) => isAlive(p.at)).map((p) => p.key)")
    assert filled == ["A"], "a program without a test is not drawn as not worse"
    text = page.locator("#compiles").inner_text()
    assert "Compile: ircot by bootstrap" in text
    assert "15 programs tried on 20 validation questions; em .500 uncompiled, .700" in text
    assert page.locator("#compiles svg").count() == 1
    assert page.locator("#compiles svg circle").count() == 18
    code, out, problem = command("report", decided, "--figures", "svg", "-o", tmp_path / "figures")
    assert code == 0, problem
    names = {Path(line).stem for line in out.splitlines()}
    assert names >= {"differences", "score-and-cost", "causes", "compile-1"}
    for name in names:
        drawn = ElementTree.parse(tmp_path / "figures" / f"{name}.svg").getroot()
        assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in ElementTree.tostring(drawn, "unicode")
    caption = (tmp_path / "figures" / "differences.txt").read_text()
    assert re.search(r"on 80 shared questions\..*95 % intervals.*\(Holm\)", caption)
    assert command("report", decided, "--figures", "pdf", "-o", tmp_path / "pdf")[0] == 0
    assert (tmp_path / "pdf" / "causes.pdf").read_bytes().startswith(b"%PDF")
    one = make_run(tmp_path / "one", [answered("q1", "Norway")])
    assert command("report", one, "--figures", "svg", "-o", tmp_path / "none")[:2] == (0, "")
    assert "Skipping figure differences: it needs two programs" in caplog.text


def test_nothing_is_wider_than_the_window_and_paper_keeps_all_columns(
    show: Open, runs: list[Path], tmp_path: Path
) -> None:
    identity = {**CARD["identity"], "program": "a_program_with_a_very_long_name_" * 4}
    wide = answered("q00000", "W" * 900, question="Q" * 500)
    more = make_run(tmp_path / "long", [wide], identity=identity, model="gpt-4o-mini")
    long = show([*runs, more])
    long.locator("#list tbody button").first.click()
    long.wait_for_selector(".sides")
    page = show(runs)
    for width in (390, 800, 1024, 1440, 703):
        for each in (long, page):
            each.set_viewport_size({"width": width, "height": 1000})
            assert each.evaluate("document.documentElement.scrollWidth") <= width
        page.reload()
        page.locator("#list tbody tr").first.wait_for(state="attached")
        zero = page.locator("#programs .pic svg line").first.bounding_box()
        label = page.locator("#programs .axis text", has_text=re.compile("^0$")).bounding_box()
        assert zero["x"] == pytest.approx(label["x"] + label["width"] / 2, abs=2)
        table = page.locator("#programs table")
        assert table.evaluate("e => e.scrollWidth <= e.parentElement.clientWidth")
    page.emulate_media(media="print")  # 703 pixels: A4 within its margins
    table = page.locator("#programs")
    assert table.locator("thead th:visible").count() == 9
    assert table.bounding_box()["width"] <= 703
    assert page.evaluate("document.documentElement.scrollWidth") <= 703


def test_12_programs_have_letters_that_do_not_overlap(show: Open, tmp_path: Path) -> None:
    for n in range(12):
        made = [answered(f"q{i}", "Norway" if (i * n) % 7 else "Chad") for i in range(4)]
        identity = {**CARD["identity"], "program": f"program{n}"}
        make_run(tmp_path / str(n), made, identity=identity)
    page = show([tmp_path])
    keys = page.locator("#programs tbody td.k").all_inner_texts()
    assert len(set(filter(None, keys))) == 12
    boxes = [each.bounding_box() for each in page.locator("#map svg text.key").all()]
    assert len(boxes) == 12
    right = page.locator("#map").bounding_box()
    for a, b in itertools.combinations(boxes, 2):
        apart = max(abs(a["x"] - b["x"]), abs(a["y"] - b["y"]))
        assert apart > 8
    assert all(box["x"] + box["width"] <= right["x"] + right["width"] + 1 for box in boxes)


def test_sweep_is_a_matrix_of_programs_and_settings(show: Open, tmp_path: Path) -> None:
    boards.sweep(tmp_path, n=8, programs=("vanilla", "ircot"))
    page = show([tmp_path])
    table = page.locator("#experiment table.matrix")
    groups = table.locator("tbody th[scope=rowgroup]").all_inner_texts()
    assert groups == ["retriever=bm25", "retriever=dense"]
    assert table.locator("tbody tr").count() == 2 * (1 + 2)
    assert table.locator("thead th").all_inner_texts() == ["k=3", "k=5", "k=10"]
    assert table.locator("tbody small", has_text="baseline").count() == 2


def test_hostile_text_is_text(show: Open, tmp_path: Path) -> None:
    records = [
        answered(
            f"q{n}", text, question=text, answers=[text], qtype=text[:40],
            passages=[{"pid": text, "title": text, "text": text}], plan=[{"id": text}],
            steps=[{"action": text, "input": text, "thought": text, "observation": text,
                    "pids": [text], "notes": {text: text}}],
        )
        for n, text in enumerate(HOSTILE)
    ]  # fmt: skip
    run = make_run(tmp_path / HOSTILE[0].replace("/", "_"), records, model=HOSTILE[1])
    page = show([run], "em")
    for number in range(len(HOSTILE)):
        page.locator(f"#list tr[data-q=q{number}] button").evaluate("button => button.click()")
        page.locator("#asked", has_text=re.compile(f"^q{number}\\b")).wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("#question script, #list script, main img").count() == 0


def test_a_trace_shows_prompts_their_difference_and_the_tree(show: Open, tmp_path: Path) -> None:
    tree = [
        {"id": "0", "parent": "", "question": "Where?", "answer": "Norway"},
        {"id": "0.1", "parent": "0", "question": "Who?", "answer": "Ada"},
        {"id": "0.1.1", "parent": "0.1", "question": "When?", "answer": "1921"},
    ]
    steps = [
        {"action": "decompose", "input": "Where?", "notes": {"node": "0"}, "calls": (0,)},
        {"action": "answer", "input": "Who?", "observation": "Ada", "calls": (1, 2)},
    ]
    runs = []
    for extra in ("", "\nThink of <b>Oslo</b> first."):
        run = tmp_path / f"run-{len(extra)}"
        identity = {**CARD["identity"], **({"compiled": "sha256:" + "ab" * 32} if extra else {})}
        with Store(run, RunCard.model_validate({**CARD, "identity": identity})) as kept:
            system = {"role": "system", "content": f"Answer.{extra}\nBe brief."}
            sent = kept.keep(json.dumps(system))
            said = kept.keep(json.dumps({"role": "assistant", "content": ["The reply itself"]}))
        calls = [call(prompt=(sent,), reply=said), call(), call()]
        ledger = {"calls": calls, "path": {"calls": 3, "latency_s": 0.5}}
        row = answered("q1", "Norway", ledger=ledger, tree=tree, steps=steps)
        runs.append(make_run(run, [row], identity=identity))
    page = show(runs, address="#q=q1")
    page.wait_for_selector(".sides")
    last = page.locator(".side").last
    texts = last.locator("pre").all_text_contents()
    assert texts[:2] == [
        "system:\nAnswer.\nThink of <b>Oslo</b> first.\nBe brief.", "assistant:\nThe reply itself"
    ]  # fmt: skip
    last.locator("details details > summary").first.evaluate("node => node.click()")
    last.locator("pre .good").first.wait_for(state="attached")
    words = last.locator("pre .good").all_text_contents()
    assert "".join(words).split() == ["Think", "of", "<b>Oslo</b>", "first."]
    inner = last.locator("> ul > li > ul > li")
    assert inner.evaluate("node => node.firstChild.textContent") == "Who?"
    assert inner.locator("> .quiet").inner_text().strip() == "(call 2, 3)"
    assert inner.locator("> ul > li").inner_text().strip() == "When? → 1921"


def test_new_records_change_the_page_in_place(browser: Any, tmp_path: Path) -> None:
    first = [answered(f"q{n}", "Norway") for n in range(3)]
    make_run(tmp_path / "vanilla", first, questions=6)
    server = make_server(tmp_path, port=0, metric="em")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    page = browser.new_page()
    try:
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.evaluate("window.same = true")
        page.fill("#find", "red sky")
        page.locator("#list tbody button").first.click()
        page.wait_for_selector(".sides")
        assert "3/6" in page.locator("#programs tbody").text_content()
        more = [*first, *(answered(f"r{n}", "Oslo") for n in range(2))]
        make_run(tmp_path / "vanilla", more, questions=6)
        page.locator("#programs tbody", has_text="5/6").wait_for(state="attached", timeout=10_000)
        assert page.evaluate("window.same")  # no reload
        assert page.input_value("#find") == "red sky"
        assert page.locator(".sides").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("#count").inner_text() == "5 of 5 questions"
    finally:
        page.close()
        server.shutdown()
        server.server_close()
