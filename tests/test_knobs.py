"""Knobs: what is typed is read as the knob's type says, and nothing is taken for something else."""

from typing import Any

import pytest
from pydantic import Field

from ragbench.errors import KnobError
from ragbench.knobs import Knobs, resolve


class Some(Knobs):
    """A few knobs."""

    k: int = Field(3, ge=1)
    init: dict[str, Any] = Field({})


def test_what_is_typed_is_read_as_the_knobs_type_says() -> None:
    assert resolve(Some, "some", {"init": '{"times": 2}', "k": "4"}).init == {"times": 2}
    for given, said in (({"init": "no mapping"}, "init='no mapping'"), ({"k": True}, "k=True")):
        with pytest.raises(KnobError, match=f"some: {said} is not allowed"):
            resolve(Some, "some", given)
