"""The programs of the specification in plain `dspy.Evaluate`."""

import dspy
import pytest

import ragbench as rb
from ragbench.data import Dataset
from ragbench.lms.adapters import make_adapter
from ragbench.lms.factory import make_lm
from tests.fake_server import FakeServer, Hit, plausible

PROGRAMS = ["vanilla", "multi_query", "react", "self_rag", "planner", "ircot", "reap", "rlm"]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return rb.load_dataset("synthetic", size=200)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_scores_the_same_under_dspy_evaluate(name: str, dataset: Dataset) -> None:
    first, second = dataset.splits["test"][:2]

    def reply(hit: Hit) -> str:
        return plausible(hit).replace(
            "some answer", first.answer if first.question in hit.prompt else "B"
        )

    with FakeServer(reply) as server:
        lm = make_lm("hosted_vllm/tiny", api_base=server.url, schema=True, cache=False)
        run = rb.evaluate(name, [first, second], retriever="bm25", corpus=dataset.corpus, lm=lm)
        program = rb.make_program(name, rb.make_retriever("bm25", dataset))
        with dspy.context(lm=lm, adapter=make_adapter("auto", lm)):
            evaluate = dspy.Evaluate(devset=[first, second], metric=rb.metric("em"), num_threads=1)
            plain = evaluate(program)
        lm.close()
    ours = [record.scores["em"] for record in run.records]
    assert ours == [float(score) for _, _, score in plain.results] == [1.0, 0.0]
