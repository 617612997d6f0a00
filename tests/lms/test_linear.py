"""Reading a reply takes time in proportion to its length, whatever it is made of."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Literal

import dspy
import pytest

from ragbench.lms.adapters import LenientChat, LenientJSON, read_value

PIECES = [
    " ", "\n", "\t", "\u00a0", "_", "`", "*", "[", "]", "#", "{", "}", '"', "'", "<", ">", "7", ".",
    "-", ",", "a", ":", "?", "/", "\\",
    "[[ ## ", "[[ ", "no ", "<answer>", "1 of ", "7 ", "1.", "1/",
]  # fmt: skip
KINDS = [str, bool, int, float, Literal["yes", "no"], list[str], list[int], str | None]
ADAPTERS = [LenientChat(), LenientJSON()]
SIGNATURE = dspy.Signature("question -> answer, ok: bool")
SIZE = 250_000


def seconds(read: Callable[[str], Any], text: str) -> float:
    """Processor time of this thread alone: what else the machine does is not in it."""
    start = time.thread_time()
    with contextlib.suppress(ValueError, dspy.AdapterParseError):
        read(text)
    return time.thread_time() - start


@pytest.mark.parametrize("piece", PIECES)
def test_four_times_the_input_takes_about_four_times_the_time(piece: str) -> None:
    """2.5 times for twice the input is 6.25 times for four times; a quadratic reader takes 16."""
    readers: list[Callable[[str], Any]] = [
        *(lambda text, a=adapter: a.parse(SIGNATURE, text) for adapter in ADAPTERS),
        *(lambda text, k=kind: read_value(text, k) for kind in KINDS),
    ]
    text = piece * (SIZE // len(piece))
    for read in readers:
        once = min(seconds(read, f"{text}x") for _ in range(3))
        long = seconds(read, f"{text * 4}x")
        if long > max(6.25 * once, 0.5):  # a hiccup of the machine, or a reader that is not linear
            long = min(seconds(read, f"{text * 4}x") for _ in range(3))
        assert long < max(6.25 * once, 0.5)
