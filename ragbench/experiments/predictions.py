"""Export of finished runs as prediction files for the official scripts of data sets.

The files of HotpotQA and 2WikiMultiHopQA are one object with answers, supporting facts and evidence
by id. MuSiQue's file has one line per question. An imported answer is written as in its own file. A
failed question has no answer: the first two formats omit it, and MuSiQue's, whose script requires
every question, has a blank answer.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from ragbench.errors import ConfigError
from ragbench.metrics.support import predicted_facts, predicted_pids
from ragbench.outputs import Output
from ragbench.record import Record


def _answer(record: Record) -> Any:
    return record.extra.get("answer_as_written", record.answer_text)


def _facts(record: Record) -> list[list[Any]]:
    """Return the sentences that the program names, in its order."""
    named = predicted_facts(record) or set()
    ordered: list[list[Any]] = []
    for item in record.citations or ():
        if isinstance(item, list | tuple) and tuple(item) in named and list(item) not in ordered:
            ordered.append(list(item))
    return ordered or list(map(list, sorted(named)))


def hotpotqa_file(records: Sequence[Record]) -> str:
    """Return the content of a prediction file for HotpotQA's script v1."""
    answered = []
    for record in records:
        if not record.failed:
            answered.append(record)
    answers = {record.qid: _answer(record) for record in answered}
    facts = {record.qid: _facts(record) for record in answered}
    return json.dumps({"answer": answers, "sp": facts}, ensure_ascii=False)


def wiki_file(records: Sequence[Record]) -> str:
    """Return the content of a prediction file for 2WikiMultiHopQA's script v1.1."""
    content = json.loads(hotpotqa_file(records))
    evidence: dict[str, list[list[str]]] = {}
    for record in records:
        if record.qid in content["answer"]:
            triples = []
            for fact in record.facts or ():
                if _is_triple(fact):
                    triples.append(list(fact))
            evidence[record.qid] = triples
    return json.dumps({**content, "evidence": evidence}, ensure_ascii=False)


def _is_triple(fact: Any) -> bool:
    return isinstance(fact, list | tuple) and len(fact) == 3


def musique_file(records: Sequence[Record]) -> str:
    """Return the content of a prediction file for MuSiQue's script v1.0."""
    lines: list[str] = []
    for record in records:
        pids = record.extra.get("paragraph_pids", ())
        named = predicted_pids(record) or set()
        answerable = record.extra.get("answerable_as_written", not record.failed)
        line = {
            "id": record.extra.get("twin_of", record.qid),
            "predicted_answer": "" if record.failed else _answer(record),
            "predicted_support_idxs": [i for i, pid in enumerate(pids) if pid in named],
            "predicted_answerable": answerable,
        }
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines)


#: Name of the script's data set -> function that returns the content of its file.
FILES: dict[str, Callable[[Sequence[Record]], str]] = {
    "hotpotqa": hotpotqa_file,
    "2wiki": wiki_file,
    "musique": musique_file,
}


def write_predictions(target: str, runs: Sequence[Sequence[Record]], output: Output) -> str:
    """Write the records of one run in the format of an official script.

    Args:
        target: Format, a key of `FILES`.
        runs: Records of each run.
        output: Output file.

    Returns:
        A sentence with the number of answers.

    Raises:
        ConfigError: `runs` does not have exactly one run.
    """
    if len(runs) != 1:
        raise ConfigError(f"--to {target} writes one run to a file, not {len(runs)}; name one")
    records = runs[0]
    output.write(FILES[target](records).encode("utf-8", "replace"))
    failed = sum(record.failed for record in records)
    unsupported = sum(not record.failed and not predicted_pids(record) for record in records)
    sentence = f"{output.path}: {len(records) - failed} answers of {len(records)} questions"
    if unsupported:
        sentence += f"; {unsupported} without supporting facts, since the program named none"
    return sentence
