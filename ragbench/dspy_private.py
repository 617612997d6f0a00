"""The parts of DSPy that are not its public interface (`dspy` and `dspy.lm15`).

They may move or go in any release, so that each is taken where and when it is needed, and its
absence is one line about that feature. tests/test_dspy_names.py lists them.
"""

from importlib import import_module
from typing import Any

from ragbench.errors import ConfigError


def private(path: str, feature: str) -> Any:
    """Return a non-public object of DSPy.

    Args:
        path: Its path, such as `dspy.propose.GroundedProposer`.
        feature: Feature that needs it, for the message.

    Raises:
        ConfigError: This version of DSPy does not have it.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        import dspy

        raise ConfigError(
            f"{feature} needs {path}, which DSPy {dspy.__version__} does not have; it works with "
            "DSPy 3.4.1"
        ) from None
