"""A stored folder says program, knobs, form and state alone; what else it says is never followed.

Every field of the config is put into a sidecar, a run's card and a config file, with
code, addresses and files of somebody else. Whatever command is given over them, nothing of that
is imported, asked or opened.
"""

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml

from ragbench.errors import ConfigError
from ragbench.experiments.cells.sweep_file import SweepFields
from ragbench.experiments.config import (
    MAY_SET,
    CompileConfig,
    RunConfig,
    TuneConfig,
    load_config,
    make_config,
)
from ragbench.programs import PROGRAMS
from tests.fake_server import FakeServer
from tests.kills import write_questions

_FIELDS = {
    name: field
    for model in (SweepFields, TuneConfig, CompileConfig, RunConfig)
    for name, field in model.model_fields.items()
}
#: What else a command is given.
_LIMITS = {"max_cost": 1e9, "max_calls": 10**9, "max_total_tokens": 10**9, "max_minutes": 1e9}
_watched: list[str] = []
_opened: list[str] = []


def _note_opened(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _watched and str(args[0]).startswith(_watched[0]):
        _opened.append(str(args[0]))


sys.addaudithook(_note_opened)  # it cannot be removed; it notes nothing where nothing is watched


class Stranger:
    """Somebody else's code, files and server, which nobody may touch."""

    def __init__(self, folder: Path, server: FakeServer) -> None:
        self.folder = folder
        self.server = server
        folder.mkdir()
        (folder / "evil.py").write_text("class Evil:\n    pass\n")
        (folder / "private.jsonl").write_text('{"question": "Who?", "answer": "I"}\n')

    def value(self, name: str, text: str) -> Any:
        """A value of the field `name` that leads to the stranger; `text` says how."""
        texts = {
            "code": f"{self.folder}/evil.py:Evil",
            "address": f"openai/m@{self.server.url}",
            "url": self.server.url,
        }
        if name in _LIMITS:
            return _LIMITS[name]
        field = _FIELDS[name]
        kinds = {field.annotation, *get_args(field.annotation)} - {NoneType}
        if Path in kinds:
            return f"{self.folder}/private.jsonl"
        if name == "price":
            return "in=0,out=0"
        if isinstance(field.default, dict):
            return {"embedder": texts[text], "url": texts["url"], "plan": texts[text]}
        if get_origin(field.annotation) is Literal:
            return next(c for c in get_args(field.annotation) if c != field.default)
        if bool in kinds:
            return not field.default
        if kinds & {int, float}:
            return 7
        return texts[text]

    def values(self, text: str) -> dict[str, Any]:
        """A value for every field there is, and for every limit."""
        return {name: self.value(name, text) for name in (*_FIELDS, *_LIMITS)}

    @property
    def was_touched(self) -> list[str]:
        return [*_opened, *(f"request {hit.number}" for hit in self.server.hits)]


@pytest.fixture
def stranger(tmp_path: Path, server: FakeServer) -> Iterator[Stranger]:
    """`server` is the person's own."""
    with FakeServer() as other:
        yield Stranger(tmp_path / "outside", other)
        _watched.clear()
        _opened.clear()


@pytest.fixture
def own(tmp_path: Path, server: FakeServer) -> list[str]:
    """The options of the person: questions and an LM."""
    data = write_questions(tmp_path, 20)
    lm = ["--lm", f"openai/m@{server.url}", "--adapter", "chat"]
    return ["--data-file", str(data), *lm]


Command = Callable[..., tuple[int, str, str]]


def compiled(command: Command, own: list[str]) -> Path:
    limits = ["--train-limit", 4, "--val-limit", 2]
    args = ["compile", "--program", "vanilla", "--optimizer", "labeled", *limits, *own]
    code, _, err = command(*args, "--out", "c")
    assert code == 0, err
    return Path("c")


def watch(stranger: Stranger) -> None:
    _watched[:] = [str(stranger.folder)]


@pytest.mark.parametrize("text", ["code", "address"])
def test_no_command_follows_what_a_compiled_folder_says(
    text: str,
    command: Command,
    own: list[str],
    stranger: Stranger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = compiled(command, own)
    asked = ["eval", "--compiled", "c", *own, "--limit", 1, "--retriever", "bm25"]
    assert command(*asked, "--out", "before")[0] == 0
    hostile = stranger.values(text)
    sidecar = json.loads((folder / "sidecar.json").read_text())
    hostile_sidecar = {**hostile, **sidecar, "given": hostile, "config": hostile, "lms": hostile}
    (folder / "sidecar.json").write_text(json.dumps(hostile_sidecar))
    cells = {"compiled": "c", "data_file": own[1], "lm": own[3], "limit": 1, "adapter": "chat"}
    Path("sweep.yaml").write_text(yaml.safe_dump({**cells, "matrix": {"seed": [1]}}))
    watch(stranger)
    code, _, err = command(*asked, "--out", "after")
    assert code == 0, err
    assert "c was compiled with" in caplog.text
    configs = [json.loads(Path(name, "card.json").read_text())["config"] for name in
               ("before", "after")]  # fmt: skip
    assert [c.pop("out") for c in configs] == ["before", "after"]
    assert configs[0] == configs[1]
    for args in (
        [*asked, "--dry-run"],
        ["eval", "--compiled", "c", "--limit", 1, "--dry-run"],
        ["ask", "Which town?", "--compiled", "c", *own],
        ["sweep", "sweep.yaml", "--dry-run"],
        ["sweep", "sweep.yaml"],
        ["tune", "--compiled", "c", *own, "--limit", 2, "--trials", 1],
        ["compile", "--compiled", "c", *own],
        ["list", "compiled", "."],
        ["verify", "c"],
        ["show", "run", "after"],
        ["report", "."],
    ):
        _, _, err = command(*args)
        assert "Traceback" not in err, (args, err)
        assert stranger.was_touched == [], args


def test_command_of_a_compiled_folder_is_printed_without_its_addresses_and_paths(
    command: Command, own: list[str], server: FakeServer
) -> None:
    compiled(command, own)
    asked = len(server.hits)
    code, _, err = command("eval", "--compiled", "c", "--limit", 1)
    whole = "ragbench eval --compiled c --limit 1 --dataset jsonl --data-file ... --lm ..."
    assert code == 2
    assert whole in err
    assert server.url not in err
    assert str(own[1]) not in err
    assert len(server.hits) == asked
    for named in (own[:2], own[2:4]):  # one alone is not enough
        assert command("eval", "--compiled", "c", "--limit", 1, *named)[0] == 2
    sidecar = json.loads(Path("c/sidecar.json").read_text())
    sidecar["given"] |= {"lm": "openai/m", "api_base": "http://evil/v1", "corpus_file": "/etc/x"}
    sidecar["given"] |= {"hub_repo": "evil/data", "dataset": "evil.py:Data"}
    Path("c/sidecar.json").write_text(json.dumps(sidecar))
    code, _, err = command("eval", "--compiled", "c", "--limit", 1)
    assert code == 2
    assert "--lm openai/m --api-base ..." in err
    assert "evil" not in err
    assert "/etc" not in err
    assert command("eval", "--compiled", "c", "--limit", 1, *own)[0] == 0


def test_scores_of_a_compiled_folder_that_are_no_numbers_are_one_line(
    command: Command, own: list[str]
) -> None:
    compiled(command, own)
    path = Path("c/sidecar.json")
    sidecar = json.loads(path.read_text())
    for interval in ("text", [0, 1], {"low": "a", "high": 1}, {"low": 0}):
        sidecar["scores"]["compiled"]["interval"] = interval
        path.write_text(json.dumps(sidecar))
        for words in (["list", "compiled", "."], ["verify", "c"]):
            _, out, err = command(*words)
            assert "Traceback" not in err
            assert "scores" in out + err


def test_files_of_a_compiled_folder_are_in_it(
    command: Command, own: list[str], stranger: Stranger
) -> None:
    folder = compiled(command, own)
    sidecar = json.loads((folder / "sidecar.json").read_text())
    watch(stranger)
    for files in (["../outside/private.jsonl"], [f"{stranger.folder}/private.jsonl"], [".."]):
        (folder / "sidecar.json").write_text(json.dumps({**sidecar, "files": files}))
        code, _, err = command("eval", "--compiled", "c", *own, "--limit", 1)
        assert (code, "leads out of c" in err) == (2, True), err
    (folder / "sidecar.json").write_text(json.dumps(sidecar))
    for name in ("bank.json", "program.json", "sidecar.json"):
        content = (folder / name).read_bytes() if (folder / name).exists() else None
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(stranger.folder / "private.jsonl")
        code, _, err = command("eval", "--compiled", "c", *own, "--limit", 1)
        assert (code, "leads out of c" in err) == (2, True), err
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
    assert stranger.was_touched == []


def test_free_texts_of_knobs_are_said_by_the_person_too() -> None:
    """Each knob, of every variant: what is no number, switch or choice may name anything."""
    for name in PROGRAMS.names():
        program = PROGRAMS.get(name)
        for variant in program.variants:
            knobs = program.resolve_knobs({"variant": variant}).model_dump(mode="json")
            config = make_config({}, stored={"program": name, "set": knobs})
            assert (config.program, config.set["variant"]) == (name, variant)
        for knob, field in program.Knobs.model_fields.items():
            if field.annotation is not str or knob == "variant":
                continue
            stored = {"program": name, "set": {knob: "http://127.0.0.1:9/evil"}}
            with pytest.raises(ConfigError, match=f"give --set {knob}="):
                make_config({"program": name}, stored=stored)
            config = make_config({"set": stored["set"]}, stored=stored)
            assert (config.program, config.set, config.lm) == (name, stored["set"], "local")


def test_arguments_of_a_module_are_said_by_the_person_too(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("import dspy\nclass Own(dspy.Module):\n    pass\n")
    stored = {"program": f"{path}:Own", "set": {"init": {"url": "http://127.0.0.1:9/"}}}
    with pytest.raises(ConfigError, match="needs the external code"):
        make_config({}, stored=stored)
    with pytest.raises(ConfigError, match="give --set init="):
        make_config({"program": f"{path}:Own"}, stored=stored)


def test_a_config_file_within_a_stored_folder_may_set_no_more(
    command: Command, stranger: Stranger
) -> None:
    folder = Path("c/inner")
    folder.mkdir(parents=True)
    Path("c/sidecar.json").write_text("{}")
    Path("child.yaml").write_text("inherits: c/inner/x.yaml\n")
    watch(stranger)
    values = [{"inherits": "../../mine.yaml"}]
    values += [{k: v} for text in ("code", "address") for k, v in stranger.values(text).items()]
    for value in values:
        (folder / "x.yaml").write_text(yaml.safe_dump(value))
        if "form" in value:
            assert load_config("c/inner/x.yaml") == {"form": True}
            continue
        for path in ("c/inner/x.yaml", "child.yaml"):
            with pytest.raises(ConfigError, match=r"copy it out of \S+/c if you trust it"):
                load_config(path)
    for args in (["eval", "--config"], ["compile", "--config"], ["sweep"], ["show", "config"],
                 ["ask", "Who?", "--config"], ["tune", "--config"]):  # fmt: skip
        code, _, err = command(*args, "c/inner/x.yaml")
        assert code == 2, err
        assert len(err.splitlines()) == 1
    assert stranger.was_touched == []


def test_no_command_follows_what_a_card_says(
    command: Command, own: list[str], stranger: Stranger
) -> None:
    hostile = stranger.values("code")
    run = ["eval", "--program", "vanilla", *own, "--limit", 1]
    for name in ("before", "after"):
        code, _, err = command(*run, "--out", name)
        assert code == 0, err
    watch(stranger)
    # The card of a run, in its database and beside it.
    card = json.loads(Path("after/card.json").read_text())
    compiled_too = {**hostile, "program": "vanilla"}
    changed = {**card, **hostile, "config": hostile, "identity": compiled_too, "program": "x"}
    Path("after/card.json").write_text(json.dumps(changed))
    with sqlite3.connect("after/run.db") as db:
        text = json.dumps(changed)
        db.execute("UPDATE run SET value = ? WHERE name = 'card'", (text,))
    db.close()
    for args in (
        ["show", "run", "after"], ["list", "runs", "."], ["show", "after", "before"],
        ["verify", "after"],
        ["compare", "before", "after"], ["errors", "after"], ["score", "after"], ["report", "."],
        ["export", "after"], ["recommend", "before", "after"],
        [*run, "--out", "after"],
    ):  # fmt: skip
        _, _, err = command(*args)
        assert "Traceback" not in err, (args, err)
        assert stranger.was_touched == [], args


def test_the_list_of_what_a_folder_may_set_is_of_fields() -> None:
    assert set(MAY_SET) == {"program", "set", "form"} <= set(RunConfig.model_fields)
