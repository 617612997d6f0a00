"""LM specs: the value of `--lm`, with its provider, model and server.

local                       the default local model
local:qwen2.5-coder-1.5b    another model of `ragbench list models`
local:/path/to/model.gguf   any GGUF file
PROVIDER/MODEL@ADDRESS      a model at an address, such as http://127.0.0.1:8001/v1
PROVIDER/MODEL              a hosted model of any provider that LiteLLM knows, or any
                            OpenAI-compatible server by `api_base`
"""

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from dotenv import dotenv_values

from ragbench.errors import LMSetupError
from ragbench.lms.local import CATALOGUE, DEFAULT_LM, LocalSpec
from ragbench.redact import redact

#: Provider -> the environment variables that may hold its key. LiteLLM makes the calls to others.
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
#: Provider of LiteLLM -> its environment variables, if not PROVIDER_API_KEY. For AWS and Google, a
#: key would replace their credentials.
_OTHER_KEYS: dict[str, tuple[str, ...]] = {
    "bedrock": (),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "cohere_chat": ("COHERE_API_KEY", "CO_API_KEY"),
    "huggingface": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "sagemaker": (),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHER_API_KEY"),
    "vertex_ai": (),
}
#: Self-hosted servers, usually without a key. They constrain decoding by a schema.
SELF_HOSTED = frozenset({"hosted_vllm", "ollama", "ollama_chat"})
#: Variables that a `.env` file may set.
_FROM_DOTENV = re.compile(r"[A-Z][A-Z0-9_]*_API_KEY|HF_TOKEN")
_AT_ADDRESS = re.compile(r"@(?=https?://)", re.IGNORECASE)
_SECRET = re.compile(r"key|token|secret|passw|pwd|sig|auth|cred", re.I)
#: Characters that some tools leave around a key, such as `docker --env-file`.
_AROUND = " \"'`"
_FORMS = "local, local:NAME, local:/path/to/model.gguf or PROVIDER/MODEL"


@dataclass(frozen=True)
class HostedSpec:
    """A model behind a server. `api_base` is None for the provider's own address."""

    provider: str
    model: str
    api_base: str | None = None

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Environment variables that may hold the key."""
        default = (f"{self.provider.upper()}_API_KEY",)
        return {**_OTHER_KEYS, **PROVIDERS}.get(self.provider, default)

    @property
    def by_litellm(self) -> bool:
        """Return True if LiteLLM makes the calls, not an HTTP client of DSPy."""
        return self.provider not in PROVIDERS

    def key(self) -> str | None:
        """Return the provider's key, from the environment."""
        return key_in(*self.key_variables)

    def identity(self) -> str:
        """Return a name for ledger and cache that no other server's model shares."""
        place = f"@{place_of(self.api_base)}" if self.api_base else ""
        return f"{self.provider}/{self.model}{place}"


def key_in(*variables: str) -> str | None:
    """Return the key in the first of these environment variables that is set, or None.

    Raises:
        LMSetupError: The key contains characters that cannot be sent.
    """
    for name in variables:
        if key := os.environ.get(name):
            if not (key.isascii() and key.isprintable()):
                raise LMSetupError(f"{name} holds characters that no key has; set it again")
            if key.strip(_AROUND) != key:
                raise LMSetupError(f"{name} has blanks or quotation marks around it. Remove them.")
            return key
    return None


def parse_spec(text: str, *, api_base: str | None = None) -> LocalSpec | HostedSpec:
    """Parse the LM spec `text`. Its server is at `api_base` unless it names one after `@`.

    Args:
        text: The spec.
        api_base: Address of the server. None for the provider's own.

    Raises:
        LMSetupError: It is malformed, or names an unknown provider, model or file.
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
    named = _AT_ADDRESS.search(model)
    if named:
        if api_base:
            raise LMSetupError(f"{text!r} names its server; leave out api_base {api_base!r}")
        api_base = model[named.end() :]
        model = model[: named.start()]
    if provider not in PROVIDERS:
        _check_other(provider, model)
    # LiteLLM and others read these variables themselves. Without this, two servers would share
    # cached replies.
    if not api_base and provider == "openai":
        api_base = os.environ.get("OPENAI_BASE_URL")
    api_base = api_base or os.environ.get(f"{provider.upper()}_API_BASE")
    return HostedSpec(provider, model, checked_address(api_base or "", "api_base") or None)


def _check_other(provider: str, model: str) -> None:
    """Raise LMSetupError if LiteLLM does not know `provider`."""
    if provider in _OTHER_KEYS:  # known without LiteLLM, whose import takes seconds
        return
    import litellm

    providers = [str(getattr(entry, "value", entry)) for entry in litellm.provider_list]
    if provider in providers:
        return
    near = get_close_matches(provider, {*PROVIDERS, *providers}, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise LMSetupError(
        f"no LM provider {provider!r}; {hint}choose from {', '.join(PROVIDERS)}, any other of "
        f"LiteLLM, or openai/{model} with --api-base for another OpenAI-compatible server"
    )


def _local(name: str) -> LocalSpec:
    if name.endswith(".gguf") or "/" in name or os.sep in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise LMSetupError(f"no GGUF file {name!r}; give the path of one, or local")
        return LocalSpec(path.stem, path.resolve())
    models = [name for name, model in CATALOGUE.items() if "gguf" in model.paths()]
    if name not in models:
        raise LMSetupError(
            f"no local model {name!r}; choose from {', '.join(models)}, or a .gguf path"
        )
    return LocalSpec(name)


def checked_address(address: str, name: str) -> str:
    """Return the address of a server in the form of `normalised`. Empty if it is empty.

    Args:
        address: The address.
        name: Name of the option, for messages.

    Raises:
        LMSetupError: It is not an http address, or contains a password or a key, which would be
        stored.
    """
    if not address:
        return ""
    try:
        url = urlsplit(address)
        good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        good = False
    if not good:
        raise LMSetupError(
            f"malformed {name}; give the address of a server, such as http://127.0.0.1:8000/v1"
        )
    secret = any(_SECRET.search(field) for field, _ in parse_qsl(url.query, keep_blank_values=True))
    if "@" in url.netloc or secret or redact(address) != address:
        raise LMSetupError(
            f"{name} holds a password or a key; give the key by its environment variable"
        )
    return normalised(address)


def normalised(address: str) -> str:
    """Return `address` with lower-case scheme and host, without default port and end slashes."""
    url = urlsplit(address)
    host = url.hostname or ""
    if ":" in host:  # IPv6
        host = f"[{host}]"
    if url.port not in (None, {"http": 80, "https": 443}.get(url.scheme)):
        host = f"{host}:{url.port}"
    query = f"?{url.query}" if url.query else ""
    return f"{url.scheme}://{host}{url.path.rstrip('/')}{query}"


def place_of(address: str) -> str:
    """Return host, port, path and query of a `normalised` address: they identify a server."""
    return address.partition("://")[2]


def load_dotenv(path: Path = Path(".env")) -> None:
    """Set the keys that a `.env` file has and the environment lacks.

    Other variables are ignored: otherwise the author of the file could decide what code this
    process and its children load, and where keys are sent.
    """
    if path.is_file():
        text = StringIO(path.read_text(encoding="utf-8", errors="replace"))
        for name, value in dotenv_values(stream=text, interpolate=False).items():
            if value and "\0" in value:
                raise LMSetupError(f"{path}: the value of {name} holds a NUL byte; write it again")
            if value and _FROM_DOTENV.fullmatch(name):
                os.environ.setdefault(name, value)
