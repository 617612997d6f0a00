"""The planner's tree and its moves, and REAP's state machine, by scripted conversations."""

from collections.abc import Sequence
from typing import Any, get_args

import pytest

from ragbench.programs.planner.program import PlannerRAG
from ragbench.programs.planner.tree import Tree
from ragbench.programs.reap import REAP, SupportedFact, filled
from tests.fakes import Asked, Reply, ScriptedLM, never_parses, plausible
from tests.programs.shelf import COUNTY, ask, check, shelf, step

WHO = "Who is the author of Salt Road?"
WHERE = "In which county was that person born?"
GATE = {"retrieve": True, "question_type": "bridge"}


def do(action: str, node_id: str = "n0", *sub_questions: str) -> dict[str, Any]:
    return {"action": action, "node_id": node_id, "sub_questions": list(sub_questions)}


def solved(answer: str, confidence: float = 0.9, main: str = "") -> dict[str, Any]:
    return {"answer": answer, "confidence": confidence, "main_answer": main}


def explore(
    *parts: Any, actions: Any = (), kind: str = "bridge", final: str = "", replies: Any = (),
    **more: Any,
) -> Any:  # fmt: skip
    """A run of these actions, answers to parts, and `final` from all notes, where one is due."""
    given = {
        "RetrievalPlan": [{**GATE, "question_type": kind}],
        "PlannerAction": list(actions),
        "AnswerPart": list(parts),
        "AnswerWithHints": [{"answer": final}] if final else [],
        **dict(replies),
    }
    return check(PlannerRAG, given, **{"question": COUNTY, "answer": final or "Dunmoor", **more})


def choosing(lm: ScriptedLM) -> list[dict[str, str]]:
    return [asked.inputs for asked in lm.asked if asked.signature == "PlannerAction"]


def each(*numbers: int) -> list[dict[str, Any]]:
    return [do("TRAVERSE", f"n{number}") for number in numbers]


TWO = do("ROLLOUT", "n0", WHO, WHERE)
CUT: Any = {"final": "Dunmoor", "stop": "max_steps", "max_steps": 3}


def test_the_gate_may_answer_from_memory() -> None:
    memory = {"RetrievalPlan": [{**GATE, "retrieve": False}], "DirectAnswer": [{"answer": "D"}]}
    explore(replies=memory, answer="D", stop="direct", calls=2)


def test_two_hops_take_six_calls_where_the_last_part_settles_the_question() -> None:
    # The placeholder is filled, in the search and in the prompt.
    asked = "In which county was Orla Venn born?"
    hops = do("ROLLOUT", "n0", WHO, "In which county was {1} born?")
    parts = solved("Orla Venn"), solved("Dunmoor", 0.9, "Dunmoor")
    more: Any = {"calls": 6}
    _, lm = explore(*parts, actions=(hops, *each(1, 2)), searched=[WHO, asked], **more)
    last = lm.asked[-1].inputs
    assert last["question"].startswith(asked)
    assert last["main_question"].startswith(COUNTY)
    assert last["notes"] == '["Who is the author of Salt Road: Orla Venn"]'


def test_an_answer_of_little_confidence_solves_nothing_and_is_replaced_later() -> None:
    parts = solved("Eastmere", 0.1), solved("Orla Venn"), solved("Dunmoor", 0.7)
    actions = do("ROLLOUT", "n0", WHERE, WHO), *each(1, 2, 1)
    _, lm = explore(*parts, actions=actions, final="Dunmoor")
    assert "Eastmere (confidence 0.1)" in choosing(lm)[2]["tree"]
    assert "Eastmere" not in lm.asked[-1].inputs["notes"]
    explore(*parts[:2], actions=actions[:3], sees=["Eastmere (unsure)"], **{**CUT, "max_steps": 2})


@pytest.mark.parametrize(("style", "answer"), [("brief", "Harwick"), ("free", "Born in Harwick.")])
def test_a_question_of_one_fact_is_answered_by_one_look_up(style: str, answer: str) -> None:
    # The root's answer is the one in the wording of a final answer.
    said, asked = solved("Harwick", 0.9, "Born in Harwick."), "Where was Orla Venn born?"
    more: Any = {"question": asked, "answer": answer, "calls": 3, "answer_style": style}
    explore(said, actions=each(0), kind="single", **more)


