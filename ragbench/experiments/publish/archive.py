"""A zip file whose every byte follows from what it holds, so that any change can be found.

Files are stored as they are, in order of their names, with one date and no attributes. Reading
writes the same archive anew and compares: what differs was changed after it was made.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ragbench.errors import DataError

MANIFEST = "manifest.json"
FORMAT = 2
#: Bytes of a piece that has a hash of its own, by which a change is placed.
PIECE = 256
#: A bundle is read into memory; a larger one is refused.
MOST_BYTES = 2 * 1024**3
_DATE = (1980, 1, 1, 0, 0, 0)


def pack(files: Mapping[str, bytes], claims: Mapping[str, object]) -> bytes:
    """Returns the archive of `files` with a manifest of their hashes and of `claims`."""
    hashes = {}
    for name in sorted(files):
        pieces = list(map(_digest, _pieces(files[name])))
        hashes[name] = {"bytes": len(files[name]), "sha256": _digest(files[name]), "pieces": pieces}
    body = {"format": FORMAT, "claims": claims, "files": hashes}
    manifest = json.dumps(body, sort_keys=True, indent=1).encode()
    return _zip({**files, MANIFEST: manifest})


def unpack(data: bytes) -> tuple[dict[str, bytes], dict[str, object], list[str]]:
    """Returns the files, the claims, and a line for everything that was changed since.

    Raises:
        DataError: it is no bundle, or one that is damaged beyond reading.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > len(data):
                raise zipfile.BadZipFile("its files lie over each other")
            files = {entry.filename: _read(entry, data) for entry in entries}
        body = json.loads(files.pop(MANIFEST))
        version = body["format"]
        claims = dict(body["claims"])
        hashes = {name: dict(entry) for name, entry in body["files"].items()}
        rebuilt = pack(files, claims)
    except (zipfile.BadZipFile, AttributeError, KeyError, TypeError, ValueError, RecursionError,
            OSError) as error:  # fmt: skip
        why = f"{type(error).__name__}: {error}"
        raise DataError(f"it is no bundle, or one that was cut or changed: {why}") from None
    if version != FORMAT:
        raise DataError(f"it is a bundle of format {version}, and this version reads {FORMAT}")
    changes = []
    for name in sorted({*files, *hashes}):
        if name not in files:
            changes.append(f"{name}: taken out")
        elif name not in hashes:
            changes.append(f"{name}: put in")
        elif _digest(files[name]) != hashes[name].get("sha256"):
            changes.append(f"{name}: {_place(files[name], hashes[name])}")
    if not changes and rebuilt != data:
        changes.append(f"the archive itself: {_first_difference(rebuilt, data)}")
    return files, claims, changes


def read_bundle(path: Path) -> bytes:
    """Returns the bytes of the bundle at `path`.

    Raises:
        DataError: it is no regular file, too large, or cannot be read.
    """
    try:
        if not path.is_file():
            raise DataError(f"{path} is no file; give a bundle of `ragbench export --to bundle`")
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than {MOST_BYTES:,} bytes, which no bundle is")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None


def _read(entry: zipfile.ZipInfo, data: bytes) -> bytes:
    """Returns the bytes of a stored file, also where its checksum does not fit any more."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile(f"{entry.filename} is not stored as it is")
    header = data[entry.header_offset : entry.header_offset + 30]
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"the header of {entry.filename} was changed")
    start = entry.header_offset + 30
    start += int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return data[start : start + entry.file_size]


def _zip(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _DATE), files[name])
    return buffer.getvalue()


def _pieces(data: bytes) -> list[bytes]:
    return [data[start : start + PIECE] for start in range(0, len(data), PIECE)]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _place(data: bytes, entry: Mapping[str, object]) -> str:
    """Returns where `data` differs from what the manifest knows of it."""
    if len(data) != entry.get("bytes"):
        return f"{len(data)} bytes, {entry.get('bytes')} when it was made"
    pieces = entry.get("pieces")
    if not isinstance(pieces, list):
        return "changed"
    spans = []
    for number, (piece, digest) in enumerate(zip(_pieces(data), pieces, strict=False)):
        if _digest(piece) != digest:
            spans.append(f"{number * PIECE} to {number * PIECE + len(piece) - 1}")
    return f"changed in bytes {', '.join(spans[:20]) or 'of its manifest'}"


def _first_difference(rebuilt: bytes, data: bytes) -> str:
    for place, (byte, other) in enumerate(zip(rebuilt, data, strict=False)):
        if byte != other:
            return f"byte {place} was changed"
    return f"{len(data)} bytes, {len(rebuilt)} when it was made"
