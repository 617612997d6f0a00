"""Damages files at random, and sees whether anyone would notice.

A file of a scored run, a compiled program or a stored index gets a bit flipped, loses its end, or
has some bytes zeroed. Then the commands that show the folder are given. Damage is *harmless* where
all of them print what they printed before, and *noticed* where every one that prints something else
says so, by an error or a warning. Where only `ragbench doctor` says so, or nothing does, it is
*silent*, which must not happen. Used by a test with a few damages and by `benchmarks/corruption.py`
with 1,000.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exception

from click.testing import CliRunner

from ragbench.cli.main import cli, one_line
from ragbench.errors import RagbenchError
from ragbench.experiments.records import read_prompts
from ragbench.experiments.records.stored import read_records
from ragbench.retrievers import Corpus, IndexStore, Passage, make_retriever
from tests.fake_server import FakeServer
from tests.kills import compile_job, eval_job, judge_job, script

#: Output of a command: exit code and text.
Shown = tuple[int, str]


#: What a command says that notices and goes on.
SAYS = ("could not be read", "cannot read", "was changed", "not finished", "both runs have a score")


@dataclass
class Outcome:
    """What came of the damages, by kind of file; `silent` and `crashed` must stay empty."""

    harmless: Counter[str] = field(default_factory=Counter)
    noticed: Counter[str] = field(default_factory=Counter)
    by_doctor_alone: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)


def damaged(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """`content` with one damage, and what that is."""
    at = rng.randrange(len(content))
    kind = rng.choice(["flip", "flip", "cut", "zero"])
    if kind == "flip":
        bit = rng.randrange(8)
        changed = bytes([content[at] ^ (1 << bit)])
        return content[:at] + changed + content[at + 1 :], f"bit {bit} of byte {at} flipped"
    if kind == "cut":
        return content[:at], f"cut at byte {at}"
    n = min(rng.randint(1, 64), len(content) - at)
    return content[:at] + bytes(n) + content[at + n :], f"{n} bytes zeroed at {at}"


def command(*arguments: object) -> Shown:
    """What `ragbench` with these arguments prints, both streams, and its exit code."""
    result = CliRunner().invoke(cli, [str(each) for each in arguments])
    error = result.exception
    if isinstance(error, RagbenchError):  # as `main` shows it
        return error.exit_code, result.output + f"error: {one_line(str(error))}"
    if error is not None and not isinstance(error, SystemExit | OSError):
        return 70, result.output + "".join(format_exception(error))
    return result.exit_code, result.output


class Folders:
    """A scored run with another beside it, a compiled program and an index, all good."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run, self.compiled = folder / "run", folder / "compiled"
        self.index = folder / "index"
        with FakeServer(script) as server:
            eval_ = eval_job(folder, server.url, 10)
            for argv in (eval_.argv, judge_job(folder, server.url, 10).argv):
                self._must(argv)
            compiled = compile_job(folder, server.url, 20, optimizer="bootstrap")
            self._must(compiled.argv)
        shutil.copytree(self.run, folder / "other")
        records = read_records(self.run).records
        self.qid = next(iter(records))
        self.prompts = [
            id_
            for record in records.values()
            for call in record.ledger.calls
            for id_ in (*call.prompt, call.reply)
        ]
        self.search()

    def _must(self, argv: Sequence[str]) -> None:
        code, said = command(*argv)
        assert code == 0, said

    def files(self) -> list[Path]:
        """The files to damage; each command's are as likely as those of the others."""
        kept = [self.run, self.compiled, self.index]
        found = [path for folder in kept for path in sorted(folder.rglob("*")) if path.is_file()]
        return [path for path in found if path.stat().st_size]

    def shown(self, path: Path) -> list[Shown]:
        """What the commands that read the file print, `doctor` last."""
        if path.is_relative_to(self.index):
            return [(0, self.search()), (0, "")]
        if path.is_relative_to(self.compiled):
            return [command("compiled", self.compiled), command("doctor", self.compiled)]
        return [
            command("summarize", self.run),
            command("compare", self.run, self.folder / "other", "--metric", "judge"),
            command("errors", self.run),
            command("show", "run", self.run, self.qid),
            self._texts(),
            command("doctor", "--no-data", self.run),
        ]

    def _texts(self) -> Shown:
        try:
            found = read_prompts(self.run, self.prompts)
        except RagbenchError as error:
            return error.exit_code, str(error)
        missing = sum(1 for each in set(self.prompts) if each and each not in found)
        return (1, f"{missing} texts are missing") if missing else (0, str(sorted(found.items())))

    def search(self) -> str:
        """What searches give over the stored index; a damaged one is made again."""
        texts = [f"Town {i} lies on river {i * 7 % 13} of the north" for i in range(200)]
        corpus = Corpus(tuple(Passage(str(i), f"Town {i}", t) for i, t in enumerate(texts)))
        retriever = make_retriever("bm25", corpus).build(IndexStore(self.index))
        found = retriever.search_many([f"river {i}" for i in range(13)], k=5)
        return str([[(hit.pid, hit.score) for hit in hits] for hits in found])


def corrupt(folders: Folders, n: int, seed: int = 0) -> Outcome:
    """Do `n` damages, one at a time, each to a file as it was."""
    rng, outcome = random.Random(seed), Outcome()
    files = folders.files()
    before = {path: folders.shown(path) for path in files}
    for _ in range(n):
        path = rng.choice(files)
        good = path.read_bytes()
        bad, what = damaged(good, rng)
        where = f"{path.relative_to(folders.folder)}: {what}"
        path.write_bytes(bad)
        try:
            _judge(before[path], folders.shown(path), path.name, where, outcome)
        except Exception as error:
            outcome.crashed.append(f"{where}: {''.join(format_exception(error))[-1500:]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(good)
    return outcome


def _judge(
    before: list[Shown], after: list[Shown], name: str, where: str, outcome: Outcome
) -> None:
    *shown, doctor = after
    if crash := [text for code, text in after if code == 70]:
        outcome.crashed.append(f"{where}: {crash[0][-1500:]}")
        return
    other = [now for was, now in zip(before, shown, strict=False) if was != now]
    quiet = [text for code, text in other if code == 0 and not any(s in text for s in SAYS)]
    if not other:
        outcome.harmless[name] += 1
    elif not quiet:
        outcome.noticed[name] += 1
    elif doctor[0]:
        outcome.by_doctor_alone.append(f"{where}: {quiet[0][:500]}")
    else:
        outcome.silent.append(f"{where}: {quiet[0][:500]}")