def test_select_solves_an_open_node_and_refocuses_on_a_solved_one() -> None:
    actions = TWO, do("SELECT", "n1"), do("SELECT", "n0"), do("SELECT", "n1")
    parts = solved("Orla Venn"), solved("Dunmoor", 0.5)
    prediction, lm = explore(*parts, actions=actions, **CUT)
    assert [inputs["active_id"][:2] for inputs in choosing(lm)] == ["n0", "n1", "n1", "n0"]
    assert [inputs["actions_left"] for inputs in choosing(lm)] == ["3", "3", "2", "1"]
    assert len(prediction.searches) == 2  # n1 and n0; selecting n1 again searched nothing


def test_rollout_keeps_two_children_and_drops_near_duplicates() -> None:
    tree = Tree("Which town is bigger, Harwick or Eastmere?")
    questions = [
        "Which town is bigger: Eastmere or Harwick?",  # the root's own words
        "How many inhabitants has Harwick?",
        "how many inhabitants has the Harwick",
        " ",
        "How many inhabitants has Eastmere?",
        "In which county is Eastmere?",
    ]
    added = tree.add(tree.root, questions, most=2)
    # They keep their numbers, which placeholders refer to.
    kept = [(node.number, node.question) for node in added]
    assert kept == [(2, questions[1]), (5, questions[4])]
    assert tree.add(tree.root, ["Quite another?"], most=2) == []


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Who is the mother of the director of film Salt Road?",
         ["Who is the director of film Salt Road?", "Who is the mother of {1}?"]),
        ("Where was the composer of film The Long Salt Road (1938 film) born?",
         ["Who was the composer of film The Long Salt Road (1938 film)?", "Where was {1} born?"]),
    ],
)  # fmt: skip
def test_rollout_part_of_the_question_words_is_not_a_repeat(
    question: str, parts: list[str]
) -> None:
    tree = Tree(question)
    added = tree.add(tree.root, parts, most=2)
    assert [node.question for node in added] == parts


def test_rollout_with_a_reference_to_a_dropped_part_is_refused_and_says_so() -> None:
    tree = Tree("Who is Tam Quill?")
    parts = ["who is Tam  Quill", "Where was {1} born?"]
    assert tree.add(tree.root, parts, most=2) == []
    assert tree.lines() == [
        "n0: Who is Tam Quill? -> open; split refused: part 2 needs part 1, which repeats a node"
    ]
    actions = do("ROLLOUT", "n0", *parts), *each(0)
    more: Any = {"question": "Who is Tam Quill?", "counts": {"split_refused": 1}}
    prediction, _ = explore(solved("Dunmoor"), actions=actions, kind="single", **more)
    assert step(prediction, "decompose").observation.startswith("refused: part 2 needs part 1")
    assert [search.query for search in prediction.searches] == ["Who is Tam Quill?"]


def test_backtrack_gives_the_branch_up_and_goes_to_the_parent() -> None:
    actions = do("ROLLOUT", "n0", "Who is Tam Quill?", WHERE), *each(1), do("BACKTRACK"), *each(2)
    parts = solved("a writer"), solved("Dunmoor")
    prediction, lm = explore(*parts, actions=actions, **CUT)
    assert choosing(lm)[3]["active_id"].startswith("n0")
    assert "Tam Quill" not in choosing(lm)[3]["tree"]
    assert "writer" not in lm.asked[-1].inputs["notes"]
    assert [node["status"] for node in prediction.tree] == ["open", "pruned", "solved"]


def test_a_poor_answer_to_a_bridge_question_falls_back_to_the_best_name() -> None:
    parts = solved("Orla Venn", 0.5), solved("in Dunmoor", 0.7)
    replies = {"RefineAnswer": [{"answer": "the author of Salt Road"}]}
    more: Any = {"answer": "Dunmoor", "sees": ["Orla Venn | "], "counts": {"entity_fallback": 1}}
    explore(*parts, actions=(TWO, *each(1, 2)), final="yes", replies=replies, **more)


def test_the_ablations_take_actions_and_the_gate_away() -> None:
    knobs: Any = {"gate": "always", "rollout": False, "backtrack": False}
    replies = {"RetrievalPlan": [], "PlannerAction": [{"action": "TRAVERSE", "node_id": "n0"}]}
    _, lm = explore(solved("Dunmoor", 0.9), replies=replies, calls=2, **knobs)
    fields = lm.asked[0].fields
    assert list(fields) == ["action", "node_id"]
    assert get_args(fields["action"]) == ("TRAVERSE", "SELECT", "STOP")


