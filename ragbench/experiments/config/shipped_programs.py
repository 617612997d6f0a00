"""Compiled programs that come with the package: `--compiled shipped`.

Their demonstrations were bootstrapped by `ragbench compile` on the training questions of the
embedded synthetic set, so nothing in them is of another data set.
"""

from __future__ import annotations

from pathlib import Path

from ragbench.errors import ConfigError

SHIPPED = "shipped"
SHIPPED_FOLDER = Path(__file__).with_name("shipped") / "compiled"


def shipped_programs() -> list[str]:
    """Names of the programs that have one, sorted."""
    return sorted(path.parent.name for path in SHIPPED_FOLDER.glob("*/sidecar.json"))


def compiled_folder(given: Path, program: str) -> Path:
    """The folder that `given` names: itself, or for `shipped` the one that comes with `program`.

    Raises:
        ConfigError: none comes with `program`.
    """
    if str(given) != SHIPPED:
        return given
    if program not in shipped_programs():
        raise ConfigError(
            f"no compiled {program} comes with ragbench, only {', '.join(shipped_programs())}; "
            f"make one with: ragbench compile --program {program}"
        )
    return SHIPPED_FOLDER / program
