"""The basis of every program. These fifteen concepts are enough to write one.

    class HopKnobs(ProgramKnobs):
        max_hops: int = bounded(2, 1, 10, "maximum number of searches")

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
                                  context=self.as_context(trace.passages))
                trace.search(reply.query, k=self.knobs.k)
            answer = self.answer_from(trace, self.answer, trace.passages)
            return trace.prediction(answer, "answered")

1. `PROGRAMS`: the registry. `register` adds a program by name.
2. `RAGProgram[MyKnobs]`: a `dspy.Module`. Implement `solve`. `self.knobs` is typed.
3. `ProgramKnobs`: the knobs that every program has (`k`, `context_tokens`, `max_calls`, ...). A
   subclass adds fields with a default, bounds and a description. `variants` change defaults.
4. `predict` and `chain_of_thought` create predictors. `make_predictors` stores them as attributes,
   so that optimizers find them.
5. `Trace` is one question: `trace.question`, `trace.passages` (all found), and the methods below.
6. `trace.ask` calls a predictor, by default with the trace's question. Fields of the reply that
   cannot be read are blank, or have their values of `otherwise`. Texts are stripped.
7. `trace.answer` calls a predictor that answers, and records the step. `last=True` marks the forced
   answer.
8. `trace.search` and `search_many` search with the retriever. A repeated query costs nothing.
   `trace.search_by` is for a program's index.
9. `trace.fan_out` runs several calls concurrently, in an order that does not depend on timing.
10. `trace.step` records a step, `trace.count` an event such as `resampled`. A program never reads
    them: it keeps its state in local variables of `solve`.
11. `trace.prediction(answer, stop_reason, passages=...)` ends `solve`. See `StopReason`.
12. `trace.ask` and `trace.search` raise `BudgetSpentError` at a limit. If `solve` does not catch
    it, `force` answers with `self.answer` from all passages.
13. `render` renders passages within a token limit. Each `Line` carries the pid of its passage.
14. `is_answer` detects refusals and blanks, `is_repeat` repeated questions. `first_sentence`,
    `sentences_of`, `distinct`, `each_once`, `one_line`, `fuse` and `jaccard` are the other helpers
    for texts and rankings.
15. `Autonomy` and the other class attributes describe the program in tables.

See `core.tools` for models that choose tools, `core.confidence` for probabilities of labels, and
`core.indexed` for programs with an index.
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
from ragbench.programs.core.question_state import BudgetSpentError
from ragbench.programs.core.replies import StopReason, stalled
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
from ragbench.programs.core.trace import Trace