def facts(*statements: str, level: str = "direct") -> dict[str, Any]:
    return {"facts": [{"statement": s, "evidence": [1], "fulfillment": level} for s in statements]}


def task(id: str, question: str, *after: str) -> dict[str, Any]:
    return {"id": id, "question": question, "depends_on": list(after), "status": "open"}


def plan(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"goal": "the county", "subtasks": list(tasks)}


def advance(actions: Any = (), *tasks: dict[str, Any], strategy: str = "reword") -> dict[str, Any]:
    """A planner's reply; `actions` maps queries to requirement ids, and none means synthesize."""
    wanted = [{"requirement_id": i, "query": q} for q, i in dict(actions).items()]
    said = {"diagnosis": "too little", "strategy": strategy, "new_plan": list(tasks)}
    return {**said, "next_step": "continue" if actions else "synthesize", "actions": wanted}


def queries(*texts: str, done: bool = False) -> dict[str, Any]:
    return {"done": done, "queries": list(texts)}


def judged(
    *statements: str, score: float = 0.1, missing: Sequence[str] = (), evidence: int = 1
) -> dict[str, Any]:
    """A round's reply of the `spec` form."""
    stated = [{"statement": s, "evidence": [evidence]} for s in statements]
    return {"facts": stated, "score": score, "missing": list(missing)}


def research(variant: str, replies: dict[str, list[Any]], **more: Any) -> Any:
    """A run of these replies, which answers Dunmoor."""
    last = {"SynthesizeAnswer": [{"answer": "Dunmoor"}]}
    given = {"question": COUNTY, "answer": "Dunmoor", "variant": variant}
    return check(REAP, {**replies, **last}, **given, **more)


def test_spec_reads_every_round_in_one_call_until_the_facts_suffice() -> None:
    missing = ["county of Harwick", "Eastmere"]
    first = judged("Orla Venn wrote it", score=0.4, missing=missing)
    rounds = [first, judged("It is in Dunmoor", score=0.8)]
    replies = {"NextSubTask": [queries("author of Salt Road")], "ReadAndJudge": rounds}
    searched = ["author of Salt Road", *missing]
    answer, lm = research("spec", replies, searched=searched, calls=4, path=4)
    assert lm.asked[2].inputs["requirement"].startswith('["county of Harwick", "Eastmere"]')
    assert "Orla Venn wrote it" in lm.asked[2].inputs["known_facts"]
    assert "Orla Venn wrote it" in lm.asked[-1].prompt
    assert [f["statement"] for f in answer.facts] == ["Orla Venn wrote it", "It is in Dunmoor"]
    assert answer.facts[0]["pids"] == [answer.searches[0].hits[0][0]]


@pytest.mark.parametrize(
    ("planned", "read", "searched", "counts"),
    [  # the planner is done, before it starts: the question is searched
        ([queries(done=True)], [judged("x", score=1)], [COUNTY], {}),
        # a fact that no passage proves is none, and of nothing nothing is complete
        (
            [queries("Salt Road"), queries(done=True)],
            [judged("Dunmoor, as everybody knows", score=1, evidence=99)],
            ["Salt Road"], {"unproven_fact": 1},
        ),
        # nothing is extracted from no passages
        ([queries("zzz"), queries(done=True)], [], ["zzz"], {}),
    ],
)  # fmt: skip
def test_spec_where_little_is_found(planned: Any, read: Any, searched: Any, counts: Any) -> None:
    replies = {"NextSubTask": planned, "ReadAndJudge": read}
    research("spec", replies, searched=searched, counts=counts, hides=["Salt Road is a novel"])


def test_spec_ends_where_the_planner_has_nothing_more_to_look_for() -> None:
    replies = {"NextSubTask": [queries("Salt Road"), queries()], "ReadAndJudge": [judged("x")]}
    research("spec", replies, searched=["Salt Road"], stop="no_progress")


DRAFT = plan(
    task("1", "Who wrote Salt Road?"),
    task("2", "Where was {1} born?", "1"),
    task("3", "In which county is {2}?", "2"),
)
FIRST = advance({"author of Salt Road": "1"})


