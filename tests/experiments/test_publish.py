"""A bundle's figures come out of its records, and no byte of it can be changed unseen."""

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ragbench.errors import DataError
from ragbench.experiments.publish import publish, verify
from ragbench.experiments.publish.archive import MANIFEST, pack, unpack
from ragbench.experiments.store import DATABASE
from tests.experiments.scored_runs import four, make_run, study

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of five runs of sixty questions, beside the folder of the runs."""
    folder = tmp_path_factory.mktemp("published")
    publish(study(folder / "runs"), folder / "bundle.zip")
    return folder / "bundle.zip"


def test_every_figure_comes_out_again_and_the_reasons_are_said(
    bundle: Path, command: Command
) -> None:
    checked = verify(bundle)
    assert checked.holds
    assert {figure.name for figure in checked.figures} >= {"em", "em_low", "f1", "cost_usd", "n"}
    code, out, err = command("verify", bundle)
    assert code == 0, err
    assert out.startswith("holds: all ")
    assert "vanilla: not citable: 60 questions, fewer than 100; " in out
    assert "is no pinned model" in out


def test_what_is_claimed_elsewhere_stands_beside(bundle: Path, command: Command) -> None:
    mean = next(f.recomputed for f in verify(bundle).figures if (f.run, f.name) == ("ircot", "em"))
    assert command("verify", bundle, "--claim", f"ircot.em={mean:.2f}")[0] == 0
    code, out, _ = command("verify", bundle, "--claim", "ircot.em=0.99")
    assert code == 1
    assert "0.99" in out
    code, _, err = command("verify", bundle, "--claim", "ircot.emm=0.99")
    assert code == 2
    assert "no figure 'ircot.emm'" in err


def test_each_of_a_thousand_changed_bytes_is_seen(tmp_path: Path) -> None:
    out = tmp_path / "bundle.zip"
    publish([make_run(tmp_path / "runs" / "small", four())], out)
    data = out.read_bytes()
    chance = random.Random(0)
    unseen = []
    for _ in range(1000):
        place = chance.randrange(len(data))
        edited = bytearray(data)
        edited[place] ^= chance.randrange(1, 256)
        try:
            changes = unpack(bytes(edited))[2]
        except DataError:
            continue
        if not changes:
            unseen.append(place)
    assert unseen == []


def test_a_change_is_placed_and_a_forged_figure_does_not_come_out(
    bundle: Path, tmp_path: Path, command: Command
) -> None:
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    body = json.loads(files.pop(MANIFEST))["body"]
    # A new manifest over an edited claim: what was sealed is right, what is claimed is not.
    body["claims"]["runs"]["ircot"]["figures"]["em"] = 0.99
    forged = tmp_path / "forged.zip"
    forged.write_bytes(pack(files, body["claims"]))
    code, out, _ = command("verify", forged)
    assert code == 1
    assert "1 figures differ, 0 changes" in out
    # A byte of the records, under the old manifest.
    name = f"runs/ircot/{DATABASE}"
    edited = bytearray(files[name])
    edited[5000] ^= 1
    with zipfile.ZipFile(bundle) as archive:
        manifest = archive.read(MANIFEST)
    with zipfile.ZipFile(forged, "w") as archive:
        for each, content in {**files, name: bytes(edited), MANIFEST: manifest}.items():
            archive.writestr(each, content)
    code, out, _ = command("verify", forged)
    assert code == 1
    assert f"changed: {name}: changed in bytes 4864 to 5119" in out


@pytest.mark.parametrize("content", [b"", b"PK", b"{}", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_bundle_is_one_line(content: bytes, tmp_path: Path, command: Command) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    code, _, err = command("verify", tmp_path / "x.zip")
    assert code == 2
    assert "it is no bundle" in err
    assert len(err.splitlines()) == 1


def test_a_bundle_is_not_written_over(bundle: Path, command: Command) -> None:
    before = bundle.read_bytes()
    code, _, err = command("publish", bundle.parent / "runs" / "ircot", "-o", bundle)
    assert code == 2
    assert "exists already" in err
    assert bundle.read_bytes() == before
