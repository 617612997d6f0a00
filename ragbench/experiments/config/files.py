"""Config files: YAML that can inherit, from a path or by the name of a shipped one."""

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from ragbench.errors import ConfigError
from ragbench.experiments.config.model import merge, with_k
from ragbench.experiments.config.provenance import check_stored, stored_folder


def load_config(name: str | Path) -> dict[str, Any]:
    """Return the fields that a config file sets, following `inherits:`.

    Args:
        name: Path, or name of a shipped config. Unknown keys stay unchanged.
    """
    return _load(str(name), Path.cwd(), ())


def shipped_configs() -> list[str]:
    """Return the names of the shipped configs, sorted."""
    return sorted(Path(f.name).stem for f in _shipped().iterdir() if f.name.endswith(".yaml"))


def config_text(name: str) -> str:
    """Return the text of a config file, by path or by the name of a shipped one."""
    return _read(name, Path.cwd())[1]


def shipped_sweeps() -> list[str]:
    """Return the names of the shipped sweeps, sorted."""
    return sorted(Path(f.name).stem for f in (_shipped() / "sweeps").iterdir())


def _shipped() -> Any:
    return resources.files("ragbench.experiments.config") / "shipped"


def _load(name: str, folder: Path, seen: tuple[str, ...]) -> dict[str, Any]:
    path, text = _read(name, folder)
    if str(path) in seen:
        raise ConfigError(f"config {name!r} inherits itself: {' -> '.join([*seen, str(path)])}")
    fields = _parse(path, text)
    parent = fields.pop("inherits", None)
    if owner := stored_folder(path):
        _check_stored_file(path, owner, parent, with_k(fields))
    if parent is None:
        return with_k(fields)
    if not isinstance(parent, str):
        raise ConfigError(f"config {path}: inherits must name one config, not {parent!r}")
    return merge(_load(parent, path.parent, (*seen, str(path))), with_k(fields))


def _check_stored_file(path: Path, owner: Path, parent: Any, fields: Mapping[str, Any]) -> None:
    """Raise ConfigError if a config file in a stored folder sets a user-only setting."""
    cure = f"copy it out of {owner} if you trust it"
    if parent is not None and parent not in shipped_configs():
        raise ConfigError(f"config {path} lies in a stored folder and inherits a file; {cure}")
    try:
        check_stored(fields, f"config {path}", {})
    except ConfigError as error:
        raise ConfigError(f"{error}, or {cure}") from None


def _read(name: str, folder: Path) -> tuple[Path, str]:
    path = folder / name  # which is `name` where that is absolute
    places = (_shipped() / f"{name}.yaml", _shipped() / "sweeps" / f"{name}.yaml")
    shipped = next((place for place in places if place.is_file()), places[0])
    try:
        if path.is_file():
            return path, path.read_text("utf-8")
        if re.fullmatch(r"[\w.-]+", name) and shipped.is_file():
            return Path(str(shipped)), shipped.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config {name!r} cannot be read: {error}") from None
    choices = ", ".join([*shipped_configs(), *shipped_sweeps()])
    raise ConfigError(f"no config {name!r}: give a path to a YAML file or one of {choices}")


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases and duplicate keys.

    Only what YAML 1.2 calls a number or a boolean is one: `1:30` is text, not 90, and `on` is text.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.events.AliasEvent):  # a few can hold more than the memory
            problem = "aliases are not allowed"
            mark: Any = event.start_mark
            raise yaml.composer.ComposerError(None, None, problem, mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Build a mapping. Refuse a key that appears twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str):
                if key.value in seen:
                    problem = f"key {key.value[:40]!r} comes twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: Any) -> int:
        """Read a decimal number, which may start with 0."""
        return int(node.value)


_TAGS = {
    "tag:yaml.org,2002:bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "tag:yaml.org,2002:int": (r"^[-+]?[0-9]{1,300}$", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+0123456789."
    ),
    "tag:yaml.org,2002:null": (r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
}  # fmt: skip
_Loader.yaml_implicit_resolvers = {}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
for _tag, (_pattern, _first) in _TAGS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        fields = yaml.load(text, _Loader) or {}  # a SafeLoader: it makes plain values only
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        if mark:
            where = f"line {mark.line + 1}, column {mark.column + 1}"
        else:
            where = "unreadable"
        problem = getattr(error, "problem", None)
        why = f" ({problem})" if problem else ""
        raise ConfigError(f"config {path} is not YAML: {where}{why}") from None
    if not isinstance(fields, Mapping) or not all(isinstance(key, str) for key in fields):
        raise ConfigError(f"config {path} must be a mapping of field: value")
    return dict(fields)
