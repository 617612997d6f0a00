"""The `repl_corpus` form of `rlm`: the passages are a variable that code looks at.

Recursive Language Models (Zhang, Kraska and Khattab 2025, arXiv:2512.24601) as published, with
`llm_query` for parts of the passages. No search: report no retrieval scores.
"""

from __future__ import annotations

from ragbench.programs.core import BudgetSpentError, Trace

#: How the prompt describes the variable, by what it holds.
WHOLE = "{n} passages, all that there are, each as 'title | text'"
PART = "{n} of {total} passages, those nearest to the question first, each as 'title | text'"


def variable(trace: Trace, *, most: int) -> tuple[list[str], str]:
    """The passages that the code sees, and a description of them.

    All of the corpus; where that has more than `most`, those that a search for the question finds,
    filled up to `most` with others in the order of the corpus.
    """
    corpus = trace.retriever.corpus
    if len(corpus) <= most:
        shown = [str(passage) for passage in corpus]
        return shown, WHOLE.format(n=len(shown))
    if not trace.searches:
        trace.count("corpus_cut")
    try:
        first = trace.search(trace.question, k=most)
    except BudgetSpentError:
        first = []
    pids = {passage.pid for passage in first}
    others = (passage for passage in corpus if passage.pid not in pids)
    shown = [str(passage) for passage in [*first, *others][:most]]
    return shown, PART.format(n=len(shown), total=len(corpus))
