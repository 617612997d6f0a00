"""Names of settings: each has one, and a mistaken or an older spelling is refused with it."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from ragbench.errors import KnobError

#: Fields of a config, or part of them, by name.
Fields: TypeAlias = Mapping[str, Any]
#: Fields that hold a mapping -> what its keys are.
MAPPINGS = {
    "set": "knobs of the program",
    "retriever_set": "settings of the retriever",
    "lm_for": "roles of the program",
    "header": "headers of a request",
    "price_for": "specs of LMs",
    "field": "fields of a question",
    "corpus_field": "fields of a passage",
    "opt_set": "knobs of the optimizer",
    "space": "knobs of the program",
}
#: Name within a group of settings, as in `lm: {model: ...}` -> the name of the setting.
_GROUPED = {
    "model": "lm",
    "roles": "lm_for",
    "name": "retriever",
    "settings": "retriever_set",
    "fields": "field",
    "metric": "optimizer_metric",
}


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
        if name not in allowed:
            raise KnobError(_unknown(owner, name, value, allowed))
        if isinstance(value, Mapping) and name not in MAPPINGS:
            for inner in value:
                if inner not in allowed:
                    raise KnobError(_regrouped(owner, name, str(inner), allowed))


def _unknown(owner: str, name: str, value: Any, allowed: Collection[str]) -> str:
    group, dot, field = name.partition(".")
    if dot:
        return _regrouped(owner, group, field, allowed)
    if isinstance(value, Mapping) and value:
        return _regrouped(owner, name, str(next(iter(value))), allowed)
    if name == "variant":
        return f"{owner}: variant is a knob of the program; write set: {{variant: {value}}}"
    near = difflib.get_close_matches(name, allowed, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{owner} has no field {name!r}; {hint}its fields: {', '.join(sorted(allowed))}"


def _regrouped(owner: str, group: str, name: str, allowed: Collection[str]) -> str:
    """Return the message for a setting inside a group, such as `lm: {model: ...}` or `lm.model`.

    Keys of a field that holds a mapping are written below it.
    """
    spelling = f"{owner}: {group}.{name} is no name of a setting"
    if group in MAPPINGS:
        return f"{spelling}; {MAPPINGS[group]} are written {group}: {{{name}: ...}}"
    right = _GROUPED.get(name, name)
    if right not in allowed:
        near = difflib.get_close_matches(right, allowed, n=1)
        if not near:
            return f"{spelling}; its fields: {', '.join(sorted(allowed))}"
        right = near[0]
    return f"{spelling}; write {right}: ..."
