"""The identity of a run: what decides its records, resolved, and the folder named after it.

Two configs that come to the same knobs, data, retriever, LM, adapter and seeds have one identity,
however each of them was given: `--k 3` and `--set k=3`, a default left out or written down, a data
file by one path or another. What changes neither a question nor its answer (price, limits, number
of workers) is no part of it, and neither is an optional field that is not used, so that a field
added later changes no identity.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

from ragbench.errors import ConfigError, LMSetupError, RagbenchError
from ragbench.experiments.config.names import Fields
from ragbench.external import is_kept, label_of
from ragbench.knobs import resolve
from ragbench.user_code import digest_of_spec, digests_within, is_external

_HASHED = "sha256:"
#: Characters of one part of a folder's name.
_LONGEST_PIECE = 40
_ADDRESS = re.compile(r"https?://[^\s,()]+", re.IGNORECASE)


def resolved(fields: Fields) -> dict[str, Any]:
    """Return the flat `fields` of a run with every name, knob, setting and file resolved.

    A hash of its bytes replaces a file, and a hash of its state a compiled program. Defaults that
    depend on the data set are left out.

    Raises:
        RagbenchError: A program, retriever, knob or setting is unknown.
    """
    from ragbench.data import without_defaults
    from ragbench.programs import PROGRAMS
    from ragbench.programs.core.program import prompts_digest
    from ragbench.programs.external import program_digest
    from ragbench.retrievers import RETRIEVERS, parse_spec
    from ragbench.retrievers.external import retriever_digest

    identity = without_defaults(fields)
    program = identity["program"]
    knobs = PROGRAMS.get(program).resolve_knobs(identity["set"])
    identity["set"] = dict(knobs.model_dump(mode="json"))
    identity["program_source"] = program_digest(program)
    if ":" in program:
        identity["program"] = label_of(program)
    name, spec_settings = parse_spec(identity["retriever"])
    settings = {**spec_settings, **identity["retriever_set"]}
    settled = resolve(RETRIEVERS.get(name).Settings, name, settings)
    identity |= {"retriever": name, "retriever_set": settled.model_dump(mode="json")}
    identity["retriever_source"] = retriever_digest(name)
    # Code within settings, such as that of a retriever within another one.
    identity["setting_sources"] = digests_within(identity["retriever_set"], identity["set"])
    identity["lm"], _, named = server_of(identity["lm"], identity["api_base"]).partition("@http")
    identity["api_base"] = f"http{named}" if named else ""
    identity["lm_for"] = {role: server_of(spec) for role, spec in identity["lm_for"].items()}
    for name in ("set", "retriever_set"):  # embedders, rerankers and retrievers at addresses
        identity[name] = {key: _with_addresses(value) for key, value in identity[name].items()}
    if ":" not in program:
        identity["program_prompts"] = prompts_digest(PROGRAMS.get(program), identity["set"])
    server = (identity["lm"], identity["api_base"])
    # That of external code is DSPy's own, or part of the program's digest.
    if identity["adapter"] == "auto" and ":" not in identity["program"]:
        identity["adapter"] = _settled("adapter", *server)
    if identity["set"].get("backend") == "auto" and identity["compiled"] is None:
        reasons = fields["lm_for"].get("reason")
        if reasons:
            server = (str(reasons), "")
        identity["set"]["backend"] = _settled("backend", *server)
    adapter = identity["adapter"]
    is_file = is_external(adapter) and not is_kept(adapter)
    identity["adapter_source"] = digest_of_spec(adapter, "--adapter") if is_file else ""
    if identity["compiled"] is not None:
        identity["compiled"] = _hashed(identity["compiled"], compiled_digest)
    for name, value in identity.items():
        if name.endswith("_file") and value is not None:
            identity[name] = _hashed(value, _file)
    for name in ("votes", "repeat"):
        if identity[name] == 1:
            del identity[name]
    used = {}
    for name, value in identity.items():
        if value is not None and value is not False and value not in ("", {}, []):
            used[name] = value
    return used


def run_name(identity: Fields, data: str, *also: Fields) -> str:
    """Return a folder name for a run, or for a product of the run.

    Args:
        identity: Resolved fields of the run.
        data: Name of the data.
        also: Settings of the product, such as those of an optimizer.
    """
    variant = identity.get("set", {}).get("variant", "")
    text = json.dumps([identity, *also], sort_keys=True, default=str)
    pieces = (
        identity["program"],
        "" if variant == "default" else variant,
        "compiled" if "compiled" in identity else "",
        data,
        identity["split"],
        identity["retriever"],
        identity["lm"].removeprefix("local:").rpartition("/")[2],
        hashlib.sha256(text.encode()).hexdigest()[:8],
    )
    # A file system takes 255 bytes.
    return "-".join(plain_name(piece)[-_LONGEST_PIECE:] for piece in filter(None, pieces))


def plain_name(text: str) -> str:
    """Return `text` with letters, digits, dots and underscores only, for the name of a folder."""
    return re.sub(r"[^\w.]+", "_", text).strip("_")


def server_of(spec: str, api_base: str | None = None) -> str:
    """Return an LM spec with the address of its server.

    Args:
        spec: LM spec. `NAME@URL` names the address.
        api_base: Address. If None and `spec` has no address, the environment may name it.
    """
    if is_kept(spec):
        return spec
    from ragbench.lms.local import LocalSpec
    from ragbench.lms.specs import parse_spec

    try:
        parsed = parse_spec(spec, api_base=api_base)
    except LMSetupError:  # which the run says before it asks anything
        if api_base:
            return f"{spec}@{api_base}"
        return spec
    if isinstance(parsed, LocalSpec):
        return f"local:{parsed.gguf or parsed.name}"
    place = f"@{parsed.api_base}" if parsed.api_base else ""
    return f"{parsed.provider}/{parsed.model}{place}"


def _with_addresses(value: Any) -> Any:
    """Return a text with one spelling of each address in it. Other values are unchanged."""
    from ragbench.lms.specs import normalised

    if not isinstance(value, str) or "://" not in value:
        return value
    with suppress(ValueError):  # which the run says before it asks anything
        return _ADDRESS.sub(lambda match: normalised(match[0]), value)
    return value


@lru_cache(maxsize=64)
def _settled(field: str, lm: str, api_base: str) -> str:
    """Return the adapter, or the backend of tool calls, that `auto` selects for this LM."""
    from ragbench.lms.adapters import adapter_name
    from ragbench.lms.factory import make_lm

    settle: Callable[..., str] = adapter_name
    if field != "adapter":
        from ragbench.programs.core.tools import settled_backend  # slow to import

        settle = settled_backend
    try:
        return settle("auto", make_lm(lm, api_base=api_base or None))
    except RagbenchError:  # which the run says before it asks anything
        return "auto"


def _hashed(path: str, digest: Callable[[Path], str]) -> str:
    """`digest` of what is at `path`, or the path itself where loading it will say what is wrong."""
    try:
        return _HASHED + digest(Path(path))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError, AttributeError):
        return path
    except OSError as error:  # a disk that fails once must not give another folder
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def _file(path: Path) -> str:
    stat = path.stat()
    if not S_ISREG(stat.st_mode):
        raise ValueError(f"{path} is not a file")  # a pipe would be waited for
    return _digest(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest(path: Path, size: int, mtime_ns: int) -> str:
    # Size and time are there for the cache: a file that was replaced is read again.
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compiled_folder(path: Path) -> Path:
    """Return the folder that `path` names.

    `FOLDER@3` is candidate 3 of the compile in FOLDER, unless a folder has that name.
    """
    folder, _, number = str(path).rpartition("@")
    if folder and number.isdigit() and not Path(path).exists():
        return candidate_folder(Path(folder), int(number))
    return path


def candidate_folder(folder: Path, number: int) -> Path:
    """Return the folder of a candidate of a compile.

    Args:
        folder: Folder of the compile.
        number: Number of the candidate.
    """
    return folder / "candidates" / str(number)


def compiled_digest(folder: Path, files: Iterable[str] | None = None) -> str:
    """Return the SHA-256 of a compiled program: its state and its other files.

    Args:
        folder: Folder of the program, or a file with a state that plain DSPy saved.
        files: Names of the other files, such as the bank of `knn`. None: those of the sidecar.

    Raises:
        OSError: A file is missing.
        ValueError: A file is outside of the folder, or the sidecar is not JSON.
    """
    if folder.is_file():
        return _file(folder)
    if files is None:
        sidecar = file_within(folder, "sidecar.json").read_text("utf-8")
        files = json.loads(sidecar).get("files") or ()
    state = hashlib.sha256(file_within(folder, "program.json").read_bytes())
    for name in sorted(files):
        state.update(f"\n{name}\n".encode() + file_within(folder, name).read_bytes())
    return state.hexdigest()


def file_within(folder: Path, name: str) -> Path:
    """Return the path of a file in a stored folder.

    Args:
        folder: Stored folder.
        name: Name of the file.

    Raises:
        ValueError: The file is outside of the folder, or not a regular file.
    """
    path = folder / name
    place = path.resolve()
    if Path(name).name != name or place.parent != folder.resolve():
        raise ValueError(f"{name!r} leads out of {folder}, which must hold its files itself")
    if place.exists() and not place.is_file():
        raise ValueError(f"{path} is not a file")
    return path
