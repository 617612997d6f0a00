"""What ragbench makes of the inputs of the parity cases."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

World = Mapping[str, Any]
Parts = Mapping[str, Callable[[Any], Any]]


def parts(system: str, world: World) -> Parts:
    """A function of an input for each part, whose outcome is as those of `benchmarks/parities`."""
    file = "graphs" if "system" in world else "a_rag" if "chunks" in world else "rules"
    module = import_module(f"{__name__}.{file}")
    made: Parts = getattr(module, system if file == "rules" else "parts")(world)
    return made
