"""Two programs over the same questions, compared question by question, and kept as a table."""

import ragbench as rb

MODEL = {"lm": "openai/gpt-4o-mini"}

vanilla = rb.evaluate("vanilla", limit=20, **MODEL)
ircot = rb.evaluate("ircot", limit=20, **MODEL)
for name, difference in rb.compare(vanilla, ircot).scores.items():
    print(f"{name}: {difference.difference:+z.3f}, {difference.verdict}")
ircot.to_pandas().to_csv("ircot.csv", index=False)
