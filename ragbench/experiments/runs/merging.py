"""Puts the shards of a run together. Records are the unit, so the files are concatenated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from ragbench.errors import RunError
from ragbench.experiments.config import differing
from ragbench.experiments.records import (
    CONFIG,
    PROMPTS,
    RECORDS,
    SENT,
    Preparation,
    RunCard,
    held,
    locked,
    parse_line,
    parse_prompt,
    read_card,
    read_each,
    write_json,
    write_whole,
)
from ragbench.experiments.runs.evaluation import write_summary


def merge(shards: Sequence[Path], out: Path) -> None:
    """Make the run `out` of all its `shards`, which stay as they are.

    Records, calls of questions under way and prompts are kept; scores are not, since they are made
    of a whole run. A question that a shard has not asked can be asked in `out`.

    Raises:
        RunError: the shards are not all those of one run, a question is in two of them, one is in
            use, or `out` holds a run.
    """
    cards = [read_card(folder) for folder in shards]
    _check(shards, cards)
    if (out / CONFIG).exists():
        raise RunError(f"{out} holds a run already; give another -o")
    with ExitStack() as stack:
        for folder in shards:
            stack.enter_context(held(folder))
        stack.enter_context(locked(out))
        write_whole(out / RECORDS, _records(shards))
        if sent := [raw for folder in shards for raw in _whole_lines(folder / SENT)]:
            write_whole(out / SENT, sent)
        if any((folder / PROMPTS).exists() for folder in shards):
            write_whole(out / PROMPTS, _prompts(shards))
        write_json(out / CONFIG, _card(cards).model_dump(mode="json"), sealed=True)
        write_summary(out)


def _check(shards: Sequence[Path], cards: Sequence[RunCard]) -> None:
    first, folder_of = cards[0], dict[str, Path]()
    for folder, card in zip(shards, cards, strict=True):
        if not card.shard:
            raise RunError(f"{folder} is a whole run, no shard")
        for difference in _different(first, card):
            raise RunError(f"{folder} and {shards[0]} are no shards of one run: {difference}")
        if card.shard in folder_of:
            raise RunError(f"{folder} and {folder_of[card.shard]} are both shard {card.shard}")
        folder_of[card.shard] = folder
    of = first.shard.partition("/")[2]
    missing = [name for n in range(1, int(of) + 1) if (name := f"{n}/{of}") not in folder_of]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise RunError(f"shard {missing[0]}{more} is missing; give all {of} shards")


def _different(first: RunCard, card: RunCard) -> Iterator[str]:
    for key, one, other in differing(first.identity, card.identity):
        yield f"{key}={other!r}, not {one!r}"
    if first.shard.partition("/")[2] != card.shard.partition("/")[2]:
        yield f"shard {card.shard} beside shard {first.shard}"
    for name in ("limit", "data", "compiled", "model"):
        if getattr(first, name) != getattr(card, name):
            yield f"another {name}"


def _records(shards: Sequence[Path]) -> Iterator[bytes]:
    asked: dict[str, Path] = {}
    for folder in shards:
        for line in read_each(folder / RECORDS, parse_line):
            if line.row is not None and asked.setdefault(line.row.qid, folder) != folder:
                raise RunError(f"{folder} and {asked[line.row.qid]} both have {line.row.qid!r}")
            if not line.torn:
                yield line.raw.rstrip(b"\n") + b"\n"


def _prompts(shards: Sequence[Path]) -> Iterator[bytes]:
    known: set[str] = set()
    for folder in shards:
        for line in read_each(folder / PROMPTS, parse_prompt):
            if line.row is not None and line.row.id not in known:
                known.add(line.row.id)
                yield line.raw.rstrip(b"\n") + b"\n"


def _whole_lines(path: Path) -> Iterator[bytes]:
    for line in read_each(path, bytes):
        if line.raw.endswith(b"\n"):
            yield line.raw


def _card(cards: Sequence[RunCard]) -> RunCard:
    calls = [call for card in cards if card.preparation for call in card.preparation.calls]
    changes = {
        "shard": "",
        "questions": sum(card.questions or 0 for card in cards),
        "preparation": Preparation(calls=calls),
        "config": {**(cards[0].config or {}), "shard": None, "out": None},
    }
    return cards[0].model_copy(update=changes)
