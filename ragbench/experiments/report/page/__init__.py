"""The report as a page: what it shows, its charts, its traces, its HTML and its server."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
