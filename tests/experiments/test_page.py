"""The page: its numbers, its advice, what it takes and refuses, its HTML, its server."""

import contextlib
import errno
import json
import os
import re
import socket
import sqlite3
import struct
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from ragbench.cli.main import cli
from ragbench.errors import RunError, UnknownNameError
from ragbench.experiments.report.page.data import PIECE, make_board, page_data, pieces
from ragbench.experiments.report.page.html import make_server, page_of, write_page
from ragbench.experiments.store import read_card, read_records
from ragbench.metrics import compare_scores, mean_interval
from tests.experiments.scored_runs import CARD, answered, make_run
from tests.experiments.studies import study


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five runs over 60 questions."""
    return study(tmp_path_factory.mktemp("study"))


def data_of(runs: list[Path], metric: str = "f1") -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(
        json.dumps(page_data(make_board(runs, metric), title="A report"))
    )
    return shown


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
        frame["searches"] = value.map(lambda record: len(record["searches"]))
        # Answers are "Norway", which is right, or "Sweden".
        frame["em"] = frame["f1"] = (frame["answer"] == "Norway").astype(float)
        frame["s"] = frame["latency_s"]
        frames[path.as_posix()] = frame
    for run in data["runs"]:
        frame = frames[run["folder"]]
        for metric in ("f1", "em"):
            interval = mean_interval(list(frame[metric]), (0.0, 1.0))
            assert interval is not None
            shown = run["means"][metric]
            assert shown["n"] == len(frame) == run["n"]
            assert shown[metric] == pytest.approx(frame[metric].mean())
            assert shown[f"{metric}_low"] == pytest.approx(interval.low)
            assert shown[f"{metric}_high"] == pytest.approx(interval.high)
        for name in ("all_recall", "tokens", "cost_usd", "calls", "searches"):
            assert run[name] == pytest.approx(frame[name].mean(), abs=1e-7), name
        assert run["p95_s"] == pytest.approx(np.quantile(frame["s"], 0.95), abs=1e-3)
        right = frame[frame["em"] == 1]
        assert (run["without_evidence"], run["right"]) == (
            (right["all_recall"] == 0).sum(), len(right)
        )  # fmt: skip
    names = [run["folder"] for run in data["runs"]]
    for a, others in data["contrasts"]["f1"].items():
        for b, shown in others.items():
            left, right = (frames[names[int(at)]]["f1"].to_dict() for at in (a, b))
            comparison = compare_scores(left, right)
            assert comparison.interval is not None
            wanted = [comparison.difference, comparison.interval.low, comparison.interval.high]
            made = [shown[f"difference{end}"] for end in ("", "_low", "_high")]
            assert made == pytest.approx(wanted)
    by_question = [frames[name]["f1"].sort_index() for name in names]
    assert [q["qid"] for q in data["questions"]] == list(by_question[0].index)
    for column, wanted in zip(data["scores"]["f1"], by_question, strict=True):
        assert column == pytest.approx(list(wanted), abs=1e-4)


def test_nothing_depends_on_the_order_of_records_or_runs(runs: list[Path], tmp_path: Path) -> None:
    data = data_of(runs)

    def said(found: dict[str, Any]) -> list[Any]:
        advice = found["advice"]["f1"]
        names = [found["runs"][advice[each]]["name"] for each in ("use", "best")]
        return [*names, advice["sentences"], [q["qid"] for q in found["questions"]]]

    turned = []
    for path in runs:
        records = list(read_records(path).values())[::-1]
        card = read_card(path).model_dump()
        turned.append(make_run(tmp_path / f"{path.name}-turned", records, **card))
    assert said(data_of(turned[::-1])) == said(data)


def test_advice_is_the_cheapest_not_shown_worse_and_no_compiled_program_by_its_mean(
    runs: list[Path],
) -> None:
    data = data_of(runs)
    names = [run["name"] for run in data["runs"]]
    best = max(range(5), key=lambda at: data["runs"][at]["means"]["f1"]["f1"])
    assert names[best] == "ircot compiled"  # by its mean, and that is luck
    advice = data["advice"]["f1"]
    assert (names[advice["use"]], names[advice["best"]]) == ("vanilla", "ircot")
    assert data["runs"][best]["before"] == names.index("ircot")
    assert advice["sentences"][0].startswith("use vanilla: the cheapest not shown worse than")


def test_names_are_what_differs_and_never_a_hash(tmp_path: Path) -> None:
    runs = []
    for seed in range(3):
        identity = {**CARD["identity"], "compiled": f"sha256:{seed}" + "ab" * 31}
        config = {"compiled": f"verdicts/x/program-{seed}"}
        runs.append(make_run(tmp_path / str(seed), [answered("q1", "Norway")], identity=identity,
                             config=config))  # fmt: skip
    names = [run["name"] for run in data_of(runs)["runs"]]
    assert names == [f"vanilla compiled, program-{seed}" for seed in range(3)]


def test_a_compiled_program_is_paired_with_one_of_the_same_knobs(tmp_path: Path) -> None:
    compiled = {**CARD["identity"], "compiled": "sha256:" + "ab" * 32}
    cards = [{"knobs": {"k": 3}}, {"knobs": {"k": 5}}, {"knobs": {"k": 5}, "identity": compiled}]
    runs = [make_run(tmp_path / str(n), [answered("q1", "Norway")], **card)
            for n, card in enumerate(cards)]  # fmt: skip
    assert [run["before"] for run in data_of(runs)["runs"]] == [None, None, 1]


def test_any_number_of_runs_can_be_shown(tmp_path: Path) -> None:
    n = 45
    for at in range(n):
        made = [answered(f"q{i}", "Norway" if (i + at) % 3 else "Sweden") for i in range(3)]
        make_run(tmp_path / f"run-{at}", made, knobs={"k": at})
    data = data_of([tmp_path])
    assert len(data["runs"]) == n
    assert 12 <= len(data["baselines"]) <= 14


def test_judged_scores_show_and_a_metric_that_no_run_has_is_refused(tmp_path: Path) -> None:
    judged = [answered("q1", "Norway", scores={"judge": 1.0}), answered("q2", "Chad")]
    run = make_run(tmp_path / "run", judged)
    assert (
        "judge" not in data_of([make_run(tmp_path / "other", [answered("q1", "Chad")])])["metrics"]
    )
    data = data_of([run], "judge")
    assert data["scores"]["judge"] == [[1, None]]
    with pytest.raises(RunError, match="no run has judge; there are f1, em"):
        make_board([tmp_path / "other"], "judge")
    with pytest.raises(UnknownNameError):
        make_board([run], "nope")


def test_what_is_no_run_is_left_out_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = study(tmp_path, questions=3)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.db").write_text("{")
    assert len(data_of([tmp_path])["runs"]) == len(runs)
    assert "begun is left out" in caplog.text
    with pytest.raises(RunError, match="no run in"):
        make_board([tmp_path / "nowhere"])


def test_verdicts_and_sweeps_are_taken_with_their_runs(tmp_path: Path) -> None:
    study(tmp_path / "verdicts" / "x", questions=3)
    conclusions = {"f1": "compiling is not shown to help"}
    shown = {"n": 3, "mean_b": 0.5, "difference": 0.25, "interval": None, "verdict": "better"}
    contrast = {"a": "zero-shot", "b": "compiled", "metric": "f1", **shown}
    made = {"conclusions": conclusions, "contrasts": [contrast]}
    (tmp_path / "verdicts" / "x" / "verdict.json").write_text(json.dumps(made))
    study(tmp_path / "sweeps" / "y" / "cells", questions=3)
    swept = {"contrasts": [{"cell": "k=5", "baseline": "k=2", "scores": {"em": shown}}]}
    (tmp_path / "sweeps" / "y" / "sweep.json").write_text(json.dumps(swept))
    (tmp_path / "sweeps" / "bad").mkdir()
    (tmp_path / "sweeps" / "bad" / "sweep.json").write_text('{"contrasts": 7}')
    data = data_of([tmp_path / "verdicts" / "x", tmp_path / "sweeps"])
    assert len(data["runs"]) == 10
    assert [one["kind"] for one in data["artefacts"]] == ["verdict", "sweep"]
    assert data["artefacts"][0]["conclusions"] == conclusions
    rows = [one["table"][1] for one in data["artefacts"]]
    assert rows == [["compiled - zero-shot", "f1", "3", "0.500", "+0.250", "better"],
                    ["k=5 - k=2", "em", "3", "0.500", "+0.250", "better"]]  # fmt: skip


def test_the_page_asks_for_nothing_outside_and_allows_its_own_script(tmp_path: Path) -> None:
    page = page_of(make_board(study(tmp_path, questions=3)), title="</title><script>bad")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    own = page.partition("<script>")[0]
    assert re.findall(r"(?:src|href)=\"?([^\" >]+)", own) == []
    assert "</title><script>bad" not in page
    assert len(page) < 1_500_000


def test_the_command_writes_the_whole_page_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = study(tmp_path / "runs", questions=3)
    out = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["report", *map(str, runs), "-o", str(out), "--metric", "em"])
    assert done.exit_code == 0, done.output
    assert "5 runs" in done.output
    before = out.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left"):
        write_page(make_board(runs), out, title="again")
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "page" in path.name] == ["page.html"]


def test_traces_come_in_pieces(tmp_path: Path) -> None:
    [run, *_] = study(tmp_path, questions=PIECE + 3)
    board = make_board([run])
    [piece] = pieces(board.runs[0], board.qids, 1)
    assert [*pieces(board.runs[0], board.qids)][1] == piece
    assert [*piece["records"]] == board.qids[PIECE:]
    assert piece["records"][board.qids[-1]]["searches"][0]["k"] == 6


def test_the_server_follows_a_run_that_goes_on(tmp_path: Path) -> None:
    runs = study(tmp_path, questions=3)
    with pytest.raises(UnknownNameError, match="no metric named 'nope'"):
        make_server(tmp_path, port=0, metric="nope")
    server = make_server(tmp_path, port=0, metric="em")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"

    def get(path: str, **headers: str) -> str:
        asked = urllib.request.Request(address + path, headers=headers)
        with urllib.request.urlopen(asked, timeout=30) as reply:
            return str(reply.read().decode())

    try:
        first = get("/version")
        assert "connect-src 'self'" in get("/")
        assert len(json.loads(get("/data"))["questions"]) == 3
        make_run(runs[0], [answered("q1", "Norway"), answered("q7", "Oslo")])  # two more
        assert get("/version") != first
        assert len(json.loads(get("/data"))["questions"]) == 5
        assert "q00000" in json.loads(get("/piece/1/0"))["records"]
        for path in ("/piece/99/0", "/piece/../x", "/config.json"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(path)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get("/", Host="evil.example:80")
    finally:
        server.shutdown()
        server.server_close()


def test_a_browser_that_goes_away_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path, questions=2)
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
