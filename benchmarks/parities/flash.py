"""FlashRAG's own loop of IRCoT, over given thoughts and given findings."""

import importlib
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.parities.parts import reachable
from ragbench.retrievers import Corpus, Passage, make_retriever
from ragbench.sentences import split_sentences

REPOSITORY, FILES = "github.com/RUC-NLPIR/FlashRAG", "flashrag/pipeline/active_pipeline.py"
_EMPTY = "torch transformers vllm faiss datasets fastchat openai sglang sklearn langid chonkie nltk"
_EMPTY += " rouge rouge_chinese jieba modelscope PIL termcolor"
_ROUNDS = 5
PARTS = ("shown", "queries", "passages", "answer")


def parts(checkout: Path, world: Mapping[str, Any]) -> dict[str, Any]:
    """The loop."""
    reachable(checkout, *_EMPTY.split())
    code: Any = importlib.import_module("flashrag.pipeline.active_pipeline")
    return {part: lambda given, part=part: _loop(code, given)[part] for part in PARTS}


def _loop(code: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    findings, thoughts = list(given["findings"]), list(given["thoughts"])
    shown: list[list[str]] = []
    queries: list[str] = []

    def search(texts: Sequence[str], **_: Any) -> Any:
        queries.append(texts[0])
        found = findings.pop(0)
        return [[{"id": pid} for pid, _ in found]], [[score for _, score in found]]

    def prompt(*, retrieval_result: Any, **_: Any) -> str:
        shown.append([row["id"] for row in retrieval_result])
        return "a prompt"

    loop = object.__new__(code.IRCOTPipeline)
    loop.max_iter = _ROUNDS
    loop.retriever = SimpleNamespace(batch_search=search)
    loop.generator = SimpleNamespace(
        generate=lambda prompts, stop: [thoughts.pop(0) for _ in prompts]
    )
    loop.prompt_template = SimpleNamespace(get_string=prompt)
    item = SimpleNamespace(question=given["question"])
    item.update_output = lambda name, value: setattr(item, name, value)
    loop.run_batch([item])
    code.ircot_pred_parse([item])
    found = [row["id"] for row in item.retrieval_result]
    return {"shown": shown, "queries": queries, "passages": sorted(found), "answer": item.pred}


def world(path: Path) -> dict[str, Any]:
    """The paragraphs of a corpus in HippoRAG's layout."""
    rows = json.loads(path.read_text("utf-8"))
    return {"texts": [f"{row['title']}. {' '.join(row['text'].split())}" for row in rows]}


def cases(world: Mapping[str, Any], questions: Sequence[str]) -> dict[str, list[Any]]:
    """A chain of sentences of the corpus for each question; half of them end with an answer."""
    texts = world["texts"]
    search = make_retriever("bm25", Corpus([Passage(str(i), "", t) for i, t in enumerate(texts)]))
    rng = random.Random(0)
    last = sorted({split_sentences(text)[-1].rstrip(".").lower() for text in texts if text})
    sentences = rng.sample(last, _ROUNDS * len(questions))  # none twice: such a one is asked again
    made = []
    for number, question in enumerate(questions):
        chain = sentences[_ROUNDS * number : _ROUNDS * (number + 1)]
        if number % 2:
            chain[rng.randrange(1, _ROUNDS)] = f"So the answer is: {number}"
        findings = [
            [[p.pid, round(p.score, 6)] for p in search.search(text, k=5)]
            for text in [question, *chain]
        ]
        made.append({"question": question, "thoughts": chain, "findings": findings})
    return dict.fromkeys(PARTS, made)
