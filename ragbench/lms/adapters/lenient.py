"""DSPy adapters that mend what small models write almost right, and count every call.

A value is read strictly first, as DSPy does. What fails is mended only where one meaning is plain
("Fully supported.", "85%", a bulleted list): a text that names two labels, negates one, asks, or is
missing stays an error. Each mended value is counted as `label_repair`; a chat answer that cannot be
read is asked for once more as JSON, and that second call is in the ledger as a fallback.
"""

import ast
import json
import math
import re
import types
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, Union, get_args, get_origin
from weakref import WeakKeyDictionary

import dspy
import json_repair
from dspy import AdapterParseError
from pydantic import BaseModel, TypeAdapter, ValidationError

from ragbench.context import current, use
from ragbench.errors import UnknownNameError
from ragbench.ledger import count
from ragbench.lms.lm import forget_reply
from ragbench.redact import encodable

_HEADER = re.compile(r"\[\[\s{0,9}#{1,9}\s{0,9}(\w{1,99})\s{0,9}#{1,9}\s{0,9}\]\][*_`]*:?")
#: What models put around a header, which is no part of the field before it.
_DECORATION = "*_`"
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?![\w]|\.\d)")
_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*(?:/|out of|of)\s*(\d+(?:\.\d+)?)")
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.)]|\[\d+\])\s+")
_MARKER = re.compile(r"\[\[\s*#+\s*\w*\s*#*\s*\]*\**")  # also one that was cut off
_LONGEST_MARKER = 200
#: A longer text is no label and no number.
_LONGEST_VALUE = 10_000
#: Of a longer text that is no JSON so much is mended, which can take more than in proportion.
_LONGEST_MENDED = 40_000
#: Brackets without an end in what a model meant as JSON: a few.
_MOST_OPEN = 100
_NOTHING = {"none", "null", "n/a", "na", "nil", "empty", "nothing"}
_NO_VALUE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)
_NEGATIONS = {"not", "no", "never", "neither", "nor", "without", "hardly", "cannot", "nothing"}
_TRUTH = {"yes": True, "true": True, "no": False, "false": False}
#: A text longer than this is an explanation: a label in the midst of it may be there by chance.
_LABEL_WORDS = 8


class PartialReplyError(AdapterParseError):
    """A reply of which not every field could be read; `read` holds those that could."""

    # Not DSPy's `parsed_result`: its collector of traces fails on replies that have one.
    read: Mapping[str, Any] = MappingProxyType({})


class UnreadableError(ValueError):
    """A value of no plain meaning for its field's type."""


class LenientParsing(dspy.Adapter):
    """What the adapters share: from raw values to typed ones. `_raw` finds the raw ones."""

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """The system message, made once for a signature: it was a third of the work of a prompt."""
        native, said = self.use_native_function_calling, signature.instructions
        return _system_message(type(self), native, signature, said)  # type: ignore[arg-type]

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        raise NotImplementedError

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """The output fields in `completion`, each of its declared type.

        Raises:
            PartialReplyError: a required field is missing, or has no plain meaning.
        """
        values: dict[str, Any] = {}
        unread: list[str] = []
        repairs = 0
        for name, raw in self._raw(signature, completion).items():
            try:
                kind = signature.output_fields[name].annotation
                values[name], mended = read_value(encodable(raw), kind)
            except (UnreadableError, RecursionError) as error:
                unread.append(f"field {name}: {error}")
            else:
                repairs += mended
        complete: dict[str, Any] = {}
        for name, field in signature.output_fields.items():
            if name in values:
                complete[name] = values[name]
            elif not field.is_required():
                complete[name] = field.get_default(call_default_factory=True)
            elif type(None) in get_args(field.annotation):
                complete[name] = None
        missing = [name for name in signature.output_fields if name not in complete]
        if unread or missing:
            message = "; ".join(unread) or f"no field {', '.join(missing)}"
            raise self._failure(signature, completion, message, values)
        for _ in range(repairs):
            count("label_repair")
        return complete

    def _failure(
        self,
        signature: type[dspy.Signature],
        completion: str,
        message: str,
        read: Mapping[str, Any] | None = None,
    ) -> PartialReplyError:
        error = PartialReplyError(type(self).__name__, signature, completion, message)
        error.read = dict(read or {})
        if not read:
            forget_reply()  # or it would be the answer for ever
        return error


