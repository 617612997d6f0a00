"""Named entities of texts: by an LM, by a spaCy pipeline, or by a pattern.

The pattern is a fallback that needs nothing: runs of capitalised words. It finds other entities
than the published systems do, so results name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Literal

from ragbench.errors import ConfigError, needs_extra
from ragbench.retrievers.base import Progress
from ragbench.retrievers.lm_index.replies import IndexLM, at_once
from ragbench.signatures import ExtractEntities

EntitySource = Literal["lm", "spacy", "regex"]

#: Numbers, of which LinearRAG makes no entities.
_NUMBERS = frozenset({"ORDINAL", "CARDINAL"})
_CAPITAL = r"[^\W\d_a-z]"
_WORD = rf"(?:(?:{_CAPITAL}\.)+|{_CAPITAL}(?:[\w'\u2019&-]|\.(?=\w))*)"
_LINK = r"(?:of|the|de|la|van|von|da|di|del)"
_NAME = re.compile(rf"{_WORD}(?:\s+(?:{_LINK}\s+){{0,2}}{_WORD})*")
#: Words that a sentence or a question begins with.
_OPENERS = frozenset(
    re.findall(
        r"\w+",
        """
    a an the this that these those he she it they we you i his her its their our my your
    who whom whose what which when where why how is are was were do does did has have had
    can could will would should may might must in on at by for from of to with as and or
    but if after before during since until while although though both between among there
    here name please also however
""",
    )
)


def entities_of(
    texts: Sequence[str],
    source: EntitySource,
    lm: IndexLM,
    *,
    pipeline: str = "",
    progress: Progress | None = None,
) -> list[list[str]]:
    """The entities of each text, in order, each once.

    `pipeline` is the name or folder of the spaCy pipeline, for the source "spacy".

    Raises:
        ConfigError: the pipeline cannot be loaded.
        dspy.LMError: the LM's provider failed.
    """
    if source == "lm":
        return at_once(lambda text: by_lm(lm, text), texts, progress, "entities of passages")
    if source == "spacy":
        docs = load_pipeline(pipeline).pipe(texts)
        names = [by_spacy(doc) for doc in docs]
    else:
        names = [by_pattern(text) for text in texts]
    if progress and texts:
        progress(len(texts), len(texts))
    return names


def by_lm(lm: IndexLM, text: str) -> list[str]:
    """The entities that the LM lists."""
    return plain_names(lm.ask(ExtractEntities, text=text).values.get("entities") or [])


def by_spacy(doc: Any) -> list[str]:
    """The entities of a spaCy document, numbers left out."""
    return plain_names(ent.text for ent in doc.ents if ent.label_ not in _NUMBERS)


def by_pattern(text: str) -> list[str]:
    """Runs of capitalised words, without the word that opens a sentence."""
    names = []
    for match in _NAME.finditer(text):
        words = match.group().rstrip("'\u2019&-").split()
        while words and words[0].lower() in _OPENERS:
            words.pop(0)
        names.append(" ".join(words))
    return plain_names(name for name in names if len(name) > 1)


def plain_names(names: Iterable[Any]) -> list[str]:
    """`names` with blanks made single, none blank, each once, in order."""
    return list(dict.fromkeys(filter(None, (" ".join(str(name).split()) for name in names))))


@cache
def load_pipeline(name: str) -> Any:
    """The installed spaCy pipeline `name`, or the one in that folder.

    Raises:
        MissingExtraError: spaCy is not installed.
        ConfigError: the pipeline is not.
    """
    if not name:
        raise ConfigError(
            "entities=spacy needs a pipeline; give --set spacy_pipeline=NAME, such as "
            "en_core_web_trf, of one that is installed"
        )
    with needs_extra("entities=spacy", "take --set entities=lm"):
        import spacy
    try:
        return spacy.load(name)
    except OSError:
        raise ConfigError(
            f"spaCy has no pipeline {name!r}; install it, give the folder it is in, or take "
            "--set entities=lm"
        ) from None
