"""`ragbench questions`: draw chains, write questions, validate them, and keep the valid ones.

OUT                     valid questions, in the format of `--data-file`
OUT.work/drafts.jsonl   every draft with its certificate, to resume the command
OUT.work/calls.db       every call, so that limits include earlier attempts
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from dspy import AdapterParseError, LMError

from ragbench.context import current, use
from ragbench.errors import DataError, LMUnavailableError
from ragbench.experiments.progress import SILENT, ProgressListener
from ragbench.experiments.questions.chains import PassageChain, find_chains
from ragbench.experiments.questions.validation import (
    Draft,
    ValidationReport,
    text_reason,
    validate_draft,
)
from ragbench.experiments.store import CALLS, CallJournal, locked
from ragbench.lms.adapters import make_adapter
from ragbench.lms.calls import LimitReachedError, check_limits
from ragbench.lms.lm import RagbenchLM
from ragbench.outputs import Output
from ragbench.passages import Passage
from ragbench.programs.core import predict
from ragbench.redact import redact
from ragbench.retrievers import Corpus
from ragbench.retrievers.factory import make_retriever
from ragbench.signatures import AnswerIfStated, DirectAnswer
from ragbench.signatures.writing import RewordQuestion, WriteQuestion

DRAFTS = "drafts.jsonl"
#: Maximum number of chains per requested question.
MOST_DRAFTS = 5
#: Number of missing questions per additional draft, since some are dropped.
SPARE = 4
#: Minimum length of a chain whose question is rewritten in natural words.
LONG = 3
#: Maximum number of passages outside the chain that must not answer the question.
OTHERS = 5
TYPES = {1: "single_hop", 2: "bridge"}


@dataclass(frozen=True)
class Request:
    """The number of questions, and their numbers of hops, used in turn."""

    questions: int = 60
    hops: tuple[int, ...] = (2, 2, 3, 2, 4, 1)
    seed: int = 42
    workers: int = 4
    adapter: str = "auto"


@dataclass
class GeneratedQuestions:
    """The kept questions, and the number of dropped drafts by reason."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    drafts: int = 0

    def lines(self) -> list[str]:
        """Summarize the kept and dropped questions."""
        lines = [f"{len(self.rows)} questions kept of {self.drafts} written"]
        for reason, count in self.dropped.most_common():
            lines.append(f"dropped: {count} {reason}")
        return lines


def write_questions(
    passages: Sequence[Passage],
    lm: RagbenchLM,
    request: Request,
    out: Path,
    watch: ProgressListener = SILENT,
    *,
    force: bool = False,
) -> GeneratedQuestions:
    """Write questions over `passages` to a file.

    Args:
        passages: Passages of the corpus.
        lm: LM that writes and reads.
        request: Number and kind of questions.
        out: Output file. Its working folder is `OUT.work`.
        watch: Receiver of progress updates.
        force: Overwrite a file that `ragbench questions` did not write.

    Returns:
        The kept questions and the reasons for dropped drafts.

    Raises:
        ConfigError: `ragbench questions` did not write `out`, and `force` is False.
        DataError: No two passages share a name, so that there is no chain.
        StoppedError: A spending limit was reached. Finished drafts are kept.
    """
    output = Output(out, "questions", force)
    output.check()
    work = out.with_name(f"{out.name}.work")
    work.mkdir(parents=True, exist_ok=True)
    with locked(work), use(current(), lm=lm, adapter=make_adapter(request.adapter, lm)):
        writer = _Writer(request, work / DRAFTS, passages)
        written = writer.written
        chains = find_chains(passages, request.hops, seed=request.seed)
        remaining = MOST_DRAFTS * request.questions
        with CallJournal(work / CALLS).open():
            while remaining > 0 and len(written.rows) < request.questions:
                # Draft the missing questions and a few more.
                missing = request.questions - len(written.rows)
                most = min(request.workers, remaining, missing + math.ceil(missing / SPARE))
                batch = list(islice(chains, most))
                if not batch:
                    break
                remaining -= len(batch)
                writer.certify_all(batch)
                for chain in batch:
                    writer.add_draft(chain)
                watch.count("questions", len(written.rows), request.questions)
    if not written.drafts:
        raise DataError("No two passages share a name, so there are no chains of passages.")
    if written.rows:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in written.rows)
        output.write(text.encode())
    return written


