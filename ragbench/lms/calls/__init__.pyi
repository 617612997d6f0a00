from .caller import (
    Answered as Answered,
    Caller as Caller,
    CallSpec as CallSpec,
    Elsewhere as Elsewhere,
    send as send,
)
from .circuit_breaker import (
    PATIENCE_S as PATIENCE_S,
    Breaker as Breaker,
)
from .client import (
    Client as Client,
    HostedClient as HostedClient,
    LocalClient as LocalClient,
)
from .counting import (
    count as count,
    file as file,
)
from .embedding_client import (
    Post as Post,
    Server as Server,
    ServerCalls as ServerCalls,
    Service as Service,
)
from .engine import (
    EVENTS as EVENTS,
    UNBOUNDED_REPLY as UNBOUNDED_REPLY,
    AsyncMeteredEngine as AsyncMeteredEngine,
    Capabilities as Capabilities,
    Meter as Meter,
    MeteredEngine as MeteredEngine,
    prompt_tokens as prompt_tokens,
)
from .litellm_client import (
    LiteLLMClient as LiteLLMClient,
)
from .middleware import (
    Attempt as Attempt,
    Middleware as Middleware,
    Reply as Reply,
)
from .rate_limit import (
    shared_rate_limit as shared_rate_limit,
)
from .refusal import (
    CallRefusedError as CallRefusedError,
    LimitReachedError as LimitReachedError,
    refuse as refuse,
)
from .retry import (
    Retries as Retries,
)
from .scope import (
    Scope as Scope,
    question_time as question_time,
    reserved as reserved,
)
from .spend_limits import (
    GIVE_PRICE as GIVE_PRICE,
    Amount as Amount,
    Limits as Limits,
    Reservation as Reservation,
    Spent as Spent,
    active as active,
    check_price as check_price,
    cost_is_limited as cost_is_limited,
    room as room,
    spending as spending,
    stopped_by as stopped_by,
    wait_for_calls as wait_for_calls,
)
from .transport import (
    StoredReply as StoredReply,
)
