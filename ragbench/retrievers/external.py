"""Custom retrievers: a class in a file, an object in Python, or a server over HTTP.

`--retriever FILE.py:Class` names a class. Its constructor may take `corpus` (a `Corpus`) or
`passages` (a list of texts), and the arguments in `init`. An object or a class is searched with
`search(query, k=k)`, `forward`, or by calling it. Results are passages, texts, or objects with a
text and optionally a title, an id and a score. `dspy.Retrieve` and similar classes work.
"""

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

from pydantic import Field

from ragbench.errors import ConfigError, LMSetupError
from ragbench.external import PREFIX, digest_of_texts, find, keep
from ragbench.knobs import Knobs
from ragbench.lms.specs import checked_address
from ragbench.passages import Corpus, Passage, passage_of_text
from ragbench.retrievers.base import RETRIEVERS, PerQuestion, Retriever
from ragbench.user_code import (
    digest_of_plugin,
    digest_of_spec,
    is_external,
    load_object,
    wrap_user_errors,
)

KEY_VARIABLE = "RAGBENCH_RETRIEVER_API_KEY"


class OwnSettings(Knobs):
    """Settings of a custom retriever."""

    init: dict[str, Any] = Field({}, description="arguments of its constructor")


class NoSettings(Knobs):
    """Settings of an existing object: none."""


class OwnRetriever(Retriever):
    """Search with a user-provided object, or an object of a user-provided class."""

    Settings = OwnSettings
    #: The user's class, or the object.
    make: ClassVar[Any] = None

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        with wrap_user_errors(self.make, f"retriever {self.name}"):
            self._object = self._made() if isinstance(self.make, type) else self.make
        self._find = _way_to_search(self._object, self.name)
        if isinstance(self._object, Retriever):
            self.parts = (self._object,)

    def search(self, query: str, *, k: int) -> list[Passage]:
        if not query.strip() or k < 1:
            return []
        with wrap_user_errors(self._object, f"retriever {self.name}"):
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
    k: str = Field("k", description="field that holds the number of passages, or blank")
    hits: str = Field("hits", description="path of the list of hits, with dots between keys")
    text: str = Field("text", description="path of a hit's text, with dots between keys")
    title: str = Field("title", description="field of a hit's title")
    id: str = Field("id", description="field of a hit's id, or blank")
    score: str = Field("score", description="field of a hit's score, or blank")


@RETRIEVERS.register("http")
class HTTPRetriever(Retriever):
    """Search with any server that answers a query with JSON."""

    name = "http"
    Settings = HTTPSettings

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        from ragbench.retrievers.search_server import SearchServer

        super().__init__(corpus, **settings)
        if not self.settings.url:
            raise ConfigError("retriever http needs an address: --retriever-set url=http://...")
        url = checked_address(self.settings.url, "the address of the retriever")
        self.server = SearchServer("http", url, header="authorization", variable=KEY_VARIABLE)

    def restrict(self, positions: Sequence[int]) -> Self:
        """Return a retriever over some passages, with the same server and time limit."""
        small = super().restrict(positions)
        small.server = self.server
        return small

    def search(self, query: str, *, k: int) -> list[Passage]:
        if not query.strip() or k < 1:
            return []
        settings = self.settings
        fields = {settings.query: query, **({settings.k: k} if settings.k else {})}
        hits = _at(self.server.ask("POST", settings.url, fields), settings.hits)
        if not isinstance(hits, list):
            raise LMSetupError(f"{settings.url} answered without a list at hits={settings.hits!r}")
        keys = ("text", "title", "id", "score")
        rows = []
        for hit in hits:
            rows.append({key: _at(hit, getattr(settings, key)) for key in keys})
        return passages_of(rows, self.corpus)[:k]


@RETRIEVERS.outside
def load_retriever(spec: str) -> type[Retriever]:
    """Return the retriever class of `spec`, for an object of this process or an import."""
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
    """Register an object and return its name in configs of this process.

    Args:
        retriever: A ragbench retriever, identified by its content, or another object.
        name: The caller's name, which identifies another object. Empty: always a new object.

    Raises:
        ConfigError: The object cannot search.
    """
    _way_to_search(retriever, f"retriever={repr(retriever)[:80]}")
    label = str(getattr(retriever, "name", "") or type(retriever).__name__)
    return keep(retriever, f"{PREFIX}{label}", name=name, content=_content_of(retriever))


def _content_of(retriever: Any) -> str:
    """Return a hash of a registered retriever's kind, settings and passages, or an empty text."""
    if isinstance(retriever, PerQuestion):
        content = _content_of(retriever.whole)
        return content and digest_of_texts(["per question", content])
    kind = type(retriever)
    registered = any(kind is entry for _, entry in RETRIEVERS)
    # Nothing identifies the code of a method that was replaced on the object.
    replaced = any(
        callable(getattr(kind, name, None)) for name in getattr(retriever, "__dict__", ())
    )
    if not registered or replaced:
        return ""
    corpus = retriever.corpus
    contents = [_content_of(inner) for inner in retriever.parts]
    if not all(contents):
        return ""
    settings = retriever.settings.model_dump_json()
    passages = map(str, (corpus.digest, corpus.view, corpus.contexts, corpus.askers))
    return digest_of_texts([retriever.name, settings, *passages, *contents])


def retriever_digest(spec: str) -> str:
    """Return the identity of the code of `spec`, empty for built-in retrievers and objects."""
    if spec.startswith(PREFIX):
        return ""
    if is_external(spec):
        return digest_of_spec(spec, "--retriever")
    return digest_of_plugin(RETRIEVERS.get(spec))


def passages_of(results: Any, corpus: Corpus) -> list[Passage]:
    """Convert the results of a custom retriever to passages.

    Args:
        results: Passages, texts, mappings or objects, or an object with `passages` or `hits`.
        corpus: Results that match a passage by id or text become that passage.

    Raises:
        ConfigError: A result has no text.
    """
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
        raise ConfigError(f"custom retriever returned {repr(row)[:80]}, which has no text")
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


#: Maximum number of results that are read, in case the results never end.
_MOST_HITS = 10_000
_TEXTS = ("text", "long_text", "content", "page_content", "passage")


@lru_cache(maxsize=4)
def _by_text(corpus: Corpus) -> Mapping[str, int]:
    """Return the position of each passage by its text, with and without the title."""
    positions: dict[str, int] = {}
    for place, passage in enumerate(corpus):
        positions.setdefault(passage.text, place)
        positions.setdefault(str(passage), place)
    return positions


def _way_to_search(retriever: Any, name: str) -> Callable[[str, int], Any]:
    if isinstance(retriever, type):  # each object is checked when it is created
        return lambda query, k: None
    functions = (getattr(retriever, method, None) for method in ("search", "forward", "__call__"))
    function = next(filter(callable, functions), None)
    if function is None:
        raise ConfigError(
            f"{name} is not a retriever: it has no search(query, k) and is not callable"
        )
    takes = inspect.signature(function).parameters
    if "k" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        return lambda query, k: function(query, k=k)
    return lambda query, k: function(query)


def _at(value: Any, path: str) -> Any:
    """Return the value at the dotted `path` in `value`, or None if there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
