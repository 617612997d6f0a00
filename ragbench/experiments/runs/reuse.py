"""Finished answers of external code: the line that states their reuse, and setting them aside.

Code in files is identified by its files alone (`ragbench.external.code`). The files, variables and
services that it reads while it runs can change under the same identity, so ragbench never reuses
its answers without a line.
"""

import os
import time
from pathlib import Path

from ragbench.errors import RunError
from ragbench.experiments.config import RunConfig
from ragbench.experiments.store import locked
from ragbench.external import is_named, tag_of
from ragbench.user_code import names_within


def reuse_line(config: RunConfig, work: str, written: float, *also: str | None) -> str:
    """Return the line that states the reuse of external code's work, or "" if all is checked.

    Args:
        config: The run.
        work: The finished work, such as "20 answers".
        written: Time of the last write, in seconds since the epoch.
        also: More names that may be external code, such as the metric of a compile.
    """
    settings = (config.retriever_set, config.set)
    code_names = names_within(config.program, config.retriever, config.adapter, *settings, *also)
    places = dict.fromkeys(Path(name.rpartition(":")[0]).name for name in code_names)
    objects = (config.program, config.retriever, config.adapter, config.lm, *also)
    words = [tag_of(key) for key in objects if key and is_named(key)]
    day = time.strftime("%d %b %H:%M", time.localtime(written))
    if words and not places:
        return (
            f"reusing {work} of {day} under name={words[0]!r}; whether the object is the "
            "same is not checked; fresh=True asks again"
        )
    if not places:
        return ""
    return (
        f"reusing {work} of {day}; files and variables that {', '.join(places)} reads are not "
        "checked; --fresh asks again"
    )


def set_aside(folder: Path) -> None:
    """Rename `folder`, if it exists, so that its work is preserved and a new run starts.

    Raises:
        RunError: Another process uses the folder, or it cannot be renamed.
    """
    if not folder.is_dir():
        return
    day = time.strftime("%Y%m%dT%H%M%S", time.localtime(folder.stat().st_mtime))
    place = folder.with_name(f"{folder.name}.until-{day}")
    with locked(folder):
        try:
            os.rename(folder, place)
        except OSError as error:
            raise RunError(
                f"{folder} cannot be renamed to {place.name}: {error.strerror}"
            ) from None
