"""Misleading passages among those that a retriever finds: a test of robustness."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
