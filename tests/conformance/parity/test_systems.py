"""What the authors' code of a system made of made-up inputs, and what ours makes of them.

`systems/` holds a case per system: its inputs, and the outcomes of the authors' code as facts, with
commit and date (`python -m benchmarks.parity SYSTEM --official CHECKOUT --record FILE`). Every
accepted difference stands in `departures.json` with the words of the documentation that state it.
"""

import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
CASES: dict[str, Any] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in (FOLDER / "systems").glob("*.json")
}
DEPARTURES = {
    (row["case"], row["part"], row["at"]): row
    for row in json.loads((FOLDER / "departures.json").read_text("utf-8"))
    if row["case"] in CASES
}
PARTS = [(system, part) for system, case in sorted(CASES.items()) for part in case["parts"]]


@cache
def ours(system: str) -> Any:
    """Our parts of a system, made once, and only by the worker whose tests ask them."""
    world = CASES[system]["world"]
    module = "graphs" if "system" in world else system  # one for all that rank by a graph
    return importlib.import_module(f"tests.conformance.parity.ours.{module}").parts(world)


@pytest.mark.parametrize(("system", "part"), PARTS)
def test_every_outcome_is_the_official_one_but_for_the_departures(system: str, part: str) -> None:
    rows = CASES[system]["parts"][part]
    assert rows
    for at, row in enumerate(rows):
        found = ours(system)[part](row["input"])
        departure = DEPARTURES.get((system, part, at))
        if departure is None:
            assert found == row["official"], row["input"]
        else:
            assert found == departure["ours"], row["input"]
            assert found != row["official"], "the departure is gone"


def test_every_departure_is_of_a_case_and_stated_in_the_documentation() -> None:
    root = FOLDER.parents[2]
    for (system, part, at), row in DEPARTURES.items():
        assert at < len(CASES[system]["parts"][part])
        text = " ".join((root / row["docs"]).read_text("utf-8").split())
        assert row["stated"] in text, row["stated"]


def test_every_case_names_its_source() -> None:
    for case in CASES.values():
        source = case["source"]
        assert source.keys() - {"commit", "release"} == {"repository", "files", "date"}
        assert source["release"] if "release" in source else len(source["commit"]) == 40
