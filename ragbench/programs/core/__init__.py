"""What every architecture stands on; to write one, these fifteen concepts are enough.

    class HopKnobs(ProgramKnobs):
        max_hops: int = bounded(2, 1, 10, "searches at the most")

    @PROGRAMS.register("hop")
    class Hop(RAGProgram[HopKnobs]):
        "Search for the next missing fact, then answer."  # shown to optimizers: short, neutral

        family, calls = "recursive", "max_hops + 1"
        variants = {"default": {}, "long": {"max_hops": 4}}

        def make_predictors(self):
            self.next_query = predict(NextQuery)
            self.answer = chain_of_thought(AnswerFromContext)

        def solve(self, trace):
            for _ in range(self.knobs.max_hops):
                reply = trace.ask(self.next_query, otherwise={"query": trace.question},
                                  context=self.shown(trace.passages))
                trace.search(reply.query, k=self.knobs.k)
            answer = self.answer_from(trace, self.answer, trace.passages)
            return trace.prediction(answer, "answered")

1. `PROGRAMS`: the registry; `register` makes the program known by its name.
2. `RAGProgram[MyKnobs]`: a `dspy.Module`. Write `solve`; `self.knobs` is typed.
3. `ProgramKnobs`: the knobs that every program has (`k`, `context_tokens`, `max_calls`, ...); a
   subclass adds fields with a default, bounds and a description. `variants` change defaults.
4. `predict` and `chain_of_thought` make predictors. `make_predictors` keeps them as attributes,
   so that optimizers find them.
5. `Trace` is one question: `trace.question`, `trace.passages` (all seen), and what follows.
6. `trace.ask` calls a predictor, with the trace's question where no other is given. What cannot be
   read of the reply is blank, or as `otherwise` has it; texts are stripped.
7. `trace.answer` calls one that answers, and notes the step. `last=True` marks the forced answer.
8. `trace.search`, `search_many`: the retriever's passages; a query asked before costs nothing.
   `trace.search_by` is for a program's own index.
9. `trace.fan_out` asks several things at once, in an order that does not depend on timing.
10. `trace.step` notes what was done, `trace.count` an event such as `resampled`. A program never
    reads them back: what it needs later it keeps in locals of `solve`.
11. `trace.prediction(answer, stop_reason, passages=...)` ends `solve`; `StopReason` lists the ways.
12. `BudgetSpentError` leaves `trace.ask` and `trace.search` at a limit. Left alone, it ends in
    `force`, by `self.answer` from all passages; a program that needs more catches it in `solve`.
13. `render` shows passages within a bound of tokens; each line knows its passage (`Line`).
14. `is_answer` says whether a text commits itself, `is_repeat` whether it asks again;
    `first_sentence`, `sentences_of`, `distinct`, `each_once`, `one_line`, `fuse`, `jaccard` are the
    other helpers for texts and rankings.
15. `Autonomy` and the other class attributes describe the program in tables.

Where a model chooses tools, see `core.tools`; for probabilities of labels, `core.confidence`; for
an index of a program's own, `core.indexed`.
"""

from ragbench.programs.core.program import (
    PROGRAMS,
    Autonomy,
    ProgramKnobs,
    RAGProgram,
    bounded,
    chain_of_thought,
    predict,
)
from ragbench.programs.core.prompts import render
from ragbench.programs.core.text import (
    Passages,
    distinct,
    each_once,
    first_sentence,
    fuse,
    is_answer,
    is_repeat,
    jaccard,
    one_line,
    sentences_of,
)
from ragbench.programs.core.trace import BudgetSpentError, StopReason, Trace, stalled
