"""Judges of answers, claims and causes: read strictly, asked once, every denominator right."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import CompareError, ConfigError
from ragbench.experiments.compare.comparisons import compare_all
from ragbench.experiments.report.scores import errors_of
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.score.annotations import MOST_CLAIMS
from ragbench.experiments.score.asking import JudgeSession, read_journal
from ragbench.experiments.score.scoring import JudgeRequest, Scored, ScoreRequest, score_run
from ragbench.experiments.store import RunFolder, read_records
from ragbench.lms.calls import Limits, spending
from ragbench.metrics import get_metric
from ragbench.metrics.errors import cause_of
from ragbench.record import Search
from tests.experiments.scored_runs import answered
from tests.fake_server import FakeServer, Fault, Hit
from tests.fakes import Asked, Reply, ScriptedLM, rate_limited
from tests.metrics.records import failure

Folder = Callable[..., Path]


def fair(asked: Asked) -> Reply:
    right = "Norway" in asked.inputs["answer"]
    return {"verdict": "correct" if right else "incorrect"}


def judge_of(script: Any = fair, name: str = "judge", **fields: Any) -> ScriptedLM:
    return ScriptedLM(script, name=name, **fields)


def scored_by(run: Path, lm: ScriptedLM, rule: Any = "ragbench", **fields: Any) -> Scored:
    return score_run(
        run, ScoreRequest(judge=JudgeRequest(JudgeSession(lm, 2, wait_s=0.01), rule, **fields))
    )


def judged(run: Path, lm: ScriptedLM, *rule: str, **fields: Any) -> dict[str, Any]:
    """The summary of the judge."""
    (found,) = scored_by(run, lm, *rule, **fields).summary["judges"].values()
    return dict(found)


def test_verdicts_fill_the_metric_and_every_denominator_once(folder: Folder) -> None:
    run, lm = folder(), judge_of()
    scored = scored_by(run, lm)
    found = scored.summary["judges"]["judge"]
    assert (found["correct"], found["incorrect"], found["failed"]) == (2, 1, 1)
    assert found["model"] == "scripted/judge"
    assert scored.summary["scores"]["judge"]["mean"] == 0.5
    assert judged(run, lm) == found
    assert len(lm.asked) == 3
    calls = [call for row in read_journal(RunFolder(run)) for call in row["calls"]]
    assert [call["kind"] for call in calls] == ["judge"] * 3
    assert all(call["cost_usd"] > 0 for call in calls)
    assert score_run(run, ScoreRequest()).summary["judges"] == {"judge": found}


@pytest.mark.parametrize("reply", ["I would say so", {"verdict": "mostly correct"}])
def test_unreadable_reply_is_asked_again_then_unscored(folder: Folder, reply: Reply) -> None:
    lm = judge_of(lambda a: reply if "Chad" in a.inputs["answer"] else fair(a), schema=False)
    scored = scored_by(folder(answered("q1", "Norway"), answered("q2", "Chad")), lm)
    found = scored.summary["judges"]["judge"]
    assert (found["correct"], found["incorrect"], found["unscored"]) == (1, 0, 1)
    assert (len(lm.asked), scored.summary["scores"]["judge"]["n"]) == (3, 1)
    tries = [a.request.config.temperature for a in lm.asked if "Chad" in a.inputs["answer"]]
    assert tries == [0.0, 0.7]  # the same again could come from a cache
    unread = judge_of(lambda asked: "no idea", schema=False)
    run = folder(
        answered("q1", "Norway"), answered("q2", "Chad", passages=[], in_context=[]),
        replace(failure(), qid="q3"),
    )  # fmt: skip
    for rule in ("ragbench", "grounding"):
        scores = scored_by(run, unread, rule).summary["scores"]
        assert not {"judge", "chain_fidelity_judged", "hallucination_rate_judged"} & scores.keys()


def test_what_the_provider_failed_or_a_limit_left_is_asked_next_time(folder: Folder) -> None:
    run = folder(answered("q1", "Norway"))
    found = judged(run, judge_of(lambda asked: rate_limited()))
    assert found["unscored"] == 1
    assert "LMRateLimitError" in next(iter(found["unscored_because"]))
    healed = judged(run, judge_of())
    assert (healed["correct"], healed["unscored"]) == (1, 0)
    assert (healed["as_if"]["calls"], healed["billed"]["calls"]) == (1, 2)

    run, lm = folder(*(answered(f"q{n}", f"Norway {n}") for n in range(9))), judge_of()
    with spending(Limits(calls=2)) as spent:
        found = judged(run, lm)
    assert (len(lm.asked), found["not_asked"], spent.stopped_by) == (2, 7, "--max-calls 2")
    whole = judged(run, lm)
    assert (whole["correct"], len(lm.asked), whole["billed"]["calls"]) == (9, 9, 9)
    with spending(Limits(cost=1.0)), pytest.raises(ConfigError, match="--price"):
        judged(folder(), judge_of(price=None))


def test_judge_repeats_score_by_the_mean_and_print_changed_verdicts(
    folder: Folder, command: Any
) -> None:
    """One of three verdicts on q2 differs; q1 is judged alike each time."""
    run = folder(answered("q1", "Norway"), answered("q2", "Chad"), replace(failure(), qid="q3"))
    said = {"Norway": ["correct"] * 3, "Chad": ["correct", "incorrect", "incorrect"]}

    def script(asked: Asked) -> Reply:
        answer = "Norway" if "Norway" in asked.inputs["answer"] else "Chad"
        return {"verdict": said[answer].pop(0)}

    lm = judge_of(script)
    scored = scored_by(run, lm, repeats=3)
    found = scored.summary["judges"]["judge"]
    assert (found["correct"], found["incorrect"], found["changed"]) == (1, 0, 1)
    assert [r.scores["judge"] for r in scored.records[:2]] == [1.0, pytest.approx(1 / 3)]
    assert scored.summary["scores"]["judge"]["mean"] == pytest.approx((1 + 1 / 3 + 0) / 3)
    verdicts = [row["value"] for row in read_journal(RunFolder(run))]
    assert sorted(verdicts) == ["correct"] * 4 + ["incorrect"] * 2
    assert scored_by(run, lm, repeats=3).summary == scored.summary  # nothing is asked again
    assert len(lm.asked) == 6
    out = command("score", run)[1]
    assert "judged 3 times: the verdict of 1 of 2 answers changed (50%)" in out


def test_a_model_does_not_judge_itself_unless_told(folder: Folder) -> None:
    run, lm = folder(), judge_of(name="answerer")
    for ask in (judged, lambda run, lm: errors_of(run, asking=JudgeSession(lm))):
        with pytest.raises(ConfigError, match="--allow-self-judge"):
            ask(run, lm)
    assert lm.asked == []
    judged(run, lm, allow_self=True)
    assert len(lm.asked) == 3


def test_arag_rule_hides_the_question_and_takes_only_the_exact_word(folder: Folder) -> None:
    replies = {"Norway": " Correct\n", "Sweden": "incorrect"}

    def script(asked: Asked) -> Reply:
        assert "author of Red Sky" not in asked.prompt
        answer = asked.prompt.partition("Generated answer: ")[2].partition("\n")[0]
        return replies.get(answer, "It is correct.")

    run, lm = folder(), judge_of(script)
    found = judged(run, lm, "arag")
    assert (found["correct"], found["incorrect"], found["unscored"]) == (1, 1, 1)
    assert len(lm.asked) == 3  # no retry
    for name in ("arag", "linearrag"):
        summary = score_run(run, ScoreRequest(protocol=name)).summary
        assert summary["protocol"]["scores"]["LLM-Acc"]["mean"] == 0.25


def test_the_command_asks_a_real_server_and_ends_with_1_where_no_reply_is_of_use(
    folder: Folder, command: Any
) -> None:
    with FakeServer(lambda hit: "correct") as server:
        asking = ["--judge", "openai/judge", "--api-base", server.url, "--no-cache"]
        code, out, err = command("score", folder(), *asking, "--protocol", "arag")
        assert code == 0, err
        assert len(server.hits) == 3
        assert "3 correct, 0 incorrect, 1 failed, 0 unscored" in out
        assert "LLM-Acc: 0.750" in out
        assert "differs: data: hotpotqa, not arag" in out
        server.script = lambda hit: "hm"
        run = str(folder())
        code, out, err = command("score", run, *asking)
        server.script = lambda hit: Fault("405")
        refused = command("score", folder(), *asking)
    assert (refused[0], "in the same words" in refused[2]) == (2, True)
    assert (code, "3 unscored" in out, "judge: no reply could be used" in err) == (1, True, True)
    assert command("score", run)[0] == 0  # nothing is asked


# -- verdicts compared -----------------------------------------------------------------------------


def test_only_what_one_judge_said_of_both_runs_is_compared(folder: Folder) -> None:
    """B is right where A is not, in other words, and finds one gold passage less in half."""

    def silent(asked: Asked) -> Reply:
        return "hm" if asked.number == 1 or asked.request.config.temperature else fair(asked)

    rows = [answered(f"q{n:02}", f"Chad {n}", extra={"cluster": f"c{n}"}) for n in range(12)]
    found = [("p1", "p2") if n % 2 else ("p1", "p3") for n in range(12)]
    right = [
        answered(row.qid, "the land of Norway", extra=row.extra, pids=pids)
        for row, pids in zip(rows, found, strict=True)
    ]
    a, b = folder(*rows), folder(*right)

    def compared(*metrics: str) -> Any:
        return compare_all([reopen(a), reopen(b)], metrics=metrics)[0].scores

    scored_by(a, judge_of(silent, schema=False))
    with pytest.raises(CompareError, match="ragbench score"):
        compared("judge")
    scored_by(b, judge_of())
    assert compared("judge")["judge"].n == 11  # without the one that was not scored
    a = folder(*rows)
    scored_by(a, judge_of())
    scores = compared("em", "judge", "recall@5")
    assert (scores["em"].mean_b, scores["judge"].mean_a, scores["judge"].verdict) == (
        0.0, 0.0, "better"
    )  # fmt: skip
    assert (scores["recall@5"].mean_a, scores["recall@5"].mean_b) == (1.0, 0.75)
    b = folder(*right)
    scored_by(b, judge_of(name="another"))
    with pytest.raises(CompareError, match="by scripted/another and by scripted/judge"):
        compared("judge")


# -- claims ----------------------------------------------------------------------------------------

SAID = "Ann Lee wrote Red Sky. She owned a red boat."


def thought(text: str) -> list[dict[str, Any]]:
    plain = {"action": "think", "input": "", "observation": "", "pids": [], "notes": {}}
    return [{**plain, "thought": text}]


def labelling(*unsupported: str) -> ScriptedLM:
    """A judge by which every claim with one of the words is unsupported."""

    def script(asked: Asked) -> Reply:
        claims = asked.inputs["claims"].split('", "')
        bad = [any(word in claim for word in unsupported) for claim in claims]
        return {"verdicts": ["unsupported" if one else "supported" for one in bad]}

    return judge_of(script)


def test_claims_fill_two_metrics(folder: Folder, command: Any) -> None:
    run = folder(
        answered("q1", "Norway", steps=thought(SAID)), answered("q2", "Chad"),
        answered("q3", "yes"), answered("q4", "Oslo", pids=()), replace(failure(), qid="q5"),
    )  # fmt: skip
    lm = labelling("boat", "Chad")
    scored = scored_by(run, lm, "grounding")
    names = ("chain_fidelity_judged", "hallucination_rate_judged")
    assert [tuple(r.scores.get(name) for name in names) for r in scored.records[:4]] == [
        (0.5, 0.0), (None, 1.0), (None, None), (None, 1.0),  # q4 retrieved nothing: not asked
    ]  # fmt: skip
    # The failed one has the worst of each.
    assert [scored.summary["scores"][name]["mean"] for name in names] == [0.25, 0.75]
    assert get_metric("hallucination_rate_judged").higher_is_better is False
    found = scored.summary["judges"]["grounding"]
    assert (found["claims"], found["supported"], found["unsupported"]) == (5, 2, 3)
    assert "In which country" in next(a for a in lm.asked if "Chad" in a.prompt).inputs["claims"]
    assert judged(run, lm, "grounding") == found
    assert len(lm.asked) == 3
    code, out, _ = command("score", run)
    assert code == 0
    assert "5 claims judged by scripted/judge: 2 supported, 3 not; " in out
    assert "| chain_fidelity_judged " in out


def test_many_claims_are_asked_in_parts_and_labels_that_do_not_fit_are_unscored(
    folder: Folder,
) -> None:
    for reply in ({"verdicts": ["supported"]}, {"verdicts": ["yes", "no"]}, "hm"):
        lm = judge_of(lambda asked, reply=reply: reply, schema=False)
        found = scored_by(folder(answered("q1", "yes", steps=thought(SAID))), lm, "grounding")
        assert found.records[0].scores["chain_fidelity_judged"] is None
        assert found.summary["judges"]["grounding"]["unscored"] == len(lm.asked) == 2
    said = " ".join(f"Claim {n} is about {'a boat' if n % 3 else 'Oslo'}." for n in range(20))
    run, lm = folder(answered("q1", "yes", steps=thought(said))), labelling("boat")
    assert scored_by(run, lm, "grounding").records[0].scores["chain_fidelity_judged"] == 7 / 20
    assert len(lm.asked) == -(-20 // MOST_CLAIMS)


# -- causes ----------------------------------------------------------------------------------------


def causes(run: Path, lm: ScriptedLM | None = None, **how: Any) -> dict[str, tuple[str, str]]:
    found = errors_of(run, asking=JudgeSession(lm) if lm else None, **how)
    return {record.qid: (cause.name, cause.by) for record, cause in found.wrong}


def explaining(asked: Asked) -> Reply:
    said = asked.inputs["answer"]
    if "Norway Street" in said:
        return {"mistake": "wrong_entity"}
    return {"mistake": "same_meaning" if "Nor" in said else "passages_lack_it"}


def test_a_model_decides_what_rules_cannot(folder: Folder, command: Any) -> None:
    run = folder(
        answered("q1", "Norway"), answered("q2", "Kongeriket Norge"), answered("q3", "Sweden"),
        answered("q4", "Chad", pids=("p1",)),  # a gold passage is missing: a rule knows
        answered("q5", "A Norw\u00e4y"),  # right in another spelling: a rule knows
        replace(failure(), qid="q6"), answered("q7", "The kingdom of Norway"),
        answered("q8", "Norway Street"),
    )  # fmt: skip
    by_rule, lm = causes(run), judge_of(explaining)
    assert {by for _, by in by_rule.values()} == {"rule"}
    assert by_rule["q7"] == by_rule["q8"] == ("reading/among_words", "rule")
    found = causes(run, lm)
    by_model = {
        "q2": ("data/metrics_disagree", "model"),
        "q3": ("data/answer_not_in_gold", "model"),  # all gold was there
        "q7": ("reading/wrong_form", "model"),
        "q8": ("reading/same_type", "model"),
    }
    assert found == {**by_rule, **by_model}
    assert causes(run, lm) == found
    assert len(lm.asked) == 4
    assert causes(run) == by_rule
    code, out, _ = command("errors", run)
    assert (code, "  q2  In which country" in out) == (0, True)  # examples are shown
    code, _, err = command("errors", run, "--batch")
    assert (code, "--judge" in err) == (2, True)


def test_a_model_names_the_mode_of_a_failure_once_and_rules_keep_what_they_know(
    folder: Folder, command: Any
) -> None:
    search = {"action": "search", "input": "Red Sky", "observation": "x " * 9000}
    steps = [{"action": "think", "thought": "It is in Africa."}, {"action": "refine"}]
    found = [Search("capital of Chad", 2, (("p1", 2.0), ("p9", 1.0)), 0.1)]
    run = folder(
        answered("q1", "Norway"), answered("q3", "Chad", steps=steps, searches=found),
        answered("q2", "Sweden", steps=[search] * 30, pids=("p1",), stop_reason="max_steps"),
        answered("q4", "", stop_reason="budget"), replace(failure(), qid="q5"),
    )  # fmt: skip

    def name_mode(hit: Hit) -> str:
        mode = "entity_confusion" if "Africa" in str(hit.body) else "wrong_strategy"
        return f"[[ ## mode ## ]]\n{mode}\n\n[[ ## completed ## ]]"

    with FakeServer(name_mode) as server:
        asking = [run, "--judge", "openai/judge", "--api-base", server.url, "--no-cache"]
        code, out, err = command("errors", *asking, "--modes")
        again = command("errors", *asking, "--modes")
        prompts = sorted(str(hit.body["messages"]) for hit in server.hits)
    assert code == 0, err
    for line in ("control/wrong_strategy", "reading/entity_confusion", "control/budget"):
        assert f"| {line} " in out
    assert (again[1], len(prompts)) == (out, 2)  # what was said is in the journal
    assert any("max_steps" in prompt and "not found" in prompt for prompt in prompts)
    # The searches and their results are shown; a step without words is not.
    assert any("searched: capital of Chad | found: Ann Lee; p9" in prompt for prompt in prompts)
    assert not any("refine" in prompt for prompt in prompts)
    assert max(map(len, prompts)) < 40_000
    assert command("errors", run, "--modes")[0] == 2


def test_wrong_is_what_the_metric_or_the_judge_says(folder: Folder) -> None:
    rows = [answered("q1", "The kingdom of Norway"), answered("q2", "Sweden")]
    assert set(causes(folder(*rows), metric="contain")) == {"q2"}
    strict = folder(answered("q1", "Norway", scores={"judge": 0.0}))
    assert causes(strict) == {}
    assert causes(strict, metric="judge")["q1"][0] == "data/metrics_disagree"
    run = folder(answered("q1", "Kongeriket Norge"))
    for name in ("reading/same_type", "data/metrics_disagree"):  # after a judge accepts it
        cause: Any = cause_of(read_records(run)["q1"])
        assert cause.name == name
        judged(run, judge_of(lambda asked: {"verdict": "correct"}))