def test_paper_updates_its_plan_and_answers_from_the_facts_alone() -> None:
    updates = [FIRST, advance({"Orla born": "2"}), advance({"county of Harwick": "3"}), advance()]
    found = [facts("Orla Venn"), facts("Harwick"), facts("Dunmoor")]
    replies = {"DraftPlan": [DRAFT], "UpdatePlan": updates, "FactExtract": found}
    calls = 2 + 3 * (1 + 1) + 1
    answer, lm = research("paper", replies, calls=calls, path=calls)
    assert [t["id"] for t in answer.plan] == ["1", "2", "3"]
    assert "Salt Road is a novel" not in lm.asked[-1].prompt


@pytest.mark.parametrize(
    ("knob", "kept"),
    [("", ["partial"]), ("use_replanner", ["partial"]), ("use_fulfillment", ["direct"]),
     ("use_clues", [])],
)  # fmt: skip
def test_replanner_follows_a_partial_fact_and_its_ablations(knob: str, kept: list[str]) -> None:
    repairs = knob in ("", "use_clues")
    last = advance(strategy="accept_partial")
    replies = {"DraftPlan": [DRAFT], "UpdatePlan": [FIRST, *([] if repairs else [last])]}
    replies["RepairPlan"] = [last] if repairs else []
    replies["FactExtract"] = [facts("Orla Venn, perhaps", level="partial")]
    answer, lm = research("paper", replies, **({knob: False} if knob else {}))
    assert [fact.get("fulfillment", "direct") for fact in answer.facts] == kept
    if not knob:
        assert "[1, partial] Orla Venn, perhaps" in lm.asked[-2].prompt
        assert "(partial) Orla Venn, perhaps" in lm.asked[-1].prompt
        repair = step(answer, "repair")
        assert (repair.thought, repair.notes["strategy"]) == ("too little", "accept_partial")


CIRCLE = [task("1", "a", "2"), task("2", "b", "1")]


def test_malformed_round_is_rolled_back_and_asked_again() -> None:
    updates = [advance({"never searched": "1"}, *CIRCLE), FIRST, "no JSON at all", advance()]
    replies = {"DraftPlan": [DRAFT], "UpdatePlan": updates, "FactExtract": [facts("Orla Venn")]}
    expected: Any = {"searched": ["author of Salt Road"], "counts": {"rollback": 2}}
    answer, lm = research("paper", replies, **expected)
    assert [t["id"] for t in answer.plan] == ["1", "2", "3"]
    first, again = lm.asked[1:3]
    assert first.prompt == again.prompt  # nothing of the refused plan is left
    assert (first.request.config.temperature, again.request.config.temperature) == (0.0, 0.7)


def test_bad_drafts_are_replaced_by_the_question_and_repeated_queries_refused() -> None:
    updates = [advance({"Salt Road": "1"}), advance({"salt  ROAD": "1"})]
    replies = {"DraftPlan": [plan(*CIRCLE), plan(), "?"], "UpdatePlan": updates}
    replies["FactExtract"] = [facts("Orla Venn")]
    counts = {"bad_draft": 3, "repeated_query": 1}
    answer, _ = research("paper", replies, stop="no_progress", counts=counts)
    assert [t["question"] for t in answer.plan] == [COUNTY]


def test_no_more_than_ten_attempts_and_five_rounds() -> None:
    def stubborn(asked: Asked) -> Reply:
        if asked.signature in ("UpdatePlan", "RepairPlan"):
            return advance({f"Salt Road {asked.number}": "1"})
        return plausible(asked)

    paper = REAP(shelf(), variant="paper")
    answer, lm, _ = ask(paper, stubborn)
    assert (answer.stop_reason, lm.signatures.count("UpdatePlan")) == ("max_steps", 5)
    answer, lm, _ = ask(paper, never_parses)
    assert lm.signatures.count("UpdatePlan") + lm.signatures.count("RepairPlan") <= 10
    assert answer.answer == "noanswer"


def test_a_placeholder_asks_once_for_each_of_its_facts() -> None:
    known = [
        SupportedFact("A.", "direct", "1"),
        SupportedFact("B", "direct", "1"),
        SupportedFact("C", "direct", "2"),
    ]
    assert filled("x {1} y {2}", known, most=9) == ["x A y C", "x B y C"]
    assert filled("x {1}", known, most=1) == ["x A"]
    assert filled("x {7} y", known, most=9) == ["x y"]
