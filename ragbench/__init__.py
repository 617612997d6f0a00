"""Multi-hop retrieval-augmented generation, measured honestly. Importing this does no work.

The names of `ragbench.api` are imported when they are first used; docs/api.md lists them.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
