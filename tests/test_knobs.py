"""Knobs: what is typed is read as the knob's type says, and nothing is taken for something else."""

from typing import Any

import pytest
from pydantic import Field

from ragbench.errors import KnobError
from ragbench.experiments.config import make_config
from ragbench.knobs import Knobs, resolve


class Some(Knobs):
    """A few knobs."""

    k: int = Field(3, ge=1)
    init: dict[str, Any] = Field({})
    on: bool = False


def test_a_mapping_is_read_from_json() -> None:
    assert resolve(Some, "some", {"init": '{"times": 2}'}).init == {"times": 2}
    with pytest.raises(KnobError, match="some: init='no mapping' is not allowed"):
        resolve(Some, "some", {"init": "no mapping"})


@pytest.mark.parametrize("given", [{"k": True}, {"limit": True}, {"votes": False}])
def test_a_boolean_is_no_number(given: dict[str, Any]) -> None:
    [(name, value)] = given.items()
    with pytest.raises(KnobError, match=f"{name}={value} is not allowed; give a number"):
        make_config(given).identity()
    assert resolve(Some, "some", {"on": True}).on
