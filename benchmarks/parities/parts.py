"""What the authors' sides share: empty modules, their sources, and words in the place of tokens."""

import importlib
import importlib.abc
import importlib.machinery
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of these names that nobody else does, and nothing in it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__ = spec, []
        return module

    def exec_module(self, module: Any) -> None:
        pass


def reachable(folder: Path, *empty: str) -> None:
    """Let `folder` be imported from; modules called `empty` have nothing in them if missing."""
    sys.path.insert(0, str(folder))
    sys.meta_path.append(Empty(empty))


def need(module: str, package: str) -> Any:
    """The module that the authors' code uses and ragbench does not; else one line and the end."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SystemExit(f"this comparison needs {package}: pip install {package}") from None


def source(checkout: Path, repository: str, files: str) -> dict[str, str]:
    """Repository, files, commit and date of `checkout`, as recorded outcomes name them.

    An unpacked wheel has its release in the place of a commit.
    """
    if wheels := sorted(checkout.glob("*.dist-info")):
        released = datetime.fromtimestamp((wheels[0] / "METADATA").stat().st_mtime).date()
        named = {"release": wheels[0].stem, "date": str(released)}
        return {"repository": repository, "files": files, **named}
    log = ["git", "-C", str(checkout), "log", "-1", "--format=%H %cs"]
    commit, date = subprocess.run(log, capture_output=True, text=True, check=True).stdout.split()
    return {"repository": repository, "files": files, "commit": commit, "date": date}


class WordTokens:
    """A tokenizer that takes every word for a token."""

    def encode(self, text: str) -> list[str]:
        """The words."""
        return text.split()

    def decode(self, tokens: Sequence[str]) -> str:
        """The words, with single blanks."""
        return " ".join(tokens)
