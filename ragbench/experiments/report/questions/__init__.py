"""What several runs say to the questions of a study: families, retrieval, budgets, advice."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
