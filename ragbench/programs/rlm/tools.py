"""The `repl_tools` form of `rlm`: code over the question's top passages, with search and read."""

from __future__ import annotations

from ragbench.programs.core import BudgetSpentError, Trace
from ragbench.programs.rlm.repl import current_trace

_SNIPPET_CHARS = 200
_DESCRIPTION = "{n} passages that a search for the question found, best first, each as 'pid | text'"


def variable(trace: Trace, *, k: int) -> tuple[list[str], str]:
    """The `k` passages that a search for the question finds, and a description of them."""
    try:
        passages = trace.search(trace.question, k=k)
    except BudgetSpentError:
        passages = []
    shown = [f"{passage.pid} | {passage}" for passage in passages]
    return shown, _DESCRIPTION.format(n=len(shown))


def search(query: str, k: int = 5) -> list[dict[str, str]]:
    """Find passages; gives dicts with pid, title and the beginning of the text."""
    trace = current_trace()
    try:
        passages = trace.search(str(query), k=min(max(int(k), 1), 20))
    except BudgetSpentError:
        raise RuntimeError("no search is left") from None
    trace.step("search", input=str(query), pids=tuple(p.pid for p in passages))
    return [{"pid": p.pid, "title": p.title, "text": p.text[:_SNIPPET_CHARS]} for p in passages]


def read(pid: str) -> str:
    """Give the full text of a passage that a search found."""
    trace = current_trace()
    passage = next((p for p in trace.passages if p.pid == str(pid)), None)
    trace.step("read", input=str(pid), pids=(passage.pid,) if passage else ())
    if passage is None:
        raise ValueError(f"no passage {str(pid)[:80]!r} was found yet")
    return str(passage)
