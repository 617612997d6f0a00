"""Evidence triples by a model: asked of a real server, marked, bounded, and never a gift."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.data import DataSpec, load_dataset
from ragbench.errors import CompareError
from ragbench.experiments.compare.paired import columns
from ragbench.experiments.runs import reopen
from ragbench.experiments.runs.runner import make_record
from ragbench.experiments.score.attribution import MOST_TRIPLES
from ragbench.ledger import OpenLedger
from ragbench.metrics import get_metric
from tests.cli.test_mistakes import run as command
from tests.experiments.scored_runs import answered, make_run
from tests.experiments.test_treatments import FULL_CARD
from tests.fake_server import FakeServer, Fault, Hit
from tests.metrics.records import failure
from tests.runs import scores as stored

GOLD = [
    ["Red Sky", "author", "Ann Lee"],
    ["Ann Lee", "place of birth", "Oslo"],
    ["Oslo", "country", "Norway"],
]
DATA = {"data": {"name": "2wikimultihopqa", "setting": "distractor", "digest": "0"}}
#: What the server says of the facts: two of the three, in another dress, and a wrong one.
SAID = [["red sky", "Author", "Ann Lee."], ["Oslo", "country", "Norway"], ["Oslo", "in", "Norway"]]


def told(qid: str, answer: str = "Norway", **fields: Any) -> dict[str, Any]:
    """A question of 2Wiki's, answered."""
    return answered(qid, answer, **{"extra": {"evidences": GOLD}, **fields})


def triples(rows: list[list[str]]) -> str:
    names = ("subject", "relation", "object")
    return section("triples", [dict(zip(names, row, strict=True)) for row in rows])


def section(name: str, value: object) -> str:
    return f"[[ ## {name} ## ]]\n{json.dumps(value)}\n\n[[ ## completed ## ]]"


def replying(evidence: Callable[[Hit], str | Fault]) -> Callable[[Hit], str | Fault]:
    """A server that names the two gold sentences, and of the facts what `evidence` says."""

    def script(hit: Hit) -> str | Fault:
        return evidence(hit) if "triples" in hit.prompt else section("used", [2, 3])

    return script


@pytest.fixture
def score(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[str, int]]]:
    """Scores a run with a server that answers by a script; gives the output and the hits."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with FakeServer() as server:

        def scored(folder: Path, script: Any, lm: str = "reader") -> tuple[str, int]:
            server.script, before = replying(script), len(server.hits)
            code, out, err = command(
                capsys, "score", str(folder), "--attribute", f"openai/{lm}", "--api-base",
                server.url, "--no-cache", "--protocol", "2wiki", "--price", "in=1,out=2",
            )  # fmt: skip
            assert code == 0, err
            return out, len(server.hits) - before

        yield scored


def summary(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The summary of a scored run, and in it that of the triples."""
    found: dict[str, Any] = json.loads((folder / "scores.json").read_text())
    return found, found["judges"].get("evidence", {})


def test_triples_give_evidence_and_the_joint_score_of_the_three(
    tmp_path: Path, score: Callable[..., tuple[str, int]]
) -> None:
    folder = make_run(tmp_path / "run", [told("q1"), replace(failure(), qid="q2")], **DATA)
    out, hits = score(folder, lambda hit: triples(SAID))
    row = next(iter(stored(folder).values()))
    assert row["attributed_triples"] == SAID
    scores = row["scores"]
    assert scores["evidence_precision"] == scores["evidence_recall"] == pytest.approx(2 / 3)
    # answer and sentences are all right, so the joint score is that of the triples
    assert scores["joint_f1"] == pytest.approx(2 / 3)
    assert (scores["sp_em"], scores["joint_em"]) == (1.0, 0.0)
    assert hits == 2  # the sentences and the facts of one question; none of the failed one
    found, triples_of = summary(folder)
    assert found["evidence_kinds"] == {"attributed": 1}
    assert (triples_of["attributed"], triples_of["as_if"]["calls"]) == (1, 1)
    assert found["protocol"]["scores"]["evidence_f1"]["mean"] == pytest.approx(1 / 3)
    assert "evidence triples: attributed 1 of 2" in out
    assert "differs: evidence: of 1 answers named by a separate step" in out
    assert score(folder, lambda hit: triples([]))[1] == 0  # nothing is asked twice
    plain = make_run(tmp_path / "plain", [answered("q1", "Norway")])
    assert score(plain, lambda hit: triples(GOLD))[1] == 1  # data without triples
    assert summary(plain)[1] == {}
    nothing = make_run(tmp_path / "nothing", [told("q1")], **DATA)
    score(nothing, lambda hit: triples([]))  # a claim of no facts, which earns nothing
    found, triples_of = summary(nothing)
    assert (found["scores"]["evidence_f1"]["mean"], triples_of["attributed"]) == (0.0, 1)


