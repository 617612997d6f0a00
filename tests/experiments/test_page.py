"""The page: its numbers, its advice, what it takes and refuses, its HTML, its server."""

import contextlib
import errno
import json
import os
import re
import sqlite3
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ragbench.errors import RunError, UnknownNameError
from ragbench.experiments.letters import letter_of
from ragbench.experiments.recommend import advise
from ragbench.experiments.report.choice import advice_report
from ragbench.experiments.report.names import short_names
from ragbench.experiments.report.page.data import page_data
from ragbench.experiments.report.page.html import make_server, page_of, write_page
from ragbench.experiments.report.page.report_data import ReportData, make_board
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.store import read_card, read_records
from ragbench.metrics import compare_scores, mean_interval
from tests.experiments import boards
from tests.experiments.scored_runs import CARD, answered, make_run, study
from tests.runs import query

COMPILED = {**CARD["identity"], "compiled": "sha256:" + "ab" * 32}


def data_of(runs: list[Path], metric: str = "f1") -> dict[str, Any]:
    return dict(json.loads(json.dumps(page_data(make_board(runs, metric)))))


def about(data: dict[str, Any]) -> str:
    return "".join(text for _, text in data["groups"][0]["about"])


def test_every_number_is_that_of_the_records(runs: list[Path]) -> None:
    data = data_of(runs)
    frames = {}
    for path in runs:
        with contextlib.closing(sqlite3.connect(path / "run.db")) as db:
            frame = pd.read_sql_query("SELECT * FROM answers", db).set_index("qid")
        value = frame["value"].map(json.loads)
        pids = value.map(lambda record: {passage["pid"] for passage in record["passages"]})
        gold = value.map(lambda record: set(record["gold_pids"]))
        frame["all_recall"] = [float(g <= p) for g, p in zip(gold, pids, strict=True)]
        # Answers are "Norway", which is right, or "Sweden".
        frame["em"] = frame["f1"] = (frame["answer"] == "Norway").astype(float)
        frames[path.as_posix()] = frame
    for run in data["programs"]:
        frame = frames[run["folder"]]
        for metric in ("f1", "em"):
            own, shown = mean_interval(list(frame[metric]), (0.0, 1.0)), run["means"][metric]
            assert shown["n"] == len(frame) == run["n"]
            made = [shown[f"{metric}{end}"] for end in ("", "_low", "_high")]
            assert made == pytest.approx([frame[metric].mean(), own.low, own.high])
        for name in ("tokens", "cost_usd", "calls"):
            assert run[name] == pytest.approx(frame[name].mean(), abs=1e-7), name
        assert run["p95_s"] == pytest.approx(np.quantile(frame["latency_s"], 0.95), abs=1e-3)
        right = frame[frame["em"] == 1]
        lost = (right["all_recall"] == 0).sum()
        assert (run["without_gold"], run["right"]) == (lost, len(right))
    names = [run["folder"] for run in data["runs"]]
    [family] = data["families"]["f1"]
    for places, shown in family["pairs"].items():
        base, at = (int(place) for place in places.split(","))
        left, right = (frames[names[place]]["f1"].sort_index() for place in (base, at))
        found = compare_scores(left, right)
        wanted = [found.difference, found.interval.low, found.interval.high]
        assert [shown[name] for name in ("difference", "low", "high")] == pytest.approx(wanted)
        apart = shown["corrected_low"] > 0 or shown["corrected_high"] < 0
        assert apart == (shown["word"] in ("better", "worse"))
    assert len(family["pairs"]) == family["tests"]
    by_question = [frames[name]["f1"].sort_index() for name in names]
    assert [q["qid"] for q in data["questions"]] == list(by_question[0].index)
    for column, wanted in zip(data["scores"]["f1"], by_question, strict=True):
        assert column == pytest.approx(list(wanted), abs=1e-4)


def test_page_texts_say_what_recommend_says_in_any_order(runs: list[Path], tmp_path: Path) -> None:
    def said(data: dict[str, Any]) -> str:
        return "".join(text for _, text in data["texts"]["f1"][0]["headline"])

    data = data_of(runs)
    evaluations = [[reopen(run)] for run in runs]
    advice = advise(evaluations, labels=[run.name for run in runs])
    [brief] = [each for each in advice_report(advice) if getattr(each, "level", "") == "brief"]
    named = said(data)
    for program in data["programs"]:
        named = named.replace(f"{program['key']}, {program['row']}", program["key"])
    assert named.replace(",", "").lower() == f"{brief.prose[0]}.".replace(",", "").lower()
    [compiled] = [program for program in data["programs"] if program["compiled"]]
    assert data["programs"][compiled["before"]]["name"] == "ircot"
    turned = []
    for path in runs:
        records = list(read_records(path).values())[::-1]
        turned.append(make_run(tmp_path / path.name, records, **read_card(path).model_dump()))
    assert said(data_of(turned[::-1])) == said(data)


