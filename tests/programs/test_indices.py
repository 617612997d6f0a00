"""Programs with an index of their own: what holds for all, then light, linear, memo and tree."""

import json
from dataclasses import replace
from typing import Any

import dspy
import pytest

from ragbench.context import current, use
from ragbench.ledger import open_ledger
from ragbench.lms.adapters import make_adapter
from ragbench.programs import PROGRAMS
from ragbench.programs.core.indexed import IndexProgram, index_facts
from ragbench.programs.light_rag import LightRAG
from ragbench.programs.linear_rag import LinearRAG
from ragbench.programs.tree_rag import TreeRAG
from ragbench.programs.workflow.memo_rag import MemoRAG
from ragbench.programs.wrappers import FormRepaired
from ragbench.retrievers import Corpus, Passage, Retriever, make_retriever
from ragbench.retrievers.lm_index import GistIndex, by_pattern
from tests.fakes import Asked, Reply, ScriptedLM, never_parses, plausible
from tests.programs.shelf import COUNTY, TEXTS, ask, ended, queries, rules, shelf, shown, step

OWN = [name for name, kind in PROGRAMS if issubclass(kind, IndexProgram)]
#: Those whose index of this shelf asks an LM.
READ = [name for name in OWN if name not in ("tree_rag", "raptor")]
BORN = "Where was Orla Venn born?"


@pytest.mark.parametrize("name", READ)
def test_the_lm_of_the_role_makes_the_index_which_is_no_part_of_a_questions_cost(name: str) -> None:
    usual, own = ScriptedLM(name="usual"), ScriptedLM(name="own")
    program: Any = PROGRAMS.get(name)(shelf())
    adapter = make_adapter("json", usual)
    roles = {program.other_calls()[0].role: own}
    with use(replace(current(), role_lms=roles), lm=usual, adapter=adapter):
        with open_ledger() as preparation:
            program.prepare()
        made = len(own.asked)
        assert usual.asked == []
        assert program.index_of(program.retriever).lm == own.model
        with open_ledger() as ledger:
            prediction = program(question=BORN)
    assert preparation.as_if.calls == program.index_facts()["index_calls"] == made > 0
    assert {*own.signatures[:made]} <= {call.signature for call in program.other_calls()}
    assert ledger.as_if.calls == len(usual.asked) + len(own.asked) - made
    assert prediction.steps[0].notes["index_calls"] == made
    assert index_facts(FormRepaired(program)) == program.index_facts()


@pytest.mark.parametrize("name", OWN)
def test_each_question_of_its_own_passages_has_an_index_and_a_passage_is_read_once(
    name: str,
) -> None:
    contexts = {"Who is Orla Venn?": (0, 1), "Where is Harwick?": (1, 3), "Later?": (4,)}
    corpus = Corpus(shelf().corpus.passages, contexts=contexts)
    program: Any = PROGRAMS.get(name)(make_retriever("bm25", corpus, setting="distractor"))
    lm, ahead = ScriptedLM(), tuple(contexts)[:2]
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        program.prepare(ahead)
        prompts = [asked.prompt for asked in lm.asked]
        assert not any("Eastmere |" in prompt for prompt in prompts)
        read = [prompt for prompt in prompts if "Salt Road | " in prompt]
        assert len(read) == len(set(read))
        prediction = program(question=ahead[1])
    assert {p.pid for p in prediction.passages} & {*TEXTS} <= {"Salt Road", "Harwick"}


def misleading(rate: float = 1.0) -> Retriever:
    stones = {f"Stone {n}": f"Stone {n} lies on a beach. It is grey." for n in range(20)}
    passages = [Passage(t, t, text) for t, text in {**TEXTS, **stones}.items()]
    return make_retriever(f"distracting(rate={rate},kinds=subjective)", Corpus(passages))


@pytest.mark.parametrize("name", sorted({*OWN} - {"raptor"}))  # which is tree_rag
def test_misleading_passages_reach_what_an_index_ranks(name: str) -> None:
    prediction, lm, _ = ask(PROGRAMS.get(name)(misleading()), plausible)
    made = [p for p in prediction.passages if p.pid.startswith("distractor-")]
    assert made
    assert made[0].text in lm.asked[-1].prompt
    plain, _, _ = ask(PROGRAMS.get(name)(misleading(rate=0)), plausible)
    assert not [p for p in plain.passages if p.pid.startswith("distractor-")]


# -- light_rag

#: What is read off each passage: names, and (source, target, keyword).
LIGHT: dict[str, tuple[list[str], tuple[str, str, str]]] = {
    "Orla Venn": (["Orla Venn", "Salt Road"], ("Orla Venn", "Salt Road", "authorship")),
    "Salt Road": (["Salt Road", "Tam Quill"], ("Tam Quill", "Salt Road", "authorship")),
    "Tam Quill": (["Tam Quill"], ("Tam Quill", "Eastmere", "birthplace")),
    "Harwick": (["Harwick", "Dunmoor"], ("Harwick", "Dunmoor", "county")),
    "Eastmere": (["Eastmere", "Tollen"], ("Eastmere", "Tollen", "county")),
}


