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

import numpy as np
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


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A verdict with its compiles."""
    return boards.verdict(tmp_path_factory.mktemp("verdict"))


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of some runs; at the end it must have complained of nothing."""
    trouble: list[str] = []

    def opened(runs: list[Path], metric: str = "f1", address: str = "", **options: Any) -> Any:
        path = tmp_path / "page.html"
        text = page_of(make_board(runs, metric), title=HOSTILE[1])
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


def shown(page: Any) -> int:
    """The number of questions in the list, as the page says it."""
    return int(page.locator("#count").inner_text().split()[0])


def test_what_a_person_must_see_is_in_the_first_screen(show: Open, runs: list[Path]) -> None:
    page = show(runs)
    tiles = page.locator("#tiles").inner_text()
    assert "UNDECIDED\nircot compiled or vanilla" in tiles
    assert re.search(r"to tell ircot compiled from vanilla: about [\d,]+ questions would", tiles)
    assert re.search(r"COMPILING ircot: not shown to help, \+\.\d+ \[.*\] over 60 shared", tiles)
    assert "$ FOR 1,000 QUESTIONS\n$0.56" in tiles
    assert page.locator(".forest tbody tr").count() == 6
    assert page.locator("#programs tbody tr").count() == 5
    for part in ("#forest .ticks", "#chart svg.chart"):
        bottom = page.locator(part).bounding_box()
        assert bottom["y"] + bottom["height"] < 900


def test_every_control_works_and_the_address_keeps_it(show: Open, runs: list[Path]) -> None:
    page = show(runs)
    page.select_option("#metric", "em")
    assert "em ▾" in page.locator("#programs thead").inner_text()
    page.select_option("#against", "best")
    assert page.locator("#forest-caption").inner_text() == "em less that of ircot compiled"
    page.select_option("#axis", "calls")
    assert "calls a question" in page.locator("#chart").inner_text()
    page.locator("#programs thead button", has_text="tokens").click()
    assert page.locator("#programs tbody th").first.inner_text().strip() == "direct"
    page.locator("#programs tbody th button").first.click()
    assert "k=5" in page.locator("#programs tr.more").inner_text()
    assert page.locator("#count").inner_text().startswith("60 of 60 questions")
    page.select_option("#show", "differ")
    differing = shown(page)
    assert 0 < differing < 60
    page.select_option("#cause", "retrieval/never_in_reach")
    assert shown(page) <= differing
    page.fill("#find", "Q00003")
    page.select_option("#cause", "")
    page.select_option("#show", "")
    assert shown(page) == 1
    page.select_option("#right", label="react")
    page.locator("#list tbody button").first.click()
    page.wait_for_selector(".sides")
    assert not page.locator("#overview").is_visible()
    assert page.locator(".side").first.locator("ol li").count() == 6
    assert page.locator(".side").last.locator(".times rect").count() == 4
    stray = "side => [...side.childNodes].filter((each) => each.nodeType === 3).length"
    assert page.locator(".side").last.evaluate(stray) == 0, "a call without a prompt says nothing"
    asked = page.url.partition("#")[2]
    for part in ("metric=em", "find=Q00003", "react&", "q=q00003", "sort=tokens"):
        assert part in asked
    again = show(runs, address=f"#{asked}")
    again.wait_for_selector(".sides")
    assert again.locator(".side h3").all_inner_texts()[-1].strip() == "react"
    again.keyboard.press("Escape")
    assert again.locator("#overview").is_visible()
    assert again.input_value("#find") == "Q00003"


def test_a_count_shows_exactly_its_questions(show: Open, runs: list[Path]) -> None:
    page = show(runs)
    page.locator("#causes summary").click()
    for button in page.locator("#causes button").all():
        count = int(button.inner_text().split()[-1])
        button.click()
        assert shown(page) == count
    page.select_option("#cause", "")
    won, lost = page.locator("#count button").all_inner_texts()
    for kind, text in (("won", won), ("lost", lost)):
        page.select_option("#show", kind)
        assert shown(page) == int(text.rpartition(": ")[2])


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
    first = page.locator("#question h2").inner_text()
    assert page.evaluate("scrollY") == 0
    page.keyboard.press("j")
    page.locator("#question .bar", has_text="2 of 60").wait_for()
    assert page.locator("#question h2").inner_text() != first
    page.keyboard.press("k")
    page.locator("#question .bar", has_text="1 of 60").wait_for()
    assert page.locator("#question h2").inner_text() == first
    scales = page.locator(".times .ticks").all_text_contents()
    assert len(scales) == 2
    assert scales[0] == scales[1]
    assert scales[0].startswith("0")
    page.keyboard.press("Escape")
    page.locator("#overview").wait_for()
    assert page.evaluate("scrollY") == 500


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(show: Open, runs: list[Path], decided: Path, scheme: str) -> None:
    """The rules of axe-core: contrast, names, roles, headings, tables, what keys reach."""
    for folders, address in ((runs, ""), ([decided], ""), (runs, "#q=q00001")):
        page = show(folders, address=address, color_scheme=scheme)
        page.wait_for_selector(".sides" if address else "#chart svg")
        for fold in page.locator("details > summary").all():
            fold.evaluate("summary => { summary.parentElement.open = true; }")
        broken = Axe().run(page).response["violations"]
        assert [
            (rule["id"], [node["html"][:99] for node in rule["nodes"]]) for rule in broken
        ] == []
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")


