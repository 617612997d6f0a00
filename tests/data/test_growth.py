"""Reading takes time in proportion to the input, whatever it holds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ragbench.data.readers import read_rows
from ragbench.errors import RagbenchError
from ragbench.experiments.config import load_config


def columns(n: int) -> str:
    names = ",".join(f"c{i}" for i in range(n))
    return f"{names}\n{names}\n"


def fields(n: int) -> str:
    return "{" + ",".join(f'"f{i}": 1' for i in range(n)) + ', "f0": 2}\n' + "{}\n"


def keys(n: int) -> str:
    return "".join(f"key{i}: 1\n" for i in range(n))


def rows(path: Path) -> object:
    return list(read_rows(path))


@pytest.mark.parametrize(
    ("ending", "text", "n", "read"),
    [
        ("csv", columns, 1_000, rows),
        ("jsonl", fields, 40_000, rows),
        ("yaml", keys, 1_000, load_config),
    ],
)
def test_four_times_the_input_takes_far_less_than_sixteen_times_as_long(
    tmp_path: Path, ending: str, text: Callable[[int], str], n: int, read: Callable[[Path], object]
) -> None:
    def seconds(size: int) -> float:
        path = tmp_path / f"{size}.{ending}"
        path.write_text(text(size))
        taken = []
        for _ in range(3):
            start = time.process_time()
            with contextlib.suppress(RagbenchError):
                read(path)
            taken.append(time.process_time() - start)
        return min(taken)

    assert seconds(4 * n) < 2.5**2 * seconds(n) + 0.1