def test_letters_go_down_from_the_highest_score_and_controls_come_last(decided: Path) -> None:
    programs = sorted(data_of([decided])["programs"], key=lambda program: program["rank"])
    assert [program["key"] for program in programs] == ["A", "B", "C", "D", "E"]
    assert [program["control"] for program in programs] == [False, False, False, True, True]
    means = [program["means"]["f1"]["f1"] for program in programs[:3]]
    assert means == sorted(means, reverse=True)


def facts_of(folder: Path, metric: str = "f1") -> tuple[str, dict[str, str]]:
    """Return the sentence of a board and the answers to its four questions, as plain text."""
    texts = data_of([folder], metric)["texts"][metric][0]
    answers = {}
    for question, parts in texts["facts"]:
        answers[question] = "".join(text for _, text in parts)
    return "".join(text for _, text in texts["headline"]), answers


def test_texts_of_a_tie_of_few_questions_say_that_they_are_too_few(tmp_path: Path) -> None:
    boards.few(tmp_path)
    sentence, facts = facts_of(tmp_path)
    assert sentence.startswith("Undecided: 4 questions are too few to advise by; ")
    assert facts["Is it real?"].startswith("0 of 3 significantly worse than A.")
    assert facts["Does compiling help?"].startswith("Not asked here.")


def test_texts_of_a_winner_compiled_and_priced(eight: Path) -> None:
    sentence, facts = facts_of(eight)
    assert sentence == (
        "A, ircot compiled, scores highest; E to H are significantly worse; undecided whether "
        "B, lookahead, which costs 68 % less, is as good (about 2,600 questions would tell)."
    )
    assert facts["Is it real?"].startswith("4 of 7 significantly worse than A (E to H).")
    assert facts["What does it cost?"].startswith("$0.01 to $1.05 per 1,000 questions.")
    assert facts["Does compiling help?"] == (
        "Not significantly: A scores .140 more than D, uncompiled. "
    )
    assert facts["What is wrong with the runs?"].startswith("0 questions failed, no price missing.")


def test_texts_of_missing_prices_name_the_programs(tmp_path: Path) -> None:
    boards.unpriced(tmp_path)
    _, facts = facts_of(tmp_path)
    assert "No price for A and C." in facts["What does it cost?"]
    assert "A and C without a price" in facts["What is wrong with the runs?"]


def test_texts_of_a_verdict_open_with_its_sentence_and_answer_shortly(decided: Path) -> None:
    sentence, facts = facts_of(decided)
    assert re.match(r"Compiling ircot .* improves f1: 0\.\d+ to 0\.\d+", sentence)
    answer = facts["Does compiling help?"]
    assert re.match(r"Yes: \+0\.\d+ \[.*\] f1; with the answer form repaired .*; against", answer)
    assert len(answer) <= 200


def test_texts_of_failures_one_run_and_an_unfinished_run(tmp_path: Path) -> None:
    failed = {"boundary": "lm", "error": "TimeoutError", "message": "slow"}
    failure_row = answered("q2", "", failure=failed)
    rows = [answered("q1", "Norway"), failure_row, answered("q3", "noanswer")]
    make_run(tmp_path / "one", rows, questions=3)
    sentence, facts = facts_of(tmp_path / "one")
    assert re.match(r"A, \w+, scores \.333 f1 on 3 questions; a second run", sentence)
    assert facts["What is wrong with the runs?"].startswith("1 question failed")
    assert "A refused 1 question." in facts["What is wrong with the runs?"]
    assert facts["Is it real?"].startswith("Not asked here.")
    make_run(tmp_path / "part", rows[:1], questions=6)
    sentence, _ = facts_of(tmp_path / "part")
    assert sentence == "Running: 1 of 6 questions are finished, and no run is complete."


