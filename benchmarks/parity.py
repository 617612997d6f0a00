"""What the authors' code and ours make of the same inputs, over the same parts.

    PYTHONHASHSEED=0 python -m benchmarks.parity linear_rag --official CHECKOUT \
        --passages chunks.json --questions questions.json
    python -m benchmarks.parity a_rag --official CHECKOUT --passages ... --questions ...
    python -m benchmarks.parity a_rag --official CHECKOUT --record FILE

CHECKOUT is one that you made of the authors' repository, or a wheel of theirs that you unpacked;
nothing is fetched, and nothing of it is kept here. Modules that the checkout imports and that are
not installed are replaced by empty ones.

The graph systems print how many questions have the same first 5 and first 20 passages, the others
how many inputs of each part have the same outcome; --show prints those that differ. --record writes
what CHECKOUT makes of the inputs in FILE, a case of tests/conformance/parity, into FILE.
"""

import argparse
import importlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.parities.parts import source
from tests.conformance.parity import ours

GRAPHS = ("linear_rag", "hippo_rag", "light_rag", "graph_rag")
PARTS = ("a_rag", "ircot", "flash", "react", "self_rag", "lookahead")


def read_texts(path: Path, n: int | None) -> list[str]:
    """The passages in a file of A-RAG's or HippoRAG's layout, blanks made single."""
    rows = json.loads(path.read_text("utf-8"))
    texts = [row if isinstance(row, str) else f"{row['title']}. {row['text']}" for row in rows]
    return [re.sub(r"^\d+:", "", " ".join(text.split())) for text in texts[:n]]


def compare_rankings(given: argparse.Namespace, texts: list[str], questions: list[str]) -> None:
    """Print how many questions a graph system ranks the same."""
    module = importlib.import_module("benchmarks.parities.graphs")
    mine, other = module.rankings(
        given.system, given.official, texts, questions, ascii_only=given.ascii
    )
    for depth in (1, 5, module.DEPTH):
        same = sum(a[:depth] == b[:depth] for a, b in zip(mine, other, strict=True))
        alike = sum(set(a[:depth]) == set(b[:depth]) for a, b in zip(mine, other, strict=True))
        print(f"first {depth}: same order {same}, same set {alike} of {len(questions)}")
    if given.show:
        for question, a, b in zip(questions, mine, other, strict=True):
            if a[:5] != b[:5]:
                print(f"{question}\n  ours   {a[:5]}\n  theirs {b[:5]}")


def compare_parts(given: argparse.Namespace, texts: list[str], questions: list[str]) -> None:
    """Print how many inputs of each part have the same outcome."""
    theirs = importlib.import_module(f"benchmarks.parities.{given.system}")
    world = {"chunks": texts} if given.system == "a_rag" else theirs.world(given.passages)
    world["ties_first"] = given.ties_first
    official = theirs.parts(given.official, world)
    mine = ours.parts(given.system, world)
    for part, inputs in theirs.cases(world, questions).items():
        pairs = [(one, mine[part](one), official[part](one)) for one in inputs]
        different = [pair for pair in pairs if pair[1] != pair[2]]
        print(f"{part}: {len(pairs) - len(different)} of {len(pairs)} the same")
        for one, a, b in different if given.show else ():
            print(f"  {json.dumps(one)[:300]}\n    ours   {a}\n    theirs {b}")


def record(given: argparse.Namespace) -> None:
    """Write the outcomes of CHECKOUT into the case, beside its inputs."""
    name = "graphs" if given.system in GRAPHS else given.system
    theirs = importlib.import_module(f"benchmarks.parities.{name}")
    case = json.loads(given.record.read_text("utf-8"))
    official = theirs.parts(given.official, case["world"])
    named = theirs.SOURCES[given.system] if name == "graphs" else (theirs.REPOSITORY, theirs.FILES)
    case["source"] = source(given.official, *named)
    for part, rows in case["parts"].items():
        for row in rows:
            row["official"] = official[part](row["input"])
    given.record.write_text(_lines(case), "utf-8")


def _lines(case: dict[str, Any]) -> str:
    """The case as JSON, a line for each input."""
    head = {name: json.dumps(case[name], ensure_ascii=False) for name in ("source", "world")}
    lines = [f' "{name}": {text},' for name, text in head.items()]
    blocks = []
    for part, rows in case["parts"].items():
        shown = ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in rows)
        blocks.append(f'  "{part}": [\n{shown}\n  ]')
    return "\n".join(["{", *lines, ' "parts": {', ",\n".join(blocks), " }", "}", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both, and print what agrees."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("system", choices=[*GRAPHS, *PARTS])
    parser.add_argument(
        "--official", type=Path, required=True, help="checkout of the authors' code"
    )
    parser.add_argument("--passages", type=Path)
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--n", type=int, default=200, help="questions")
    parser.add_argument("--corpus", type=int, help="passages at the most")
    parser.add_argument("--show", action="store_true", help="print what differs")
    parser.add_argument("--record", type=Path, help="the case whose outcomes are written")
    parser.add_argument(
        "--ascii",
        action="store_true",
        help="hippo_rag: clean phrases as the authors do, ASCII alone",
    )
    parser.add_argument(
        "--ties-first",
        action="store_true",
        help="a_rag: of sentences that score the same the first comes first there too",
    )
    given = parser.parse_args(arguments)
    if given.record:
        record(given)
        return
    if not (given.passages and given.questions):
        parser.error("--passages and --questions are needed, or --record")
    texts = read_texts(given.passages, given.corpus)
    rows = json.loads(given.questions.read_text("utf-8"))
    questions = [row["question"] for row in rows][: given.n]
    (compare_rankings if given.system in GRAPHS else compare_parts)(given, texts, questions)


if __name__ == "__main__":
    main()
