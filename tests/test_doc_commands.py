"""Every command of README and docs runs, in order, over a scripted server."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.fake_server import FakeServer
from tests.page_player import Player, blocks_of
from tests.page_world import QUESTIONS, ROOT, connect, write_files, write_hub, write_runs
from tests.test_examples import knowing

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Programs other than ragbench that do nothing here -> reason.
SKIPPED = {
    "make": "makes virtual environments",
    "pip": "installs",
    "docker": "starts a Qdrant server",
    "ray": "starts a cluster",
    "srun": "needs Slurm",
    "scontrol": "needs Slurm",
}
#: Commands of ragbench that do not run here -> reason.
EXEMPT = {
    r"report .*--(serve|demo)": "serves until Ctrl-C",
    r"retrieve .*qdrant": "needs a Qdrant server",
    r"sweep .*--engine ray": "needs a Ray cluster",
    r"fetch qwen": "downloads a model",
}
#: Commands that end with another exit code than 0 here -> the code.
EXIT_CODES = {r"compare .*--gate not-better": 4}
#: Small compiles, which the pages leave at their defaults.
SETTINGS = "train_limit: 6\nval_limit: 6\n"


def find(table: dict[str, Any], words: list[str]) -> Any:
    """Return the value of the pattern that matches a command, or None."""
    line = " ".join(words)
    return next((value for pattern, value in table.items() if re.match(pattern, line)), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_commands_run(
    page: Path, server: FakeServer, command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    server.script = knowing(QUESTIONS)
    connect(server, monkeypatch)
    write_files()
    write_hub(tmp_path / "cache")
    write_runs()
    (tmp_path / "played").mkdir()
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    monkeypatch.setenv("RAGBENCH_CONFIG", str(tmp_path / "settings.yaml"))
    player = Player(
        command, tuple(SKIPPED), lambda words: bool(find(EXEMPT, words)), tmp_path / "played"
    )
    import time; log=open(f"/tmp/doc_{page.stem}.txt","w")
    for block in blocks_of(page.read_text("utf-8")):
        if block.language == "python": continue
        t=time.time(); n=len(player.played)
        try: player.play(block)
        except BaseException as e: print(repr(e)[:600],file=log)
        for each in player.played[n:]:
            print(each.exit_code, ' '.join(each.words),"" if not each.exit_code else (each.errors or each.output)[-400:], file=log)
        print(f"   {time.time()-t:.1f} s {len(server.hits)}",file=log,flush=True)