def test_empty_page_waits_for_the_first_record(tmp_path: Path) -> None:
    page = "".join(page_of(ReportData([], [], ["f1"], "f1")))
    assert "No run has a record yet." in page
    server = make_server(tmp_path, port=0, metric="f1")
    try:
        data = server.board()[1]
        assert data["programs"] == []
        make_run(tmp_path / "run", [answered("q1", "Norway")])
        assert len(server.board()[1]["programs"]) == 1
    finally:
        server.server_close()


def test_causes_of_seeds_are_a_mean_and_not_a_sum(decided: Path) -> None:
    data = data_of([decided])
    [pooled] = [p for p in data["programs"] if len(p["runs"]) == 3 and not p["control"]]
    wrong = [sum(bool(cell and cell[1]) for cell in data["cells"][at]) for at in pooled["runs"]]
    assert sum(pooled["causes"].values()) == pytest.approx(sum(wrong) / 3)


def test_names_of_real_systems_are_short_and_stay_different() -> None:
    long = ["langgraph multi agent supervisor research team final",
            "langgraph multi agent supervisor research team final2",
            "hipporag2 openie gpt4omini nvembed", "ircot"]  # fmt: skip
    short = short_names(long)
    assert max(map(len, short)) <= 28
    assert len(set(short)) == 4
    assert short[3] == "ircot"
    assert [letter_of(rank) for rank in (0, 25, 26, 701, 702)] == ["A", "Z", "AA", "ZZ", "AAA"]


@pytest.mark.parametrize(
    ("cards", "names", "before"),
    [
        (
            [
                {"identity": {**COMPILED, "compiled": f"sha256:{seed}" + "ab" * 31},
                 "config": {"compiled": f"verdicts/x/program-{seed}"}}
                for seed in range(2)
            ],
            ["vanilla compiled, program-0", "vanilla compiled, program-1"],
            [None, None],
        ),
        (
            [{"knobs": {"k": 3}}, {"knobs": {"k": 5}}, {"knobs": {"k": 5}, "identity": COMPILED}],
            None,
            [None, None, 1],  # paired with the one of the same knobs
        ),
        ([{"knobs": {"k": n}} for n in range(30)], None, [None] * 30),
    ],
)  # fmt: skip
def test_names_are_what_differs_and_any_number_of_runs_is_shown(
    tmp_path: Path, cards: list[dict[str, Any]], names: list[str] | None, before: list[int | None]
) -> None:
    for at, card in enumerate(cards):
        make_run(tmp_path / f"run-{at:02}", [answered("q1", "Norway")], **card)
    data = data_of([tmp_path])
    assert [program["before"] for program in data["programs"]] == before
    assert names is None or [run["name"] for run in data["runs"]] == names


