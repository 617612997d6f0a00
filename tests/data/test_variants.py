"""Twins keep ids, support and relations; what is taken away is out of reach and said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragbench.data import Dataset, DataSettings, load_dataset
from ragbench.errors import DataError
from ragbench.experiments.store import RunFolder
from ragbench.metrics import get_metric
from ragbench.metrics.text import normalise_answer
from tests.fake_server import FakeServer
from tests.metrics.records import record


def load(**options: object) -> Dataset:
    return load_dataset(DataSettings(dataset="synthetic", size=200, **options))  # type: ignore[arg-type]


def _gold_text(data: Dataset, pids: list[str]) -> str:
    passages = [data.corpus[data.corpus.positions[pid]] for pid in pids]
    return " ".join(f"{passage.title} {passage.text}" for passage in passages)


@pytest.mark.parametrize("setting", ["distractor", "pooled"])
def test_a_renamed_data_set_is_the_same_but_for_its_names(setting: str) -> None:
    plain, twin = load(setting=setting), load(setting=setting, rename_entities="k")
    assert twin.digest != plain.digest
    assert twin.card["rename_entities"] == "k"
    assert {split: len(part) for split, part in twin.splits.items()} == {
        split: len(part) for split, part in plain.splits.items()
    }
    changed = 0
    for before, after in zip(plain.splits["test"], twin.splits["test"], strict=True):
        assert before.qid == after.qid
        assert before.question != after.question
        assert after.inputs().keys() == ["question"]
        assert [place for _, place in before.support] == [place for _, place in after.support]
        titles = {twin.corpus[twin.corpus.positions[pid]].title for pid in after.gold_pids}
        assert {title for title, _ in after.support} <= titles
        held = normalise_answer(before.answers[0]) in normalise_answer(
            _gold_text(plain, before.gold_pids)
        )
        assert held == (
            normalise_answer(after.answers[0])
            in normalise_answer(_gold_text(twin, after.gold_pids))
        )
        changed += before.answers != after.answers
    assert changed > len(plain.splits["test"]) / 2
    assert twin.digest == load(setting=setting, rename_entities="k").digest
    assert twin.digest != load(setting=setting, rename_entities="other").digest


@pytest.mark.parametrize("setting", ["distractor", "pooled"])
def test_a_question_that_lost_a_gold_passage_cannot_reach_it(setting: str) -> None:
    plain = load(setting=setting)
    twin = load(setting=setting, unanswerable=0.5)
    lost = 0
    for before, after in zip(plain.questions, twin.questions, strict=True):
        own = twin.corpus.own(after.question, after.qid)
        reach = {twin.corpus[place].pid for place in own} if own else set(twin.corpus.positions)
        whole = set(before.gold_pids) <= reach
        assert after.answerable == whole
        assert bool(after.gold_pids) == whole
        lost += not whole
    assert 0.4 * len(plain.questions) < lost == twin.card["unanswerable"]
    if setting == "distractor":
        assert lost == round(0.5 * len(plain.questions))
    assert twin.digest == load(setting=setting, unanswerable=0.5).digest


def test_without_gold_passages_none_can_be_taken_and_small_letters_have_no_names(
    tmp_path: Path,
) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"question": "who founded it?", "answer": "ann"}\n')
    spec = {"dataset": "jsonl", "data_file": file, "corpus_file": tmp_path / "c.jsonl"}
    (tmp_path / "c.jsonl").write_text('{"id": "p", "title": "", "text": "it was ann"}\n')
    with pytest.raises(DataError, match="no known gold passages"):
        load_dataset(DataSettings(**spec, unanswerable=0.5))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no capitalized name"):
        load_dataset(DataSettings(**spec, rename_entities="k"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "answerable", "scores"),
    [
        # em, answer_rate, selective_accuracy, correct_refusal_rate, false_refusal_rate
        ("Paris", True, (1.0, 1.0, 1.0, None, 0.0)),
        ("Rome", True, (0.0, 1.0, 0.0, None, 0.0)),
        ("", True, (0.0, 0.0, None, None, 1.0)),
        ("The passages do not mention it.", True, (0.0, 0.0, None, None, 1.0)),
        ("Paris", False, (None, 1.0, 0.0, 0.0, None)),
        ("unknown", False, (None, 0.0, None, 1.0, None)),
        # failed
        (None, True, (0.0, 0.0, 0.0, None, 1.0)),
        (None, False, (0.0, 0.0, 0.0, 0.0, None)),
    ],
)
def test_answers_and_refusals_are_scored_where_some_questions_have_no_answer(
    answer: str | None, answerable: bool, scores: tuple[float | None, ...]
) -> None:
    asked = record(answer, answers=["Paris"], extra={"answerable": answerable})
    rates = ("answer_rate", "selective_accuracy", "correct_refusal_rate", "false_refusal_rate")
    names = ("em", *rates)
    assert tuple(get_metric(name).score(asked) for name in names) == scores


def test_a_run_over_the_twin_is_paired_with_the_plain_one(
    command: Callable[..., tuple[int, str, str]], server: FakeServer
) -> None:
    def printed(*words: str) -> str:
        code, out, err = command(*words)
        assert code == 0, err
        return out

    def rows(table: str, *words: str) -> list[dict[str, Any]]:
        shown = json.loads(printed(*words, "--format", "json"))
        return next(part["rows"] for part in shown if part["table"] == table)

    def evaluate(out: str, *more: str, model: str = "m") -> None:
        lm = f"openai/{model}@{server.url}"
        data = ("--program", "direct", "--size", "200", "--adapter", "json")
        printed("eval", *data, "--lm", lm, "--out", out, *more)

    plain = {}
    for example in load_dataset(DataSettings(size=200)).splits["test"]:
        plain[example.question] = example.answers[0]
    server.script = lambda hit: json.dumps(
        {"answer": next((a for q, a in plain.items() if q in hit.prompt), "no idea")}
    )
    evaluate("plain")
    evaluate("renamed", "--rename-entities", "k")
    out = printed("compare", "plain", "renamed")
    assert "gain from memory: +1.000 f1" in out
    assert "plain minus renamed" in out
    runs = rows("runs", "show", "plain", "renamed")
    closed = sum(answer in ("yes", "no") or answer in q for q, answer in plain.items())
    assert 0 < closed < len(plain)
    assert [row["memory"] for row in runs] == [1.0, None]
    assert [row["memory_n"] for row in runs] == [len(plain) - closed, None]
    evaluate("silent", "--unanswerable", "0.5")
    [row] = rows("runs", "show", "silent")
    assert (row["answer_rate"], row["correct_refusal_rate"]) == (1.0, 0.0)
    assert 0.3 < row["selective_accuracy"] < 0.7
    server.script = lambda _: json.dumps({"answer": "not stated"})
    evaluate("mute", "--unanswerable", "1", "--limit", "3", model="silent")
    shown = json.loads(printed("errors", "mute", "--format", "json"))
    counts = {row["cause"]: row["n"] for row in shown[-1]["rows"]}
    assert (counts["questions"], counts["wrong"]) == (3, 0)  # to be silent is right there
    qid = next(iter(RunFolder(Path("mute")).records))
    assert "not in the searched passages" in printed("show", "run", "mute", qid)
    code, _, err = command("report", "mute", "-o", "page.html")
    assert (code, "no question has an answer to score" in err) == (2, True)
