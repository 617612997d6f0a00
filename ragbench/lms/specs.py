"""LM specs: what a person writes after `--lm`, and what it says about provider, model and server.

local                       the default local model
local:qwen2.5-coder-1.5b    another model of `ragbench models list`
local:/path/to/model.gguf   any GGUF file
PROVIDER/MODEL              a hosted model, or any OpenAI-compatible server by `api_base`
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from ragbench.errors import LMSetupError
from ragbench.lms.catalogue import CATALOGUE, DEFAULT_LM

#: Provider -> the environment variables that may hold its key.
PROVIDERS: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "hosted_vllm": ("HOSTED_VLLM_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "ollama": ("OLLAMA_API_KEY",),
    "ollama_chat": ("OLLAMA_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "xai": ("XAI_API_KEY",),
}
#: Servers that a person runs, most often without a key; they constrain decoding by a schema.
SELF_HOSTED = frozenset({"hosted_vllm", "ollama", "ollama_chat"})
_FORMS = "local, local:NAME, local:/path/to/model.gguf or PROVIDER/MODEL"


@dataclass(frozen=True)
class LocalSpec:
    """A model that ragbench serves itself: one of the catalogue, or a GGUF file."""

    name: str
    gguf: Path | None = None


@dataclass(frozen=True)
class HostedSpec:
    """A model behind a server; `api_base` is None for the provider's own address."""

    provider: str
    model: str
    api_base: str | None = None

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Environment variables that may hold the key."""
        return PROVIDERS[self.provider]

    def key(self) -> str | None:
        """The provider's key, from the environment."""
        return next((os.environ[name] for name in self.key_variables if os.environ.get(name)), None)

    def identity(self) -> str:
        """A name for ledger and cache that no other server's model shares."""
        if self.api_base is None:
            return f"{self.provider}/{self.model}"
        url = urlsplit(self.api_base)
        port = f":{url.port}" if url.port else ""  # the netloc could hold a password
        return f"{self.provider}/{self.model}@{url.hostname}{port}{url.path.rstrip('/')}"


def parse_spec(text: str, *, api_base: str | None = None) -> LocalSpec | HostedSpec:
    """What the LM spec `text` says.

    Raises:
        LMSetupError: it is malformed, or names a provider, a model or a file that does not exist.
    """
    text = text.strip()
    if text == "local" or text.startswith("local:"):
        if api_base:
            raise LMSetupError(f"{text!r} has its own server; leave out api_base {api_base!r}")
        return _local(text.removeprefix("local").removeprefix(":") or DEFAULT_LM)
    provider, slash, model = text.partition("/")
    if not slash or not provider or not model:
        raise LMSetupError(
            f"malformed LM spec {text!r}; give {_FORMS}, such as openai/gpt-4.1-mini"
        )
    if provider not in PROVIDERS:
        near = get_close_matches(provider, PROVIDERS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise LMSetupError(
            f"no LM provider {provider!r}; {hint}choose from {', '.join(PROVIDERS)}, "
            f"or openai/{model} with --api-base for another OpenAI-compatible server"
        )
    return HostedSpec(provider, model, _checked_base(api_base))


def _local(name: str) -> LocalSpec:
    if name.endswith(".gguf") or "/" in name or os.sep in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise LMSetupError(f"no GGUF file {name!r}; give the path of one, or local")
        return LocalSpec(path.stem, path.resolve())
    names = [model.name for model in CATALOGUE.values() if model.kind == "lm"]
    if name not in names:
        raise LMSetupError(
            f"no local model {name!r}; choose from {', '.join(names)}, or a .gguf path"
        )
    return LocalSpec(name)


def _checked_base(api_base: str | None) -> str | None:
    if not api_base:
        return None
    try:
        url = urlsplit(api_base)
        good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        good = False
    if not good:
        raise LMSetupError(
            "malformed api_base; give the address of a server, such as http://127.0.0.1:8000/v1"
        )
    if url.username or url.password:
        raise LMSetupError("api_base holds a password; give the key by its environment variable")
    return api_base.rstrip("/")


def load_dotenv(path: Path = Path(".env")) -> None:
    """Set the variables of a `.env` file (lines of NAME=VALUE) that the environment lacks."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and name.strip().isidentifier():
            os.environ.setdefault(name.strip(), value.strip().strip("'\""))
