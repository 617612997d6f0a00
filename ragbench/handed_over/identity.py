"""The identity of an object that a person handed over: its code and its state, read to the end.

Two objects that may answer differently never have one identity, and an object that is made again,
also in another process, has the same. So all is read that an answer can depend on: the class and
the user's own code that it reaches, what that code names (globals, closures, defaults, imports),
and the state, through containers, arrays, dataclasses and modules. Code of an installed
distribution counts by the distribution's name and version. What cannot be read (an open
connection, a generator) is listed: an object that has such a part has no identity.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import importlib
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from pathlib import Path, PurePath
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from ragbench.handed_over import code, files
from ragbench.handed_over.state import (
    MADE_BY_PYTHON,
    UnreadableError,
    attributes_of,
    further_state,
    lm_state,
    own_value,
)
from ragbench.user_code import contained, distribution_of, distribution_of_module, message_of

#: A method by which a class says what its objects are: it gives what is read in their place.
HOOK = "__ragbench_identity__"

_ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_LOCK = type(threading.Lock())
_RLOCK = type(threading.RLock())
#: What synchronises, logs or runs threads: it counts by its class alone.
MACHINERY = (
    _LOCK,
    _RLOCK,
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.Barrier,
    threading.Thread,
    threading.local,
    logging.Logger,
    Executor,
    ContextVar,
    weakref.ref,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    weakref.WeakSet,
)
#: Parts of C code, which their name tells apart.
_NAMED = (
    WrapperDescriptorType,
    MethodDescriptorType,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodWrapperType,
)
#: What wraps functions -> its name in a digest, and what is read of it.
_WRAPPERS: dict[type, tuple[str, Callable[[Any], Iterable[Any]]]] = {
    MethodType: ("method", attrgetter("__func__", "__self__")),
    property: ("property", attrgetter("fget", "fset", "fdel")),
    classmethod: ("classmethod", lambda value: (value.__func__,)),
    staticmethod: ("staticmethod", lambda value: (value.__func__,)),
}
#: Of a class: made by Python and libraries out of what is read anyway.
_DERIVED = frozenset(
    {"__module__", "__dict__", "__weakref__", "__abstractmethods__", "_abc_impl", "__slotnames__"}
    | {"__signature__", "__firstlineno__", "__static_attributes__", "__doc__"}
)
#: What pydantic keeps of how a field was written, beside what it is.
_UNREAD_OF_FIELDS = frozenset({"_original_assignment", "_attributes_set"})
#: Attributes of DSPy's modules that are no part of what they answer.
_UNREAD_OF_DSPY = frozenset({"history", "stage"})


@dataclass(frozen=True)
class Identity:
    """A digest of all that could be read, and the parts that could not."""

    digest: str
    unread: tuple[str, ...]


def identity_of(value: object) -> Identity:
    """The identity of `value`."""
    reader = _Reader()
    label = type(value).__name__
    if isinstance(value, type | FunctionType):
        label = value.__qualname__
    digest = reader.read(value, label)
    return Identity(digest.hex(), tuple(reader.unread))


def parts_of(value: object) -> list[object]:
    """All objects that `value` holds, itself among them, each once."""
    reader = _Reader()
    reader.read(value, "")
    return reader.found


class _Reader:
    """One reading of a graph of objects; each object is read once."""

    def __init__(self) -> None:
        self.unread: list[str] = []
        self._known: dict[int, bytes] = {}
        #: What was read, held so that no other object gets the id of one.
        self.found: list[object] = []
        self._modules: set[tuple[int, frozenset[str]]] = set()

    def read(self, value: Any, place: str) -> bytes:
        """A digest of `value`, which stands at `place`."""
        kind = type(value)
        if kind in _ATOMS:
            return _digest(kind.__name__, value if kind is bytes else repr(value))
        seen = self._known.get(id(value))
        if seen is not None:
            return seen
        self._known[id(value)] = _digest("again", str(len(self.found)))
        self.found.append(value)
        try:
            digest = self._object(value, place)
        except RecursionError:
            digest = self._unreadable(place, "it is nested too deeply")
        except UnreadableError as error:
            digest = self._unreadable(place, str(error))
        except Exception as error:  # whatever a stranger's object raises when it is looked at
            digest = self._unreadable(place, f"{type(error).__name__}: {message_of(error)}")
        self._known[id(value)] = digest
        return digest

    def _unreadable(self, place: str, why: str) -> bytes:
        self.unread.append(f"{place} ({' '.join(why.split())[:120]})")
        return _digest("unreadable", place)

    def _all(self, kind: str, values: Iterable[Any], place: str) -> bytes:
        state = hashlib.sha256(kind.encode())
        for value in values:
            state.update(self.read(value, place))
        return state.digest()

    def _pairs(self, kind: str, pairs: Iterable[tuple[Any, Any]], place: str) -> bytes:
        state = hashlib.sha256(kind.encode())
        for key, value in pairs:
            state.update(self.read(key, f"a key of {place}"))
            name = key if isinstance(key, str) else type(key).__name__
            state.update(self.read(value, f"{place}.{name}"))
        return state.digest()

    def _object(self, value: Any, place: str) -> bytes:
        kind = type(value)
        if kind is list or kind is tuple:
            return self._all(kind.__name__, value, place)
        if kind is dict or kind is MappingProxyType:
            return self._pairs("dict", value.items(), place)
        if kind is set or kind is frozenset:
            digests = sorted(self.read(member, place) for member in value)
            return _digest("set", b"".join(digests))
        if issubclass(kind, type):  # isinstance takes list[int] for a class
            return self._class(value, place)
        if kind is FunctionType:
            return self._function(value, place)
        if kind is CodeType:
            return self._code(value, place)
        if kind is ModuleType:
            return self._module(value, frozenset(vars(value)), place)
        if kind in _WRAPPERS:
            name, getter = _WRAPPERS[kind]
            return self._all(name, getter(value), place)
        if kind is CellType:
            return self._cell(value, place)
        if kind is BuiltinFunctionType:
            return self._builtin(value, place)
        if issubclass(kind, _NAMED):
            return _digest("named", repr(getattr(value, "__objclass__", "")), value.__name__)
        if kind is ContextVar:
            return self._all("variable", (value.name, value.get(None)), place)
        if issubclass(kind, weakref.ref):
            return self._all("reference", (value(),), place)
        if issubclass(kind, weakref.WeakKeyDictionary | weakref.WeakValueDictionary):
            return self._pairs("weak", list(value.items()), place)
        if issubclass(kind, threading.local):
            return self._pairs("local", list(vars(value).items()), place)
        if issubclass(kind, MACHINERY):
            return _digest("machinery", f"{kind.__module__}.{kind.__qualname__}")
        if issubclass(kind, functools._lru_cache_wrapper):
            return self._all("cached", (value.__wrapped__,), place)
        if issubclass(kind, Enum):
            return self._all("enum", (kind, value.name, value.value), place)
        if issubclass(kind, PurePath):
            return self._all("path", (str(value), files.contents_of([value], ())), place)
        return self._instance(value, place)

    def _cell(self, cell: CellType, place: str) -> bytes:
        try:
            content = cell.cell_contents
        except ValueError:  # it is filled later
            return _digest("cell", "empty")
        return self._all("cell", (content,), place)

    def _builtin(self, value: Any, place: str) -> bytes:
        owner = value.__self__
        if owner is None or isinstance(owner, ModuleType):
            return _digest("builtin", f"{value.__module__}.{value.__qualname__}")
        return self._all(f"builtin {value.__name__}", (owner,), place)

    # Code.

    def _function(self, function: FunctionType, place: str) -> bytes:
        """Of installed code the name and what is bound to it; of the user's own all it names."""
        bound = (
            function.__closure__, function.__defaults__, function.__kwdefaults__, vars(function)
        )  # fmt: skip
        owner = distribution_of(function.__code__.co_filename)
        if owner is not None:
            name = f"{owner}: {function.__code__.co_qualname}"
            return self._all(f"function {name}", bound, place)
        code_names = code.names_of(function.__code__)
        space = function.__globals__
        risky = sorted(code_names.all & code.UNREADABLE - space.keys())
        if any(name in code_names.loaded or name == "import_module" for name in risky):
            raise UnreadableError(f"what its {risky[0]}() does stands in no code")
        state = hashlib.sha256(function.__qualname__.encode())
        state.update(code.source_of(function).encode("utf-8", "surrogatepass"))
        notes = vars(function).get("__annotations__", function.__annotations__)
        for value in (function.__code__, function.__doc__, notes, *bound):
            state.update(self.read(value, place))
        attributes = code_names.all
        for name in sorted(code_names.loaded & space.keys()):
            if not name.startswith("__"):
                value = space[name]
                if isinstance(value, ModuleType) and attributes & code.DYNAMIC:
                    attributes = attributes | vars(value).keys()
                state.update(name.encode() + self._named(value, attributes, name, place))
        for name in code.imported_modules(function, code_names):
            state.update(name.encode() + self._imported(name, code_names.all, place))
        state.update(self.read(code.environment_of(code_names), place))
        if not files.writes(code_names):
            folder = PurePath(function.__code__.co_filename).parent
            contents = files.contents_of(sorted(code_names.texts), [Path(folder)])
            state.update(self.read(contents, place))
        return state.digest()

    def _named(self, value: Any, attributes: set[str], name: str, place: str) -> bytes:
        """A global called `name` of code that also has these `attributes`."""
        if isinstance(value, ModuleType):
            return self._module(value, frozenset(attributes), f"{place}: {name}")
        return self.read(value, f"{place}: {name}")

    def _imported(self, name: str, attributes: set[str], place: str) -> bytes:
        """A module that code imports when it is called."""
        owner = distribution_of_module(name)
        if owner is not None:
            return _digest("module", owner)
        try:
            with contained(name):
                module = importlib.import_module(name)
        except Exception:  # an import that fails, fails when the code runs, and may be caught there
            return _digest("absent", name)
        return self._module(module, frozenset(attributes), f"{place}: {name}")

    def _module(self, module: ModuleType, attributes: frozenset[str], place: str) -> bytes:
        """Of an installed module its distribution; of the user's own its file and `attributes`."""
        owner = distribution_of_module(module.__name__)
        if owner is not None:
            return _digest("module", owner, module.__name__)
        key = (id(module), attributes)
        if key in self._modules:
            return _digest("module", "again", module.__name__)
        self._modules.add(key)
        file = getattr(module, "__file__", None)
        state = hashlib.sha256(code.content_of(file) if file else b"")
        for name in sorted(attributes & vars(module).keys()):
            if not name.startswith("__"):
                digest = self._named(vars(module)[name], set(attributes), name, place)
                state.update(name.encode() + digest)
        return state.digest()

    def _code(self, value: CodeType, place: str) -> bytes:
        state = hashlib.sha256(value.co_code + value.co_exceptiontable)
        variables = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        for component in (*variables, value.co_consts, value.co_flags, value.co_name):
            state.update(self.read(component, place))
        return state.digest()

    def _class(self, kind: type, place: str) -> bytes:
        """Of an installed class the name; of the user's own, or one made by a call, all it has."""
        owner = distribution_of_module(kind.__module__)
        if owner is not None and _stands_there(kind):
            return _digest("class", owner, f"{kind.__module__}.{kind.__qualname__}")
        state = hashlib.sha256(kind.__qualname__.encode())
        if owner is None:
            state.update(code.source_of(kind).encode("utf-8", "surrogatepass"))
        for component in (kind.__doc__, *kind.__bases__, type(kind)):
            state.update(self.read(component, place))
        for attribute in sorted(vars(kind)):
            generated = attribute.startswith("__pydantic_") and attribute != "__pydantic_fields__"
            if attribute in _DERIVED or generated:
                continue
            value = vars(kind)[attribute]
            state.update(attribute.encode() + self.read(value, f"{place}.{attribute}"))
        return state.digest()

    # State.

    def _instance(self, value: Any, place: str) -> bytes:
        kind = type(value)
        hook = getattr(kind, HOOK, None)
        if hook is not None:
            return self._all("instance", (kind, hook(value)), place)
        if _is_a(value, "numpy", "ndarray") and value.dtype != object:
            shape = f"{value.dtype.str} {value.shape}"
            return _digest("array", shape, value.tobytes())
        if _is_a(value, "torch", "Tensor"):
            return self._all("tensor", (str(value.dtype), value.detach().cpu().numpy()), place)
        states: list[Any] = [kind, own_value(value)]
        if _is_a(value, "dspy.clients.base_lm", "BaseLM"):
            states.append(lm_state(value))
        else:
            unread = _unread(value)
            own = attributes_of(value)
            states.append({name: own[name] for name in sorted(own) if name not in unread})
            if distribution_of_module(kind.__module__) is None and not files.class_writes(kind):
                states.append(files.contents_of(own.values(), ()))
            states.append(further_state(value))
        state = hashlib.sha256(b"instance")
        for component in states:
            if type(component) is dict:
                state.update(self._pairs("state", component.items(), place))
            else:
                state.update(self.read(component, place))
        return state.digest()


