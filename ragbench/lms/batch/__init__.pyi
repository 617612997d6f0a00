from .batch_lm import (
    BatchClient as BatchClient,
    BatchReply as BatchReply,
    Item as Item,
    batched as batched,
    client_of as client_of,
    most as most,
    took as took,
)
from .services import (
    MOST_BYTES as MOST_BYTES,
    MOST_ITEMS as MOST_ITEMS,
    RefusedError as RefusedError,
    UnsureError as UnsureError,
    service_of as service_of,
)