def test_judged_scores_show_without_parsing_a_record_and_other_metrics_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Causes and judged scores are stored facts, so the page of large runs is fast."""
    run = make_run(
        tmp_path / "run", [answered("q1", "Oslo", scores={"judge": 1.0}), answered("q2", "Chad")]
    )
    other = make_run(tmp_path / "other", [answered("q1", "Chad")])
    monkeypatch.setattr("ragbench.experiments.store.records.parse_record", None)
    data = data_of([run], "judge")
    assert data["scores"]["judge"] == [[1, None]]
    assert [cause for _, cause in data["cells"][0]] == [
        "data/metrics_disagree",
        "reading/same_type",
    ]
    assert "judge" not in data_of([other])["metrics"]
    with pytest.raises(RunError, match=r"no run has the metric judge\. Available: f1, em"):
        make_board([other], "judge")
    with pytest.raises(UnknownNameError):
        make_board([run], "nope")


def test_one_import_names_no_lm_on_others_and_nine_servers_are_one_lm(tmp_path: Path) -> None:
    record = [answered("q1", "Norway")]
    for at, program in enumerate(["vanilla", "ircot", "react", "direct"]):
        identity = {**CARD["identity"], "program": program}
        model = f"openai/m-small@127.0.0.1:{7000 + at}/v1"
        make_run(tmp_path / program, record, identity=identity, model=model)
    data = data_of([tmp_path])
    assert [run["name"] for run in data["programs"]] == ["direct", "ircot", "react", "vanilla"]
    assert about(data) == "hotpotqa · 1 question, distractor · m-small · bm25"
    assert [short for short, _ in data["lms"]] == ["m-small"]
    make_run(tmp_path / "x", record, model="anthropic/other@https://example.org/v1")
    data = data_of([tmp_path])
    names = ["direct", "ircot", "react", "vanilla", "vanilla, other"]
    assert [run["name"] for run in data["programs"]] == names
    assert about(data).endswith("· m-small · bm25")


def test_a_verdict_opens_with_its_sentence_its_seeds_are_one_program_and_what_is_no_run_is_left_out(
    decided: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boards.sweep(tmp_path / "sweeps", n=8, programs=("vanilla", "ircot"))
    damaged = (("bad", "experiment.json", '{"cells": 7}'), ("begun", "run.db", "{"))
    for folder, name, text in damaged:
        (tmp_path / "sweeps" / folder).mkdir()
        (tmp_path / "sweeps" / folder / name).write_text(text)
    data = data_of([decided, tmp_path / "sweeps"])
    assert re.search(r"Skipping .*begun: ", caplog.text)
    experiments = {artefact["kind"]: artefact for artefact in data["artefacts"]}
    assert set(experiments) == {"verdict", "sweep", "compile"}
    assert [row["order"] for row in experiments["compile"]["tried"]] == [None, 1, 2, 3, 4, 5]
    headline = experiments["verdict"]["headlines"]["f1"]
    assert re.match(
        r"Compiling ircot \(bootstrap, 50 questions, 3 seeds\) improves f1: 0\.\d+ to 0\.\d+, "
        r"\+0\.\d+ \[\+0\.\d+, \+0\.\d+\], p < 0\.001, 80 questions$",
        headline,
    )
    pooled = [program for program in data["programs"] if len(program["runs"]) > 1]
    assert [program["name"] for program in pooled] == [
        "ircot compiled", "ircot compiled, form repaired"
    ]  # fmt: skip
    runs = [data["runs"][at]["folder"] for at in pooled[0]["runs"]]
    assert runs == [(decided / "cells" / f"compiled-{seed}").as_posix() for seed in range(3)]
    means = []
    for folder in runs:
        means += query(Path(folder), "SELECT avg(answer = 'Norway') FROM answers")[0]
    assert pooled[0]["means"]["em"]["em"] == pytest.approx(np.mean(means), abs=1e-6)
    texts = data_of([tmp_path / "sweeps"])["texts"]["f1"][0]
    assert texts["title"].startswith("12 cells: ")
    folders = {program["folder"] for program in data["programs"]}
    sweep = experiments["sweep"]
    assert (len(sweep["rows"]), len(sweep["columns"])) == (4, 3)
    assert all(cell["folder"] in folders for *_, cells in sweep["rows"] for cell in cells)
    assert sum(cell["baseline"] for *_, cells in sweep["rows"] for cell in cells) == 2
    with pytest.raises(RunError, match="no run in"):
        make_board([tmp_path / "nowhere"])


def test_the_command_writes_the_whole_page_or_none_and_it_asks_for_nothing_outside(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    out = tmp_path / "page.html"
    assert "5 runs" in "".join(command("report", *runs, "-o", out, "--metric", "em")[1:])
    before = out.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left"):
        write_page(make_board(runs), out)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "page" in path.name] == ["page.html"]
    page = page_of(make_board(runs))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    links = re.findall(r"(?:src|href)=\"?([^\" >]+)", page.partition("<script>")[0])
    assert links == ["#questions"]


def test_the_server_follows_a_run_that_goes_on(tmp_path: Path) -> None:
    runs = study(tmp_path, questions=3)
    with pytest.raises(UnknownNameError, match="no metric named 'nope'"):
        make_server(tmp_path, port=0, metric="nope")
    server = make_server(tmp_path, port=0, metric="em")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def get(path: str, **headers: str) -> str:
        address = f"http://127.0.0.1:{server.server_port}{path}"
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as reply:
            return str(reply.read().decode())

    try:
        first = get("/version")
        assert "connect-src 'self'" in get("/")
        make_run(runs[0], [answered("q1", "Norway"), answered("q7", "Oslo")])  # two more
        assert get("/version") != first
        assert len(json.loads(get("/data"))["questions"]) == 5
        assert "q00000" in json.loads(get("/piece/1/0"))["records"]
        for path, headers, code in (
            ("/piece/99/0", {}, "404"), ("/piece/../x", {}, "404"), ("/config.json", {}, "404"),
            ("/", {"Host": "evil.example:80"}, "403"),
            ("/", {"Host": "127.0.0.1:80.evil.com"}, "403"),
            ("/data", {"Host": "localhost"}, "403"),
        ):  # fmt: skip
            with pytest.raises(urllib.error.HTTPError, match=code):
                get(path, **headers)
    finally:
        server.shutdown()
        server.server_close()
