"""DSPy adapters for large and small models: chat sections and JSON.

A prompt states each field once, with its type and description. DSPy's own message states it three
times (description, structure, JSON schema), which was a third of all prompts. A nested type is a
list of its fields, and only a type without a plain description is written as its JSON schema.

A reply is read as in DSPy. Values that DSPy refuses are repaired (`read_value`), and each repair is
counted as `label_repair`. If a field appears more than once, its last section counts. If a chat
answer cannot be read, the LM is called a second time for JSON, and the ledger files that call as
a fallback.
"""

import enum
import json
import re
from collections.abc import Collection, Iterable, Mapping, Set
from functools import lru_cache
from textwrap import dedent
from types import MappingProxyType, SimpleNamespace
from typing import Any, Literal, TypeAlias, get_args, get_origin

import dspy
from dspy import AdapterParseError
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from ragbench.context import current, use
from ragbench.errors import ConfigError, UnknownNameError
from ragbench.external import find, is_kept
from ragbench.ledger import RetryContext, count
from ragbench.lms.replies import UnreadableError, escaped, read_value, repaired_json
from ragbench.lms.reply_cache import forget_reply
from ragbench.redact import encodable
from ragbench.user_code import is_external, load_object, message_of

#: A kind of signature, and values of its fields by name.
SignatureType = type[dspy.Signature]
Fields = dict[str, Any]
#: How fields are written in a reply.
Layout: TypeAlias = Literal["json", "chat"]

#: A header in DSPy's form, and in the forms of models: bold, in code, without blanks. It counts
#: only at the start of a line. All repetitions are bounded, so that the search takes linear time.
HEADER = re.compile(r"\[\[ ## (\w+) ## \]\]")
_LOOSE_HEADER = re.compile(
    r"[*_`#]{0,9}\s{0,9}\[\[\s{0,9}#{1,9}\s{0,9}(\w{1,99})\s{0,9}#{1,9}\s{0,9}\]\][*_`]*:?"
)


#: Providers that show the model the schema of its reply.
_SCHEMA_SHOWN = ("openai/", "azure/", "anthropic/", "gemini/", "vertex_ai/")
_PLAIN: Mapping[Any, str] = {str: "text", bool: "true or false", int: "integer", float: "number"}
_HEADS = {"json": "Outputs, as a JSON object:", "chat": "Outputs, each below its marker:"}


class PartialReplyError(AdapterParseError):
    """A reply of which some fields could not be read. `read` holds the others."""

    # Not DSPy's `parsed_result`: its collector of traces fails on replies that have one.
    read: Mapping[str, Any] = MappingProxyType({})


