"""Language models: from a spec such as `local` or `openai/gpt-4.1-mini` to a metered `dspy.LM`."""
