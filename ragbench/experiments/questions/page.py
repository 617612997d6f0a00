"""A page to review questions: keep, drop, edit, and save a file, without a server."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.outputs import Output

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Questions</title><style>
:root{color-scheme:light dark}
body{font:16px/1.45 system-ui,sans-serif;max-width:52rem;margin:1.5rem auto;padding:0 1rem}
article{border:1px solid #8886;border-radius:6px;padding:.6rem .9rem;margin:.8rem 0}
article.dropped{opacity:.45}
label{display:block;margin:.3rem 0}
input[type=text]{width:100%;box-sizing:border-box;font:inherit;padding:.25rem}
blockquote{margin:.3rem 0;padding-left:.7rem;border-left:3px solid #8886}
header{position:sticky;top:0;background:Canvas;padding:.5rem 0}
</style></head><body>
<header><h1>Questions</h1><p><output id="count"></output>
<button id="save">Save the kept ones</button></p></header>
<main id="list"></main>
<noscript>This page needs JavaScript to save what is kept.</noscript>
<script type="application/json" id="rows">ROWS</script>
<script>
const rows = JSON.parse(document.getElementById("rows").textContent);
const dropped = new Set();
const list = document.getElementById("list");
const field = (row, name) => {
  const label = document.createElement("label");
  label.textContent = name;
  const input = document.createElement("input");
  input.type = "text";
  input.value = row[name];
  input.addEventListener("input", () => { row[name] = input.value; });
  label.append(input);
  return label;
};
const count = () => {
  document.getElementById("count").textContent =
    `${rows.length - dropped.size} of ${rows.length} kept`;
};
for (const row of rows) {
  const box = document.createElement("article");
  const keep = document.createElement("label");
  const tick = document.createElement("input");
  tick.type = "checkbox";
  tick.checked = true;
  tick.addEventListener("change", () => {
    if (tick.checked) dropped.delete(row); else dropped.add(row);
    box.classList.toggle("dropped", !tick.checked);
    count();
  });
  keep.append(tick, ` keep ${row.id}, ${row.hops} hops`);
  box.append(keep, field(row, "question"), field(row, "answer"));
  for (const sentence of row.metadata.sentences) {
    const quote = document.createElement("blockquote");
    quote.textContent = sentence;
    box.append(quote);
  }
  list.append(box);
}
document.getElementById("save").addEventListener("click", () => {
  const text = rows.filter((row) => !dropped.has(row))
    .map((row) => JSON.stringify(row) + "\\n").join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "application/jsonl"}));
  link.download = "questions.jsonl";
  link.click();
});
count();
</script></body></html>
"""


def write_page(rows: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Write the page. Text of the questions cannot end the script that contains it.

    Args:
        rows: Questions of the page.
        output: File to write.
    """
    text = json.dumps(list(rows), ensure_ascii=True).replace("<", "\\u003c")
    output.write(_PAGE.replace("ROWS", text).encode())
