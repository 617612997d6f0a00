"""ReAct's page environment as `react variant=page` has it."""

import re
from collections.abc import Mapping
from typing import Any

from ragbench.programs.core import Trace
from ragbench.programs.core.tools import ToolUse
from ragbench.programs.core.trace import Budget
from ragbench.programs.react import PageTools, ReActKnobs
from ragbench.retrievers import Corpus, Passage, make_retriever
from tests.conformance.parity.ours import Parts, World

FOUND = 5  # similar titles


def folded(title: str) -> str:
    """A title as it is looked for, in any case."""
    return title.casefold()


def parts(world: World) -> Parts:
    """The tools over `world["pages"]`, title to text."""
    corpus = Corpus([Passage(title, title, text) for title, text in world["pages"].items()])
    retriever = make_retriever("bm25", corpus)

    def box() -> PageTools:
        return PageTools(Trace("q", retriever, Budget(99, 99)), ReActKnobs(k=FOUND))

    def opened(entity: str) -> dict[str, Any]:
        tools = box()
        shown = str(tools.search(entity))
        if tools.page is not None:
            return {"page": tools.page.title}
        return {"similar": shown.partition("Similar: ")[2].removesuffix(".").replace("none", "")}

    def walked(given: Mapping[str, Any]) -> list[str]:
        tools = box()
        tools.search(given["page"])
        return [tools.use(ToolUse("lookup", {"text": text})).observation for text in given["texts"]]

    return {
        "opened": opened,
        "shown": lambda entity: box().search(entity),
        "lookup": lambda given: [_hit(seen) for seen in walked(given)],
        "hits": lambda given: [_place(seen) for seen in walked(given)],
    }


def _place(seen: str) -> list[int] | None:
    found = re.match(r"\(Result (\d+) / (\d+)\)", seen)
    return [int(found[1]), int(found[2])] if found else None


def _hit(seen: str) -> str:
    return seen.strip() if _place(seen) is None else seen.partition(") ")[2]
