"""Track who set a field, and limit the fields that a stored folder may set.

A field is set by the user (an option, a config file, an argument in Python), by a default, or by a
stored folder: a compiled program, a run, a sweep. A folder may come from an untrusted source, so it
describes only the program. The data, LM, retriever and adapter that it names are compared with
those of the run, and never used.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from ragbench.errors import ConfigError
from ragbench.experiments.config.names import Fields
from ragbench.user_code import is_external

#: Fields that a stored folder may set, with their bounds. Only the user sets code, addresses, keys,
#: files, limits, prices and everything else. The folder's state (program.json and the files that
#: its sidecar lists) is read only from the folder.
MAY_SET: Mapping[str, str] = {
    "program": "a program of ragbench; code outside it only where the person names it too",
    "set": "numbers, switches, choices and the variant; a free text, which may be the address of a "
    "server, a model or a path, only where it is the default or the person gives it too",
    "form": "whether answers are brought into form",
}
#: Files that make a folder a stored one: of a compile, a run, a sweep, a verdict, an index.
_MARKS = ("sidecar.json", "compile.json", "run.db", "card.json", "experiment.json")


def stored_folder(path: Path) -> Path | None:
    """Return the stored folder that contains the file `path`, or None."""
    for folder in path.absolute().parents:
        if any((folder / name).is_file() for name in _MARKS):
            return folder
    return None


def check_stored(fields: Fields, owner: str, stated: Fields) -> None:
    """Check that the fields of a stored folder are within the allowed ones.

    Args:
        fields: Fields that the folder sets.
        owner: Name of the folder, for messages.
        stated: Fields that the user set.

    Raises:
        ConfigError: A field is not allowed. The message has the option that sets it.
    """
    for name, value in fields.items():
        if name not in MAY_SET:
            raise ConfigError(
                f"{owner} sets {name}={_shown(value)}, and a stored folder may set "
                f"only {', '.join(MAY_SET)}; give {name} yourself if you trust it"
            )
    program = str(fields.get("program") or stated.get("program") or "")
    if is_external(program) and stated.get("program") != program:
        raise ConfigError(
            f"{owner} needs the external code {program}; give --program {program} if you trust it"
        )
    knobs = fields.get("set") or {}
    if not isinstance(knobs, Mapping):
        raise ConfigError(f"{owner} sets set={_shown(knobs)}, which is not a mapping of knobs")
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
    """Check that each free text of stored parameters is a default or was set by the user.

    Args:
        program: Name of the program.
        knobs: Parameters that a stored folder sets.
        owner: Owner of the parameters, for the message.
        stated: Parameters that the user set.
        cure: Fix, for the message. Empty: set the parameter.

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
    """Return True if a parameter of this type accepts any text; variants are listed."""
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
