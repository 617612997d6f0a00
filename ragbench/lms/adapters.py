"""DSPy adapters that mend what small models write almost right, and count every call.

Each mended value is counted as `label_repair`; a chat answer that cannot be read is asked for once
more as JSON, and that second call is in the ledger as a fallback.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

import dspy
import json_repair
from dspy.adapters.utils import apply_output_field_defaults
from dspy.utils.exceptions import AdapterParseError

from ragbench.errors import UnknownNameError
from ragbench.ledger import FALLBACK_KEY
from ragbench.lms.counting import count
from ragbench.lms.repair import UnreadableError, read_value

_HEADER = re.compile(r"[*_`]*\[\[\s*#+\s*(\w+)\s*#+\s*\]\][*_`]*:?")
#: Signature -> what the LM can, and the format that it is asked for.
_FORMATS: MutableMapping[type[dspy.Signature], dict[tuple[Any, ...], dict[str, Any]]] = (
    WeakKeyDictionary()
)
_OBJECT = re.compile(r"\{.*\}", re.S)


class LenientParsing:
    """What the adapters share: from raw values to typed ones. `_raw` finds the raw ones."""

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        raise NotImplementedError

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """The output fields in `completion`, each of its declared type.

        Raises:
            dspy.AdapterParseError: a required field is missing, or has no plain meaning.
        """
        values: dict[str, Any] = {}
        repairs = 0
        for name, raw in self._raw(signature, completion).items():
            try:
                values[name], mended = read_value(raw, signature.output_fields[name].annotation)
            except UnreadableError as error:
                raise self._failure(signature, completion, f"field {name}: {error}") from error
            repairs += mended
        values = apply_output_field_defaults(signature, values)
        missing = [name for name in signature.output_fields if name not in values]
        if missing:
            raise self._failure(signature, completion, f"no field {', '.join(missing)}")
        for _ in range(repairs):
            count("label_repair")
        return values

    def _failure(
        self, signature: type[dspy.Signature], completion: str, message: str
    ) -> AdapterParseError:
        return AdapterParseError(
            adapter_name=type(self).__name__,
            signature=signature,
            lm_response=completion,
            message=message,
        )


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
        found = json_repair.loads(completion)
        if not isinstance(found, dict) and (match := _OBJECT.search(completion)):
            found = json_repair.loads(match.group(0))
        if not isinstance(found, dict):
            raise self._failure(signature, completion, "no JSON object")
        return {name: found[name] for name in signature.output_fields if name in found}


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
    """`LenientJSON` for the second call after a chat answer that could not be read."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As any adapter; its call is filed as a fallback."""
        count("adapter_fallback")
        with dspy.context(**{FALLBACK_KEY: True}):
            return list(super().__call__(*args, **kwargs))

    async def acall(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As `__call__`."""
        count("adapter_fallback")
        with dspy.context(**{FALLBACK_KEY: True}):
            return list(await super().acall(*args, **kwargs))


class LenientChat(LenientParsing, dspy.ChatAdapter):
    """`[[ ## field ## ]]` sections, read leniently, with the counted JSON fallback."""

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        pieces = _HEADER.split(completion)[1:]
        found: dict[str, Any] = {}
        for name, text in zip(pieces[::2], pieces[1::2], strict=True):
            if name in signature.output_fields:
                found.setdefault(name, text.strip())
        return found

    def _make_json_adapter_fallback(self) -> dspy.JSONAdapter:
        return FallbackJSON(use_native_function_calling=self.use_native_function_calling)


class LenientXML(LenientParsing, dspy.XMLAdapter):
    """`<field>` elements, read leniently, with the counted JSON fallback."""

    def _raw(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in signature.output_fields:
            if match := re.search(rf"<{name}>(.*?)</{name}>", completion, re.S):
                found[name] = match.group(1).strip()
        return found

    def _make_json_adapter_fallback(self) -> dspy.JSONAdapter:
        return FallbackJSON(use_native_function_calling=self.use_native_function_calling)


ADAPTERS: dict[str, type[dspy.Adapter]] = {
    "chat": LenientChat,
    "json": LenientJSON,
    "xml": LenientXML,
}


def make_adapter(name: str = "auto", lm: dspy.LM | None = None) -> dspy.Adapter:
    """The adapter called `name`; `auto` is json for an `lm` that enforces schemas, else chat.

    Raises:
        UnknownNameError: no such adapter.
    """
    if name == "auto":
        name = "json" if lm is not None and lm.supports_response_schema else "chat"
    if name not in ADAPTERS:
        raise UnknownNameError("adapter", name, ["auto", *ADAPTERS])
    return ADAPTERS[name]()