@lru_cache(maxsize=512)
def _system_message(
    kind: type[Any], native: bool, signature: type[dspy.Signature], instructions: str
) -> str:
    made: Any = super(LenientParsing, kind(use_native_function_calling=native))
    message = str(made.format_system_message(signature))
    # The fields of nested types in the order written; DSPy sorts them by name.
    for field in signature.output_fields.values() if "JSON schema" in message else ():
        schema = TypeAdapter(field.annotation).json_schema()
        written = json.dumps(schema, ensure_ascii=False)
        by_name = json.dumps(_by_name(schema), ensure_ascii=False)
        message = message.replace(by_name, written)  # as a chat shows it, and within JSON
        message = message.replace(_inside(by_name), _inside(written))
    return message


def _inside(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _by_name(schema: Any) -> Any:
    if isinstance(schema, dict):
        keys = sorted(schema, key=lambda key: (key != "type", key))
        return {key: _by_name(schema[key]) for key in keys}
    return [_by_name(part) for part in schema] if isinstance(schema, list) else schema


class LenientJSON(LenientParsing, dspy.JSONAdapter):
    """JSON, constrained by the strict schema where the server can, read leniently.

    Fields that only the reply of an `earlier` call had are taken from it.
    """

    def __init__(self, *, earlier: Mapping[str, Any] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._earlier = dict(earlier or {})

    def _prepare_response_format(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: type[dspy.Signature]
    ) -> None:
        most = getattr(getattr(lm, "engine", None), "max_items", None)
        able = ("response_format" in lm.supported_params, lm.supports_response_schema)
        formats = _formats.setdefault(signature, {})
        key = (*able, self.use_native_function_calling, most)
        if key not in formats:
            made: dict[str, Any] = {}
            super()._prepare_response_format(lm, made, signature)
            if most is not None and hasattr(made.get("response_format"), "model_json_schema"):
                # DSPy gives the same object on every call, and sends that.
                bound_lists(made["response_format"].model_json_schema(), most)
            formats[key] = made
        lm_kwargs.update(formats[key])

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        value = repaired_json(completion)
        if not isinstance(value, dict) and "{" in completion:
            value = repaired_json(completion[completion.find("{") : completion.rfind("}") + 1])
        if not isinstance(value, dict):
            raise self._failure(signature, completion, "no JSON object")
        return {name: value[name] for name in signature.output_fields if name in value}

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        try:
            return super().parse(signature, completion)
        except PartialReplyError as error:
            error.read = {**self._earlier, **error.read}
            if not self._earlier or set(error.read) < set(signature.output_fields):
                raise
            return dict(error.read)

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        """The last line of a prompt. The types stand in the system's message, as JSON has them."""
        names = ", ".join(f"`{name}`" for name in signature.output_fields)
        return f"Respond with a JSON object of the following fields, in this order: {names}."


#: Signature and what the LM can -> the format that it is asked for. DSPy makes the schema, a
#: pydantic model, anew for every call, which was a third of what a call costs.
_formats: MutableMapping[type[dspy.Signature], dict[tuple[Any, ...], dict[str, Any]]] = (
    WeakKeyDictionary()
)


def bound_lists(schema: Any, most: int) -> None:
    """Give every array of a JSON schema that has no `maxItems` that of `most`, in place."""
    if isinstance(schema, dict) and schema.get("type") == "array":
        schema.setdefault("maxItems", most)
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, dict | list):
            bound_lists(part, most)


class LenientChat(LenientParsing, dspy.ChatAdapter):
    """`[[ ## field ## ]]` sections, read leniently, and asked for once more as JSON."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, use_json_adapter_fallback=False)

    def __call__(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As any adapter; a second call, filed as a fallback, where the first cannot be read."""
        try:
            return list(super().__call__(*args, **kwargs))
        except PartialReplyError as first:
            count("adapter_fallback")
            native = self.use_native_function_calling
            second = LenientJSON(earlier=first.read, use_native_function_calling=native)
            with use(replace(current(), fallback=True)):
                return list(second(*args, **kwargs))

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        sections = _sections(completion)
        return {name: sections[name] for name in signature.output_fields if name in sections}


def section(completion: str, name: str) -> str:
    """The text under the mark `[[ ## name ## ]]`; blank where there is none."""
    return _sections(completion).get(name, "")


def _sections(completion: str) -> dict[str, str]:
    pieces = _HEADER.split(completion)[1:]
    sections: dict[str, str] = {}
    for place in range(0, len(pieces), 2):
        name, text = pieces[place], pieces[place + 1]
        last = place + 2 == len(pieces)
        sections.setdefault(name, (text if last else text.rstrip(_DECORATION)).strip())
    return sections


ADAPTERS: dict[str, type[dspy.Adapter]] = {"chat": LenientChat, "json": LenientJSON}


def adapter_name(name: str, lm: dspy.LM | None) -> str:
    """The adapter that `name` is for `lm`: `auto` is json where it enforces schemas, else chat."""
    if name != "auto":
        return name
    return "json" if lm is not None and lm.supports_response_schema else "chat"


def make_adapter(name: str = "auto", lm: dspy.LM | None = None) -> dspy.Adapter:
    """The adapter called `name`; for `auto` see `adapter_name`.

    Raises:
        UnknownNameError: no such adapter.
    """
    name = adapter_name(name, lm)
    if name not in ADAPTERS:
        raise UnknownNameError("adapter", name, ["auto", *ADAPTERS])
    return ADAPTERS[name]()


def read_value(raw: Any, annotation: Any) -> tuple[Any, bool]:
    """`raw` as a value of `annotation`, and whether it had to be mended.

    Raises:
        UnreadableError: it has no plain meaning.
    """
    if raw is None and annotation is str:
        raise UnreadableError("missing")
    value = _unmarked(raw) if isinstance(raw, str) else raw
    if _optional_text(annotation) and isinstance(value, str) and _bare(value) in _NOTHING:
        return None, True
    mended = value is not raw and value != raw
    try:
        return _strict(value, annotation), mended
    except _NO_VALUE as error:
        if items := _readable_objects(value, annotation):
            return items, True
        if not isinstance(value, str) or not value.strip():
            raise UnreadableError(str(error)) from error
        return _mend(value, annotation), True


def _unmarked(text: str) -> str:
    """`text` without the mark of a next field at its end."""
    start = text.rfind("[[")
    tail = text[start:].rstrip() if start >= 0 else ""
    if 0 < len(tail) <= _LONGEST_MARKER and _MARKER.fullmatch(tail):
        return text[:start].rstrip("*").rstrip()
    return text


def repaired_json(text: str) -> Any:
    """The JSON that `text` is, or was meant to be; "" where there is none."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    text = text[:_LONGEST_MENDED]
    if text.count("{") - text.count("}") + text.count("[") - text.count("]") > _MOST_OPEN:
        return ""
    with suppress(ValueError, RecursionError):  # nested too deeply
        return json_repair.loads(text)
    return ""


def _strict(value: Any, annotation: Any) -> Any:
    if isinstance(value, str) and get_origin(annotation) is Literal:
        written = {str(choice): choice for choice in get_args(annotation)}  # a 4 is written "4"
        label = value.strip().strip("\"'")
        if label in written:
            return written[label]
        raise UnreadableError(f"{value[:80]!r} is none of {get_args(annotation)}")
    if isinstance(value, str) and get_origin(annotation) is list:
        value = _parsed(value)
    if annotation in (bool, int, float) or isinstance(value, list):
        read = TypeAdapter(annotation).validate_python(value)
        if isinstance(read, float) and not math.isfinite(read):
            raise UnreadableError(f"{read} is not finite")
        return read
    if annotation is str:
        return str(value)
    if isinstance(value, str) and not _optional_text(annotation):
        value = repaired_json(value) or value
    return TypeAdapter(annotation).validate_python(value)


def _parsed(text: str) -> Any:
    # DSPy would guess at broken JSON here, and read "[1] and [3]" as [3].
    try:
        return encodable(json.loads(text))
    except ValueError:
        return encodable(ast.literal_eval(text))


def _readable_objects(value: Any, annotation: Any) -> list[Any]:
    """Of a list of objects those that can be read: a reply cut short often breaks off in one."""
    kind = next(iter(get_args(annotation)), None)
    of_objects = isinstance(kind, type) and issubclass(kind, BaseModel)
    if get_origin(annotation) is not list or not of_objects:
        return []
    try:
        items = _parsed(value) if isinstance(value, str) else value
    except _NO_VALUE:
        return []
    read = []
    for item in items if isinstance(items, list) else []:
        with suppress(ValidationError):
            read.append(kind.model_validate(item))  # type: ignore[union-attr]
    return read


def _mend(text: str, annotation: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list and arguments and arguments[0] in (str, int):
        return _list(text, arguments[0])
    if len(text) > _LONGEST_VALUE:
        raise UnreadableError(f"{text[:80]!r} is longer than a {annotation}")
    if origin in (Union, types.UnionType):
        members = [a for a in arguments if a is not type(None)]
        if len(members) == 1:
            return None if _bare(text) in _NOTHING else _mend(text, members[0])
    if origin is Literal and all(type(choice) is int for choice in arguments):
        if (number := _number(text)) in arguments:
            return int(number)
        raise UnreadableError(f"{number} is none of {arguments}")
    if origin is Literal:
        return _label(text, {_plain(str(choice)): choice for choice in arguments})
    if annotation is bool:
        return _label(text, _TRUTH)
    if annotation is int:
        if (number := _number(text)).is_integer():
            return int(number)
        raise UnreadableError(f"{number} is not a whole number")
    if annotation is float:
        return _number(text, share=True)
    raise UnreadableError(f"{text[:80]!r} is not a {annotation}")


def _label(text: str, labels: Mapping[str, Any]) -> Any:
    """What the one label that `text` names means."""
    plain = _plain(text)
    if plain in labels:
        return labels[plain]
    if "?" in text:
        raise UnreadableError(f"{text[:80]!r} asks")
    rest, named = f" {plain} ", []
    for label in sorted(labels, key=len, reverse=True):  # "partly supported" before "supported"
        pattern = rf" {re.escape(label)}(?:y|ly|ed)? "
        if re.search(pattern, rest):
            named.append(label)
            rest = re.sub(pattern, "  ", rest)
    if len({labels[label] for label in named}) != 1:
        raise UnreadableError(f"{text[:80]!r} names {'several labels' if named else 'no label'}")
    leads = re.match(rf"\W*{re.escape(named[0])}\s*[,.;:\n-]", text.casefold()) is not None
    if set(rest.split()) & _NEGATIONS or "n't" in text:
        leads = leads and named[0] in _TRUTH  # "No, it is not": the first word says it all
        if not leads:
            raise UnreadableError(f"{text[:80]!r} negates")
    if len(plain.split()) > _LABEL_WORDS and not leads:
        raise UnreadableError(f"{text[:80]!r} is an explanation, not a label")
    return labels[named[0]]


def _number(text: str, *, share: bool = False) -> float:
    """The one number in `text`: of "4/5" the 4, or as a `share` .8, as is 80 %."""
    parts = _PARTS.findall(text)
    numbers = {parts[0][0]} if len(parts) == 1 else set(_NUMBER.findall(text))
    if len(numbers) != 1 or _is_vague(text):
        raise UnreadableError(f"{text[:80]!r} does not name one number")
    number = numbers.pop()
    if share and len(parts) == 1 and float(parts[0][1]) > 0:
        return float(number) / float(parts[0][1])
    percent = re.search(rf"{re.escape(number)}\s*(?:%|percent)", text) is not None
    return float(number) / 100 if share and percent else float(number)


def _is_vague(text: str) -> bool:
    return "?" in text or "n't" in text or bool(set(_plain(text).split()) & _NEGATIONS)


def _list(text: str, kind: type) -> list[Any]:
    if _bare(text) in _NOTHING:
        return []
    if kind is int:
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if not numbers or _is_vague(text) or re.search(r"\d\s*[-\u2013]\s*\d|\d\.\d", text):
            raise UnreadableError(f"{text[:80]!r} is not a list of whole numbers")
        return numbers
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if len(lines) > 1 or _BULLET.match(lines[0]):
        bulleted = [line for line in lines if _BULLET.match(line)]
        # A heading above bullets is no item.
        return [_unquoted(_BULLET.sub("", line)) for line in bulleted or lines]
    separator = ";" if ";" in text else ","
    return [_unquoted(item) for item in text.strip().strip("[]").split(separator) if item.strip()]


def _unquoted(text: str) -> str:
    return text.strip().strip("\"'“”").strip()


def _plain(text: str) -> str:
    """Lower-case words, single-spaced: "**[Fully_Supported].**" is "fully supported"."""
    return " ".join(re.sub(r"[^\w']|_", " ", text.casefold()).replace("'", "").split())


def _bare(text: str) -> str:
    return text.strip().strip("\"'`*[](). ").casefold()


def _optional_text(annotation: Any) -> bool:
    members = set(get_args(annotation))
    return get_origin(annotation) in (Union, types.UnionType) and members == {str, type(None)}
