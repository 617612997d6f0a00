"""What IRCoT, FlashRAG's loop of it, ReAct, Self-RAG and LookaheadRAG do as variants of ours."""

import re
from collections.abc import Sequence
from typing import Any

import dspy

from ragbench.programs.core import Trace, first_sentence
from ragbench.programs.core.question_state import Budget
from ragbench.programs.core.tools import ToolUse
from ragbench.programs.ircot import IRCoT, ReasoningChain, ending, first_words, is_inference
from ragbench.programs.lookahead.plan import LookUp, PlanGraph
from ragbench.programs.lookahead.program import LookaheadRAG
from ragbench.programs.react import PageTools, ReActKnobs
from ragbench.programs.self_rag.grades import Grades
from ragbench.programs.self_rag.program import Candidate, SelfRAG, select
from ragbench.retrievers import Corpus, Passage, Retriever, make_retriever
from tests.conformance.parity.ours import Parts, World
from tests.fakes import Asked, Reply
from tests.programs.shelf import ask, shelf


def tracing(retriever: Retriever, question: str = "q") -> Trace:
    return Trace(question, retriever, Budget(99, 99))


def ircot(world: World) -> Parts:
    """The rules of `variant=paper` over `world["passages"]`, title and text of each."""
    passages = {
        pid: Passage(pid, pid.partition("#")[0], text) for pid, text in world["passages"].items()
    }
    program = IRCoT(make_retriever("bm25", Corpus(list(passages.values()))), variant="paper")

    def query(given: World) -> str:
        trace = tracing(program.retriever, given["question"])
        chain = ReasoningChain(trace, program.knobs)
        chain.thoughts = list(given["thoughts"])
        chain.search(chain.query() if chain.thoughts else given["question"])
        return trace.searches[0].query

    def kept(batches: Sequence[Sequence[str]]) -> list[list[str]]:
        chain, rows = ReasoningChain(tracing(program.retriever), program.knobs), []
        for batch in batches:
            chain.add([passages[pid] for pid in batch])
            rows.append([p.pid for p in chain.kept()])
        return rows

    def answer(text: str) -> str | None:
        """The answer of a sentence beside which no typed step could be read."""
        done, answer = ending(dspy.Prediction(next_step="", answer=""), text)
        return answer if done else None

    return {
        "first_sentence": first_sentence,
        "reasoning": is_inference,
        "query": query,
        "paragraphs": kept,
        "shown": lambda pid: first_words(passages[pid], 350).text,
        "answer": answer,
    }


class _Given(Retriever):
    """Finds what it is given, search by search."""

    def __init__(self, findings: Sequence[Any]) -> None:
        pids = dict.fromkeys(pid for found in findings for pid, _ in found)
        super().__init__(Corpus([Passage(pid, "", f"text {pid} ends") for pid in pids]))
        self.left = list(findings)

    def search(self, query: str, *, k: int) -> list[Passage]:
        """What is next."""
        found = self.left.pop(0)
        return [self.corpus[self.corpus.positions[pid]].scored(score) for pid, score in found]


def flash(world: World) -> Parts:
    """What a run of `ircot variant=flash` shows, searches, keeps and answers."""

    def loop(given: World) -> dict[str, Any]:
        thoughts, shown = list(given["thoughts"]), []

        def script(asked: Asked) -> Reply:
            if asked.signature != "CoTStep":
                return {"answer": "forced"}
            shown.append(re.findall(r"text (\S+) ends", asked.inputs["context"]))
            thought = thoughts.pop(0)
            _, done, answer = thought.partition("So the answer is:")
            step = "answer" if done else "search"
            return {"thought": thought, "next_step": step, "answer": answer.strip()}

        program = IRCoT(_Given(given["findings"]), variant="flash", context_tokens=1_000_000)
        prediction, _, _ = ask(program, script, given["question"])
        return {
            "shown": shown,
            "queries": [search.query for search in prediction.searches],
            "passages": sorted(passage.pid for passage in prediction.passages),
            "answer": prediction.answer,
        }

    parts = ("shown", "queries", "passages", "answer")
    return {part: lambda given, part=part: loop(given)[part] for part in parts}  # type: ignore[misc]


