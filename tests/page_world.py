"""The files that the pages of the documentation use, and a model that knows half of the answers."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from ragbench.lms import factory
from ragbench.lms.calls import HostedClient
from ragbench.lms.local import LocalSpec
from ragbench.lms.specs import HostedSpec
from ragbench.retrievers.embedders.local import LocalEmbedder
from tests.fake_server import FakeServer, Hit, plausible
from tests.page_player import blocks_of
from tests.retrievers.conftest import WordEmbedder

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "index.md"
SEARCH = """
class Newest:
    def __init__(self, passages):
        self.passages = passages

    def search(self, query, k):
        return self.passages[-k:]
"""
SCORING = """
def short(example, prediction, trace=None):
    return len(prediction.answer.split()) <= 5
"""
TUNER = """
from dspy.teleprompt import LabeledFewShot

class Few(LabeledFewShot):
    pass
"""
NAMES = [
    "Arden", "Belmar", "Corvane", "Dunmoor", "Eastmere", "Falk",
    "Garrow", "Harwick", "Ilmen", "Jory", "Kesten", "Lorne",
]  # fmt: skip
TOWNS = [
    (name, f"{name} lies on the river {name[:3]}a. It was founded by Ines {name}.")
    for name in NAMES
]
QUESTIONS = {f"Which town lies on the river {name[:3]}a?": name for name in NAMES}


def knowing(answers: dict[str, str]) -> Callable[[Hit], str]:
    """Return a script that knows half of the answers, and all of them after demonstrations."""

    def reply(hit: Hit) -> str:
        text = str(plausible(hit))
        shown = hit.prompt.count("[[ ## question ## ]]") > 2
        for number, (question, answer) in enumerate(answers.items()):
            asked = hit.prompt.rfind(question) > hit.prompt.rfind("[[ ## question ## ]]")
            if asked and (shown or number % 2):
                text = text.replace("some answer", answer)
        return text

    return reply


def hotpot(i: int, question: str, answer: str) -> dict[str, Any]:
    """Return a question in the layout of HotpotQA, with two passages of its own."""
    pair = (TOWNS[i], TOWNS[i - 1])
    return {
        "_id": f"h{i}", "question": question, "answer": answer, "type": "bridge", "level": "easy",
        "supporting_facts": [[TOWNS[i][0], 0]],
        "context": [[title, [text]] for title, text in pair],
    }  # fmt: skip


def write_files() -> None:
    """Write the files that the pages name into the working folder."""
    rows = [hotpot(i, *pair) for i, pair in enumerate(QUESTIONS.items())]
    for name in ("dev.json", "hotpot_dev_distractor_v1.json"):
        _json(name, rows)
    lines = [f"c{i},{question},{town}" for i, (question, town) in enumerate(QUESTIONS.items())]
    for name in ("questions.csv", "mine.csv"):
        Path(name).write_text("\n".join(["id,question,answer", *lines]) + "\n")
    lines = [f"p{i},{title},{text}" for i, (title, text) in enumerate(TOWNS)]
    Path("passages.csv").write_text("\n".join(["id,title,text", *lines]) + "\n")
    own = [
        {"id": f"q{i}", "question": question, "answer": town}
        for i, (question, town) in enumerate(QUESTIONS.items())
    ]
    with_gold = [json.dumps({**row, "gold": [f"p{i}"]}) + "\n" for i, row in enumerate(own)]
    Path("gold.jsonl").write_text("".join(with_gold))
    ranked = [f"q{i} Q0 p{i} 1 0.9 other\n" for i in range(len(NAMES))]
    Path("other.trec").write_text("".join(ranked))
    for name in ("questions.jsonl", "q.jsonl"):
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in own))
    _json("questions.json", own)
    _json("corpus.json", [{"title": title, "text": text} for title, text in TOWNS])
    _json("chunks.json", [f"{i}:{text}" for i, (_, text) in enumerate(TOWNS)])
    Path("dev.jsonl").write_text("".join(json.dumps(musique(i)) + "\n" for i in range(len(NAMES))))
    _json("hotpot_pred.json", {"answer": {row["_id"]: row["answer"] for row in rows}, "sp": {}})
    for name in ("contracts", "documents", "my-documents"):
        Path(name).mkdir()
        for town in NAMES[:4]:
            Path(name, f"{town}.txt").write_text(f"{town} was founded by Ines {town} in 1702.\n")
            Path(name, f"Ines {town}.txt").write_text(f"Ines {town} was born in Lorne.\n")
        Path(name, "lease.txt").write_text("The notice is three months.\n")
        Path(name, "towns.txt").write_text("\n\n".join(text for _, text in TOWNS) + "\n")
    module = next(
        block for block in blocks_of(INDEX.read_text("utf-8")) if block.language == "python"
    )
    Path("rag.py").write_text(module.code)
    Path("search.py").write_text(SEARCH)
    Path("scoring.py").write_text(SCORING)
    Path("tuner.py").write_text(TUNER)
    Path("examples").symlink_to(ROOT / "examples")


def musique(i: int) -> dict[str, Any]:
    """Return a question in the layout of MuSiQue."""
    question, answer = list(QUESTIONS.items())[i]
    paragraphs = [
        {"idx": n, "title": title, "paragraph_text": text, "is_supporting": n == 0}
        for n, (title, text) in enumerate([TOWNS[i], TOWNS[i - 1]])
    ]
    part = {"question": question, "answer": answer, "paragraph_support_idx": 0}
    return {
        "id": f"2hop__{i}", "question": question, "answer": answer, "answer_aliases": [],
        "answerable": True, "paragraphs": paragraphs, "question_decomposition": [part],
    }  # fmt: skip


def write_hub(cache: Path) -> None:
    """Write HotpotQA into the cache, as if it came from the hub."""
    folder = cache / "data" / "hotpotqa--hotpot_qa" / "distractor"
    folder.mkdir(parents=True)
    rows = []
    for i, pair in enumerate(QUESTIONS.items()):
        row = hotpot(i, *pair)
        titles, sentences = zip(*row["context"], strict=True)
        facts = list(zip(*row["supporting_facts"], strict=True))
        row["id"] = row.pop("_id")
        row["context"] = {"title": titles, "sentences": sentences}
        row["supporting_facts"] = {"title": facts[0], "sent_id": facts[1]}
        rows.append(json.dumps(row) + "\n")
    (folder / "validation.jsonl").write_text("".join(rows[:6]))
    (folder / "train.jsonl").write_text("".join(rows[6:]))


def write_runs() -> None:
    """Write the two recorded runs of the package."""
    ZipFile(ROOT / "ragbench" / "cli" / "demo.zip").extractall()


def reply_of(hit: Hit) -> str:
    """Reply as a model that knows half of the answers, and ends the loops of DSPy."""
    text = knowing(QUESTIONS)(hit)
    return text.replace("some next_tool_name", "finish").replace("some next_tool_args", "{}")


def connect(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `server` be every provider and every local model."""

    def local(spec: LocalSpec) -> Any:
        address = server.url.removesuffix("/v1")
        return SimpleNamespace(
            spec=spec, key="none", url=lambda: address, stop=lambda: None,
            runs_at=lambda url: True,
        )  # fmt: skip

    def client(spec: HostedSpec, **settings: Any) -> HostedClient:
        made = HostedClient(HostedSpec("openai", spec.model, server.url), **settings)
        made.provider = spec.provider  # its prices are known
        return made

    server.script = reply_of
    monkeypatch.setattr(LocalEmbedder, "_embed", WordEmbedder()._embed)
    monkeypatch.setattr(LocalEmbedder, "identity", "local:words")
    monkeypatch.setattr(factory, "shared_server", local)
    monkeypatch.setattr(factory, "HostedClient", client)
    monkeypatch.setattr(factory, "LiteLLMClient", client)
    for provider in ("OPENAI", "MISTRAL", "AZURE"):
        monkeypatch.setenv(f"{provider}_API_KEY", "sk-of-the-test")
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")


def _json(name: str, value: object) -> None:
    Path(name).write_text(json.dumps(value))