class LenientParsing(dspy.Adapter):
    """Shared part of the adapters: from raw values to typed ones. `_raw` finds the raw ones."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Leave methods unchanged: for a subclass, DSPy would notify callbacks twice."""

    layout: Layout

    def format_system_message(self, signature: SignatureType) -> str:
        """Return the instructions and the fields of `signature`."""
        signed: Any = signature
        return _system_message(signed, signature.instructions, self.layout, not _schema_shown())

    def user_message_output_requirements(self, signature: SignatureType) -> str:
        """Return the last line of a prompt."""
        return _request_line(signature.output_fields, self.layout)

    def format_user_message_content(
        self,
        signature: SignatureType,
        inputs: Fields,
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        """Format the inputs like DSPy, without protocol marks, which would count in the reply.

        DSPy makes a pydantic type for each value, which takes a tenth of the time of a call. Texts
        and lists of texts do not need it.
        """
        values = {name: escaped(value) for name, value in inputs.items()}
        parts: list[str | None] = [prefix]
        for name, field in signature.input_fields.items():
            if name in values:
                parts.append(_section(name, values[name], field.annotation))
        if None in parts:
            parent: Any = super()
            wording = prefix, suffix, main_request
            return str(parent.format_user_message_content(signature, values, *wording))
        if main_request:
            parts.append(self.user_message_output_requirements(signature))
        return "\n\n".join([*map(str, parts), suffix]).strip()

    def format_assistant_message_content(
        self, signature: SignatureType, outputs: Fields, *args: Any, **kwargs: Any
    ) -> str:
        """Format a demonstration or history turn without protocol marks in its values."""
        parent: Any = super()
        values = {name: escaped(value) for name, value in outputs.items()}
        return str(parent.format_assistant_message_content(signature, values, *args, **kwargs))

    def _raw(self, signature: SignatureType, completion: str) -> Fields:
        raise NotImplementedError

    def parse(self, signature: SignatureType, completion: str) -> Fields:
        """Return the output fields in `completion`, each of its declared type.

        Raises:
            PartialReplyError: a required field is missing, or has no plain meaning.
        """
        values: Fields = {}
        unread: list[str] = []
        repairs = 0
        fields = self._raw(signature, completion)
        for name, field in signature.output_fields.items():
            if name in fields:
                try:
                    values[name], mended = read_value(encodable(fields[name]), field.annotation)
                    repairs += mended
                except (UnreadableError, RecursionError) as why:
                    unread.append(f"field {name}: {why}")
            elif not field.is_required():
                values[name] = field.get_default(call_default_factory=True)
            elif type(None) in get_args(field.annotation):
                values[name] = None
            else:
                unread.append(f"no field {name}")
        if unread:
            error = PartialReplyError(type(self).__name__, signature, completion, "; ".join(unread))
            error.read = {name: value for name, value in values.items() if name in fields}
            if not error.read:
                forget_reply()  # or the cache would return it forever
            raise error
        for _ in range(repairs):
            count("label_repair")
        return values


def _section(name: str, value: Any, annotation: Any) -> str | None:
    """Return the section of an input in a prompt, or None if DSPy must format it."""
    if isinstance(value, list) and annotation is not str and {*map(type, value)} <= {str}:
        value = json.dumps(value, ensure_ascii=False)
    if type(value) is not str:
        return None
    return f"[[ ## {name} ## ]]\n{value}"


@lru_cache(maxsize=512)
def _system_message(
    signature: SignatureType, instructions: str, layout: Layout, nested: bool
) -> str:
    """Return the instructions and the fields of `signature`.

    Args:
        signature: The signature of the call.
        instructions: Its instructions, which DSPy may change without making another signature.
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
    parts = [dedent(instructions).strip()]
    if inputs:
        parts.append("\n".join(["Inputs:", *inputs]))
    parts.append("\n".join([_HEADS[layout], *outputs]))
    return "\n\n".join(parts)


def _request_line(names: Iterable[str], layout: Layout) -> str:
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


class LenientJSON(LenientParsing, dspy.JSONAdapter):
    """JSON, constrained by the strict schema if the server supports it, read leniently.

    The model reads a nested type once: in the schema if the provider shows it, else in the message.
    A self-hosted server may only constrain the reply by the schema.
    """

    layout = "json"

    def _prepare_response_format(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: SignatureType
    ) -> None:
        most = getattr(getattr(lm, "engine", None), "max_items", None)
        able = "response_format" in lm.supported_params, lm.supports_response_schema
        native = self.use_native_function_calling
        shown = _schema_shown()
        lm_kwargs.update(_response_format(native, signature, *able, most, shown))  # type: ignore[arg-type]

    def _raw(self, signature: SignatureType, completion: str) -> Fields:
        value = repaired_json(completion)
        if not isinstance(value, dict) and "{" in completion:
            value = repaired_json(completion[completion.find("{") : completion.rfind("}") + 1])
        fields: Fields = {}  # if there are several objects, the last value of each field counts
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                fields.update(item)
        return fields


@lru_cache(maxsize=512)
def _response_format(
    native: bool, signature: SignatureType, supported: bool, schema: bool, most: int | None,
    shown: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return the response format, cached: DSPy rebuilds it in every call, a third of its time."""
    arguments: dict[str, Any] = {}
    able = {"response_format"} if supported else set()
    lm = SimpleNamespace(supported_params=able, supports_response_schema=schema)
    adapter: Any = dspy.JSONAdapter(use_native_function_calling=native)
    adapter._prepare_response_format(lm, arguments, signature)
    if hasattr(arguments.get("response_format"), "model_json_schema"):
        # DSPy gives the same object on every call, and sends that.
        schema_sent = arguments["response_format"].model_json_schema()
        _trimmed(schema_sent, ("title",) if shown else ("title", "description"), most)
    return arguments


def _schema_shown() -> bool:
    """Return True if the current LM's provider shows the model the schema of its reply."""
    lm = dspy.settings.lm
    enforced = getattr(lm, "supports_response_schema", False)
    return bool(enforced) and str(lm.model).startswith(_SCHEMA_SHOWN)


def _trimmed(schema: Any, keywords: Collection[str], most: int | None) -> None:
    """Remove texts from a JSON schema and bound its lists, in place.

    Args:
        schema: The schema.
        keywords: Keywords whose texts are removed. Fields may be called so.
        most: `maxItems` of every array that has none. None for no bound.
    """
    if isinstance(schema, dict):
        for keyword in keywords:
            if isinstance(schema.get(keyword), str):
                del schema[keyword]
        if most is not None and schema.get("type") == "array":
            schema.setdefault("maxItems", most)
    for inner in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(inner, dict | list):
            _trimmed(inner, keywords, most)


class LenientChat(LenientParsing, dspy.ChatAdapter):
    """`[[ ## field ## ]]` sections, read leniently. An unreadable reply is asked again as JSON."""

    layout = "chat"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, use_json_adapter_fallback=False)

    def __call__(self, *args: Any, **kwargs: Any) -> list[Fields]:
        """Call like any adapter. File a second call as a fallback for an unreadable reply."""
        try:
            return list(super().__call__(*args, **kwargs))
        except PartialReplyError:
            count("adapter_fallback")
            second = LenientJSON(use_native_function_calling=self.use_native_function_calling)
            with use(current().plus(RetryContext())):
                return list(second(*args, **kwargs))

    def _raw(self, signature: SignatureType, completion: str) -> Fields:
        input_fields = frozenset(signature.input_fields)
        sections = sections_of(completion, HEADER, input_fields)
        if not signature.output_fields.keys() <= sections.keys():
            for name, text in sections_of(completion, _LOOSE_HEADER, input_fields).items():
                sections.setdefault(name, text)
        return dict(sections)


