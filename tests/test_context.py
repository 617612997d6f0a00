"""The context reaches every thread that works for a question, and no other."""

from dataclasses import dataclass

import dspy

from ragbench.context import Context, current, use
from ragbench.ledger import fan_out, file_call, open_ledger
from ragbench.record import Call


@dataclass
class Session:
    name: str


class Teller(dspy.Module):
    """Tells the context of the thread that it runs in."""

    def forward(self, question: str) -> dspy.Prediction:
        session = current().get(Session)
        inner = fan_out(lambda _: current().qid, [1, 2])
        seen = (current().qid, session.name if session else None, *inner)
        return dspy.Prediction(seen=seen, score=1.0)


def test_evaluate_parallel_and_fan_out_hand_it_on() -> None:
    devset = [dspy.Example(question=str(n)).with_inputs("question") for n in range(4)]
    with use(Context(qid="q").plus(Session("one"))):
        evaluate = dspy.Evaluate(devset=devset, metric=lambda e, p, t=None: p.score, num_threads=2)
        found = [prediction.seen for _, prediction, _ in evaluate(Teller()).results]
        found += [p.seen for p in dspy.Parallel(num_threads=2)([(Teller(), e) for e in devset])]
    assert found == [("q", "one", "q", "q")] * 8


def test_the_critical_path_is_the_longest_branch_and_counts_calls_to_an_lm() -> None:
    slow = Call("m", latency_s=2.0, cached=True)
    calls = [slow, Call("m", kind="embed", latency_s=1.0)]
    with open_ledger() as ledger:
        fan_out(file_call, calls)
        file_call(calls[1])
    assert (ledger.path.calls, ledger.path.latency_s, ledger.path.cached_s) == (1, 3.0, 2.0)
