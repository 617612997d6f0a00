"""Names of settings. An unknown one is refused with the nearest name."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from ragbench.errors import KnobError

#: Fields of a config, or part of them, by name.
Fields: TypeAlias = Mapping[str, Any]


def check_fields(fields: Fields, owner: str, allowed: Collection[str]) -> None:
    """Check that every name in `fields` is one of `allowed`.

    Args:
        fields: Names to check.
        owner: Owner of the fields, for the message.
        allowed: Valid names.

    Raises:
        KnobError: A name is unknown. The message suggests the right one.
    """
    for name, value in fields.items():
        if name in allowed:
            continue
        if name == "variant":
            raise KnobError(
                f"{owner}: variant is a knob of the program; write set: {{variant: {value}}}"
            )
        near = difflib.get_close_matches(name, allowed, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise KnobError(
            f"{owner} has no field {name!r}; {hint}its fields: {', '.join(sorted(allowed))}"
        )
