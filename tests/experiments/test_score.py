"""Scoring from records alone; sentences and triples that a model names; published protocols."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragbench.experiments.score import scoring
from ragbench.experiments.score.annotations import MOST_TRIPLES, sentences_of
from ragbench.experiments.score.asking import JudgeSession
from ragbench.experiments.score.protocols import apply, get_protocol, protocols
from ragbench.experiments.score.scoring import JudgeRequest, ScoreRequest, score_run
from ragbench.experiments.store import RunCard
from ragbench.metrics import mean_interval
from ragbench.metrics.judged import answer_correctness, rouge_l, statement_f1
from tests.experiments.scored_runs import CARD, answered, four, make_run
from tests.fakes import Asked, Reply, ScriptedLM
from tests.metrics.records import failure, passage
from tests.runs import record_rows, scores


def test_scores_are_written_beside_records_that_stay_as_they_are(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    before = record_rows(folder)
    scored = score_run(folder, ScoreRequest()).summary
    assert record_rows(folder) == before
    assert scored["scores"]["em"]["mean"] == 0.25
    kept = scores(folder)
    assert [row["scores"]["em"] for row in kept.values()] == [1.0, 0.0, 0.0, 0.0]
    assert [row["scores"]["contain"] for row in kept.values()] == [1.0, 1.0, 0.0, 0.0]
    assert json.loads((folder / "scores.json").read_text())["n"] == 4


def test_scores_add_up_but_for_questions_that_were_asked_again(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    score_run(folder, ScoreRequest(metrics=("em",)))
    scored = score_run(folder, ScoreRequest(metrics=("recall@1",)))
    assert list(scored.summary["scores"]) == ["recall@1"]
    make_run(folder, [answered("q1", "Norway"), answered("q4", "Norway")])
    score_run(folder, ScoreRequest(metrics=("em",)))
    kept = {qid: set(row["scores"]) for qid, row in scores(folder).items()}
    both = {"em", "recall@1"}
    assert kept == {"q1": {"em"}, "q2": both, "q3": both, "q4": {"em"}}


# -- sentences and triples -------------------------------------------------------------------------

GOLD = [
    ["Red Sky", "author", "Ann Lee"],
    ["Ann Lee", "place of birth", "Oslo"],
    ["Oslo", "country", "Norway"],
]
DATA = {"data": {"name": "2wikimultihopqa", "setting": "distractor", "digest": "0"}}
#: What the model says of the facts: two of the three, in another dress, and a wrong one.
SAID = [["red sky", "Author", "Ann Lee."], ["Oslo", "country", "Norway"], ["Oslo", "in", "Norway"]]


def told(qid: str, answer: str = "Norway", **fields: Any) -> Any:
    """A question of 2Wiki's, answered."""
    return answered(qid, answer, **{"extra": {"evidences": GOLD}, **fields})


def reader(
    facts: Callable[[Asked], Any] = lambda asked: SAID, *, used: Any = (2, 3), name: str = "reader"
) -> ScriptedLM:
    """A model that names sentences by number (the two gold ones), and triples."""

    def script(asked: Asked) -> Reply:
        if "triples" not in asked.fields:
            return {"used": list(used)}
        said, names = facts(asked), ("subject", "relation", "object")
        return {"triples": [dict(zip(names, row, strict=False)) for row in said]}

    return ScriptedLM(script, name=name, schema=False)


def attributed(folder: Path, lm: ScriptedLM, protocol: str | None = None) -> dict[str, Any]:
    request = ScoreRequest(attributor=JudgeSession(lm), protocol=protocol)
    return score_run(folder, request).summary


def test_attribution_gives_support_and_joint_marked_and_kept(tmp_path: Path) -> None:
    folder, lm = make_run(tmp_path / "run", four()), reader()
    scored = attributed(folder, lm)
    assert scored["support_kinds"] == {"attributed": 3}
    assert scored["scores"]["sp_f1"]["mean"] == 0.75  # the failed one has 0
    assert scored["judges"]["attribution"]["attributed"] == len(lm.asked) == 3
    again = score_run(folder, ScoreRequest()).summary
    assert again["scores"]["sp_f1"]["mean"] == 0.75
    assert again["judges"]["attribution"] == scored["judges"]["attribution"]
    cited = make_run(tmp_path / "cited", [answered("q1", "Norway", citations=[["Oslo", 0]])])
    assert attributed(cited, lm)["support_kinds"] == {"cited": 1}
    assert (attributed(folder, lm)["n"], len(lm.asked)) == (4, 3)


def test_sentences_of_a_chunk_are_the_facts_that_it_holds() -> None:
    chunk = replace(passage("p1"), title="", holds=(("Ann Lee", 0), ("Ann Lee", 1)))
    rows, cut = sentences_of(answered("q1", "Norway", passages=[chunk]))
    assert ([fact for fact, _ in rows], cut) == ([("Ann Lee", 0), ("Ann Lee", 1)], 0)
    unknown = replace(chunk, holds=(("Ann Lee", 0),))
    assert sentences_of(answered("q1", "Norway", passages=[unknown]))[0] == []


