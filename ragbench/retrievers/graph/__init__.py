"""Indexes of entities and relations, most of them read off the corpus by an LM."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
