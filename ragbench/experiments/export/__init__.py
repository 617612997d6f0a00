"""Finished runs in the formats of other tools: Parquet, CSV, inspect_ai, MLflow."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
