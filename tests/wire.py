"""An LM of a fake server, and a question to it."""

from typing import Any

import dspy

from ragbench.lms import RagbenchLM, make_adapter, make_lm
from tests.fake_server import FakeServer

# Made once: a signature of a string is parsed as code, which 3.11 cannot do in many threads.
PREDICT = dspy.Predict("question -> answer")


def ask(lm: dspy.LM, question: str = "Where?") -> str:
    """The answer of `lm`, asked as a chat."""
    with dspy.context(lm=lm, adapter=make_adapter("chat")):
        return str(PREDICT(question=question).answer)


def lm_at(server: FakeServer, **settings: Any) -> RagbenchLM:
    """A model of `server` that is not cached, and waits for nothing before it tries again."""
    lm = make_lm("openai/fake", api_base=server.url, **{"cache": False, **settings})
    lm.metered.caller.base_s = 0.0
    return lm
