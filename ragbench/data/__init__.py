"""Data sets: a loader each, one shape for all (`base.Dataset`), seeded splits.

A new data set is one module in `loaders` that registers its loader, and one line there.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
