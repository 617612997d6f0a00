"""Short runs of the fuzzing; `benchmarks/fuzz.py` goes on for as long as one likes."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.fuzzing import TARGETS


@settings(max_examples=50)
@given(data=st.data())
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz(target: str, data: Any) -> None:
    strategy, check = TARGETS[target]
    check(data.draw(strategy))
