"""A compiled or run program behind HTTP: `POST /ask {"question": "..."}`.

pip install '.[serve]'   # in a checkout of ragbench
PROGRAM=compiled/vanilla-1a2b3c4d DOCS=contracts LM=openai/gpt-4o-mini uvicorn serve:app
"""

import os

import dspy
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import ragbench as rb
from ragbench.errors import RagbenchError

retriever = rb.make_retriever("bm25", os.environ["DOCS"])
program = rb.load_program(os.environ["PROGRAM"], retriever=retriever)
lm = rb.make_lm(os.environ["LM"], api_base=os.environ.get("LM_BASE_URL"))
app = FastAPI(title=program.name)


class Question(BaseModel):
    """What is posted."""

    question: str


@app.post("/ask")
def ask(asked: Question) -> dict[str, object]:
    """Answer, with the passages that were found."""
    try:
        with dspy.context(lm=lm):
            reply = program(question=asked.question)
    except (dspy.LMError, RagbenchError) as error:  # of the model, not of who asks
        raise HTTPException(502, f"the model did not answer: {type(error).__name__}") from None
    sources = [{"pid": passage.pid, "title": passage.title} for passage in reply.passages]
    return {"answer": reply.answer, "sources": sources, "stop_reason": reply.stop_reason}
