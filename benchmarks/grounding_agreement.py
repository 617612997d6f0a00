"""Measures how far the rule for claims, and a model, agree with the hand-labelled claims.

    python benchmarks/grounding_agreement.py --judge local:qwen2.5-coder-1.5b --out /tmp/grounding

Every claim is asked about alone, and in groups as when a run is scored. The replies are kept in
--out, so that the same command continues; without --judge only the rule is measured.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click

from ragbench.cli.asking import asking_options, make_asking
from ragbench.experiments.score.annotate import Asking, Group, label_claims
from ragbench.metrics import cohens_kappa, grounded
from ragbench.record import ShownPassage

CASES = Path(__file__).resolve().parents[1] / "tests" / "conformance" / "grounding_cases.json"


def cases(*, held_out: bool) -> list[tuple[Group, list[bool]]]:
    """The claims of each world, and their labels."""
    data: dict[str, Any] = json.loads(CASES.read_text(encoding="utf-8"))
    found = []
    for world, texts in data["worlds"].items():
        chosen = [
            case
            for case in data["cases"]
            if case["world"] == world and case.get("held_out", False) == held_out
        ]
        passages = [ShownPassage(title, title, text) for title, text in texts]
        claims = [case["claim"] for case in chosen]
        group = Group(world, claims, claims, passages)
        found.append((group, [case["supported"] for case in chosen]))
    return [row for row in found if row[1]]


def alone(rows: Sequence[tuple[Group, list[bool]]]) -> list[tuple[Group, list[bool]]]:
    """The same claims, each in a group of its own."""
    return [
        (Group(group.qid, [claim], [claim], group.passages), [label])
        for group, labels in rows
        for claim, label in zip(group.claims, labels, strict=True)
    ]


def line(name: str, said: Sequence[bool | None], labels: Sequence[bool]) -> str:
    """One rater against the labels; unscored claims are counted and left out."""
    pairs = [(a, b) for a, b in zip(said, labels, strict=True) if a is not None]
    same = sum(a == b for a, b in pairs) / len(pairs) if pairs else float("nan")
    kappa = cohens_kappa([a for a, _ in pairs], [b for _, b in pairs])
    wrong = [(a, b) for a, b in pairs if a != b]
    return (
        f"  {name:14s} n {len(pairs):3d}  unscored {len(said) - len(pairs):3d}"
        f"  agreement {same:.2f}  kappa {'-' if kappa is None else f'{kappa:.2f}'}"
        f"  wrongly grounded {sum(a for a, _ in wrong)}  wrongly not {sum(b for _, b in wrong)}"
    )


def report(out: Path, asking: Asking | None) -> None:
    """Print both raters on both halves."""
    for held_out in (False, True):
        rows = cases(held_out=held_out)
        labels = [label for _, some in rows for label in some]
        print("held back" if held_out else "used while the rule was made")
        rule = [one for group, _ in rows for one in grounded(group.claims, group.passages)]
        print(line("rule", rule, labels))
        for name, some in (("alone", alone(rows)), ("grouped", rows)) if asking else ():
            said, _ = label_claims(out, [group for group, _ in some], asking)  # type: ignore[arg-type]
            print(line(f"judge, {name}", [one for group in said for one in group], labels))


@click.command()
@click.option("--judge", metavar="LM", help="LM that labels the claims.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/grounding"))
@asking_options
def main(judge: str | None, out: Path, **options: Any) -> None:
    """Print the agreement of the rule, and of the judge, with the labels."""
    out.mkdir(parents=True, exist_ok=True)
    report(out, make_asking(options, judge, "labelling"))


if __name__ == "__main__":
    main()
