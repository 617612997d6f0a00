"""Typed signatures, filed by role; their docstrings are the instructions that programs start from.

Every word of a signature reaches the LM and seeds every optimizer, so sources and remarks stand in
comments and module docstrings. Passages are shown as "[n] title | text" with n from 1, so citations
and kept items are integers. The module a signature stands in decides its role, by which the ledger
groups calls and `--lm-for` gives each role its own LM.
"""

# ruff: noqa: F403
# Whatever a module declares is for everybody: a new signature needs no second line here.
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragbench.signatures.answering import *
    from ragbench.signatures.extracting import *
    from ragbench.signatures.judging import *
    from ragbench.signatures.planning import *
    from ragbench.signatures.querying import *
    from ragbench.signatures.reasoning import *
    from ragbench.signatures.types import *

_MODULES = ("types", "answering", "querying", "reasoning", "planning", "extracting", "judging")


def __getattr__(name: str) -> Any:
    """Return the signature `name`, from the first module that has it: all of them take 0.2 s."""
    if not name.startswith("_"):
        for module in _MODULES:
            found = import_module(f"{__name__}.{module}")
            if hasattr(found, name):
                globals()[name] = getattr(found, name)
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
