"""Who said a setting, and what a stored folder may say.

A setting is said by the person (an option, a config file, an argument in Python), by a default, or
by a stored folder: a compiled program, a run, a sweep. A folder may come from a stranger,
so it describes the program alone. What it was made with (data, LM, retriever, adapter) is compared
with what runs and is never followed.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from ragbench.errors import ConfigError
from ragbench.experiments.config.names import Fields
from ragbench.user_code import is_external

#: What a stored folder may set -> within which bounds. Code, addresses, keys, files, limits, prices
#: and all else come from the person alone. The folder's own state (program.json and the files that
#: its sidecar lists) is read from the folder, and from nowhere else.
MAY_SET: Mapping[str, str] = {
    "program": "a program of ragbench; code outside it only where the person names it too",
    "set": "numbers, switches, choices and the variant; a free text, which may be the address of a "
    "server, a model or a path, only where it is the default or the person gives it too",
    "form": "whether answers are brought into form",
}
#: Files that make a folder a stored one: of a compile, a run, a sweep, a verdict, an index.
_MARKS = ("sidecar.json", "compile.json", "run.db", "card.json", "sweep.json", "verdict.json")


def stored_folder(path: Path) -> Path | None:
    """The stored folder that the file `path` lies in; None where it lies in none."""
    for folder in path.absolute().parents:
        if any((folder / name).is_file() for name in _MARKS):
            return folder
    return None


def check_stored(fields: Fields, owner: str, stated: Fields) -> None:
    """Check that `fields`, which the stored `owner` says, are within what a folder may set.

    `stated` are the fields that the person gave.

    Raises:
        ConfigError: they are not; the message has the option that takes it from the person.
    """
    for name, value in fields.items():
        if name not in MAY_SET:
            raise ConfigError(
                f"{owner} sets {name}={_shown(value)}, and a stored folder may set "
                f"{', '.join(MAY_SET)} alone; give {name} yourself if you trust it"
            )
    program = str(fields.get("program") or stated.get("program") or "")
    if is_external(program) and stated.get("program") != program:
        raise ConfigError(
            f"{owner} is of {program}: external code, which is loaded only where it is named; "
            f"give --program {program} if you trust it"
        )
    knobs = fields.get("set") or {}
    if not isinstance(knobs, Mapping):
        raise ConfigError(f"{owner} sets set={_shown(knobs)}, which is no mapping of knobs")
    if program:
        check_stored_knobs(program, knobs, owner, stated.get("set") or {})
        return
    for name, value in knobs.items():
        if name != "variant" and not isinstance(value, int | float | None):
            raise ConfigError(f"{owner} sets {name}={_shown(value)} of no program that it names")


def check_stored_knobs(
    program: str,
    knobs: Fields,
    owner: str,
    stated: Fields = MappingProxyType({}),
    cure: str = "",
) -> None:
    """Check that each free text of `knobs` is a default of `program` or among `stated`.

    Raises:
        ConfigError: one is neither; `cure` is what to do, by default to give it.
    """
    from ragbench.programs import PROGRAMS

    program_class = PROGRAMS.get(program)
    variant = program_class.variants.get(str(knobs.get("variant", "")), {})
    for name, value in knobs.items():
        field = program_class.Knobs.model_fields.get(name)
        if field is None or not _is_free(name, field.annotation):
            continue
        default = variant.get(name, field.default)
        if value != default and str(stated.get(name)) != str(value):
            remedy = cure or f"give --set {name}={_shown(value)} if you trust it"
            raise ConfigError(
                f"{owner} sets {name}={_shown(value)}, which may name a server, a model or a file; "
                f"{remedy}"
            )


def _is_free(name: str, annotation: Any) -> bool:
    """Whether a knob of this type may hold any text; the variant is one of those listed."""
    if name == "variant":
        return False
    for kind in get_args(annotation) or (annotation,):
        if get_origin(annotation) is Literal or kind in (int, float, bool, type(None)):
            continue
        if get_origin(kind) is not Literal and kind is not Ellipsis:
            return True
    return False


def _shown(value: Any) -> str:
    return " ".join(str(value).split())[:100]