class _Writer:
    """Writes questions with calls of the LM, and remembers the drafts of earlier attempts.

    The LM is the writer, and the reader with and without passages.
    """

    def __init__(self, request: Request, drafts: Path, passages: Sequence[Passage]) -> None:
        self.written = GeneratedQuestions()
        self._retriever = make_retriever("bm25", Corpus(passages))
        self._reword = predict(RewordQuestion)
        self._request = request
        self._drafts = drafts
        self._write = predict(WriteQuestion)
        self._read = predict(AnswerIfStated)
        self._recall = predict(DirectAnswer)
        self._rows: dict[str, dict[str, Any]] = {}
        if drafts.is_file():
            for line in drafts.read_text("utf-8").splitlines():
                # Skip a truncated line. Its chain is drafted again.
                with suppress(ValueError, KeyError, AttributeError):
                    row = json.loads(line)
                    self._rows[row.pop("chain")] = row

    def certify_all(self, batch: Sequence[PassageChain]) -> None:
        """Write and validate the chains of `batch` without a draft, concurrently."""
        todo = [chain for chain in batch if chain.key not in self._rows]
        with ThreadPoolExecutor(self._request.workers) as pool:
            begun = [pool.submit(copy_context().run, self._certified, chain) for chain in todo]
            for chain, future in zip(todo, begun, strict=True):
                try:
                    row = future.result()
                except LimitReachedError:
                    check_limits()
                    raise
                except LMError as error:
                    raise LMUnavailableError(
                        f"The LM failed: {redact(str(error))}. Finished drafts are saved. Run the "
                        "same command to continue."
                    ) from error
                self._rows[chain.key] = row
                with self._drafts.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"chain": chain.key, **row}, ensure_ascii=False) + "\n")

    def _certified(self, chain: PassageChain) -> dict[str, Any]:
        try:
            reply = self._write(passages=list(map(str, chain.passages)), links=list(chain.links))
        except AdapterParseError:
            certificate = ValidationReport(reason="an unreadable reply")
            return {"draft": None, "certificate": asdict(certificate)}
        sentences = tuple(map(str, reply.sentences or ()))
        question = str(reply.question).strip()
        if len(chain.passages) >= LONG:
            with suppress(AdapterParseError):  # an unreadable reply leaves it unchanged
                words = self._reword(question=question, links=list(chain.links))
                question = str(words.natural_question or "").strip() or question
        draft = Draft(question, str(reply.answer).strip(), sentences)
        own = {passage.pid for passage in chain.passages}
        hits = self._retriever.search(question, k=OTHERS + len(own)) if question else ()
        others = [str(passage) for passage in hits if passage.pid not in own][:OTHERS]
        certificate = validate_draft(draft, chain, self._answer, others)
        return {"draft": asdict(draft), "certificate": asdict(certificate)}

    def _answer(self, question: str, passages: Sequence[str]) -> str:
        """Return the reader's answer, blank if its reply cannot be read."""
        try:
            if passages:
                reply = self._read(context=list(passages), question=question)
            else:
                reply = self._recall(question=question)
        except AdapterParseError:
            return ""
        return str(reply.answer or "").strip()

    def add_draft(self, chain: PassageChain) -> None:
        """Add the draft of `chain` to the kept or dropped ones."""
        written = self.written
        written.drafts += 1
        row = self._rows[chain.key]
        certificate = row["certificate"]
        reason = certificate["reason"]
        if not reason:
            draft = Draft(**{**row["draft"], "sentences": tuple(row["draft"]["sentences"])})
            reason = text_reason(draft, chain, [str(row["question"]) for row in written.rows])
        if not reason and len(written.rows) == self._request.questions:
            reason = "more than was asked for"
        if reason:
            written.dropped[reason] += 1
            return
        hops = len(chain.passages)
        digest = hashlib.sha256(chain.key.encode()).hexdigest()[:10]
        written.rows.append(
            {
                "id": f"q{digest}",
                "question": draft.question,
                "answer": draft.answer,
                "type": TYPES.get(hops, "compositional"),
                "hops": hops,
                "gold": [passage.pid for passage in chain.passages],
                "metadata": {
                    "sentences": list(draft.sentences),
                    "links": list(chain.links),
                    "certificate": certificate["checks"],
                },
            }
        )
