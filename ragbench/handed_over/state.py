"""The state of an object: what it holds as a container, in attributes and slots, and in C."""

import copyreg
import sys
import types
from collections import deque
from contextlib import suppress
from typing import Any

from ragbench.handed_over import code
from ragbench.user_code import message_of

_CONTAINERS = (dict, list, tuple, set, frozenset, deque, bytearray)
_VALUES = (str, int, float, complex, bytes)
#: Attributes of LMs that are no part of what they answer.
_UNREAD_OF_LMS = frozenset(
    {"history", "callbacks", "_engine_store", "_engine_lock", "_async_engine_spec", "_providers"}
    | {"num_retries", "cache", "train_kwargs", "_warned_zero_temp_rollout"}
)
_UNREAD_SETTINGS = frozenset({"api_key", "timeout", "rollout_id", "cache"})
#: Py_TPFLAGS_HEAPTYPE: the class was made at run time.
MADE_BY_PYTHON = 1 << 9


class UnreadableError(Exception):
    """A part whose state nothing tells; the message says which and why."""


def own_value(value: Any) -> Any:
    """What an object of a subclass of a container or of a plain type holds.

    Its class may have methods of its own, so that those of the container are asked.
    """
    if isinstance(value, dict):
        return dict(dict.items(value))
    if isinstance(value, set | frozenset):
        return frozenset(value)
    for sequence in (list, tuple, deque, bytearray):
        if isinstance(value, sequence):
            iterate: Any = sequence.__iter__
            return [*iterate(value)]
    if isinstance(value, str):
        return str.__str__(value)
    for plain in (int, float, complex, bytes):
        if isinstance(value, plain):
            convert: Any = plain
            return convert(value)
    return None


def attributes_of(value: Any) -> dict[str, Any]:
    """What stands in its `__dict__` and its slots."""
    attributes: dict[str, Any] = {}
    with suppress(AttributeError):  # not by getattr: a proxy would give what it stands for
        attributes |= object.__getattribute__(value, "__dict__")
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{kind.__name__.lstrip('_')}{name}"
            with suppress(AttributeError):  # it was never set
                attributes[name] = object.__getattribute__(value, name)
    return attributes


def lm_state(lm: Any) -> dict[str, Any]:
    """What an LM is asked with, without its keys and what it only remembers."""
    own = attributes_of(lm)
    state = {name: own[name] for name in sorted(own.keys() - _UNREAD_OF_LMS)}
    settings = own.get("kwargs") or {}
    kwargs = {}
    for name in sorted(settings):
        setting = settings[name]
        if name in ("headers", "extra_headers") and isinstance(setting, dict):
            setting = {key: setting[key] for key in setting if not code.SECRET.search(key)}
        if name not in _UNREAD_SETTINGS and setting is not None:
            kwargs[name] = setting
    state["kwargs"] = kwargs
    return state


def further_state(value: Any) -> Any:
    """What the object's own pickling adds to attributes and items: the state of C code.

    Raises:
        UnreadableError: the object has state that nothing tells.
    """
    kind = type(value)
    reducer = copyreg.dispatch_table.get(kind)
    if reducer is not None:
        return _told(reducer(value))
    ways = {type(_way(kind, name)) for name in ("__reduce_ex__", "__reduce__", "__getstate__")}
    by_python = types.FunctionType in ways
    if not by_python and ways != {type(None)}:
        return _told(value.__reduce_ex__(2))
    if isinstance(value, (*_CONTAINERS, *_VALUES, BaseException)):
        return None
    if not by_python:
        try:
            object.__reduce_ex__(value, 2)  # refuses what has state that Python does not see
        except TypeError as error:
            raise UnreadableError(message_of(error)) from None
        return None
    # Written in Python: it may leave state out, but all of that stands in the attributes, unless
    # a part of it is in C.
    if not any(_is_of_c(base) for base in kind.__mro__):
        return None
    return _told(value.__reduce_ex__(2))


def _is_of_c(kind: type) -> bool:
    """Whether a class may hold state that its attributes do not show."""
    if kind is object:
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return not kind.__flags__ & MADE_BY_PYTHON or bool(file and not str(file).endswith(".py"))


def _way(kind: type, name: str) -> Any:
    """The method of this name where a class of `kind` writes it anew."""
    for base in kind.__mro__:
        if base is not object and name in vars(base):
            return vars(base)[name]
    return None


def _told(reduced: Any) -> Any:
    """What pickling an object gives, with its items as lists."""
    if isinstance(reduced, str):
        return reduced
    items = [*reduced]
    for place, item in enumerate(items):
        if place in (3, 4) and item is not None:
            items[place] = [*item]
    return items