def test_without_scripts_table_and_sentences_stand(
    browser: Any, decided: Path, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    write_page(make_board([decided]), path)
    page = browser.new_page(java_script_enabled=False)
    page.goto(path.as_uri())
    text = page.locator("body").inner_text()
    page.close()
    assert re.search(r"Compiling ircot .* HELPS: f1 0\.\d+ -> 0\.\d+", text)
    assert re.search(r"ircot compiled\s+80\s+0\.\d+ \[", text)


def test_a_compile_shows_what_it_tried_and_every_plot_is_a_figure_of_its_own(
    show: Open, decided: Path, tmp_path: Path, command: Any
) -> None:
    page = show([decided])
    said = page.locator("#compiles").inner_text()
    assert "ircot by bootstrap, seed 0" in said
    assert "5 programs tried on 20 validation questions, em .500 as it is, .700" in said
    marks = page.locator("#compiles svg").first.locator("circle").count()
    assert marks == 6
    code, out, problem = command("report", decided, "--figures", "svg", "-o", tmp_path / "figures")
    assert code == 0, problem
    names = {Path(line).stem for line in out.splitlines()}
    assert names >= {"differences", "score-and-cost", "causes", "compile-1", "break-even-1"}
    for name in names:
        drawn = ElementTree.parse(tmp_path / "figures" / f"{name}.svg").getroot()
        assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in ElementTree.tostring(drawn, "unicode")
    caption = (tmp_path / "figures" / "differences.txt").read_text()
    assert re.search(r"over 80 shared questions\..*95 % intervals.*3 tests \(Holm\)", caption)
    assert command("report", decided, "--figures", "pdf", "-o", tmp_path / "pdf")[0] == 0
    assert (tmp_path / "pdf" / "causes.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("width", [420, 800, 1400])
def test_nothing_is_wider_than_the_window_and_paper_keeps_all_columns(
    show: Open, runs: list[Path], tmp_path: Path, width: int
) -> None:
    identity = {**CARD["identity"], "program": "a_program_with_a_very_long_name_" * 4}
    wide = answered("q00000", "W" * 900, question="Q" * 500)
    more = make_run(tmp_path / "long", [wide], identity=identity, model="gpt-4o-mini")
    page = show([*runs, more], viewport={"width": width, "height": 900})
    page.locator("#list tbody button").first.click()
    page.wait_for_selector(".sides")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width == 1400:
        page = show(runs, viewport={"width": 703, "height": 1000})  # A4 within its margins
        page.emulate_media(media="print")
        table = page.locator("#programs")
        assert table.locator("thead th:visible").count() == 11
        assert table.bounding_box()["width"] <= 703
        assert page.evaluate("document.documentElement.scrollWidth") <= 703


def test_thirty_programs_stay_apart_and_every_one_is_named(show: Open, tmp_path: Path) -> None:
    for n in range(30):
        made = [answered(f"q{i}", "Norway" if (i * n) % 7 else "Chad") for i in range(4)]
        identity = {**CARD["identity"], "program": f"program{n}"}
        make_run(tmp_path / str(n), made, identity=identity)
    page = show([tmp_path])
    marks = page.locator("#programs th[scope=row] path").evaluate_all(
        "paths => paths.map((path) => path.getAttribute('d') + path.getAttribute('stroke'))"
    )
    assert len(set(marks)) == len(marks) == 30
    boxes = [each.bounding_box() for each in page.locator("#chart svg.chart > text.name").all()]
    assert len(boxes) == 30
    right = page.locator("#chart").bounding_box()
    for a, b in itertools.permutations(boxes, 2):
        assert abs(a["y"] - b["y"]) >= min(a["height"], b["height"]) - 3
        assert a["x"] + a["width"] <= right["x"] + right["width"] + 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colour_blind_eyes_tell_the_colours_apart(
    show: Open, runs: list[Path], scheme: str
) -> None:
    page = show(runs, color_scheme=scheme)
    read = "names => names.map((name) => getComputedStyle(document.body).getPropertyValue(name))"
    colours = page.evaluate(read, [f"--s{n}" for n in range(6)])
    linear = [_linear(colour.strip()) for colour in colours]
    for eyes in (np.eye(3), PROTANOPIA, DEUTERANOPIA):
        seen = [_lab(eyes @ colour) for colour in linear]
        for a, b in itertools.combinations(seen, 2):
            assert np.linalg.norm(a - b) > 15  # CIE76


#: What colour-blind eyes see, in linear RGB: Machado, Oliveira, Fernandes (2009), severity 1.
PROTANOPIA = np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                       [-0.003882, -0.048116, 1.051998]])  # fmt: skip
DEUTERANOPIA = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                         [-0.011820, 0.042940, 0.968881]])  # fmt: skip
TO_XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                   [0.0193339, 0.1191920, 0.9503041]])  # fmt: skip


def _linear(colour: str) -> Any:
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def _lab(linear: Any) -> Any:
    xyz = np.clip(TO_XYZ @ np.clip(linear, 0, 1), 0, None) / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_a_swept_knob_is_a_curve_in_its_order(show: Open, tmp_path: Path) -> None:
    for k in (10, 2, 5):
        make_run(tmp_path / f"k{k}", [answered("q1", "Norway")], knobs={"k": k})
    page = show([tmp_path])
    page.select_option("#axis", "k")
    ticks = page.locator("#chart [aria-label='x-axis tick label'] text").all_text_contents()
    assert ticks == ["2", "5", "10"]


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
    threading.Thread(target=server.serve_forever, daemon=True).start()
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
        assert "left" in page.locator("#programs tbody").inner_text()
    finally:
        page.close()
        server.shutdown()
        server.server_close()
