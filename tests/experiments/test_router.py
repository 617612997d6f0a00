"""The router: a policy run as a program, on questions that it was not learned from."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ragbench.cli.main import cli
from ragbench.errors import ConfigError, RagbenchError
from ragbench.experiments.artifacts import read_policy, write_policy
from ragbench.experiments.config import make_config
from ragbench.experiments.store import read_records
from ragbench.programs import PROGRAMS
from ragbench.programs.routing import Candidate, Policy, Router
from ragbench.retrievers.base import Corpus
from ragbench.retrievers.factory import make_retriever
from tests.fake_server import FakeServer
from tests.fakes import plausible
from tests.programs.shelf import ask, shelf

#: Comparisons go to the second program.
RULE = {"feature": "comparison", "at_least": 0.5, "yes": {"program": 1}, "no": {"program": 0}}
BOTH = "Are Orla Venn and Tam Quill both writers?"
ONE = "Where was Orla Venn born?"


def policy(**fields: Any) -> Policy:
    """A policy of two programs."""
    usual: dict[str, Any] = {
        "format": 1, "metric": "f1", "rule": RULE,
        "programs": [
            Candidate(label="the simple one", program="vanilla", set={"k": 2}),
            Candidate(label="the other", program="ircot", set={"max_steps": 2}),
        ],
    }  # fmt: skip
    return Policy.model_validate({**usual, **fields})


def test_each_question_is_answered_by_the_program_of_the_rule() -> None:
    router = Router(shelf(), policy())
    prediction, lm, ledger = ask(router, plausible, ONE)
    route, *rest = prediction.steps
    assert (route.action, route.observation) == ("route", "the simple one")
    assert route.thought == "it asks for no comparison"
    assert route.notes["program"] == "vanilla"
    assert [step.action for step in rest] == ["answer"]
    assert len(lm.asked) == len(ledger.calls) == 1
    assert rest[0].calls == (0,)
    assert [search.k for search in prediction.searches] == [2]
    other, _, _ = ask(router, plausible, BOTH)
    assert other.steps[0].observation == "the other"
    assert other.steps[1].action != "route"


@pytest.mark.parametrize(
    "rule",
    [
        {"program": 2},
        {**RULE, "feature": "mood"},
        {**RULE, "at_least": float("nan")},
    ],
)
def test_a_rule_that_makes_no_sense_is_no_policy(rule: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"rule|feature|finite|program"):
        policy(rule=rule)


def test_the_router_is_found_by_name_and_not_listed() -> None:
    assert PROGRAMS.get("router") is Router
    assert "router" not in PROGRAMS.names()
    with pytest.raises(ConfigError, match="give --policy"):
        PROGRAMS.get("router")(make_retriever("bm25", Corpus(()), setting="pooled"))
    unknown = policy(rule={"program": 0}, programs=[Candidate(label="x", program="nosuch")])
    with pytest.raises(RagbenchError, match="nosuch"):
        Router(shelf(), unknown)


def test_the_config_takes_both_or_neither(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    write_policy(policy(), path)
    config = make_config({"policy": str(path)})
    assert config.program == "router"
    assert str(config.identity()["policy"]).startswith("sha256:")
    assert "policy" not in make_config({}).identity()
    for given in ({"program": "router"}, {"program": "ircot", "policy": str(path)}):
        with pytest.raises(RagbenchError, match="go together"):
            make_config(given)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    rows = [
        {
            "id": f"q{n}", "answer": f"Town {n}",
            "question": f"Is Town {n} or Town {n + 1} older?" if n % 2 else f"What is town {n}?",
            "context": [{"title": f"Town {n}", "text": f"Town {n} lies on river {n}."}],
        }
        for n in range(20)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_runs_are_learned_from_and_the_policy_is_run_on_others(
    tmp_path: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    out, learned = tmp_path / "router", tmp_path / "learned.json"
    with FakeServer() as server:

        def evaluate(*more: str) -> Result:
            given = [
                "eval", "--data-file", questions, "--lm", "openai/fake", "--api-base", server.url,
                "--no-cache", "--workers", 2, *more,
            ]  # fmt: skip
            return CliRunner().invoke(cli, [*map(str, given)])

        for program in ("vanilla", "direct"):
            done = evaluate("--program", program, "--split", "train", "--out", tmp_path / program)
            assert done.exit_code == 0, (done.output, done.exception)
        runs = [str(tmp_path / "vanilla"), str(tmp_path / "direct")]
        done = CliRunner().invoke(cli, ["recommend", *runs, "--router", "-o", str(learned)])
        assert "not enough questions" in done.output, done.output
        found = read_policy(learned)
        both = found.model_copy(update={"rule": policy().rule})
        write_policy(both, learned)
        done = evaluate("--program", "router", "--policy", learned, "--out", out)
        assert done.exit_code == 0, (done.output, done.exception)
        again = evaluate("--program", "router", "--policy", learned, "--split", "train")
        assert "was learned from 8 of these 8 questions" in str(again.exception)
        compiling = ["compile", "--program", "router", "--policy", str(learned)]
        refused = CliRunner().invoke(cli, [*compiling, "--data-file", str(questions)])
        assert "no prompts of its own" in str(refused.exception)
    records = read_records(out)
    assert len(records) == 8  # the test split, although a file is asked whole otherwise
    for record in records.values():
        label = found.programs["older" in record.question].label
        assert (record.steps[0].action, record.steps[0].observation) == ("route", label)
        assert record.ledger.as_if.calls == 1
