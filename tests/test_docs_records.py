"""The tables of docs/records.md have exactly the fields that are stored, with their types."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from ragbench import record
from ragbench.experiments.runs import HEADLINE
from ragbench.experiments.score.scoring import ScoreRequest, score_run
from ragbench.experiments.store import RunCard
from ragbench.metrics import get_metric
from tests.experiments.scored_runs import four, make_run
from tests.runs import query

PAGE = Path(__file__).parent.parent / "docs" / "records.md"
#: Heading of a table -> what it shows.
SHAPES: dict[str, type] = {
    "Record": record.Record, "Step": record.Step, "Search": record.Search,
    "Passage": record.ShownPassage, "Ledger": record.Ledger, "Call": record.Call,
    "FailedAttempts": record.FailedAttempts, "Critical path": record.CriticalPath,
    "Failure": record.Failure, "Card": RunCard,
}  # fmt: skip
#: Fields that are never stored with a record, and what is of the line, not of the record.
UNSTORED = {"memo", "attribution", "attributed_triples"}
TITLES = {cls.__name__: title for title, cls in SHAPES.items()}


def type_of(schema: dict[str, Any]) -> str:
    """The type that a JSON schema tells, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return TITLES.get(name, name).lower()
    if "anyOf" in schema:
        return " or ".join(map(type_of, schema["anyOf"]))
    if "prefixItems" in schema:
        return "[" + ", ".join(map(type_of, schema["prefixItems"])) + "]"
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'])}"
    return str(schema.get("type", "any"))


def fields_of(shape: type) -> dict[str, str]:
    """The fields of what is stored, with their types."""
    schema = TypeAdapter(shape).json_schema(mode="validation")
    fields = {name: type_of(each) for name, each in schema["properties"].items()}
    return {name: kind for name, kind in fields.items() if name not in UNSTORED}


def table_under(title: str) -> dict[str, str]:
    """Field and type of each row of the table under the heading `title`."""
    section = PAGE.read_text().partition(f"\n### {title}\n")[2]
    rows = {}
    for line in section.partition("\n\n#")[0].splitlines():
        if match := re.match(r"\| `(\w+)` \| ([^|]*) \| [^|]+ \|$", line):
            rows[match[1]] = match[2].strip()
    return rows


@pytest.mark.parametrize("title", SHAPES)
def test_page_has_the_fields_that_are_stored(title: str) -> None:
    assert table_under(title) == fields_of(SHAPES[title])


def test_the_queries_of_the_page_answer(tmp_path: Path) -> None:
    scores = [{name: get_metric(name).score(r) for name in HEADLINE} for r in four()]
    records = [replace(r, scores=each) for r, each in zip(four(), scores, strict=True)]
    folder = make_run(tmp_path / "run", records)
    score_run(folder, ScoreRequest(metrics=("em", "f1")))
    text = PAGE.read_text().partition("```sql\n")[2].partition("```")[0]
    asked = [each for each in re.sub(r"--.*", "", text).split(";") if each.strip()]
    assert len(asked) == 5
    found = [query(folder, each) for each in asked]
    assert found[0] == [
        ("answered", 3, pytest.approx(1 / 3), pytest.approx(0.4), pytest.approx(0.003)),
        ("failed", 1, 0, 0, 0.001),
    ]
    assert [row[0] for row in found[1]] == ["q2", "q3", "q4"]
    assert all(found)


def test_the_page_names_the_tables_and_their_columns(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", four())
    page = PAGE.read_text().partition("## The database")[2].partition("## ")[0]
    kinds = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    for (name,) in query(folder, kinds):
        columns = [row[1] for row in query(folder, f"PRAGMA table_info({name})")]
        [told] = re.findall(rf"^\| `{name}` \| .* \| (.*) \|$", page, re.M)
        said = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", told))
        assert name == "answers" or said == columns