def keyed(asked: Asked) -> Reply:
    names, (source, target, word) = LIGHT[asked.inputs["text"].partition(" | ")[0]]
    link = {"source": source, "target": target, "description": word, "keywords": [word]}
    named = [{"name": n, "type": "thing", "description": "x"} for n in names]
    return {"entities": named, "relations": [{**link, "strength": 2}]}


REPLIES: dict[str, Any] = {
    "ExtractKeyedGraph": keyed,
    "ExtractKeywords": {"high_level": ["county"], "low_level": ["Salt Road", "salt road"]},
    "ExtractEntities": lambda asked: {
        "entities": by_pattern(asked.inputs["text"].partition("\n\n")[0])
    },
    "Summarize": lambda asked: {"summary": " ".join(json.loads(asked.inputs["texts"]))[:200]},
    "RecallClues": {"clues": ["Harwick is a town in Dunmoor", "too short"]},
    "SurrogateQuestions": {"questions": ["Who wrote Salt Road?", "who wrote salt road"]},
    "AnswerFromContext": {"answer": "Dunmoor"},
    "AnswerFromGraph": {"answer": "Dunmoor"},
}
script = rules(**REPLIES)


def lit(said: Any = script, **knobs: Any) -> tuple[dspy.Prediction, ScriptedLM, list[str]]:
    """What LightRAG answers, its LM, and the pids read."""
    prediction, lm, _ = ask(LightRAG(shelf(), **knobs), said, COUNTY)
    return prediction, lm, [passage.pid for passage in prediction.passages]


#: Relations stand by the degrees of their ends: Tam Quill has two, Orla Venn one.
LOCAL = ["Salt Road (thing)", "Salt Road - Tam Quill (", "Orla Venn - Salt Road (authorship)"]
GLOBAL = ["Dunmoor (thing)", "Dunmoor - Harwick (county)"]


@pytest.mark.parametrize(
    ("variant", "lines", "hidden"),
    [
        ("local", LOCAL, "county"), ("global", GLOBAL, "Salt Road"),
        ("hybrid", [*LOCAL[:1], *GLOBAL], "?"),
    ],
)  # fmt: skip
def test_names_find_entities_and_themes_find_relations(
    variant: str, lines: list[str], hidden: str
) -> None:
    prediction, lm, pids = lit(variant=variant, min_cosine=0.3, gleanings=0)
    assert ended(prediction) == ("Dunmoor", "answered")
    notes = lm.asked[-1].inputs["graph"]
    places = [notes.index(line) for line in lines]
    assert places == sorted(places)
    assert hidden not in notes
    retrieved = step(prediction, "search").notes["retrieved"]
    assert any(line.startswith(lines[0]) for line in retrieved)
    assert lm.signatures.count("ExtractKeyedGraph") == len(TEXTS)
    # The passages of what is shown are ranked by the question.
    assert pids == [pid for pid in lit(variant="naive")[2] if pid in pids]


def test_mix_adds_the_nearest_passages_which_naive_reads_without_a_graph() -> None:
    local, mixed = ({*lit(variant=v, min_cosine=0.3)[2]} for v in ("local", "mix"))
    assert local < mixed
    assert len(lit(variant="mix", k=2)[2]) == 2
    _, lm, pids = lit(variant="naive", k=2)
    assert (lm.signatures, len(pids)) == (["AnswerFromContext"], 2)


def test_without_keywords_the_question_stands_for_them_and_without_a_hit_vectors_rank() -> None:
    none: Any = {"high_level": [], "low_level": [" "]}
    prediction, _, _ = lit(rules(**{**REPLIES, "ExtractKeywords": none}))
    assert COUNTY in step(prediction, "keywords").observation
    prediction, _, pids = lit(k=2, min_cosine=1)
    assert (prediction.counts["no_seed"], len(pids)) == (1, 2)


# -- linear_rag


def test_entities_of_the_passages_once_and_of_each_question() -> None:
    prediction, lm, _ = ask(LinearRAG(shelf(), threshold=0.1), script, COUNTY)
    assert lm.signatures == ["ExtractEntities"] * 6 + ["AnswerFromContext"]
    _, extract, bridge, answer = prediction.steps
    assert (extract.action, bridge.action) == ("extract", "bridge")
    assert extract.observation == "Salt Road"
    assert bridge.notes["seeds"] == {"Salt Road": 1.0}
    assert bridge.notes["tiers"]["Orla Venn"] == 2
    assert answer.thought == "because"
    assert (prediction.passages[0].pid, len(prediction.passages)) == ("Salt Road", 5)
    assert ended(prediction) == ("Dunmoor", "answered")
    prediction, _, _ = ask(LinearRAG(shelf()), script, "what lies on a beach?")
    assert (prediction.counts["no_seed"], len(prediction.passages)) == (1, 5)