def test_triples_give_evidence_and_the_joint_score_of_the_three(tmp_path: Path) -> None:
    rows = [told("q1"), replace(failure(), qid="q2")]
    folder, lm = make_run(tmp_path / "run", rows, **DATA), reader()
    found = attributed(folder, lm, "2wiki")
    row = next(iter(scores(folder).values()))
    assert row["attributed_triples"] == SAID
    assert row["scores"]["evidence_precision"] == pytest.approx(2 / 3)
    # answer and sentences are all right, so the joint score is that of the triples
    assert row["scores"]["joint_f1"] == pytest.approx(2 / 3)
    assert (row["scores"]["sp_em"], row["scores"]["joint_em"]) == (1.0, 0.0)
    assert len(lm.asked) == 2  # the sentences and the facts of one question; none of the failed one
    assert "Oslo is the capital of Norway." in lm.asked[1].prompt
    assert "place of birth" not in lm.asked[1].prompt  # no gold
    assert found["evidence_kinds"] == {"attributed": 1}
    assert found["judges"]["evidence"]["as_if"]["calls"] == 1
    assert found["protocol"]["scores"]["evidence_f1"]["mean"] == pytest.approx(1 / 3)
    assert any("named by a separate step" in line for line in found["protocol"]["deviations"])
    attributed(folder, lm)
    assert len(lm.asked) == 2
    plain = make_run(tmp_path / "plain", [answered("q1", "Norway")])  # data without triples
    assert "evidence" not in attributed(plain, lm)["judges"]
    nothing = make_run(tmp_path / "nothing", [told("q1")], **DATA)  # a claim of no facts
    assert attributed(nothing, reader(lambda _: []))["scores"]["evidence_f1"]["mean"] == 0.0


@pytest.mark.parametrize(
    ("said", "why"),
    [([["Oslo", "country"]], "triples"), (GOLD * 4, f"more than {MOST_TRIPLES} triples")],
)
def test_unusable_triples_are_counted_and_earn_nothing(
    tmp_path: Path, said: list[list[str]], why: str
) -> None:
    rows = [told("q1"), told("q2", question="Where is Oslo?")]
    folder = make_run(tmp_path / "run", rows, **DATA)
    lm = reader(lambda asked: said if "Where is Oslo?" in asked.prompt else GOLD)
    found = attributed(folder, lm, "2wiki")
    assert len(lm.asked) == 2 + 1 + 2  # the second question's facts are asked for once more
    evidence, official = found["judges"]["evidence"], found["protocol"]["scores"]
    assert (evidence["attributed"], evidence["unscored"]) == (1, 1)
    assert why in next(iter(evidence["unscored_because"]))
    assert found["scores"]["evidence_em"] == {"mean": 1.0, "n": 1}
    assert official["evidence_em"] == {
        "mean": 0.5, "n": 2, "interval": [0.0, 1.0], "over": "all", "without_score": 1,
    }  # fmt: skip
    assert official["joint_f1"]["mean"] == 0.5
    assert any("1 answers name none" in text for text in found["protocol"]["deviations"])


# -- protocols -------------------------------------------------------------------------------------


def card(**changes: Any) -> RunCard:
    data = {"name": "arag", "setting": "pooled"}
    return RunCard.model_validate({**CARD, "data": data, **changes})


def test_every_protocol_applies_and_its_metrics_exist() -> None:
    records = [replace(record, answers=["gold", "alias"]) for record in four()]
    for name, protocol in protocols().items():
        found = apply(protocol, card(data=CARD["data"]), records, {})
        assert len(found["scores"]) + len(found["missing"]) == len(protocol.measures)
        assert any(name in line for line in protocol.lines())
        aliases = [line for line in found["deviations"] if "the aliases" in line]
        assert len(aliases) == (protocol.golds == "first")


def test_arag_takes_the_first_gold_answer_and_drops_blank_ones_and_linearrag_takes_all() -> None:
    for golds, score in ((["Norway", "Kingdom"], 0.0), (["Kingdom", "Norway"], 1.0)):
        records = [answered("q1", "the Kingdom", answers=golds)]
        first = apply(get_protocol("arag"), card(data=CARD["data"]), records, {})["scores"]
        assert first["Cont-Acc"]["mean"] == score
    blank = [answered("q5", "noanswer"), answered("q6", " ")]  # dropped; the failed one is wrong
    found = apply(get_protocol("arag"), card(data=CARD["data"]), [*four(), *blank], {})["scores"]
    # 2 of 4, and the two pseudo-values: as wide as can be
    assert found["Cont-Acc"] == {
        "mean": 0.5, "n": 4, "interval": [0.0, 1.0], "over": "not_blank",
    }  # fmt: skip
    assert (found["retrieved_tokens"]["n"], found["retrieved_tokens"]["over"]) == (6, "all")
    linear = apply(get_protocol("linearrag"), card(data=CARD["data"]), [*four(), *blank], {})
    interval = mean_interval([1.0, 1.0, 0.0, 0.0, 0.0, 0.0], (0.0, 1.0))
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
    request = ScoreRequest(protocol="graphrag-bench", judge=JudgeRequest(JudgeSession(lm)))
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


def test_metric_without_a_scored_question_is_named(tmp_path: Path, command: Any) -> None:
    folder = make_run(tmp_path / "run", four())
    code, out, err = command("score", folder, "--metric", "sp_em", "--metric", "f1")
    assert code == 0, err
    assert "sp_em: no question has a score" in out
    assert "f1: no question" not in out
