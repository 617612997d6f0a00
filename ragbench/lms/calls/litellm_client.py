"""The client for providers that DSPy reaches through LiteLLM: azure, bedrock, mistral, cohere, ...

Its calls pass the same limits, retries and ledger as all others. LiteLLM brings its own HTTP: the
bounds on a reply's size and the refusal of redirects of `transport` do not hold for it, and its
rate-limit headers are not seen, so that the rate follows refusals (HTTP 429) alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dspy.lm15 import Request, Response

from ragbench.context import current
from ragbench.dspy_internals import LiteLLMEngine
from ragbench.errors import LMSetupError
from ragbench.lms.calls.completion import attempt
from ragbench.lms.specs import OTHER_PROVIDERS, HostedSpec

#: Providers whose every customer has an address of their own.
_OWN_ADDRESS = frozenset({"azure", "azure_ai"})


class LiteLLMClient:
    """A model behind any provider of LiteLLM."""

    def __init__(self, spec: HostedSpec, *, timeout: float) -> None:
        self.spec, self.provider, self._timeout = spec, spec.provider, timeout

    def prepare(self) -> None:
        """Nothing: the server is not ours."""

    def complete(self, request: Request) -> Response:
        """One attempt; see `Client`."""
        named = replace(request, model=f"{self.spec.provider}/{self.spec.model}")
        return attempt(self._engine().complete, named)

    def rate_limits(self) -> Mapping[str, Sequence[str]]:
        """None: LiteLLM does not hand them on."""
        return {}

    def check(self) -> None:
        """See `Client`; looks for the key and the address, and sends nothing."""
        spec = self.spec
        import litellm  # takes seconds

        missing: list[str] = []
        if spec.provider in _OWN_ADDRESS and spec.api_base is None:
            missing = [f"{spec.provider.upper()}_API_BASE (or --api-base)"]
        if spec.api_base is None and spec.provider not in OTHER_PROVIDERS:
            environment = litellm.validate_environment(f"{spec.provider}/{spec.model}")
            missing += list(environment["missing_keys"])
        elif spec.api_base is None and spec.key_variables and not spec.key():
            missing.append(" or ".join(spec.key_variables))
        if missing:
            raise LMSetupError(f"{spec.provider} needs {' and '.join(missing)} in the environment")

    def close(self) -> None:
        """Nothing: LiteLLM's connections are those of the process."""

    def _engine(self) -> LiteLLMEngine:
        spec, options = self.spec, dict[str, str]()
        if spec.api_base:
            options["api_base"] = spec.api_base
        # A server of one's own may want no key. AWS and Google have credentials instead, in whose
        # place a key would be sent.
        if key := spec.key() or ("none" if spec.api_base and spec.key_variables else None):
            options["api_key"] = key
        seconds = self._timeout
        deadline = current().deadline
        if deadline is not None:
            seconds = max(0.001, min(seconds, deadline.at - time.monotonic()))
        return LiteLLMEngine(timeout=seconds, **options)
