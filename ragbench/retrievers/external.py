"""Retrievers of one's own: a class in a file, an object in Python, or a server over HTTP.

`--retriever FILE.py:Class` names a class. Its constructor may take `corpus` (a `Corpus`) or
`passages` (a list of texts), and whatever is given as `init`. An object or a class searches by
`search(query, k=k)`, by `forward` or by being called. What it finds are passages, texts, or objects
with a text, and where they are known a title, an id and a score; `dspy.Retrieve` and its like do.
"""

import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

import httpx
from pydantic import Field

from ragbench.errors import ConfigError, LMSetupError
from ragbench.external import PREFIX, digest_of_texts, find, keep
from ragbench.knobs import Knobs
from ragbench.lms.specs import checked_address
from ragbench.passages import Corpus, Passage, passage_of_text
from ragbench.retrievers.base import RETRIEVERS, PerQuestion, Retriever
from ragbench.user_code import blamed_on, digest_of_plugin, digest_of_spec, is_external, load_object

KEY_VARIABLE = "RAGBENCH_RETRIEVER_API_KEY"


class OwnSettings(Knobs):
    """Settings of a retriever of one's own."""

    init: dict[str, Any] = Field({}, description="arguments of its constructor")


class NoSettings(Knobs):
    """Settings of an object, which is made already."""


class OwnRetriever(Retriever):
    """Search by an object that was handed over, or that a class of one's own makes."""

    Settings = OwnSettings
    #: Makes the object, or is it.
    make: ClassVar[Any] = None

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        with blamed_on(self.make, f"retriever {self.name}"):
            self._object = self._made() if isinstance(self.make, type) else self.make
        self._find = _way_to_search(self._object, self.name)
        if isinstance(self._object, Retriever):
            self.parts = (self._object,)

    def search(self, query: str, *, k: int) -> list[Passage]:
        if not query.strip() or k < 1:
            return []
        with blamed_on(self._object, f"retriever {self.name}"):
            results = self._find(query, k)
        return passages_of(results, self.corpus)[:k]

    def _made(self) -> Any:
        parameters = inspect.signature(self.make).parameters
        arguments = dict(self.settings.init)
        if "corpus" in parameters:
            arguments.setdefault("corpus", self.corpus)
        if "passages" in parameters:
            arguments.setdefault("passages", list(map(str, self.corpus)))
        return self.make(**arguments)


class HTTPSettings(Knobs):
    """Settings of `http`."""

    url: str = Field("", description="address that a query is posted to, as JSON")
    query: str = Field("query", description="field that holds the query")
    k: str = Field("k", description="field that holds the number of passages; blank for none")
    hits: str = Field("hits", description="where the list of hits stands; dots step in")
    text: str = Field("text", description="field of a hit's text; dots step in")
    title: str = Field("title", description="field of a hit's title")
    id: str = Field("id", description="field of a hit's id, or blank")
    score: str = Field("score", description="field of a hit's score, or blank")


@RETRIEVERS.register("http")
class HTTPRetriever(Retriever):
    """Search by any server that answers a query with JSON; see its settings."""

    name = "http"
    Settings = HTTPSettings

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        from ragbench.retrievers.search_server import SearchServer

        super().__init__(corpus, **settings)
        if not self.settings.url:
            raise ConfigError("retriever http needs an address: --retriever-set url=http://...")
        url = checked_address(self.settings.url, "the address of the retriever")
        self.server = SearchServer("http", url, header="authorization", variable=KEY_VARIABLE)

    def restrict(self, positions: Sequence[int], **options: Any) -> Self:
        """Returns the same over fewer passages; it asks the same server, within the same time."""
        small = super().restrict(positions, **options)
        small.server = self.server
        return small

    def search(self, query: str, *, k: int) -> list[Passage]:
        if not query.strip() or k < 1:
            return []
        settings = self.settings
        fields = {settings.query: query, **({settings.k: k} if settings.k else {})}
        reply = self.server.answer(httpx.Request("POST", settings.url, json=fields))
        hits = _at(json.loads(reply), settings.hits)
        if not isinstance(hits, list):
            raise LMSetupError(f"{settings.url} answered without a list at hits={settings.hits!r}")
        keys = ("text", "title", "id", "score")
        rows = []
        for hit in hits:
            rows.append({key: _at(hit, getattr(settings, key)) for key in keys})
        return passages_of(rows, self.corpus)[:k]


