"""`vanilla` against ten lines of plain DSPy: the same questions, passages and model.

    python -m benchmarks.plain_dspy --data-file hotpot_train_v1.1_100.json

Prints EM and F1 of both and their paired difference. The plain script is `dspy.Predict` with a
string signature and DSPy's default adapter over the same three passages.
"""

import os
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import click
import dspy

from ragbench.cli.options import data_options, lm_options, to_config
from ragbench.experiments.runs.asking import ask
from ragbench.experiments.runs.context import RunContext, build
from ragbench.metrics import compare_scores, exact_match, token_f1

Scores = dict[str, dict[str, float]]


def plain(bench: RunContext) -> Scores:
    """EM and F1 per question of the ten-line script."""
    predict = dspy.Predict("context, question -> answer")
    scores: Scores = {"em": {}, "f1": {}}
    with dspy.context(lm=bench.lm, adapter=dspy.ChatAdapter()):
        for example in bench.examples:
            found = bench.retriever.for_question(example.question).search(example.question, k=3)
            answer = predict(context=[str(p) for p in found], question=example.question).answer
            for name, metric in (("em", exact_match), ("f1", token_f1)):
                scores[name][example.qid] = max(float(metric(answer, a)) for a in example.answers)
    return scores


def ours(bench: RunContext) -> Scores:
    """EM and F1 per question of `vanilla`."""
    scores: Scores = {"em": {}, "f1": {}}
    with bench.active():
        for example in bench.examples:
            record = ask(bench.program, example)
            for name in scores:
                scores[name][example.qid] = record.scores[name] or 0.0
    return scores


@click.command()
@data_options
@lm_options
def main(**options: Any) -> None:
    """Print the two side by side."""
    bench = build(to_config(program="vanilla", k=3, **options))
    a, b = plain(bench), ours(bench)
    for name in a:
        c = compare_scores(list(a[name].values()), list(b[name].values()))
        low, high = (c.interval.low, c.interval.high) if c.interval else (0.0, 0.0)
        print(
            f"{name}: plain {c.mean_a:.3f}  vanilla {c.mean_b:.3f}  n={c.n}  "
            f"difference {c.difference:+z.3f} [{low:+z.3f}, {high:+z.3f}]  {c.verdict}"
        )


if __name__ == "__main__":
    main()