def test_the_prompt_holds_the_passages_and_no_gold(
    tmp_path: Path, score: Callable[..., tuple[str, int]]
) -> None:
    folder = make_run(tmp_path / "run", [told("q1")], **DATA)
    prompts: list[str] = []
    score(folder, lambda hit: prompts.append(hit.prompt) or triples(GOLD))  # type: ignore[func-returns-value]
    assert "Oslo is the capital of Norway." in prompts[0]
    assert "place of birth" not in prompts[0]
    assert summary(folder)[0]["scores"]["joint_em"]["mean"] == 1.0


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (section("triples", [{"subject": "Oslo", "relation": "country"}]), "triples"),
        (triples(GOLD * 4), f"more than {MOST_TRIPLES} triples"),
    ],
)
def test_reply_that_cannot_be_used_is_counted_and_earns_nothing(
    tmp_path: Path, score: Callable[..., tuple[str, int]], reply: str, why: str
) -> None:
    folder = make_run(tmp_path / "run", [told("q1"), told("q2", question="Where is Oslo?")], **DATA)
    script = lambda hit: reply if "Where is Oslo?" in hit.prompt else triples(GOLD)  # noqa: E731
    _, hits = score(folder, script)
    assert hits == 2 + 1 + 2  # the second question's facts are asked for once more
    found, triples_of = summary(folder)
    assert (triples_of["attributed"], triples_of["unscored"]) == (1, 1)
    assert why in next(iter(triples_of["unscored_because"]))
    assert found["evidence_kinds"] == {"attributed": 1}
    assert found["scores"]["evidence_em"] == {"mean": 1.0, "n": 1}
    official = found["protocol"]["scores"]
    assert official["evidence_em"] == {
        "mean": 0.5, "n": 2, "interval": [0.0, 1.0], "over": "all", "without_score": 1,
    }  # fmt: skip
    assert official["joint_f1"]["mean"] == 0.5
    assert any("1 answers name none" in text for text in found["protocol"]["deviations"])


def test_only_what_has_gold_passages_and_no_triples_of_its_own_is_asked_for(
    tmp_path: Path, score: Callable[..., tuple[str, int]]
) -> None:
    own = told("q1", facts=[["Oslo", "country", "Norway"], "Oslo lies in Norway."])
    prose = told("q2", facts=[{"statement": "Oslo lies in Norway."}])
    bare = told("q3", pids=())
    other = answered("q4", "Norway")
    folder = make_run(tmp_path / "run", [own, prose, bare, other], **DATA)
    asked: list[str] = []
    score(folder, lambda hit: asked.append(hit.prompt) or triples(GOLD))  # type: ignore[func-returns-value]
    assert len(asked) == 1
    assert summary(folder)[0]["evidence_kinds"] == {"cited": 1, "attributed": 1}
    rows = {qid: row["scores"]["evidence_recall"] for qid, row in stored(folder).items()}
    assert rows == {"q1": pytest.approx(1 / 3), "q2": 1.0, "q3": None, "q4": None}


def test_triples_of_two_models_are_not_compared(
    tmp_path: Path, score: Callable[..., tuple[str, int]]
) -> None:
    for name in ("a", "b"):
        folder = make_run(tmp_path / name, [told("q1")], **FULL_CARD, **DATA)
        score(folder, lambda hit: triples(GOLD), lm=f"reader-{name}")
    a, b = (reopen(tmp_path / name) for name in ("a", "b"))
    for metric in ("evidence_f1", "joint_f1"):
        with pytest.raises(CompareError, match=r"by openai/reader-a@.* and by openai/reader-b@"):
            columns([a], [b], metric, ["q1"])


def test_gold_triples_of_real_questions_score_themselves(shared_data: Path) -> None:
    files = shared_data / "2wikimultihopqa"
    dataset = load_dataset(
        DataSpec(
            "2wikimultihopqa", setting="pooled",
            data_file=files / "questions_500.json", corpus_file=files / "corpus.json",
        )
    )  # fmt: skip
    for example in dataset.splits["test"][:50]:
        bare = make_record(example, None, OpenLedger(), latency_s=0.0)
        named = replace(bare, answer="x", attributed_triples=bare.extra["evidences"])
        assert get_metric("evidence_em").score(named) == 1.0
        assert get_metric("evidence_em").score(replace(bare, answer="x")) is None