@RETRIEVERS.outside
def load_retriever(spec: str) -> type[Retriever]:
    """Returns the retriever class of `spec`: of an object of this process, or imported."""
    if spec.startswith(PREFIX):
        retriever = find(spec)
    else:
        retriever = load_object(spec, "--retriever")
        if isinstance(retriever, type) and issubclass(retriever, Retriever):
            return type(retriever.__name__, (retriever,), {"name": spec})
    if isinstance(retriever, type):
        return type("Own", (OwnRetriever,), {"name": spec, "make": retriever})
    members = {"name": spec, "make": staticmethod(retriever), "Settings": NoSettings}
    return type("Own", (OwnRetriever,), members)


def keep_retriever(retriever: Any, *, name: str = "") -> str:
    """Return the name of the object `retriever` in configs of this process.

    A retriever of the registry is identified by its content, another one by the caller's `name`.
    """
    _way_to_search(retriever, f"retriever={repr(retriever)[:80]}")
    label = str(getattr(retriever, "name", "") or type(retriever).__name__)
    return keep(retriever, f"{PREFIX}{label}", name=name, content=_content_of(retriever))


def _content_of(retriever: Any) -> str:
    """A hash of kind, settings and passages of a registered retriever; "" for any other object."""
    if isinstance(retriever, PerQuestion):
        content = _content_of(retriever.whole)
        return content and digest_of_texts(["per question", content])
    kind = type(retriever)
    registered = any(kind is entry for _, entry in RETRIEVERS)
    # A method that was replaced on the object is code that nothing identifies.
    replaced = any(
        callable(getattr(kind, name, None)) for name in getattr(retriever, "__dict__", ())
    )
    if not registered or replaced:
        return ""
    corpus = retriever.corpus
    contents = [_content_of(part) for part in retriever.parts]
    if not all(contents):
        return ""
    settings = retriever.settings.model_dump_json()
    passages = map(str, (corpus.digest, corpus.view, corpus.contexts, corpus.askers))
    return digest_of_texts([retriever.name, settings, *passages, *contents])


def retriever_digest(spec: str) -> str:
    """Return the identity of the code that `spec` names; "" for our retrievers and objects."""
    if spec.startswith(PREFIX):
        return ""
    if is_external(spec):
        return digest_of_spec(spec, "--retriever")
    return digest_of_plugin(RETRIEVERS.get(spec))


def passages_of(results: Any, corpus: Corpus) -> list[Passage]:
    """Returns a custom retriever's results as passages, those of `corpus` where they match."""
    results = getattr(results, "passages", None) or getattr(results, "hits", None) or results
    if isinstance(results, str):
        rows = [results]
    else:
        rows = list(itertools.islice(results or (), _MOST_HITS))
    return [_passage(row, corpus) for row in rows]


def _passage(row: Any, corpus: Corpus) -> Passage:
    if isinstance(row, Passage):
        return row
    if not isinstance(row, Mapping):
        attributes = (*_TEXTS, "id", "pid", "title", "score")
        values = {name: getattr(row, name, None) for name in attributes}
        row = {"text": row} if isinstance(row, str) else values
    text = next(filter(None, map(row.get, _TEXTS)), None)
    if not isinstance(text, str):
        raise ConfigError(f"a retriever of one's own found {repr(row)[:80]}, which has no text")
    pid = row.get("id") or row.get("pid")
    title = row.get("title")
    score = row.get("score")
    place = corpus.positions.get(str(pid))
    if place is None:
        place = _by_text(corpus).get(f"{title} | {text}" if title else text)
    points = 0.0
    if isinstance(score, int | float) and abs(score) < 1e300:
        points = float(score)
    if place is not None:
        return Passage.scored(corpus[place], points)
    if pid:
        return Passage(str(pid), str(title or ""), text, score=points)
    return Passage.scored(passage_of_text(text, str(title or "")), points)


#: Of what finds without end.
_MOST_HITS = 10_000
_TEXTS = ("text", "long_text", "content", "page_content", "passage")


@lru_cache(maxsize=4)
def _by_text(corpus: Corpus) -> Mapping[str, int]:
    """Returns positions by text, with the title before it and without."""
    positions: dict[str, int] = {}
    for place, passage in enumerate(corpus):
        positions.setdefault(passage.text, place)
        positions.setdefault(str(passage), place)
    return positions


def _way_to_search(retriever: Any, name: str) -> Callable[[str, int], Any]:
    if isinstance(retriever, type):  # its objects are looked at when they are made
        return lambda query, k: None
    functions = (getattr(retriever, method, None) for method in ("search", "forward", "__call__"))
    function = next(filter(callable, functions), None)
    if function is None:
        raise ConfigError(
            f"{name} is no retriever: it has no search(query, k) and cannot be called"
        )
    takes = inspect.signature(function).parameters
    if "k" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        return lambda query, k: function(query, k=k)
    return lambda query, k: function(query)


def _at(value: Any, path: str) -> Any:
    """Returns the value at the dotted `path` in `value`; None if there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
