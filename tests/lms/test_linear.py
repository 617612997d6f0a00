"""Reading a reply takes time in proportion to its length, whatever it is made of."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Literal

import dspy
import pytest

from ragbench.lms.adapters.lenient import LenientChat, LenientJSON, LenientXML
from ragbench.lms.adapters.repair import read_value

PIECES = [
    " ", "\n", "\t", "\u00a0", "_", "`", "*", "[", "]", "#", "{", "}", '"', "'", "<", ">", "7", ".",
    "-", ",", "a", ":", "?", "/", "\\",
    "[[ ## ", "[[ ", "no ", "<answer>", "1 of ", "7 ", "1.", "1/",
]  # fmt: skip
KINDS = [str, bool, int, float, Literal["yes", "no"], list[str], list[int], str | None]
ADAPTERS = [LenientChat(), LenientJSON(), LenientXML()]
SIGNATURE = dspy.Signature("question -> answer, ok: bool")
SIZE = 500_000


def seconds(read: Callable[[str], Any], text: str) -> float:
    start = time.perf_counter()
    with contextlib.suppress(ValueError, dspy.AdapterParseError):
        read(text)
    return time.perf_counter() - start


@pytest.mark.parametrize("piece", PIECES)
def test_twice_the_input_takes_about_twice_the_time(piece: str) -> None:
    readers: list[Callable[[str], Any]] = [
        *(lambda text, a=adapter: a.parse(SIGNATURE, text) for adapter in ADAPTERS),
        *(lambda text, k=kind: read_value(text, k) for kind in KINDS),
    ]
    text = piece * (SIZE // len(piece))
    for read in readers:
        once = seconds(read, f"{text}x")
        twice = min(seconds(read, f"{text}{text}x") for _ in range(1 if once < 0.1 else 3))
        assert twice < max(2.5 * once, 0.5)
