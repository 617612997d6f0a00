"""The prompts of a program as templates of messages, and what fills them in elsewhere."""

from ragbench.experiments.templates.writing import export_messages, templates_of
