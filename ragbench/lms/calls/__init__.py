"""Calls to servers of models: sent, limited, tried again and counted."""

from ragbench.lms.calls.caller import (
    PATIENCE_S as PATIENCE_S,
    Answered as Answered,
    Breaker as Breaker,
    Caller as Caller,
    Retries as Retries,
)
from ragbench.lms.calls.client import Client as Client, HostedClient as HostedClient
from ragbench.lms.calls.http import HttpRequest as HttpRequest
from ragbench.lms.calls.limits import (
    GIVE_PRICE as GIVE_PRICE,
    UNBOUNDED_REPLY as UNBOUNDED_REPLY,
    Amount as Amount,
    Attempt as Attempt,
    CallRefusedError as CallRefusedError,
    LimitReachedError as LimitReachedError,
    Limits as Limits,
    QuestionTimeoutError as QuestionTimeoutError,
    Reply as Reply,
    Reservation as Reservation,
    Scope as Scope,
    Spent as Spent,
    active as active,
    check_price as check_price,
    question_time as question_time,
    reserved as reserved,
    room as room,
    spending as spending,
    stop as stop,
    stopped_by as stopped_by,
    wait_for_calls as wait_for_calls,
)
from ragbench.lms.calls.rate import RateLimit as RateLimit, shared_rate_limit as shared_rate_limit
from ragbench.lms.calls.services import (
    Server as Server,
    ServerCalls as ServerCalls,
    Service as Service,
)
