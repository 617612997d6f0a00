"""Where a compiled program is, and the digest of its files.

Those that come with the package (`--compiled shipped`) were bootstrapped by `ragbench compile` on
the training questions of the embedded synthetic set: nothing in them is of another data set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
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


def compiled_digest(folder: Path, files: Iterable[str] | None = None) -> str:
    """SHA-256 of all that runs of the compiled program in `folder`: its state and further files.

    `files` names the further files, such as the bank of `knn`; by default those that the sidecar
    lists. One that was edited gives another digest.

    Raises:
        OSError, ValueError: a file is missing, or the sidecar is not JSON.
    """
    if files is None:
        files = json.loads((folder / "sidecar.json").read_text("utf-8")).get("files") or ()
    state = hashlib.sha256((folder / "program.json").read_bytes())
    for name in sorted(files):
        state.update(f"\n{name}\n".encode() + (folder / name).read_bytes())
    return state.hexdigest()
