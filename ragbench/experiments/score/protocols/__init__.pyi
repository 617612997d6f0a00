from .catalog import (
    PROTOCOLS as PROTOCOLS,
    get_protocol as get_protocol,
)
from .protocol import (
    Protocol as Protocol,
    apply as apply,
)
