"""A run's database: what is written is there, whoever is killed; what was changed is noticed."""

import contextlib
import json
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ragbench.errors import RunError
from ragbench.experiments.doctor import examine
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.store import (
    DATABASE,
    RunCard,
    RunFolder,
    Store,
    billed_calls,
    database,
    locked,
    question_row,
    read_card,
    read_records,
)
from ragbench.record import CUT_OFF, Call, Failure
from tests.experiments.scored_runs import CARD, answered, four, make_run
from tests.metrics.records import failure
from tests.runs import query


def card() -> RunCard:
    return RunCard.model_validate(CARD)


def said(folder: Path) -> str:
    return "\n".join(f"{path.name}: {what}" for path, what in examine(folder))


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    found = read_records(folder)
    assert dict(found) == {record.qid: record for record in four()}
    assert found.finished == {"q1", "q2", "q3"}
    assert found.column(lambda record: record.answer)["q3"] == "Sweden"
    assert list(found.only(["q3", "q1"])) == ["q3", "q1"]
    assert read_records(tmp_path / "none") == {}
    assert sorted(path.name for path in folder.iterdir()) == ["card.json", DATABASE]
    assert not said(folder)


def test_card_put_while_another_thread_creates_the_database_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    make = database._make

    def make_slowly(path: Path, settings: Sequence[tuple[str, str]]) -> None:
        begun.set()
        go_on.wait(20)
        make(path, settings)

    monkeypatch.setattr(database, "_make", make_slowly)
    with Store(tmp_path / "run", card()) as store, ThreadPoolExecutor() as threads:
        created = threads.submit(store.run)
        begun.wait(20)
        put = threads.submit(store.put_card, card().model_copy(update={"index": {"edges": 3}}))
        with contextlib.suppress(TimeoutError):
            put.result(0.1)
        go_on.set()
        created.result()
        put.result()
    assert read_card(tmp_path / "run").index == {"edges": 3}


def test_a_later_record_counts_and_what_a_limit_cut_off_was_not_asked(tmp_path: Path) -> None:
    cut = replace(failure(), failure=Failure("limit", CUT_OFF, "stopped"))
    again = [replace(cut, qid="q4"), answered("q4", "Norway"), replace(cut, qid="q5")]
    found = read_records(make_run(tmp_path / "run", [*four(), *again]))
    assert found["q4"].answer == "Norway"
    assert sorted(found.column_beside(lambda record: record.qid)) == ["q4", "q4", "q5"]
    assert found.cut_off_questions == {"q5"}
    assert found.finished == {"q1", "q2", "q3", "q4"}


def test_calls_without_a_record_were_billed_all_the_same(tmp_path: Path) -> None:
    def lost() -> list[int]:
        return [call.prompt_tokens for call in RunFolder(tmp_path).lost_calls()]

    with Store(tmp_path, card()) as store:
        for qid in ("q1", "q2"):
            store.file_call(qid, Call("m", prompt_tokens=3))
        store.file_call("q2", Call("m", cached=True))
        store.write(answered("q1", "a"))
        store.file_call("q1", Call("m", prompt_tokens=7))  # It ends after its record.
    assert sorted(lost()) == [3, 7]
    with Store(tmp_path, card()) as store:  # Asked again: the lost call stays.
        store.file_call("q2", Call("m", prompt_tokens=5))
        store.write(answered("q2", "b"))
    assert sorted(lost()) == [3, 7]
    assert len(list(billed_calls(tmp_path / DATABASE))) == 4


def test_scores_go_to_the_answer_and_not_to_a_later_record_that_was_cut_off(
    tmp_path: Path,
) -> None:
    cut = replace(failure(), failure=Failure("limit", CUT_OFF, "stopped"))
    judged = answered("q1", "Oslo", scores={"judge": 1.0})
    folder = make_run(tmp_path / "run", [answered("q1", "Oslo"), replace(cut, qid="q1")])
    with Store(folder, card()) as store:
        store.write_scores({"q1": {"scores": {"judge": 1.0}, "judged": ["judge"]}}, [judged])
    run = RunFolder(folder)
    assert run.scores() == {"q1": {"judge": 1.0}}
    assert run.records.column(question_row)["q1"].cause == "data/metrics_disagree"
    assert run.records.with_other_facts() == []
    assert query(folder, "SELECT record FROM scores") == [(1,)]


def test_texts_are_kept_once_without_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefghijklmnop")
    with Store(tmp_path) as store:
        names = [store.keep(text) for text in ("a", "a", "my sk-abcdefghijklmnop", "lone \ud800")]
    assert names[0] == names[1]
    assert query(tmp_path, "SELECT count(*) FROM prompts") == [(3,)]
    texts = RunFolder(tmp_path).texts(names)
    assert "sk-abc" not in texts[names[2]]
    assert texts[names[3]] == "lone ?"
    for damage in ("'x'", "x'ff'"):
        query(tmp_path, f"UPDATE prompts AS p SET text = {damage} WHERE id = ?", names[0])
        assert names[0] not in RunFolder(tmp_path).texts(names)


