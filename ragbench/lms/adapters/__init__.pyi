from .conversation import (
    CLOSING as CLOSING,
    ToolConversation as ToolConversation,
)
from .lenient import (
    LenientChat as LenientChat,
    LenientJSON as LenientJSON,
    PartialReplyError as PartialReplyError,
    make_adapter as make_adapter,
)
