"""ReAct's own page environment, with the given pages in the place of Wikipedia.

A page opens where its title is asked for, in any case; else the titles of the passages that BM25
finds are the similar ones.
"""

import html
import importlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import unquote

from benchmarks.parities.parts import need, reachable
from ragbench.retrievers import Corpus, Passage, make_retriever
from tests.conformance.parity.ours.rules import FOUND, folded

_READ = 1000  # pages of which the sentences are compared
REPOSITORY, FILES = "github.com/ysymyth/ReAct", "wikienv.py"


def parts(checkout: Path, world: Mapping[str, Any]) -> dict[str, Any]:
    """The environment over `world["pages"]`, title to text."""
    need("bs4", "beautifulsoup4")
    sys.modules["gym"] = _gym()
    reachable(checkout)
    code: Any = importlib.import_module("wikienv")
    pages = world["pages"]
    texts = {f"{text}\n": title for title, text in pages.items()}
    search = make_retriever("bm25", Corpus([Passage(t, t, x) for t, x in pages.items()])).search
    titles = {folded(title): title for title in pages}

    def get(url: str) -> Any:
        wanted = unquote(url.partition("search=")[2].replace("+", " "))
        title = wanted if wanted in pages else titles.get(folded(wanted))
        if title is not None:
            return SimpleNamespace(text=f"<p>{html.escape(pages[title])}</p>")
        similar = [html.escape(p.title) for p in search(wanted, k=FOUND)]
        kind = '<div class="mw-search-result-heading">'
        return SimpleNamespace(text="".join(f"{kind}{title}</div>" for title in similar))

    code.requests = SimpleNamespace(get=get)
    return {
        "opened": lambda entity: _opened(code, texts, entity),
        "shown": lambda entity: _one_stop(_after(code, [f"search[{entity}]"])[0]),
        "lookup": lambda given: [_hit(seen) for seen in _after(code, _actions(given))[1:]],
        "hits": lambda given: [_place(seen) for seen in _after(code, _actions(given))[1:]],
    }


def _gym() -> Any:
    gym, spaces = ModuleType("gym"), ModuleType("gym.spaces")
    spaces.Space = object  # type: ignore[attr-defined]
    gym.Env, gym.spaces = object, spaces  # type: ignore[attr-defined]
    return gym


def _after(code: Any, actions: Sequence[str]) -> list[str]:
    environment = code.WikiEnv()
    return [environment.step(action)[0] for action in actions]


def _actions(given: Mapping[str, Any]) -> list[str]:
    return [f"search[{given['page']}]", *(f"lookup[{text}]" for text in given["texts"])]


def _opened(code: Any, texts: Mapping[str, str], entity: str) -> dict[str, Any]:
    """The page that opens, or the similar titles."""
    environment = code.WikiEnv()
    environment.step(f"search[{entity}]")
    if environment.page is None:
        return {"similar": ", ".join(environment.result_titles[:5])}
    return {"page": texts.get(environment.page, "another")}


def _place(seen: str) -> list[int] | None:
    found = re.match(r"\(Result (\d+) / (\d+)\)", seen)
    return [int(found[1]), int(found[2])] if found else None


def _hit(seen: str) -> str:
    return seen.strip() if _place(seen) is None else _one_stop(seen.partition(") ")[2])


def _one_stop(text: str) -> str:
    """Without the full stop that it puts behind that of a page's last sentence."""
    return re.sub(r"([.!?])\.(?=$| )", r"\1", text)


def world(path: Path) -> dict[str, Any]:
    """The pages of a corpus in HippoRAG's layout."""
    rows = json.loads(path.read_text("utf-8"))
    return {"pages": {row["title"]: " ".join(row["text"].split()) for row in rows}}


def cases(world: Mapping[str, Any], questions: Sequence[str]) -> dict[str, list[Any]]:
    """Every title, every question, and a look-up of a word of each page three times."""
    titles = list(world["pages"])
    walks = [{"page": title, "texts": [_word(text)] * 3} for title, text in world["pages"].items()]
    return {
        "opened": [*titles, *questions],
        "shown": titles[:_READ],
        "lookup": walks[:_READ],
        "hits": walks[:_READ],
    }


def _word(text: str) -> str:
    words = re.findall(r"\w+", text)
    return max(words, key=words.count, default="a")
