"""A bundle's figures come out of its records, and no byte of it can be changed unseen."""

import json
import random
import re
import sqlite3
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragbench.errors import DataError
from ragbench.experiments.publish import MANIFEST, figures_of, pack, publish, unpack, verify
from ragbench.experiments.runs.summary import reopen
from ragbench.experiments.store import DATABASE
from ragbench.redact import digest_of
from tests.experiments.scored_runs import four, make_run, study

Command = Callable[..., tuple[int, str, str]]
Change = Callable[[dict[str, bytes], dict[str, Any]], Any]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of five runs of sixty questions, beside the folder of the runs."""
    folder = tmp_path_factory.mktemp("published")
    publish(study(folder / "runs"), folder / "bundle.zip")
    return folder / "bundle.zip"


def opened(bundle: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files of a bundle without its manifest, and the figures of each run."""
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return files, json.loads(files.pop(MANIFEST))["runs"]


def test_verify_unchanged_bundle_recomputes_every_figure(bundle: Path, command: Command) -> None:
    code, out, err = command("verify", bundle)
    assert code == 0, err
    assert re.fullmatch(r".*bundle.zip: all \d+ figures come out of the records\n", out)


def test_verify_external_claim_is_compared_at_its_precision(bundle: Path, command: Command) -> None:
    figures = unpack(bundle.read_bytes())[1]
    assert figures["ircot"].keys() >= {"em", "em_low", "f1", "cost_usd", "n"}
    mean = figures["ircot"]["em"]
    assert command("verify", bundle, "--claim", f"ircot.em={mean:.2f}")[0] == 0
    code, out, _ = command("verify", bundle, "--claim", "ircot.em=0.99")
    assert code == 1
    assert f"ircot.em: 0.99 is claimed, and the records give {mean}" in out
    code, _, err = command("verify", bundle, "--claim", "ircot.emm=0.99")
    assert code == 2
    assert "no figure 'ircot.emm'" in err


def test_verify_sees_each_of_200_changed_bytes(tmp_path: Path) -> None:
    out = tmp_path / "bundle.zip"
    publish([make_run(tmp_path / "runs" / "small", four())], out)
    data = out.read_bytes()
    chance = random.Random(0)
    unseen = []
    for _ in range(200):
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
    files, figures = opened(bundle)
    figures["ircot"]["em"] = 0.99
    forged = tmp_path / "forged.zip"
    forged.write_bytes(pack(files, figures))
    code, out, _ = command("verify", forged)
    assert code == 1
    assert len(out.splitlines()) == 1
    assert "ircot.em: the bundle states 0.99, and the records give " in out
    edited = bytearray(bundle.read_bytes())
    edited[5000] ^= 1
    forged.write_bytes(edited)
    code, _, err = command("verify", forged)
    assert code == 2
    assert "Bad CRC-32 for file" in err


def test_export_does_not_replace_a_bundle_and_verify_damaged_bundle_is_one_line(
    bundle: Path, tmp_path: Path, command: Command
) -> None:
    for content in (b"", b"PK", b"{}", b"PK\x05\x06" + bytes(18)):
        (tmp_path / "x.zip").write_bytes(content)
        code, _, err = command("verify", tmp_path / "x.zip")
        assert code == 2
        assert "not a bundle" in err
        assert len(err.splitlines()) == 1
    before = bundle.read_bytes()
    code, _, err = command(
        "export", bundle.parent / "runs" / "ircot", "--to", "bundle", "-o", bundle
    )
    assert code == 2
    assert "give --force to replace it" in err
    assert bundle.read_bytes() == before


def _with_claim(run: str, **figures: object) -> Change:
    def change(files: dict[str, bytes], claims: dict[str, Any]) -> None:
        claims.setdefault(run, {}).update(figures)

    return change


def _without(*names: str) -> Change:
    def change(files: dict[str, bytes], claims: dict[str, Any]) -> None:
        for name in names:
            files.pop(name, None)
            claims.pop(name, None)

    return change


def _with_file(name: str, source: str = "") -> Change:
    def change(files: dict[str, bytes], claims: dict[str, Any]) -> None:
        files[name] = files.get(source, b"/etc/passwd")

    return change


