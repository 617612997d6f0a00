"""DSPy's own ReAct as a program: `ragbench eval --program examples/dspy_react.py:SearchReAct`."""

import dspy


class SearchReAct(dspy.Module):
    """Use a search tool in turns, then extract the answer."""

    def __init__(self, retriever, max_iters: int = 7) -> None:
        super().__init__()

        def search(query: str) -> list[str]:
            """Find passages."""
            return [str(passage) for passage in retriever(query)]

        self.react = dspy.ReAct("question -> answer", tools=[search], max_iters=max_iters)

    def forward(self, question: str) -> dspy.Prediction:
        """Return the extracted answer."""
        return dspy.Prediction(answer=self.react(question=question).answer)
