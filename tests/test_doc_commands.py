"""Every command of README and docs runs, in order, over a scripted server."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fake_server import FakeServer
from tests.page_player import Player, blocks_of
from tests.page_world import NAMES, ROOT, connect, write_files, write_hub, write_runs

#: Pages that have a test below, or whose blocks extend the package (tests/test_docs.py).
OTHERS = {"index", "own-code", "api", "architecture"}
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if page.stem not in OTHERS
]
#: Pages that begin with the runs of the package's demonstration.
OF_RUNS = {"README", "comparing"}
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
    r"report .*--figures": "needs a browser; tests/experiments/test_page_browser.py draws them",
    r"sweep .*--engine ray": "needs a Ray cluster",
    r"fetch qwen": "downloads a model",
    r"list indexes --delete": "names an index by its hash",
    r"sweep which.yaml --max-cost": "18 cells, of which the line with --only runs six",
}
#: Commands that end with another exit code than 0 here -> the code. No question of the scripted LM
#: is valid.
EXIT_CODES = {r"questions ": 1}
#: Small runs and compiles, which the pages leave at their defaults.
SETTINGS = "limit: 4\ntrain_limit: 4\nval_limit: 4\n"


def find(table: dict[str, Any], words: list[str]) -> Any:
    """Return the value of the pattern that matches a command, or None."""
    line = " ".join(words)
    return next((value for pattern, value in table.items() if re.match(pattern, line)), None)


def unexpected(player: Player) -> list[tuple[str, int, str]]:
    """Return the commands that ended with an exit code that the page does not state."""
    found = []
    for each in player.played:
        if each.exit_code != (find(EXIT_CODES, each.words) or 0):
            last = (each.errors or each.output).strip()[-300:]
            found.append((" ".join(each.words), each.exit_code, last))
    return found


@pytest.fixture
def play(
    server: FakeServer, command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Player]:
    """Return a function that runs the blocks of a page, and checks the exit codes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    connect(server, monkeypatch)
    write_files()
    write_hub(tmp_path / "cache")
    (tmp_path / "played").mkdir()
    monkeypatch.setenv("RAGBENCH_CONFIG", str(tmp_path / "settings.yaml"))

    def run(page: Path, settings: str = SETTINGS) -> Player:
        (tmp_path / "settings.yaml").write_text(settings)
        player = Player(
            command, tuple(SKIPPED), lambda words: bool(find(EXEMPT, words)), tmp_path / "played"
        )
        for block in blocks_of(page.read_text("utf-8")):
            player.play(block)
        assert unexpected(player) == []
        return player

    return run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_commands_run(page: Path, play: Callable[..., Player]) -> None:
    if page.stem in OF_RUNS:
        write_runs()
    play(page)


def test_tutorial_does_what_it_says(play: Callable[..., Player]) -> None:
    page = ROOT / "docs" / "index.md"
    numbers = re.findall(r"^(\d+)\. ", page.read_text().partition("## Twenty tasks")[2], re.M)
    assert [int(number) for number in numbers] == list(range(1, 21))
    player = play(page, "limit: 12\ntrain_limit: 4\nval_limit: 4\n")
    assert "2 demonstrations" in player.printed.getvalue()
    counts = {
        name: json.loads(Path(f"runs/{name}/card.json").read_text())["questions"]
        for name in ("whole", "csv", "compiled")
    }
    assert counts["whole"] == counts["csv"] == len(NAMES) > counts["compiled"]
    assert "\\begin{tabular}" in player.output_of("latex")
    assert "Dunmoor" in player.output_of("show run runs/whole h3")
    assert "nothing is wrong" in player.output_of("verify runs/whole runs/mine")
    assert "three months" in player.output_of("ask What is the notice?")


def test_own_code_page_does_what_it_says(play: Callable[..., Player]) -> None:
    names = play(ROOT / "docs" / "own-code.md").names
    assert names["mine"].records[0].passages
    assert names["searched"].records[0].passages[0].text == "Turin lies on the Po."
    assert (Path(names["folder"]) / "program.json").is_file()


def test_api_page_does_what_it_says(play: Callable[..., Player]) -> None:
    names = play(ROOT / "docs" / "api.md").names
    assert (names["difference"].n, len(names["frame"])) == (4, 4)
