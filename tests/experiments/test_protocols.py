"""Protocols: the right denominators, every deviation said, GraphRAG-Bench's trap not sprung."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.experiments.score import scoring
from ragbench.experiments.score.asking import Asking
from ragbench.experiments.score.protocols import apply, get_protocol, protocols
from ragbench.experiments.score.scoring import JudgeRequest, ScoreRequest, score_run
from ragbench.experiments.store import RunCard
from ragbench.metrics import get_metric, mean_interval
from ragbench.metrics.judged import answer_correctness, rouge_l, statement_f1
from tests.experiments.scored_runs import CARD, answered, four, make_run
from tests.fakes import Asked, Reply, ScriptedLM


def card(**changes: Any) -> RunCard:
    data = {"name": "arag", "setting": "pooled"}
    return RunCard.model_validate({**CARD, "data": data, **changes})


@pytest.mark.parametrize("name", protocols())
def test_every_protocol_applies_and_its_metrics_exist(name: str) -> None:
    protocol = get_protocol(name)
    for measure in protocol.measures:
        get_metric(measure.metric)
    records = [replace(record, answers=["gold", "alias"]) for record in four()]
    found = apply(protocol, card(data=CARD["data"]), records, {})
    assert len(found["scores"]) + len(found["missing"]) == len(protocol.measures)
    assert any(name in line for line in protocol.lines())
    aliases = [line for line in found["deviations"] if line.startswith("gold answers: this data")]
    assert len(aliases) == (protocol.golds == "first")


def test_arag_divides_by_what_is_not_blank_and_linearrag_by_all() -> None:
    blank = [answered("q5", "noanswer"), answered("q6", " ")]  # dropped; the failed one is wrong
    found = apply(get_protocol("arag"), card(data=CARD["data"]), [*four(), *blank], {})["scores"]
    # 2 of 4, and the two pseudo-values: as wide as can be
    assert found["Cont-Acc"] == {
        "mean": 0.5, "n": 4, "interval": [0.0, 1.0], "over": "not_blank",
    }  # fmt: skip
    assert (found["retrieved_tokens"]["n"], found["retrieved_tokens"]["over"]) == (6, "all")
    linear = apply(get_protocol("linearrag"), card(data=CARD["data"]), [*four(), *blank], {})
    interval = mean_interval([1.0, 1.0, 0.0, 0.0, 0.0, 0.0], (0.0, 1.0))
    assert interval is not None
    assert linear["scores"]["Contain-Acc"] == {
        "mean": pytest.approx(2 / 6), "n": 6, "over": "all",
        "interval": [pytest.approx(interval.low), pytest.approx(interval.high)],
    }  # fmt: skip
    failures = [record for record in four() if record.failure]  # alone they make no score
    assert apply(get_protocol("linearrag"), card(), failures, {})["scores"] == {}


def test_deviations_are_said_and_only_those() -> None:
    judge = {"model": "openai/gpt-5-mini@http://x", "unscored": 0, "not_asked": 0}
    protocol = get_protocol("arag")
    matching = apply(protocol, card(), four(), {"judge_arag": judge})["deviations"]
    assert [text for text in matching if text not in protocol.always] == [
        "questions are ragbench's test split of the file, not the published list of ids"
    ]
    other = card(
        knobs={"k": 3, "answer_style": "brief"},
        identity={**CARD["identity"], "temperature": 0.7, "view": "paragraph", "compiled": "x"},
        data={"name": "hotpotqa", "setting": "distractor"},
    )
    judge = {"model": "scripted/judge", "unscored": 2, "not_asked": 1}
    found = "\n".join(apply(protocol, other, four(), {"judge_arag": judge})["deviations"])
    for text in (
        "data: hotpotqa, not arag", "corpus view: paragraph, not chunk", "k: 3, not 5",
        "answer_style: brief, not free or long",
        "setting: distractor, not pooled", "temperature: 0.7, not 0.0", "prompts: compiled",
        "judge: scripted/judge, not gpt-5-mini", "2 replies were neither",
        "1 answers were not judged",
    ):  # fmt: skip
        assert text in found
    linear = apply(get_protocol("linearrag"), card(), four(), {"judge_arag": judge})["deviations"]
    assert any("not the answering model" in text for text in linear)
    none = apply(protocol, card(), four(), {})["deviations"]
    assert any("--judge LM --judge-rule arag" in text for text in none)


def test_statement_scores_by_hand() -> None:
    assert statement_f1(2, 1, 1) == pytest.approx(2 / 3)
    assert statement_f1(0, 0, 0) is None  # published: 1.0
    assert answer_correctness(0.5, 1.0) == pytest.approx(0.625)
    assert answer_correctness(None, 1.0) is None
    assert rouge_l("the cat sat", "the cat sat on the mat") == pytest.approx(2 / 3)
    assert rouge_l("mat the", "the mat") == 0.5
    assert rouge_l("", "the mat") == 0.0


class Vectors:
    """An embedder of unit vectors that are at right angles for different texts."""

    identity = "angles"

    def embed(self, texts: list[str]) -> Any:
        names = sorted(set(texts))
        return np.eye(8, dtype=np.float32)[[names.index(text) for text in texts]]


def splitter(asked: Asked) -> Reply:
    if asked.signature == "SplitStatements":
        return {"statements": [s for s in asked.inputs["text"].split(". ") if s]}
    if asked.signature == "MatchStatements":
        return {"supported": [1], "covered": [1]}
    return {"supported": [1, 2]}


@pytest.fixture
def long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scoring, "make_embedder", lambda spec: Vectors())
    gold = "Iron is low. Blood is thin. Rest helps"
    records = [
        answered("f", "Iron is low. It rains", answers=[gold], qtype="Fact Retrieval"),
        answered("c", "Iron is low. It rains", answers=[gold], qtype="Creative Generation"),
        answered("o", "Iron", answers=[gold], qtype="Other"),
    ]
    return make_run(tmp_path / "run", records, data={"name": "graphrag_bench", "setting": "pooled"})


def scored(folder: Path, lm: ScriptedLM) -> dict[str, Any]:
    request = ScoreRequest(protocol="graphrag-bench", judge=JudgeRequest(Asking(lm)))
    return score_run(folder, request).summary


def test_graphrag_bench_scores_by_type(long_run: Path) -> None:
    lm = ScriptedLM(splitter, name="judge")
    found = scored(long_run, lm)
    scores = {name: row["mean"] for name, row in found["protocol"]["scores"].items()}
    factual = 2 * 1 / (2 * 1 + 1 + 2)
    correctness = pytest.approx(0.75 * factual + 0.25 * 0.5)
    assert scores["answer_correctness, Fact Retrieval"] == correctness
    assert scores["coverage"] == pytest.approx(1 / 3)
    assert scores["faithfulness"] == 1.0
    assert found["judges"]["statements"]["other_types"] == 1
    assert len(lm.asked) == 3 + 4
    scored(long_run, lm)
    assert len(lm.asked) == 7


@pytest.mark.parametrize(
    "bad", ["```json nothing```", {"statements": []}, {"supported": [9], "covered": []}]
)
def test_unusable_reply_is_counted_and_never_rewarded(long_run: Path, bad: Reply) -> None:
    def script(asked: Asked) -> Reply:
        wanted = "MatchStatements" if isinstance(bad, dict) and "covered" in bad else None
        return bad if asked.signature == (wanted or "SplitStatements") else splitter(asked)

    found = scored(long_run, ScriptedLM(script, name="judge"))
    assert found["judges"]["statements"]["unscored"] == 2
    assert not any("correctness" in name for name in found["protocol"]["scores"])
    assert "answer_correctness" not in found["scores"]