@pytest.mark.parametrize(("ablation", "asked"), [("bridging", 6), ("pagerank", 6), ("graph", 0)])
def test_linear_ablations(ablation: str, asked: int) -> None:
    program = LinearRAG(shelf(), ablation=ablation, reader="predict")
    prediction, lm, _ = ask(program, script, COUNTY)
    assert lm.signatures.count("ExtractEntities") == asked
    assert ("bridge" in [step.action for step in prediction.steps]) is bool(asked)
    assert "no_seed" not in prediction.counts
    scores = [score for _, score in prediction.searches[0].hits]
    assert scores == sorted(scores, reverse=True)
    if ablation == "bridging":
        assert list(prediction.steps[2].notes["tiers"]) == ["Salt Road"]


# -- memo_rag


def gists(texts_tokens: int, reply: Any = script) -> GistIndex:
    lm = ScriptedLM(reply)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)):
        return GistIndex.of(shelf().corpus, stretch_tokens=texts_tokens)


def test_a_gist_is_of_consecutive_passages_that_fit_and_cut_short_if_unreadable() -> None:
    index = gists(10_000, never_parses)
    assert index.gists[0].startswith("Orla Venn | Orla Venn wrote")
    assert index.facts()["unreadable_replies"] == 1
    assert len(gists(9_000).gists) == 1
    each = gists(50)
    assert 1 < len(each.gists) < len(each.corpus)
    assert each.gists[0].startswith("Orla Venn | ")


@pytest.mark.parametrize("variant", ["lite", "no_memory"])
def test_clues_and_surrogates_are_searched_and_read_in_the_order_of_the_corpus(
    variant: str,
) -> None:
    program, lite = MemoRAG(shelf(), variant=variant, k=1), variant == "lite"
    prediction, lm, _ = ask(program, script, COUNTY)
    assert ended(prediction) == ("Dunmoor", "answered")
    clues = ["Harwick is a town in Dunmoor"] * lite
    assert queries(prediction) == [*clues, "Who wrote Salt Road?", COUNTY]
    assert len(program.other_calls()) == lite
    assert len(lm.asked) == (1 + 3 if lite else 2)
    assert ("Orla Venn | " in shown(lm, "SurrogateQuestions")["memory"]) is lite
    context = json.loads(lm.asked[-1].inputs["context"].partition("\n\n")[0])
    places = [shelf().corpus.positions[line.split(" | ")[0][4:]] for line in context]
    assert places == sorted(places)


# -- tree_rag and raptor


@pytest.mark.parametrize("variant", ["collapsed", "traversal", "hiro"])
def test_one_search_one_call(variant: str) -> None:
    prediction, lm, _ = ask(TreeRAG(shelf(), variant=variant), script, BORN)
    assert lm.signatures == ["AnswerFromContext"]
    assert [step.action for step in prediction.steps] == ["index", "search", "answer"]
    assert [p.pid for p in prediction.passages] == [pid for pid, _ in prediction.searches[0].hits]
    assert prediction.passages[0].pid == "Orla Venn"


def test_summaries_are_made_once_and_found_beside_passages() -> None:
    program = TreeRAG(shelf(padding=40), k=40)
    lm = ScriptedLM(script)
    with dspy.context(lm=lm, adapter=make_adapter("json", lm)), open_ledger():
        program.prepare()
        made = len(lm.asked)
        prediction = program(question=BORN)
    assert lm.signatures == ["Summarize"] * made + ["AnswerFromContext"]
    notes = prediction.steps[0].notes
    assert notes["index_calls"] == made > 0
    assert len(notes["layers"]) == len(set(prediction.steps[1].notes["layers"])) == 2
    assert any(p.pid.startswith("summary-") for p in prediction.passages)


def test_nodes_are_shown_whole_within_the_limit() -> None:
    prediction, lm, _ = ask(TreeRAG(shelf(padding=6), context_tokens=100, k=50), script, BORN)
    assert 1 < len(prediction.passages) < 11
    assert "..." not in lm.asked[0].inputs["context"]


def test_an_index_without_summaries_is_bare_and_says_so() -> None:
    few, _, _ = ask(PROGRAMS.get("raptor")(shelf(), k=2), plausible)
    assert few.counts["trivial_index"] == 1
    many, _, _ = ask(PROGRAMS.get("raptor")(shelf(padding=40), k=2), plausible)
    assert many.counts["trivial_index"] == 0
