"""Makes the card of a run."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import ragbench
from ragbench.errors import RunError
from ragbench.experiments.config import differing
from ragbench.experiments.runs.context import RunContext
from ragbench.experiments.store import DataId, RunCard, is_run, read_card


def make_card(run_context: RunContext) -> RunCard:
    """The card of a new run: everything resolved, with versions and the identity of the data."""
    config, dataset = run_context.config, run_context.dataset
    return RunCard(
        config=config.model_dump(mode="json"),
        identity=config.identity(),
        label=run_context.program.label,
        limit=config.data.limit,
        shard=config.shard or "",
        questions=len(run_context.examples),
        workers=config.workers,
        cache=config.lm.cache,
        knobs=run_context.program.knobs.model_dump(mode="json"),
        retriever=run_context.retriever.card(),
        index=dict(run_context.program.index_facts()),
        model=run_context.lm.model,
        price=config.lm.price,
        adapter=type(run_context.adapter).__name__,
        data=DataId(name=dataset.name, setting=dataset.setting, digest=dataset.digest),
        compiled=run_context.compiled,
        data_card=dict(dataset.card),
        versions={
            "ragbench": ragbench.__version__,
            "dspy": version("dspy"),
            "python": platform.python_version(),
        },
        git=_git_revision(),
    )


def card_for(folder: Path, run_context: RunContext) -> RunCard:
    """The card of the run in `folder`, which is new or of the same run.

    Raises:
        RunError: the folder holds a run of another config or other data.
    """
    mine = make_card(run_context)
    if mine.shard and is_run(whole := folder.parent.parent):
        _check_same(whole, read_card(whole), mine.model_copy(update={"shard": ""}))
    if not is_run(folder):
        return mine
    theirs = read_card(folder)
    _check_same(folder, theirs, mine)
    kept = {"run": theirs.run, "index": mine.index or theirs.index}
    return mine.model_copy(update={**kept, "price": mine.price or theirs.price})


def _check_same(folder: Path, theirs: RunCard, mine: RunCard) -> None:
    changed = differing(theirs.identity, mine.identity)
    if changed:
        key, old, new = changed[0]
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise RunError(
            f"{folder} holds a run with {key}={old!r}, not {new!r}{more}; give another --out"
        )
    if theirs.shard != mine.shard:
        old, new = (f"shard {one}" if one else "a whole run" for one in (theirs.shard, mine.shard))
        raise RunError(f"{folder} holds {old}, not {new}; give another --out")
    if theirs.data != mine.data:
        raise RunError(f"{folder} holds a run over other data; give another --out")
    if theirs.compiled != mine.compiled:
        raise RunError(f"{folder} holds a run of another compiled program; give another --out")


def _git_revision() -> str | None:
    folder = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
