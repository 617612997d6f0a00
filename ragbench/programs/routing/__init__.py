"""Which program answers a question: features known before answering, a policy, and the router."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
