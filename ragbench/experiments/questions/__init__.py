"""Questions from one's own documents, each proven to need every hop."""

from ragbench.experiments.questions.writing import Request, Written, write_questions
