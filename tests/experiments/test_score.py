"""Scoring an old run from its records alone; sentences and triples that a model names."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.experiments.score.annotations import MOST_TRIPLES, sentences_of
from ragbench.experiments.score.asking import Asking
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from tests.experiments.scored_runs import answered, four, make_run
from tests.fakes import Asked, Reply, ScriptedLM
from tests.metrics.records import failure, passage
from tests.runs import record_rows, scores


def test_scores_are_written_beside_records_that_stay_as_they_are(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    before = record_rows(folder)
    scored = score_run(folder, ScoreRequest()).summary
    assert record_rows(folder) == before
    assert scored["scores"]["em"]["mean"] == 0.25
    assert scored["breakdowns"]["answer_kind"]["entity"]["n"] == 4
    assert scored["breakdowns"]["hops"]["2"]["n_failed"] == 1
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
    request = ScoreRequest(attributor=Asking(lm), protocol=protocol)
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
    attributed(folder, lm)
    assert len(lm.asked) == 3


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
