"""Export of finished runs as prediction files for the official scripts of data sets.

The files of HotpotQA and 2WikiMultiHopQA are one object with answers, supporting facts and evidence
by id. MuSiQue's file has one line per question. A failed question has no answer: the first two
formats omit it, and MuSiQue's, whose script requires every question, has a blank answer.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial

from ragbench.errors import ConfigError
from ragbench.metrics.support import predicted_facts, predicted_pids
from ragbench.outputs import Output
from ragbench.record import Record


def file_by_id(records: Sequence[Record], *, has_evidence: bool) -> str:
    """Return the content of a prediction file for the script of HotpotQA or 2WikiMultiHopQA.

    Args:
        records: Records of a run.
        has_evidence: Include the evidence, which only 2WikiMultiHopQA has.
    """
    content: dict[str, dict[str, object]] = {"answer": {}, "sp": {}}
    if has_evidence:
        content["evidence"] = {}
    for record in records:
        if record.failed:
            continue
        content["answer"][record.qid] = record.answer_text
        content["sp"][record.qid] = sorted(predicted_facts(record) or ())
        if has_evidence:
            facts = record.facts or ()
            triples = [fact for fact in facts if isinstance(fact, list | tuple) and len(fact) == 3]
            content["evidence"][record.qid] = triples
    return json.dumps(content, ensure_ascii=False)


def musique_file(records: Sequence[Record]) -> str:
    """Return the content of a prediction file for MuSiQue's script v1.0."""
    lines: list[str] = []
    for record in records:
        pids = record.extra.get("paragraph_pids", ())
        named = predicted_pids(record) or set()
        line = {
            "id": record.extra.get("twin_of", record.qid),
            "predicted_answer": record.answer_text,
            "predicted_support_idxs": [i for i, pid in enumerate(pids) if pid in named],
            "predicted_answerable": not record.failed,
        }
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines)


#: Name of the script's data set -> function that returns the content of its file.
FILES: dict[str, Callable[[Sequence[Record]], str]] = {
    "hotpotqa": partial(file_by_id, has_evidence=False),
    "2wiki": partial(file_by_id, has_evidence=True),
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