def sections_of(
    completion: str, header: re.Pattern[str], input_fields: Set[str] = frozenset()
) -> dict[str, str]:
    """Return the text of each field. Of several sections of a field, the last one with text counts.

    A reply ends at the first of the `input_fields` behind its end mark, because some models
    continue with another question.

    Args:
        completion: The reply.
        header: Pattern of a section's header, whose first group is the field.
        input_fields: Names of the input fields.

    Returns:
        Text by field.
    """
    blocks: list[tuple[str, list[str]]] = []
    lines: list[str] = []
    complete = False
    for line in completion.splitlines():
        start = line.strip()
        mark = header.match(start)
        if mark is None:
            lines.append(line)
            continue
        name = mark.group(1)
        if complete and name in input_fields:
            break
        complete = complete or name == "completed"
        lines = []
        blocks.append((name, lines))
        remainder = start[mark.end() :].strip()
        if remainder:
            lines.append(remainder)
    sections: dict[str, str] = {}
    for name, lines in blocks:
        text = "\n".join(lines).strip()
        if text or name not in sections:
            sections[name] = text
    return sections


ADAPTERS: dict[str, type[dspy.Adapter]] = {"chat": LenientChat, "json": LenientJSON}


def adapter_name(name: str, lm: dspy.LM | None) -> str:
    """Resolve `auto` to json if `lm` enforces schemas, else to chat."""
    if name != "auto":
        return name
    if lm is not None and lm.supports_response_schema:
        return "json"
    return "chat"


def make_adapter(name: str = "auto", lm: dspy.LM | None = None) -> dspy.Adapter:
    """Make the adapter called `name`.

    Args:
        name: auto, chat, json, or the class or object of an adapter as FILE.py:NAME.
        lm: LM for which `auto` is resolved.

    Raises:
        UnknownNameError: `name` is not a known adapter.
        ConfigError: The user's class raised an error, or is not an adapter.
    """
    name = adapter_name(name, lm)
    if name in ADAPTERS:
        return ADAPTERS[name]()
    if not is_external(name):
        raise UnknownNameError("adapter", name, ["auto", *ADAPTERS])
    adapter = find(name) if is_kept(name) else load_object(name, "--adapter")
    try:
        if isinstance(adapter, type):
            adapter = adapter()
    except Exception as error:  # any error of a user's constructor
        reason = f"{type(error).__name__}: {message_of(error)}"
        raise ConfigError(f"the adapter {name} cannot be made: {reason}") from error
    if not isinstance(adapter, dspy.Adapter):
        raise ConfigError(f"{name} is not a subclass of dspy.Adapter")
    return adapter


def calls_of_reply(adapter: dspy.Adapter) -> tuple[int, int]:
    """Return the fewest and most calls of a reply, failures of servers aside."""
    return (1, 1) if isinstance(adapter, LenientJSON) else (1, 2)
