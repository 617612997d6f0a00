"""Sentence models on this machine by ONNX Runtime, without torch.

Mean of the last hidden states over the attention mask, then unit length: as sentence-transformers
runs all-MiniLM-L6-v2 (Reimers and Gurevych 2019, arXiv:1908.10084). That one cuts a text after 256
tokens. Here a longer text is read in windows of 256, and the mean goes over the first 64 of them.
"""

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import ModelError, needs_extra
from ragbench.lms.local import DEFAULT_EMBEDDER, ensure
from ragbench.record import Call
from ragbench.retrievers.base import Progress
from ragbench.retrievers.embedders.base import Embedder, Vectors, local_call, normalized

_MAX_TOKENS = 256  # per window
_MAX_WINDOWS = 64  # per text: 16,384 tokens
#: Small batches of equal lengths need the least padding. Larger ones are not faster on a CPU.
_BATCH = 8
#: Tokenised at once: enough to sort well, few enough to keep memory flat.
_AT_ONCE = 8192


class LocalEmbedder(Embedder):
    """An ONNX sentence model and its tokeniser. `name` is of the model store or a folder."""

    def __init__(self, name: str = "") -> None:
        super().__init__(f"local:{name}" if name else "local")
        with needs_extra("embedder=local"):  # before any download
            import onnxruntime
            from tokenizers import Tokenizer
        self._name = name
        self._open_session = onnxruntime.InferenceSession
        self._open_tokenizer = Tokenizer.from_file
        if self._is_folder and not all(path.is_file() for path in self._files):
            raise ModelError(f"{name} must hold model.onnx and tokenizer.json")

    @property
    def _is_folder(self) -> bool:
        return "/" in self._name or "\\" in self._name

    @cached_property
    def _files(self) -> tuple[Path, Path]:
        """Paths of the model and of its tokenizer. A named model is downloaded at first use."""
        if self._is_folder:
            folder = Path(self._name).expanduser()
            return folder / "model.onnx", folder / "tokenizer.json"
        files = ensure(self._name or DEFAULT_EMBEDDER)
        if "tokenizer" not in files:
            raise ModelError(f"{self._name} is not an embedder; use local for the default one")
        return files["model"], files["tokenizer"]

    @property
    def identity(self) -> str:
        model = self._files[0]
        return f"local:{self._name or model.parent.name}:{model.stat().st_size}:windows"

    @cached_property
    def _session(self) -> Any:
        model = self._files[0]
        try:
            session = self._open_session(str(model), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own classes have no common base but this
            raise ModelError(f"{model} is not an ONNX model: {type(error).__name__}") from None
        inputs = {entry.name for entry in session.get_inputs()}
        if unknown := inputs - {"input_ids", "attention_mask", "token_type_ids"}:
            raise ModelError(f"{model} has unsupported inputs: {', '.join(unknown)}")
        return session

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = self._open_tokenizer(str(self._files[1]))
        tokenizer.enable_truncation(_MAX_TOKENS)
        tokenizer.no_padding()
        return tokenizer

    def token_vectors(self, texts: Sequence[str]) -> list[Vectors]:
        """Return unit vectors `(tokens, d)` of the tokens of each text, without special tokens.

        The caller files the call in the ledger.
        """
        windows: list[list[Vectors]] = [[] for _ in texts]
        for rows, encodings, hidden, _ in self._runs(texts):
            for row, states, encoding in zip(rows, hidden, encodings, strict=True):
                special = np.array(encoding.special_tokens_mask, dtype=bool)
                windows[row].append(normalized(states[: len(special)][~special]))
        return list(map(np.concatenate, windows))

    def _embed(self, texts: Sequence[str], progress: Progress | None) -> tuple[Vectors, list[Call]]:
        start = time.perf_counter()
        tokens = 0
        sums = np.zeros((len(texts), 0), dtype=np.float32)
        seen: set[int] = set()
        for rows, _, hidden, mask in self._runs(texts):
            if not sums.shape[1]:
                sums = np.zeros((len(texts), hidden.shape[2]), dtype=np.float32)
            np.add.at(sums, rows, (hidden * mask[..., None].astype(np.float32)).sum(axis=1))
            tokens += int(mask.sum())
            seen.update(rows)
            if progress:
                progress(len(seen), len(texts))
        return normalized(sums), [local_call(self.spec, start, tokens)]

    def _runs(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[Any], Any, Any]]:
        """Yield batches of windows of similar length: their texts and encodings.

        Also yields the last hidden states `(n, length, d)` and the attention mask `(n, length)`.
        """
        for start in range(0, len(texts), _AT_ONCE):
            encodings = self._tokenizer.encode_batch(list(texts[start : start + _AT_ONCE]))
            windows = []
            for row, encoding in enumerate(encodings, start=start):
                for window in (encoding, *encoding.overflowing[: _MAX_WINDOWS - 1]):
                    windows.append((row, window))
            windows.sort(key=lambda entry: len(entry[1].ids))
            for batch_start in range(0, len(windows), _BATCH):
                batch = windows[batch_start : batch_start + _BATCH]
                rows = [row for row, _ in batch]
                encoded = [window for _, window in batch]
                # The last one is the longest.
                ids = np.zeros((len(batch), len(encoded[-1].ids)), dtype=np.int64)
                mask = np.zeros_like(ids)
                for row, window in enumerate(encoded):
                    ids[row, : len(window.ids)] = window.ids
                    mask[row, : len(window.ids)] = 1
                arrays = {
                    "input_ids": ids,
                    "attention_mask": mask,
                    "token_type_ids": np.zeros_like(ids),
                }
                inputs = [entry.name for entry in self._session.get_inputs()]
                hidden = self._session.run(None, {name: arrays[name] for name in inputs})[0]
                yield rows, encoded, hidden, mask