FOUND = 5  # similar titles


def folded(title: str) -> str:
    """A title as it is looked for, in any case."""
    return title.casefold()


def react(world: World) -> Parts:
    """The tools of `variant=page` over `world["pages"]`, title to text."""
    corpus = Corpus([Passage(title, title, text) for title, text in world["pages"].items()])
    retriever = make_retriever("bm25", corpus)

    def box() -> PageTools:
        return PageTools(tracing(retriever), ReActKnobs(k=FOUND))

    def opened(entity: str) -> dict[str, Any]:
        tools = box()
        shown = str(tools.search(entity))
        if tools.page is not None:
            return {"page": tools.page.title}
        return {"similar": shown.partition("Similar: ")[2].removesuffix(".").replace("none", "")}

    def walked(given: World) -> list[tuple[list[int] | None, str]]:
        """The place among the results, where there is one, and the sentence of each look-up."""
        tools = box()
        tools.search(given["page"])
        seen = [tools.use(ToolUse("lookup", {"text": text})).observation for text in given["texts"]]
        places = [re.match(r"\(Result (\d+) / (\d+)\) ", text) for text in seen]
        return [
            ([int(at[1]), int(at[2])], text[at.end() :]) if at else (None, text.strip())
            for at, text in zip(places, seen, strict=True)
        ]

    return {
        "opened": opened,
        "shown": lambda entity: box().search(entity),
        "lookup": lambda given: [text for _, text in walked(given)],
        "hits": lambda given: [place for place, _ in walked(given)],
    }


_LABELS: dict[str, tuple[str | int, ...]] = {
    "relevance": ("relevant", "irrelevant"),
    "support": ("full", "partial", "none"),
    "use": (1, 2, 3, 4, 5),
}


class Says(dspy.Predict):
    """A predictor that gives one reply."""

    reply: dspy.Prediction

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return self.reply


def self_rag(world: World) -> Parts:
    """The scores at the published weights."""
    weights = {"w_utility": 0.5, "w_support": 1.0, "w_relevance": 1.0, "signed_utility": True}
    program = SelfRAG(shelf(), confidence_source="verbal", **weights)

    def score(one: World) -> float:
        chances = []
        for name, labels in _LABELS.items():
            total = sum(one[name])
            chances.append({k: w / total for k, w in zip(labels, one[name], strict=True)})
        return Grades(*chances).score(program.knobs)

    def scores(given: Sequence[World]) -> list[float]:
        return [round(score(one), 9) for one in given]

    def chosen(given: Sequence[World], how: Any) -> Any:
        return select([Candidate(one["answer"], score(one)) for one in given], how)

    def retrieves(given: Sequence[float]) -> bool:
        """What the gate says where its label has this probability."""
        retrieve, not_ = given
        said = dspy.Prediction(retrieve=retrieve > not_, confidence=max(retrieve, not_))
        program.decide = Says("question -> retrieve: bool, confidence: float")
        program.decide.reply = said
        return program.wants_passages(tracing(shelf()))

    return {
        "score": scores,
        "best": lambda given: chosen(given, "best"),
        "vote": lambda given: chosen(given, "vote"),
        "gate": retrieves,
        "segment": scores,
    }


def lookahead(world: World) -> Parts:
    """The pruner of `variant=engine`, and the levels of what it keeps."""
    program = LookaheadRAG(shelf(), variant="engine")

    def node(given: World) -> LookUp:
        fields = {**given, "depends_on": tuple(given["depends_on"]), "cost": given["budget_cost"]}
        del fields["budget_cost"]
        return LookUp(**fields)

    def graph(plan: Sequence[World]) -> PlanGraph:
        return PlanGraph(tuple(map(node, plan)))

    def kept(plan: Sequence[World]) -> PlanGraph:
        return program.within_budget(graph(plan))[0]

    def levels(found: PlanGraph) -> list[list[str]]:
        return [[node.id for node in level] for level in found.levels()]

    return {
        "kept": lambda plan: [node.id for node in kept(plan)],
        "levels": lambda plan: levels(kept(plan)),
        "whole": lambda plan: levels(graph(plan)),
    }
