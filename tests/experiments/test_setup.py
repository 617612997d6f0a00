"""What a config is made into."""

from ragbench.experiments.config import make_config
from ragbench.experiments.runs.context import build
from ragbench.lms import make_lm


def test_the_price_given_is_that_of_the_main_lm_alone() -> None:
    bench = build(
        make_config(
            {
                "program": "vanilla",
                "size": 100,
                "lm": "openai/some-model",
                "api_base": "http://127.0.0.1:9/v1",
                "price": "in=5,out=7",
                "lm_for": {"answer": "local"},
            }
        )
    )
    assert bench.lm.pricing == make_lm("openai/some-model", price="in=5,out=7").pricing
    assert bench.role_lms["answer"].pricing == make_lm("local").pricing
    assert bench.role_lms["answer"].pricing != bench.lm.pricing