def _damaged(files: dict[str, bytes], claims: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, DATABASE)
        path.write_bytes(files[f"runs/vanilla/{DATABASE}"])
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE records SET answer = 'x' WHERE id % 2")
            db.commit()
        files[f"runs/vanilla/{DATABASE}"] = path.read_bytes()
        folder_of_run = Path(folder, "vanilla")
        folder_of_run.mkdir()
        path.rename(folder_of_run / DATABASE)
        claims.update(figures_of({"vanilla": reopen(folder_of_run)}))


@pytest.mark.parametrize("scores", ["[1]", '{"scores": {"em": 1.0}}', '{"judged": 5}', "x"])
def test_bundle_with_forged_scores_is_no_traceback(
    scores: str, bundle: Path, tmp_path: Path, command: Command
) -> None:
    files, claims = opened(bundle)
    path = tmp_path / DATABASE
    path.write_bytes(files[f"runs/vanilla/{DATABASE}"])
    with closing(sqlite3.connect(path)) as db:
        for record, qid in db.execute("SELECT id, qid FROM records").fetchall():
            row = (record, scores, digest_of(qid, scores))
            db.execute("INSERT OR REPLACE INTO scores VALUES (?, ?, ?)", row)
        db.commit()
    files[f"runs/vanilla/{DATABASE}"] = path.read_bytes()
    forged = tmp_path / "forged.zip"
    forged.write_bytes(pack(files, claims))
    code, out, err = command("verify", forged)
    assert "Traceback" not in err
    assert code in (0, 1, 2)
    assert code == 0 or "vanilla" in out or len(err.splitlines()) == 1


#: What somebody may do who makes the manifest and its hashes anew.
FORGERIES: dict[str, Change] = {
    "a figure rounded up": _with_claim("ircot", em=1.0),
    "a figure of no table": _with_claim("ircot", accuracy=None),
    "a run that is not there": _with_claim("ghost", em=None),
    "claims of a run left out": _without("ircot"),
    "a run left out": _without(f"runs/ircot/{DATABASE}"),
    "a card beside the records": _with_file("runs/ircot/card.json"),
    "records of another run": _with_file(f"runs/ircot/{DATABASE}", f"runs/vanilla/{DATABASE}"),
    "records that were changed": _damaged,
    "a file above": _with_file("../evil"),
    "a folder as a file": _with_file("runs/ircot/.."),
    "a long name": _with_file(f"runs/{'n' * 300}/{DATABASE}", f"runs/vanilla/{DATABASE}"),
    "a run without a name": _with_file(f"runs/../{DATABASE}", f"runs/vanilla/{DATABASE}"),
    "no claims": lambda files, claims: claims.clear(),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_whose_figures_are_made_again_does_not_hold(
    name: str, bundle: Path, tmp_path: Path
) -> None:
    files, claims = opened(bundle)
    FORGERIES[name](files, claims)
    forged = tmp_path / "forged.zip"
    forged.write_bytes(pack(files, claims))
    assert verify(forged)[1]
    assert [*tmp_path.rglob("evil")] == []


def test_what_stands_in_a_bundle_beside_its_form_is_seen_or_refused(
    bundle: Path, tmp_path: Path
) -> None:
    files, figures = opened(bundle)
    with zipfile.ZipFile(bundle) as archive:
        manifest = archive.read(MANIFEST)
    path = tmp_path / "x.zip"
    for extra in ((MANIFEST, b"a name twice"), ("runs/x", b"/etc/passwd")):
        with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the name that is there twice
            for each, content in [extra, (MANIFEST, manifest), *files.items()]:
                entry = zipfile.ZipInfo(each, (1980, 1, 1, 0, 0, 0))
                entry.external_attr = 0o120777 << 16
                archive.writestr(entry, content)
        assert verify(path)[1]
    for value in (5, None, [3], "x", {"ircot": [1]}):
        path.write_bytes(pack(files, value))
        with pytest.raises(DataError, match="not a bundle, or a damaged one"):
            verify(path)
    path.write_bytes(pack(files, figures, "99.0"))
    assert verify(path)[1]
