from .conversation import CLOSING as CLOSING, ToolConversation as ToolConversation
from .lenient import (
    LenientChat as LenientChat,
    LenientJSON as LenientJSON,
    PartialReplyError as PartialReplyError,
    adapter_name as adapter_name,
    make_adapter as make_adapter,
)
