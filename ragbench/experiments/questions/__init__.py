"""Questions from a user's documents, each with a certificate that it needs every hop."""

from ragbench.experiments.questions.writing import GeneratedQuestions, Request, write_questions
