"""Common file formats of other projects, with the paths of our fields in them.

The fields of a record identify its format. A field that has our name already, or that the user
maps, takes precedence.

- KILT (Petroni et al. 2021, arXiv:2009.02252)
- RGB (Chen et al. 2023, arXiv:2309.01431) and CRAG (Yang et al. 2024, arXiv:2406.04744)
- HippoRAG (its `paragraphs` with `text`) and AutoRAG
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ragbench.data.mapping import AbsentError, has, value_at
from ragbench.data.readers import Row


@dataclass(frozen=True)
class Form:
    """File format: the fields that identify it, and the paths of each of our fields.

    Attributes:
        name: Name of the format.
        has: Fields that every record has.
        paths: Our fields, with their possible paths. The first path with a value counts.
        together: Our fields that join the values of all their paths into one list.
        lacks: A path that no record of the format has. Blank if there is none.
    """

    name: str
    has: frozenset[str]
    paths: Mapping[str, Sequence[str]]
    together: frozenset[str] = frozenset()
    lacks: str = ""


def _form(name: str, has: str, together: str = "", lacks: str = "", **paths: str) -> Form:
    """Return a form. Fields and paths are separated by blanks."""
    split = {ours: tuple(text.split()) for ours, text in paths.items()}
    return Form(name, frozenset(has.split()), split, frozenset(together.split()), lacks)


QUESTIONS = (
    _form("KILT", "input output", question="input", answers="output[].answer",
          gold_if_known="output[].provenance[].title"),
    _form("RGB", "query answer positive negative", "context", question="query",
          context="positive[] positive_wrong[] negative[]", gold_if_known="positive[]"),
    _form("CRAG", "interaction_id query answer", id="interaction_id", question="query",
          answers="alt_ans", type="question_type", context="search_results"),
    _form("AutoRAG", "qid query generation_gt", id="qid", question="query",
          answers="generation_gt", gold="retrieval_gt"),
    _form("HippoRAG", "question answer paragraphs", lacks="paragraphs[0].paragraph_text",
          context="paragraphs"),
)  # fmt: skip


def form_of(data: Any, forms: Sequence[Form]) -> Form | None:
    """Return the first of `forms` whose fields `data` has, or None if no form fits."""
    if not isinstance(data, dict):
        return None
    for form in forms:
        if form.has <= data.keys() and not (form.lacks and has(data, form.lacks)):
            return form
    return None


def formed(row: Row, forms: Sequence[Form]) -> Row:
    """Add our fields to the row, with the values at the paths of its form."""
    form = form_of(row.data, forms)
    if form is None:
        return row
    taken: dict[str, Any] = {}
    for ours, paths in form.paths.items():
        if row.data.get(ours) is not None:
            continue
        values = []
        for path in paths:
            with suppress(AbsentError):
                values.append(value_at(row.data, path))
        if ours in form.together and values:
            taken[ours] = [entry for value in values for entry in value]
        elif values:
            taken[ours] = values[0]
    return row._replace(data={**row.data, **taken})
