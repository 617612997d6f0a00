"""Write the prompts of a compiled program or a run as messages, formatted by DSPy's adapter.

python export_messages.py compiled/vanilla-1a2b3c4d > messages.json
"""

import json
import sys

import dspy

import ragbench as rb


def messages_of(program: dspy.Module, adapter: dspy.Adapter) -> dict[str, list[dict[str, object]]]:
    """Return the messages of each predictor; `{{name}}` marks the place of each input."""
    messages = {}
    for name, predictor in program.named_predictors():
        inputs = {field: f"{{{{{field}}}}}" for field in predictor.signature.input_fields}
        messages[name] = adapter.format(predictor.signature, predictor.demos, inputs)
    return messages


if __name__ == "__main__":
    program = rb.load_program(sys.argv[1])
    json.dump(messages_of(program, dspy.ChatAdapter()), sys.stdout, indent=1, ensure_ascii=False)
