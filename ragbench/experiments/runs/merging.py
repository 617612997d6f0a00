"""Puts the shards of a run together: the rows of their databases in one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ragbench.errors import RunError
from ragbench.experiments.config import differing
from ragbench.experiments.store import RunCard, held, merge_databases, read_card, runs_under
from ragbench.logs import LOG

#: Below the folder of a run, where its shards are.
SHARDS = "shards"


def merge(shards: Sequence[Path], out: Path, card: RunCard) -> None:
    """Add what is in `shards` to the run `out` with that `card`, which the caller holds.

    Records, calls of questions under way, texts and replies of judges are added, all or nothing.
    The shards stay as they are; one that was added before is not added again.

    Raises:
        RunError: a shard is of another run, or in use.
    """
    for folder in shards:
        theirs = read_card(folder)
        if not theirs.shard:
            raise RunError(f"{folder} is a whole run, no shard")
        for key, mine, other in differing(card.identity, theirs.identity):
            raise RunError(f"{folder} is no shard of {out}: {key}={other!r}, not {mine!r}")
        for name in ("data", "compiled", "model"):
            if getattr(card, name) != getattr(theirs, name):
                raise RunError(f"{folder} is no shard of {out}: it has another {name}")
    with ExitStack() as stack:
        for folder in shards:
            stack.enter_context(held(folder))
        merge_databases(shards, out, card)


def collect(folder: Path, card: RunCard) -> bool:
    """Put the shards of the run in `folder`, which this process holds, into it; whether any are.

    Raises:
        RunError: one is of another run, or in use.
    """
    shards = runs_under(folder / SHARDS)
    if shards:
        merge(shards, folder, card)
        with (folder / LOG).open("ab") as log:
            for path in filter(Path.is_file, (shard / LOG for shard in shards)):
                log.write(path.read_bytes())
    shutil.rmtree(folder / SHARDS, ignore_errors=True)
    return bool(shards)
