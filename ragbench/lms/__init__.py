"""Language models: from a spec such as `local` or `openai/gpt-4.1-mini` to a metered `dspy.LM`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragbench.lms.adapters import make_adapter
    from ragbench.lms.cache import configure_cache
    from ragbench.lms.factory import make_lm
    from ragbench.lms.lm import RagbenchLM

__all__ = ["RagbenchLM", "configure_cache", "make_adapter", "make_lm"]

_HOMES = {
    "RagbenchLM": "lm",
    "configure_cache": "cache",
    "make_adapter": "adapters",
    "make_lm": "factory",
}


def __getattr__(name: str) -> Any:
    # Lazily, so that the model store is there without the half second that dspy takes to import.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
