"""System messages: the instructions, then each field once, with its type and description.

DSPy's own message states every field three times (description, structure, JSON schema), which was a
third of all prompts. Here a nested type is a list of its fields, and only a type without a plain
description is written as its JSON schema.
"""

import enum
import json
from collections.abc import Iterable, Mapping
from textwrap import dedent
from typing import Any, Literal, get_args, get_origin

import dspy
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

_PLAIN: Mapping[Any, str] = {str: "text", bool: "true or false", int: "integer", float: "number"}
_HEADS = {"json": "Outputs, as a JSON object:", "chat": "Outputs, each below its marker:"}


def system_message(
    signature: type[dspy.Signature], layout: Literal["json", "chat"], *, nested: bool
) -> str:
    """Return the instructions and the fields of `signature`.

    Args:
        signature: The signature of the call.
        layout: Layout of the reply.
        nested: True to list the fields of nested types. False if the schema of the reply, which
            the model reads, has them.
    """
    inputs = []
    for name, field in signature.input_fields.items():
        if described := _described(name, field):
            inputs.append(f"- `{name}`: {described}")
    outputs: list[str] = []
    for name, field in signature.output_fields.items():
        outputs += _lines(name, field.annotation, _described(name, field), nested=nested)
    parts = [dedent(signature.instructions).strip()]
    if inputs:
        parts.append("\n".join(["Inputs:", *inputs]))
    parts.append("\n".join([_HEADS[layout], *outputs]))
    return "\n\n".join(parts)


def request_line(names: Iterable[str], layout: Literal["json", "chat"]) -> str:
    """Return the last line of a prompt.

    Args:
        names: Names of the output fields, in order.
        layout: Layout of the reply.
    """
    if layout == "json":
        listing = ", ".join(f"`{name}`" for name in names)
        return f"Respond with a JSON object with these fields: {listing}."
    listing = ", ".join(f"`[[ ## {name} ## ]]`" for name in names)
    return f"Respond with each marker and its value below it: {listing}, `[[ ## completed ## ]]`."


def _described(name: str, field: FieldInfo) -> str:
    extra: Any = field.json_schema_extra or {}
    described = str(extra.get("desc", ""))
    if described == f"${{{name}}}":
        described = ""
    if constraints := extra.get("constraints"):
        described = f"{described} Constraints: {constraints}".strip()
    for kind in (field.annotation, *get_args(field.annotation)):
        if _is_a(kind, dspy.Type) and kind.description():
            described = f"{described} {kind.description()}".strip()
    return described


def _lines(name: str, kind: Any, described: str, *, nested: bool, depth: int = 0) -> list[str]:
    words, model = _words(kind)
    note = f" ({words})" if words not in ("", "text") else ""
    lines = [f"{'  ' * depth}- `{name}`{note}" + (f": {described}" if described else "")]
    for inner, field in model.model_fields.items() if model and nested else ():
        lines += _lines(
            inner, field.annotation, field.description or "", nested=True, depth=depth + 1
        )
    return lines


def _words(kind: Any) -> tuple[str, type[BaseModel] | None]:
    """Return a type in words, and the nested type whose fields it has."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind], None
    if origin is Literal:
        return " | ".join(map(str, arguments)), None
    if _is_a(kind, enum.Enum):
        return " | ".join(str(member.value) for member in kind), None
    if origin is list and arguments:
        words, model = _words(arguments[0])
        plural = f"{words}s" if words in ("text", "integer", "number", "object") else words
        return (words if words.startswith("JSON schema") else f"list of {plural}"), model
    if type(None) in arguments and len(arguments) == 2:
        words, model = _words(next(one for one in arguments if one is not type(None)))
        return f"{words} or null", model
    if _is_a(kind, dspy.Type) and (kind is dspy.Reasoning or kind.description()):
        return "", None
    if _is_a(kind, BaseModel) and _is_plain(kind):
        return "object", kind
    return f"JSON schema: {json.dumps(TypeAdapter(kind).json_schema(), ensure_ascii=False)}", None


def _is_plain(model: type[BaseModel], outer: tuple[Any, ...] = ()) -> bool:
    """Return True if names, types and descriptions say all about the fields of `model`."""
    if model in outer or _is_a(model, dspy.Type):
        return False
    for field in model.model_fields.values():
        if field.metadata or field.alias:
            return False
        for kind in (field.annotation, *get_args(field.annotation)):
            if _is_a(kind, BaseModel) and not _is_plain(kind, (*outer, model)):
                return False
    return True


def _is_a(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and get_origin(kind) is None and issubclass(kind, base)
