"""Retrievers by name: from a spec string, or from a name and settings. Wrappers of another one."""

from collections.abc import Mapping
from typing import Any, Literal

from ragbench.errors import ConfigError
from ragbench.external import PREFIX
from ragbench.passages import Corpus, Passage
from ragbench.retrievers.base import RETRIEVERS, PerQuestion, Retriever
from ragbench.user_code import wrap_user_errors


def make_retriever(
    name: str,
    corpus: Corpus,
    *,
    setting: Literal["distractor", "pooled"] = "pooled",
    **settings: Any,
) -> Retriever:
    """Create a retriever over a corpus. The first search or `build` makes its index.

    Args:
        name: Name or spec, such as `bm25(k1=1.2,b=0.75)`.
        corpus: Passages to search.
        setting: "pooled" searches all passages. "distractor" searches the question's own passages,
            if the corpus lists any.
        settings: Settings. They override those of the spec.

    Raises:
        UnknownNameError: There is no retriever of that name.
        KnobError: A setting is unknown or out of range.
        ConfigError: The spec is malformed.
    """
    name, knobs = parse_spec(name)
    kind = RETRIEVERS.get(name)
    own_passages = setting == "distractor" and corpus.contexts
    if own_passages and not name.startswith(PREFIX):  # an object searches its own passages
        return PerQuestion(corpus, kind, **{**knobs, **settings})
    with wrap_user_errors(kind, f"retriever {name}"):
        return kind(corpus, **{**knobs, **settings})


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Parse `NAME(setting=value,...)` into name and settings. A value may be a spec."""
    name, bracket, tail = spec.strip().partition("(")
    if not bracket:
        return name, {}
    if not tail.endswith(")"):
        raise ConfigError(f"retriever {spec!r} is malformed; write NAME(setting=value,...)")
    settings: dict[str, str] = {}
    for inner in split_specs(tail[:-1]):
        key, equals, value = inner.partition("=")
        if not equals:
            raise ConfigError(f"{inner!r} in {spec!r} is not a setting; write setting=value")
        settings[key.strip()] = value.strip()
    return name.strip(), settings


def make_spec(name: str, settings: Mapping[str, Any]) -> str:
    """Build a spec, the inverse of `parse_spec`.

    Args:
        name: Name of the retriever.
        settings: Settings of the retriever.
    """
    inner = ",".join(f"{key}={value}" for key, value in settings.items())
    if inner:
        return f"{name}({inner})"
    return name


def split_specs(text: str) -> list[str]:
    """Split a list at its commas, except those inside brackets."""
    specs = [""]
    depth = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
        if character == "," and depth == 0:
            specs.append("")
        else:
            specs[-1] += character
    if depth:
        raise ConfigError(f"the brackets in {text!r} do not match")
    return list(filter(None, map(str.strip, specs)))


class Wrapper(Retriever):
    """A retriever over the hits of another one, that of the setting `inner`."""

    def __init__(self, corpus: Corpus, **settings: Any) -> None:
        super().__init__(corpus, **settings)
        self.parts = (make_retriever(self.settings.inner, corpus),)

    def search(self, query: str, *, k: int) -> list[Passage]:
        return self.search_many([query], k=k)[0]