def test_locked_a_second_time_is_refused_whatever_is_deleted(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    with locked(folder):
        (folder / "card.json").unlink()
        with pytest.raises(RunError, match="is in use by another process"), locked(folder):
            pass
    with locked(folder):
        pass


def test_a_writer_that_was_taken_over_or_whose_file_is_gone_writes_no_more(tmp_path: Path) -> None:
    with Store(tmp_path, card()) as first, Store(tmp_path, card()) as second:
        first.write(answered("q1", "a"))
        second.write(answered("q2", "a"))
        with pytest.raises(RunError, match="was taken over by another process"):
            first.write(answered("q3", "a"))
        (tmp_path / DATABASE).unlink()
        with pytest.raises(RunError, match="was removed or replaced"):
            second.write(answered("q4", "a"))


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    with Store(tmp_path, card()) as store:
        store.write(answered("q1", "a"))
        db = store._db
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(RunError, match=r"cannot write .*run\.db: database or disk is full"):
            store.write(answered("q2", "a" * 100_000))
        db.execute("PRAGMA max_page_count=1000000")
        store.write(answered("q3", "a"))
    assert list(read_records(tmp_path)) == ["q1", "q3"]


COPIED = (
    "qid, state, question, answer, em, f1, stop_reason, error, calls, tokens, cost_usd, latency_s, "
    "value, digest"
)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE records SET value = replace(value, 'Sweden', 'Norway')", "the record of q3 was"),
        ("UPDATE records SET qid = x'ff' WHERE qid = 'q3'", "was damaged or changed"),
        ("DELETE FROM records WHERE qid = 'q1'", "it has 3 records, and 4 were written"),
        (f"INSERT INTO records SELECT 9, {COPIED} FROM records WHERE qid = 'q1'",
         "q1 has two finished records"),
        ("UPDATE facts SET value = replace(value, '\"em\": 0.0', '\"em\": 1.0')",
         "the facts of q3 do not follow from its record"),
    ],
)  # fmt: skip
def test_a_change_by_hand_is_noticed(tmp_path: Path, statement: str, told: str) -> None:
    folder = make_run(tmp_path / "run", four())
    query(folder, statement)
    assert told in said(folder)
    assert all(isinstance(qid, str) for qid in read_records(folder).damaged)


def test_facts_changed_or_deleted_by_hand_are_computed_from_the_record(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    good = reopen(folder).stored()
    for change in ("value = replace(value, '0.0', '1.0')", "value = '{'", "value = 7"):
        query(folder, f"UPDATE facts SET {change}")
        assert reopen(folder).stored() == good
    query(folder, "DELETE FROM facts")
    assert reopen(folder).stored() == good
    rows = query(folder, "SELECT em, f1, cost_usd, gold_in_context FROM answers ORDER BY qid")
    assert rows == [(r.scores.get("em"), r.scores.get("f1"), None, None) for r in four()]


def test_facts_that_a_kill_lost_are_read_from_the_record_and_written_by_the_next_process(
    tmp_path: Path,
) -> None:
    Store(tmp_path, card()).write(answered("q1", "Oslo"))  # never closed, as after a kill
    counted = "SELECT count(*) FROM facts"
    assert query(tmp_path, counted) == [(0,)]
    run = RunFolder(tmp_path)
    assert run.records.column(question_row)["q1"].answer == "Oslo"
    assert run.records.with_other_facts() == []
    with Store(tmp_path, card()) as store:
        store.write(answered("q2", "Bergen"))
    assert query(tmp_path, counted) == [(2,)]
    assert RunFolder(tmp_path).records.with_other_facts() == []


def test_a_flipped_byte_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    good = (folder / DATABASE).read_bytes()
    for place in (n for n in range(0, len(good), 97) if good[n]):
        (folder / DATABASE).write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        try:
            found = read_records(folder)
            whole = dict(found) == {record.qid: record for record in four()}
        except RunError:
            continue
        assert whole or found.damaged or said(folder), f"byte {place}"


def test_another_version_another_file_or_a_damaged_call_is_one_line(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    query(folder, "INSERT INTO calls VALUES (7, 1, '', '', '{')")
    with pytest.raises(RunError, match="row 7 of its calls is damaged"):
        RunFolder(folder).preparation_calls()
    query(folder, "PRAGMA user_version = 7")
    with pytest.raises(RunError, match="has format 7, and this version of ragbench reads format 5"):
        read_records(folder)
    with pytest.raises(RunError, match="has format 7"), Store(folder) as store:
        store.write(answered("q9", "a"))
    (folder / DATABASE).unlink()
    sqlite3.connect(folder / DATABASE).execute("CREATE TABLE a (b)").connection.close()
    with pytest.raises(RunError, match="was not written by ragbench"):
        read_records(folder)
    (folder / DATABASE).write_text("no database at all, but text that is long enough\n" * 99)
    with pytest.raises(RunError, match="cannot read"):
        read_records(folder)


def test_a_card_that_was_put_beside_another_run_is_noticed(tmp_path: Path) -> None:
    one, two = (make_run(tmp_path / name, four()) for name in "ab")
    (two / "card.json").write_bytes((one / "card.json").read_bytes())
    with pytest.raises(RunError, match="belongs to another run"):
        read_card(two)
    path = one / "card.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": "other"}))
    assert read_card(one).model == CARD["model"]
    path.unlink()
    assert read_card(one).model == CARD["model"]
