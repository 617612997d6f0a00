"""llama.cpp compiled for this machine's own processor: `ragbench models build`.

The wheel holds code that runs on every processor of the last ten years; a compiler that knows the
one at hand makes prompts about 1.6 times as fast here. The source is that of llama.cpp as the
source package of `llama-cpp-python` carries it, accepted by its SHA-256 alone. Nothing of it is
installed into Python: one program, `llama-server`, goes into the user's cache folder, and the local
server uses it from then on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from ragbench.environment import NETWORK, child_environment
from ragbench.errors import ModelError
from ragbench.paths import cache_root

SOURCE = "llama-cpp-python==0.3.36"
_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
_TREE = "vendor/llama.cpp/"
_SETTINGS = (
    "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
)  # fmt: skip
# Some virtual machines announce the tile registers (AMX), grant them, and trap when they are used.
_USES_TILES = """
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return 1;
    __asm__ volatile("tilerelease");
    return 0;
}
"""
_CPU = Path("/proc/cpuinfo")
_NO_TILES = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"


def built_server() -> Path | None:
    """The program that `build_server` has made on this machine, if it has."""
    path = _folder() / "llama-server"
    return path if path.is_file() else None


def built_environment() -> Mapping[str, str]:
    """Settings by which the built server is faster on this processor.

    With AVX-512 VNNI it reads prompts with weights as they are in the file 1.6 times as fast as
    with repacked ones (1.5B on a Zen 4; 1.1 times at 0.5B), and writes no slower.
    """
    return {"LLAMA_ARG_REPACK": "0"} if "avx512_vnni" in _processor() else {}


def server_version() -> str:
    """Which llama.cpp serves: a part of the identity of a local LM.

    Raises:
        PackageNotFoundError: neither the wheel nor a built server is here.
    """
    return f"{SOURCE.replace('==', '-')}-native" if built_server() else version("xllamacpp")


def remove_built() -> bool:
    """Delete what `build_server` has made, if anything; whether there was."""
    path = built_server()
    if path:
        path.unlink()
    return path is not None


def build_server() -> Path:
    """Fetch, compile (about ten minutes on two cores) and install `llama-server`; its path.

    Raises:
        ModelError: cmake or a C++ compiler is missing, or a step fails; nothing is installed then.
    """
    if not shutil.which("cmake") or not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise ModelError(
            "models build needs cmake and a C++ compiler; install both, or keep the wheel"
        )
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build.", dir=folder) as work:
            program = _compile(Path(work))
            _run([str(program), "--version"], Path(work), "the compiled server does not start")
            program.replace(folder / program.name)
    except OSError as error:
        raise ModelError(f"cannot build in {folder}: {error}; set RAGBENCH_CACHE") from None
    return folder / "llama-server"


def _compile(work: Path) -> Path:
    _say(f"fetching the source package {SOURCE} (77 MB)")
    source = _unpack(_download(work), work / "source")
    _say("compiling llama.cpp for this processor; this takes some minutes")
    flags = _NO_TILES if _tiles_trap(work) else ""
    here = [f"-DCMAKE_{language}_FLAGS={flags}" for language in ("C", "CXX") if flags]
    tree = work / "build"
    _run(["cmake", "-S", str(source), "-B", str(tree), *_SETTINGS, *here], work, "cmake failed")
    make = ["cmake", "--build", str(tree), "--target", "llama-server"]
    _run([*make, "--parallel", str(os.cpu_count() or 1)], work, "the compiler failed")
    return tree / "bin" / "llama-server"


def _download(work: Path) -> Path:
    # The hash is checked by pip before it reads anything of the package.
    requirement = work / "requirements.txt"
    requirement.write_text(f"{SOURCE} --hash=sha256:{_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--no-binary"]
    command += [":all:", "--require-hashes", "--dest", str(work), "--requirement", str(requirement)]
    _run(command, work, f"pip could not download {SOURCE}")
    return next(work.glob("llama_cpp_python-*.tar.gz"))


def _unpack(archive: Path, target: Path) -> Path:
    """The tree of llama.cpp alone out of `archive`."""
    try:
        with tarfile.open(archive) as package:
            members = [m for m in package if m.name.partition("/")[2].startswith(_TREE)]
            extract(package, target, members)
        (source,) = target.glob(f"*/{_TREE}")
    except (tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        why = f"{archive.name} cannot be unpacked: {error}"
        raise ModelError(f"{why}; the wheel serves on") from None
    return source


def extract(package: tarfile.TarFile, target: Path, members: Sequence[tarfile.TarInfo]) -> None:
    """As `extractall` with the filter "data", which Python has from 3.11.4 on.

    Raises:
        tarfile.TarError: a member would be written outside `target`.
    """
    if hasattr(tarfile, "data_filter"):
        package.extractall(target, members, filter="data")
        return
    for member in members:
        if not (target / member.name).resolve().is_relative_to(target.resolve()):
            raise tarfile.TarError(f"{member.name!r} would be extracted outside the destination")
    package.extractall(target, members)


def _tiles_trap(work: Path) -> bool:
    """Whether the processor announces tile registers and does not let a program use them."""
    if "amx_tile" not in _processor():
        return False
    code, program = work / "tiles.c", work / "tiles"
    code.write_text(_USES_TILES)
    compiled = subprocess.run(["cc", str(code), "-o", str(program)], capture_output=True)
    return compiled.returncode != 0 or subprocess.run([str(program)]).returncode != 0


def _processor() -> str:
    """What Linux says of the processor; blank elsewhere."""
    return _CPU.read_text() if _CPU.exists() else ""


def _run(command: Sequence[str], work: Path, failed: str) -> None:
    """Run one step; what it says is kept in a file that outlives a failure.

    Raises:
        ModelError: it fails.
    """
    environment = child_environment(*NETWORK, prefixes=("PIP_", "CMAKE_"))
    log = work.parent / "build.log"
    with log.open("ab") as out:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment
        )
    if done.returncode:
        raise ModelError(f"{failed} (exit code {done.returncode}): see {log}; the wheel serves on")


def _folder() -> Path:
    return cache_root() / "llama.cpp"


def _say(message: str) -> None:
    print(f"ragbench: {message}", file=sys.stderr, flush=True)
