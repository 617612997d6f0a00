"""The core without any extra: it asks a server of one's own; what is missing is one line."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from ragbench.errors import EXTRA_OF, INSTALL
from tests.fake_server import FakeServer
from tests.kills import write_questions

ROOT = Path(__file__).parents[2]
#: All but what packages of the core need themselves.
REFUSED = sorted({*EXTRA_OF} - {"huggingface_hub", "tokenizers", "jinja2"})

#: Runs commands in a process in which no package of an extra can be imported.
CORE = """
import contextlib, importlib.metadata, importlib.util, io, json, sys

missing, commands = map(json.loads, sys.argv[1:])

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: (
    None if name.partition(".")[0] in missing else find_spec(name, *more)
)
version = importlib.metadata.version
def refusing(name):
    if name in missing:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = refusing

from ragbench.cli.main import main
from ragbench.cli.printing import flush
found = []
for words in commands:
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["ragbench", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    flush()
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


def test_the_core_evaluates_and_names_what_is_missing(tmp_path: Path) -> None:
    data = str(write_questions(tmp_path, 12))
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a.pdf").write_bytes(b"%PDF-1.4")
    (tmp_path / "q.parquet").write_text("question,answer\nWhich town?,Town 1\n")
    with FakeServer() as server:
        model = ["--model", "openai/fake", "--model-base-url", server.url, "--adapter", "chat"]
        given = ["--dataset", "jsonl", "--data-file", data, *model]
        good = [
            ["list", "programs"],
            ["eval", "--program", "ircot", *given, "--out", "runs/a"],
            ["eval", "--program", "vanilla", "--limit", "3", *model, "--out", "runs/b"],
            ["show", "runs/a", "runs/b"],
            ["export", "runs/a", "--to", "csv", "-o", "a.csv"],
            ["compile", "--program", "vanilla", *given, "--train-limit", "3", "--val-limit", "2",
             "--out", "compiled/a"],
        ]  # fmt: skip
        bad = [
            ("local", ["eval", "--model", "local", "--limit", "1"]),
            ("data", ["eval", "--dataset", "jsonl", "--data-file", "q.parquet", *model]),
            ("data", ["eval", "--dataset", "hotpotqa", "--hub", *model]),
            ("data", ["export", "runs/a", "--to", "parquet", "-o", "a.parquet"]),
            ("tune", ["tune", "--program", "vanilla", *given]),
            ("tune", ["compile", "--program", "vanilla", "--optimizer", "optuna", *given]),
            ("dense", ["eval", "--retriever", "dense", *given]),
            ("dense", ["eval", "--program", "tree_rag", *given]),
            ("documents", ["ask", "Which?", "--docs", "papers", *model[:4]]),
        ]
        arguments = [json.dumps(each) for each in (REFUSED, [*good, *(words for _, words in bad)])]
        done = subprocess.run(
            [sys.executable, "-c", CORE, *arguments],
            capture_output=True, text=True, cwd=tmp_path, check=False,
            env={**os.environ, "OPENAI_API_KEY": "none", "RAGBENCH_CACHE": str(tmp_path / "c")},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    for words, (code, _, err) in zip(good, results, strict=False):
        assert code == 0, (words, err)
    assert "| ircot" in results[1][1]
    for (extra, words), (code, _, err) in zip(bad, results[len(good) :], strict=True):
        assert code == 2, (words, err)
        assert INSTALL.format(extra=extra) in err, err
        assert len([line for line in err.splitlines() if "questions to ask" not in line]) == 1


def test_every_extra_that_is_named_exists_and_all_holds_those_of_the_core() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    [everything] = extras["all"]
    apart = {"ray", "spacy"}
    for package, extra in EXTRA_OF.items():
        assert extra in everything or extra in apart
        names = {"bs4": "beautifulsoup4", "faiss": "faiss-cpu", "sklearn": "scikit-learn"}
        assert names.get(package, package).replace("_", "-") in " ".join(extras[extra]), package
