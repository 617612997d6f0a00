"""Which architecture for which questions: learned from runs, tested on held-out questions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
