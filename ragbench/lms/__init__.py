"""Language models: from a spec such as `local` or `openai/gpt-4.1-mini` to a metered `dspy.LM`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
