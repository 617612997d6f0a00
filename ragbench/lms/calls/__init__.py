"""Calls to servers of models: sent, limited, tried again and counted."""

from ragbench.lms.calls.caller import PATIENCE_S, Breaker, Caller, empty_reply
from ragbench.lms.calls.client import Client, HostedClient
from ragbench.lms.calls.http import HttpRequest
from ragbench.lms.calls.limits import (
    GIVE_PRICE,
    UNBOUNDED_REPLY,
    Amount,
    Attempt,
    CallRefusedError,
    LimitReachedError,
    Limits,
    QuestionTime,
    QuestionTimeoutError,
    Reply,
    RequestUsage,
    Reservation,
    Scope,
    Unmetered,
    active,
    check_limits,
    check_price,
    keeps_limits,
    limit_reached,
    question_deadline,
    room,
    spending,
    stop,
    unmetered_reason,
    wait_for_calls,
)
from ragbench.lms.calls.rate import RateLimit, shared_rate_limit
from ragbench.lms.calls.server_capabilities import ServerCapabilities
from ragbench.lms.calls.services import (
    Server,
    ServerCalls,
    Service,
    TextsRefusedError,
    TooLargeError,
)
