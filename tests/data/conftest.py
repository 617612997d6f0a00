"""Small files that tests may break at will."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.data.samples import HOTPOT

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a value as JSON, JSON lines or raw bytes, and gives the path."""

    def to_file(content: Any, name: str = "data.json") -> Path:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith(".jsonl"):
            path.write_text("\n".join(json.dumps(line) for line in content), encoding="utf-8")
        else:
            path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return to_file


@pytest.fixture
def hotpot() -> list[dict[str, Any]]:
    """Records that a test may change."""
    return json.loads(json.dumps(HOTPOT))
