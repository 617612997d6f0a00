"""A replay names what mends an answer, asks each thing once, and says what mending is worth."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.experiments.scored_runs import answered, make_run
from tests.fake_server import FakeServer, Hit
from tests.metrics.records import passage

Command = Callable[..., tuple[int, str, str]]

#: Cause -> the recorded answer, the passages shown in order; p1 and p2 are gold.
PLANTED = {
    "form": ("Answer: Norway", ("p1", "p2")),
    "chance": ("Sweden", ("p1", "p2")),
    "retrieval": ("Sweden", ("p1", "p3")),
    "order": ("Sweden", ("p3", "p1", "p2")),
    "distraction": ("Sweden", ("p1", "p2", "p3")),
    "reading": ("Sweden", ("p1", "p2", "p3")),
}


def reader(hit: Hit) -> str:
    """Answers rightly where the change that the question's planted cause needs was made."""
    cause = re.search(r"planted (\w+)", hit.prompt)[1]  # type: ignore[index]
    first = min(("Ann Lee", "Bo Dan"), key=lambda name: hit.prompt.find(f"{name} |") % 10**6)
    right = {
        "form": True,
        "chance": True,
        "retrieval": "Oslo is the capital" in hit.prompt,
        "order": first == "Ann Lee",
        "distraction": "Bo Dan" not in hit.prompt,
        "reading": False,
    }[cause]
    answer = "Norway" if right else "Sweden"
    return f"[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with seventeen questions of each cause, four that are right, and two without gold."""
    records = []
    for cause, (answer, pids) in PLANTED.items():
        for number in range(17):
            passages = [passage(pid) for pid in ("p1", "p2", "p3")]
            records.append(
                answered(
                    f"{cause}-{number}", answer, question=f"planted {cause} {number}",
                    passages=passages, shown=list(pids), extra={"cluster": f"{cause}-{number}"},
                )
            )  # fmt: skip
    records += [
        answered(f"right-{number}", "Norway", extra={"cluster": f"right-{number}"})
        for number in range(4)
    ]
    records += [
        answered(f"bare-{number}", "Sweden", gold_pids=[], extra={"cluster": "b"})
        for number in range(2)
    ]
    return make_run(tmp_path / "run", records)


def test_a_hundred_planted_causes_are_named(
    run: Path, command: Command, server: FakeServer
) -> None:
    server.script = reader
    words = ("errors", run, "--replay", "openai/m", "--api-base", server.url, "--format", "json")
    code, out, err = command(*words)
    assert code == 0, err
    [table] = [part for part in json.loads(out) if part["table"] == "causes"]
    assert {row["cause"]: row["n"] for row in table["rows"]} == dict.fromkeys(PLANTED, 17)
    assert len(server.hits) <= 4 * 6 * 17
    asked = len(server.hits)
    code, out, _ = command(*words[:-2])
    assert code == 0
    assert len(server.hits) == asked  # each thing is asked once
    assert re.search(r"perfect retrieval is worth 0\.157 \[0\.0\d+, 0\.2\d+\]", out)
    assert re.search(
        r"a perfect reader of what was shown is worth 0\.472 \[0\.3\d+, 0\.5\d+\]", out
    )
    assert "2 wrong answers were not asked again" in out
