"""The parts of DSPy that are not its public interface, imported here and nowhere else.

Public are the names in `dspy` and `dspy.lm15`. Everything else may move or go in any release:
docs/architecture.md says what each name here is needed for, and with it what to check in another
version. `ruff` refuses such imports elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import dspy.adapters.utils as adapter_utils
import dspy.evaluate.evaluate as evaluate_module
import dspy.predict.parallel as parallel_module
import dspy.teleprompt.mipro_optimizer_v2 as mipro_module
from dspy._vendor.lm15.providers.base import HttpResponse
from dspy._vendor.lm15.rate_limits import capture_rate_limits
from dspy._vendor.lm15.transports import (
    ReadTimeout,
    StdlibTransport,
    TransportError,
    TransportRequest,
)
from dspy._vendor.lm15.transports._http11 import ResponseHeadParser
from dspy._vendor.lm15.transports._proxy import proxy_route_for
from dspy._vendor.lm15.transports._url import parse_url
from dspy.adapters.utils import apply_output_field_defaults, parse_value
from dspy.clients.call_result import usage_dict
from dspy.clients.costs import estimate_cost
from dspy.clients.engines.litellm_engine import LiteLLMEngine
from dspy.clients.engines.lm15_engine import LM15Engine
from dspy.clients.errors import wrap_error
from dspy.clients.lm import _is_openai_reasoning_model as is_openai_reasoning_model
from dspy.clients.model_metadata import model_info, rate
from dspy.experimental import Choice, Noul
from dspy.predict.rlm import SUB_AGENT_INSTRUCTIONS, _strip_code_fences as strip_code_fences
from dspy.primitives.repl_types import REPLHistory
from dspy.propose import GroundedProposer
from dspy.utils.callback import BaseCallback
from dspy.utils.parallelizer import ParallelExecutor
from pydantic import TypeAdapter

__all__ = [
    "SUB_AGENT_INSTRUCTIONS",
    "BaseCallback",
    "Choice",
    "GroundedProposer",
    "HttpResponse",
    "LM15Engine",
    "LiteLLMEngine",
    "Noul",
    "REPLHistory",
    "ReadTimeout",
    "ResponseHeadParser",
    "StdlibTransport",
    "TransportError",
    "TransportRequest",
    "apply_output_field_defaults",
    "capture_rate_limits",
    "estimate_cost",
    "is_openai_reasoning_model",
    "mipro_module",
    "model_info",
    "parse_url",
    "parse_value",
    "proxy_route_for",
    "rate",
    "strip_code_fences",
    "usage_dict",
    "without_resubmission",
    "wrap_error",
]


@functools.lru_cache(maxsize=256)
def _kept_type_adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _type_adapter(kind: Any) -> TypeAdapter[Any]:
    # Of a class alone: unions that differ in order are equal, and not the same to pydantic.
    return _kept_type_adapter(kind) if isinstance(kind, type) else TypeAdapter(kind)


# DSPy makes one for every value in every prompt: an eighth of the time of a cached call.
adapter_utils.TypeAdapter = _type_adapter


@functools.wraps(ParallelExecutor)
def _without_timeout(*args: Any, **kwargs: Any) -> Any:
    return ParallelExecutor(*args, **{**kwargs, "timeout": 0})


@contextlib.contextmanager
def without_resubmission() -> Iterator[None]:
    """Inside the block, `dspy.Evaluate` and `dspy.Parallel` ask no slow question a second time.

    They resubmit one that takes 120 s when few are left, which spends twice and can outlive the
    run, and offer no setting for it.
    """
    modules: list[Any] = [evaluate_module, parallel_module]
    before = [module.ParallelExecutor for module in modules]
    for module in modules:
        module.ParallelExecutor = _without_timeout
    try:
        yield
    finally:
        for module, original in zip(modules, before, strict=True):
            module.ParallelExecutor = original
