from .adapters import make_adapter as make_adapter
from .factory import make_lm as make_lm
from .lm import RagbenchLM as RagbenchLM, configure_cache as configure_cache
from .local import LocalSpec as LocalSpec
from .prices import Pricing as Pricing
from .specs import (
    checked_address as checked_address,
    parse_spec as parse_spec,
    place_of as place_of,
)
