"""The tables of docs/records.md have exactly the fields that are stored, with their types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from ragbench.experiments.records import RunCard
from ragbench.record import (
    Call,
    CriticalPath,
    FailedAttempts,
    Failure,
    Ledger,
    Record,
    Search,
    ShownPassage,
    Step,
)

PAGE = Path(__file__).parent.parent / "docs" / "records.md"
#: Heading of a table -> what it shows.
SHAPES: dict[str, type] = {
    "Record": Record,
    "Step": Step,
    "Search": Search,
    "Passage": ShownPassage,
    "Ledger": Ledger,
    "Call": Call,
    "FailedAttempts": FailedAttempts,
    "Critical path": CriticalPath,
    "Failure": Failure,
    "Card": RunCard,
}
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
