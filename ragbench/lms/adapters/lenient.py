"""DSPy adapters that mend what small models write almost right, and count every call.

Each mended value is counted as `label_repair`; a chat answer that cannot be read is asked for once
more as JSON, and that second call is in the ledger as a fallback.
"""

import json
import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, get_args
from weakref import WeakKeyDictionary

import dspy
from dspy import AdapterParseError
from pydantic import TypeAdapter

from ragbench.context import current, use
from ragbench.errors import UnknownNameError
from ragbench.ledger import count
from ragbench.lms.adapters.repair import UnreadableError, read_value, repaired_json
from ragbench.lms.cache import forget_reply
from ragbench.redact import encodable

_HEADER = re.compile(r"\[\[\s{0,9}#{1,9}\s{0,9}(\w{1,99})\s{0,9}#{1,9}\s{0,9}\]\][*_`]*:?")
#: What models put around a header, which is no part of the field before it.
_DECORATION = "*_`"
#: Signature -> what the LM can, and the format that it is asked for.
_FORMATS: MutableMapping[type[dspy.Signature], dict[tuple[Any, ...], dict[str, Any]]] = (
    WeakKeyDictionary()
)
#: Signature -> kind of adapter, its setting and the instructions -> system message.
_SYSTEM: MutableMapping[type[dspy.Signature], dict[tuple[Any, ...], str]] = WeakKeyDictionary()


class PartialReplyError(AdapterParseError):
    """A reply of which not every field could be read; `read` holds those that could."""

    # Not DSPy's `parsed_result`: its collector of traces fails on replies that have one.
    read: Mapping[str, Any] = MappingProxyType({})


class LenientParsing(dspy.Adapter):
    """What the adapters share: from raw values to typed ones. `_raw` finds the raw ones."""

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """The system message, made once for a signature: it was a third of the work of a prompt."""
        made = _SYSTEM.setdefault(signature, {})
        key = (type(self), self.use_native_function_calling, signature.instructions)
        if key not in made:
            made[key] = _in_written_order(str(super().format_system_message(signature)), signature)
        return made[key]

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
        complete = _with_defaults(signature, values)
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


def _with_defaults(signature: type[dspy.Signature], values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` in the order of the signature, with what fields that are not there default to."""
    complete: dict[str, Any] = {}
    for name, field in signature.output_fields.items():
        if name in values:
            complete[name] = values[name]
        elif not field.is_required():
            complete[name] = field.get_default(call_default_factory=True)
        elif type(None) in get_args(field.annotation):
            complete[name] = None
    return complete


class LenientJSON(LenientParsing, dspy.JSONAdapter):
    """JSON, constrained by the strict schema where the server can, read leniently."""

    # DSPy makes the schema, a pydantic model, anew for every call: a third of what a call costs.
    def _prepare_response_format(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: type[dspy.Signature]
    ) -> None:
        formats = _FORMATS.setdefault(signature, {})
        most = getattr(getattr(lm, "engine", None), "max_items", None)
        able = ("response_format" in lm.supported_params, lm.supports_response_schema)
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

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        """The last line of a prompt. The types stand in the system's message, as JSON has them."""
        names = ", ".join(f"`{name}`" for name in signature.output_fields)
        return f"Respond with a JSON object of the following fields, in this order: {names}."


def _in_written_order(message: str, signature: type[dspy.Signature]) -> str:
    """`message` with the fields of nested types in the order written; DSPy sorts them by name."""
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


def bound_lists(schema: Any, most: int) -> None:
    """Give every array of a JSON schema that has no `maxItems` that of `most`, in place."""
    if isinstance(schema, dict):
        if schema.get("type") == "array":
            schema.setdefault("maxItems", most)
        for part in schema.values():
            bound_lists(part, most)
    elif isinstance(schema, list):
        for part in schema:
            bound_lists(part, most)


class FallbackJSON(LenientJSON):
    """`LenientJSON` for the second call, after a reply that could not be read in full.

    Fields that only the `first` reply had are taken from it.
    """

    def __init__(self, first: PartialReplyError, **settings: Any) -> None:
        super().__init__(**settings)
        self.first = first

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """As `LenientParsing.parse`."""
        try:
            return super().parse(signature, completion)
        except PartialReplyError as error:
            error.read = {**self.first.read, **error.read}
            if set(error.read) < set(signature.output_fields):
                raise
            return dict(error.read)


class _AskedAgain(dspy.ChatAdapter):
    """An adapter that asks once more, for JSON, where a reply cannot be read."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, use_json_adapter_fallback=False)

    def __call__(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As any adapter, with a second call where the first cannot be read."""
        try:
            return list(super().__call__(*args, **kwargs))
        except PartialReplyError as first:
            with self._again(first) as adapter:
                return list(adapter(*args, **kwargs))

    async def acall(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As `__call__`."""
        try:
            return list(await super().acall(*args, **kwargs))
        except PartialReplyError as first:
            with self._again(first) as adapter:
                return list(await adapter.acall(*args, **kwargs))

    @contextmanager
    def _again(self, first: PartialReplyError) -> Iterator[FallbackJSON]:
        """The adapter for the second call, which is filed as a fallback."""
        count("adapter_fallback")
        with use(replace(current(), fallback=True)):
            yield FallbackJSON(first, use_native_function_calling=self.use_native_function_calling)


class LenientChat(LenientParsing, _AskedAgain):
    """`[[ ## field ## ]]` sections, read leniently, with the counted JSON fallback."""

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


class LenientXML(LenientParsing, _AskedAgain, dspy.XMLAdapter):
    """`<field>` elements, read leniently, with the counted JSON fallback."""

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in signature.output_fields:
            start = completion.find(f"<{name}>")
            end = completion.find(f"</{name}>", start)
            if 0 <= start < end:
                values[name] = completion[start + len(name) + 2 : end].strip()
        return values


ADAPTERS: dict[str, type[dspy.Adapter]] = {
    "chat": LenientChat,
    "json": LenientJSON,
    "xml": LenientXML,
}


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