def _digest(*chunks: str | bytes) -> bytes:
    state = hashlib.sha256()
    for chunk in chunks:
        if isinstance(chunk, str):
            chunk = chunk.encode("utf-8", "surrogatepass")
        state.update(str(len(chunk)).encode() + b":" + chunk)
    return state.digest()


def _is_a(value: object, package: str, name: str) -> bool:
    """Whether a class of `value` has this name, and is of `package`, which need not be there."""
    for kind in type(value).__mro__:
        if kind.__name__ == name and (kind.__module__ + ".").startswith(package + "."):
            return True
    return False


def _unread(value: object) -> frozenset[str]:
    """Attributes that are no part of what an object is."""
    # Modules of DSPy and their parts note what was asked of them.
    if _is_a(value, "dspy", "Module") or _is_a(value, "dspy", "Parameter"):
        return _UNREAD_OF_DSPY
    if _is_a(value, "pydantic.fields", "FieldInfo"):
        return _UNREAD_OF_FIELDS
    return frozenset()


def _stands_there(kind: type) -> bool:
    """Whether the class is what its module has under its name, and not one made by a call."""
    owner: Any = builtins if kind.__module__ == "builtins" else sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        owner = getattr(owner, name, None)
    # Classes of C code are not always where they say that they are, and hold no state.
    return owner is kind or not kind.__flags__ & MADE_BY_PYTHON
