"""The memory of MemoRAG, without a model trained for it: a gist of each stretch of the corpus.

Qian et al. 2024 (arXiv:2409.05591) compress the corpus into the cache of a long-context model. The
lite form of their code asks an LM for a gist of every 4,096 tokens, one call each; these gists and
the vectors of the passages are the index.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from ragbench.knobs import Knobs
from ragbench.retrievers.base import Progress
from ragbench.retrievers.lm_index.base import NONE, LMIndex, LMIndexSettings, best_first
from ragbench.retrievers.lm_index.replies import IndexLM, at_once
from ragbench.signatures import Summarize
from ragbench.tokens import estimate_tokens, first_tokens


class GistSettings(LMIndexSettings):
    """What decides the gists of a corpus."""

    stretch_tokens: int = Field(4096, ge=50, le=100_000, description="tokens of a gist's passages")
    gist_words: int = Field(380, ge=10, le=5000, description="words of a gist (512 tokens)")


class GistIndex(LMIndex):
    """Gists of consecutive passages."""

    name = "gists"
    Settings: ClassVar[type[Knobs]] = GistSettings
    signatures = (Summarize,)
    by_passage = False
    arrays = ("gist_vectors",)
    values: ClassVar[Mapping[str, Any]] = {"gists": list[str]}
    lengths: ClassVar[Mapping[str, str]] = {"gists": "gists"}
    gists: Sequence[str] = ()
    gist_vectors = NONE

    def memory(self, question: str, *, max_tokens: int) -> list[str]:
        """The gists in order; where they do not fit, those nearest to `question`."""
        sizes = [estimate_tokens(gist) for gist in self.gists]
        rows = list(range(len(self.gists)))
        if sum(sizes) > max_tokens:
            kept, left = [], max_tokens
            for row in best_first(self.cosines(question, self.gist_vectors), len(self.gists)):
                if sizes[row] <= left:
                    kept.append(row)
                    left -= sizes[row]
            rows = sorted(kept)
        return [self.gists[row] for row in rows]

    def _read(self, lm: IndexLM, progress: Progress | None) -> list[str]:
        def gist(texts: list[str]) -> str:
            reply = lm.ask(Summarize, texts=texts, max_words=self.settings.gist_words)
            written = str(reply.values.get("summary") or "").strip()
            return written or first_tokens(" ".join(texts), self.settings.gist_words)

        return at_once(gist, list(self._stretches()), progress, "gists of passages")

    def _join(self, read: list[str], lm: IndexLM, progress: Progress | None) -> None:
        self.gists = read
        self.gist_vectors = self._embedded(read)

    def _stretches(self) -> Iterator[list[str]]:
        """The texts of consecutive passages that fit together, at least one each."""
        stretch: list[str] = []
        left = self.settings.stretch_tokens
        for passage in self.corpus:
            size = estimate_tokens(str(passage))
            if stretch and size > left:
                yield stretch
                stretch, left = [], self.settings.stretch_tokens
            stretch.append(str(passage))
            left -= size
        if stretch:
            yield stretch
