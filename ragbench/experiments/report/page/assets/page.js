"use strict";
// Text of passages, answers and prompts is untrusted: it reaches the page as text nodes alone.
const index = JSON.parse(document.getElementById("index").textContent);
const $ = (id) => document.getElementById(id);
const unpacked = new Map();
let shown = [];
let chosen = null;

function node(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Files beside the page call this with what they hold, by the name of the file.
const arrived = new Map();
window.ragbenchPiece = (name, packed) => arrived.set(name, packed);

function load(address) {
  return new Promise((done, fail) => {
    const script = document.createElement("script");
    const missing = () => fail(new Error(`The steps of this question are in ${decodeURI(address)}, which is not beside this page.`));
    script.src = address;
    script.onload = () => (arrived.has(nameOf(address)) ? done(arrived.get(nameOf(address))) : missing());
    script.onerror = missing;
    document.head.append(script);
  });
}

const nameOf = (address) => address.split("/").pop().replace(".js", "");

async function piece(number) {
  if (!unpacked.has(number)) {
    const packed = index.beside ? await load(index.beside[number]) : $(`piece-${number}`).textContent;
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(number, JSON.parse(await new Response(stream).text()));
  }
  return unpacked.get(number);
}

const side = (name) => Number($(`run-${name}`).value);

function status(row) {
  const [a, b] = [row.cells[side("a")], row.cells[side("b")]];
  if (!a || !b) return "";
  return a.right ? (b.right ? "right" : "broken") : b.right ? "fixed" : "wrong";
}

function matches(row) {
  const words = $("find").value.trim().toLowerCase();
  const causes = [side("a"), side("b")].map((n) => (row.cells[n] ? row.cells[n].cause : ""));
  return (
    (!$("status").value || status(row) === $("status").value) &&
    (!$("type").value || row.type === $("type").value) &&
    (!$("cause").value || causes.includes($("cause").value)) &&
    (!words || `${row.qid} ${row.question} ${row.gold}`.toLowerCase().includes(words))
  );
}

function tick(cell) {
  if (!cell) return node("span", {}, "–");
  const score = cell.score === null || cell.score === undefined ? "–" : cell.score.toFixed(2);
  return node("span", { class: cell.right ? "ok" : "no" }, `${cell.right ? "✓" : "✗"} ${score}`);
}

// The items of the list for the two runs that are chosen, made once.
const items = { of: "", made: [] };

function item(number) {
  const runs = `${side("a")} ${side("b")}`;
  if (items.of !== runs) Object.assign(items, { of: runs, made: [] });
  if (!items.made[number]) {
    const row = index.rows[number];
    const marks = node("div", { class: "m" }, tick(row.cells[side("a")]), " · ", tick(row.cells[side("b")]));
    if (row.type) marks.append(` · ${row.type}`);
    items.made[number] = node("li", { role: "option", "data-n": number }, node("div", { class: "q" }, row.question), marks);
  }
  items.made[number].setAttribute("aria-selected", String(number === chosen));
  return items.made[number];
}

// A long list grows as it is scrolled.
function more() {
  const list = $("list");
  list.append(...shown.slice(list.children.length, list.children.length + 100).map(item));
}

function filter() {
  shown = index.rows.map((row, number) => number).filter((number) => matches(index.rows[number]));
  $("list").replaceChildren();
  more();
  $("count").textContent = `${shown.length} of ${index.rows.length}`;
}

function passage(data, pid, gold) {
  const found = data.passages[pid];
  if (!found) return node("span", { class: "pid" }, pid);
  const isGold = gold.includes(pid);
  const text = node("p");
  found.sentences.forEach((sentence, i) => {
    text.append(found.gold.includes(i) ? node("mark", {}, sentence) : sentence, " ");
  });
  return node("details", {}, node("summary", {}, node("span", { class: isGold ? "pid gold" : "pid" }, isGold ? "gold" : "passage"), found.title || pid), text);
}

function spent(calls) {
  const tokens = calls.reduce((sum, call) => sum + call.in + call.out, 0);
  const seconds = calls.reduce((sum, call) => sum + call.s, 0);
  const dollars = calls.every((call) => call.usd !== null) ? calls.reduce((sum, call) => sum + call.usd, 0) : null;
  const cost = dollars ? `, $${dollars.toPrecision(2)}` : "";
  return `${calls.length} call${calls.length === 1 ? "" : "s"}, ${tokens.toLocaleString("en")} tokens, ${seconds.toFixed(1)} s${cost}`;
}

function step(data, one, trace) {
  const made = node("div", { class: "step" }, node("b", {}, one.action));
  if (one.input) made.append(one.input);
  if (one.thought) made.append(node("p", {}, one.thought));
  if (one.observation) made.append(node("p", {}, `→ ${one.observation}`));
  for (const pid of one.pids) {
    const found = data.passages[pid];
    made.append(node("span", { class: trace.gold.includes(pid) ? "pid gold" : "pid" }, (found && found.title) || pid));
  }
  const notes = Object.entries(one.notes).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`);
  if (notes.length) made.append(node("p", { class: "cost" }, notes.join("; ")));
  const calls = (one.calls || []).map((n) => trace.calls[n]).filter(Boolean);
  if (calls.length) made.append(node("p", { class: "cost" }, spent(calls)));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";
function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A prompt as it was sent; long messages, such as those with demonstrations, are folded.
function prompt(data, call, number) {
  const texts = [...call.prompt, call.reply].map((name) => data.texts[name]).filter(Boolean);
  if (!texts.length) return null;
  const made = node("details", {}, node("summary", {}, `${number + 1}. ${call.name}: prompt and reply`));
  for (const text of texts) {
    const lines = text.split("\n");
    const whole = node("pre", {}, text);
    made.append(lines.length > 30 ? node("details", {}, node("summary", {}, lines[0]), whole) : whole);
  }
  return made;
}

function waterfall(calls) {
  const whole = calls.reduce((sum, call) => sum + call.s, 0) || 1;
  const made = node("div", { class: "bars" });
  let from = 0;
  for (const call of calls) {
    const bar = shape("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none" });
    const width = Math.max((100 * call.s) / whole, 0.6);
    bar.append(shape("rect", { x: (100 * from) / whole, y: 1, width, height: 8, fill: call.error ? "var(--bad)" : "var(--s0)" }));
    from += call.s;
    made.append(node("span", { title: call.name }, call.name), bar, node("span", {}, `${call.in}+${call.out} tokens, ${call.s.toFixed(1)} s`));
  }
  return made;
}

// A plan is a list of nodes with `id` and `depends_on`; a tree has `question` and `children`.
function levels(plan) {
  const depth = new Map();
  const by = new Map(plan.map((one) => [one.id, one]));
  const of = (id, seen) => {
    if (depth.has(id) || !by.has(id) || seen.has(id)) return depth.get(id) || 0;
    const before = (by.get(id).depends_on || []).map((other) => of(other, new Set([...seen, id])) + 1);
    depth.set(id, Math.max(0, ...before));
    return depth.get(id);
  };
  plan.forEach((one) => of(one.id, new Set()));
  return depth;
}

function planGraph(plan) {
  const depth = levels(plan);
  const at = new Map();
  const rows = [];
  for (const one of plan) {
    const level = depth.get(one.id) || 0;
    rows[level] = (rows[level] || 0) + 1;
    at.set(one.id, { x: 12 + level * 190, y: rows[level] * 52 - 30, one });
  }
  const width = 190 * rows.length + 12;
  const height = 52 * Math.max(...rows) + 10;
  const made = shape("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "plan" });
  for (const { x, y, one } of at.values())
    for (const other of one.depends_on || []) {
      const from = at.get(other);
      if (from) made.append(shape("line", { x1: from.x + 165, y1: from.y + 16, x2: x, y2: y + 16, stroke: "var(--grey)" }));
    }
  for (const { x, y, one } of at.values()) {
    const text = String(one.query || one.question || one.id);
    made.append(shape("rect", { x, y, width: 165, height: 34, rx: 6, fill: "var(--panel)", stroke: "var(--line)" }));
    const label = shape("text", { x: x + 8, y: y + 21, "font-size": 11, fill: "var(--ink)" }, text.length > 26 ? `${text.slice(0, 25)}…` : text);
    label.append(shape("title", {}, text));
    made.append(label);
  }
  return made;
}

function tree(one, level = 0) {
  if (level > 40 || typeof one !== "object" || one === null) return null;
  const label = [one.question || one.query || one.id || "", one.answer ? ` → ${one.answer}` : ""].join("");
  const children = (one.children || []).map((child) => tree(child, level + 1));
  return node("details", { open: "" }, node("summary", {}, label), node("div", { class: "step" }, ...children));
}

function drawn(trace) {
  if (Array.isArray(trace.plan) && trace.plan.length && trace.plan[0].id !== undefined) return planGraph(trace.plan);
  const root = Array.isArray(trace.tree) ? trace.tree[0] : trace.tree;
  return root ? tree(root) : null;
}

function half(data, traces, number) {
  const trace = traces[number];
  const made = node("div", { class: "side" }, node("h4", {}, node("span", { class: `dot s${number % 10}` }), index.runs[number]));
  if (!trace) return made.append(node("p", { class: "hint" }, "This run did not ask this question.")), made;
  const cell = index.rows[chosen].cells[number];
  const answer = node("div", { class: "answer" }, tick(cell), " ", trace.failure || trace.answer || "no answer");
  answer.append(node("div", { class: "cost" }, `${trace.stop || "failed"}${cell.cause ? ` · ${cell.cause}` : ""} · ${spent(trace.calls)}`));
  made.append(answer);
  const picture = drawn(trace);
  if (picture) made.append(picture);
  for (const one of trace.steps) made.append(step(data, one, trace));
  if (trace.calls.length) {
    const prompts = trace.calls.map((call, n) => prompt(data, call, n));
    made.append(node("details", {}, node("summary", {}, "Calls"), waterfall(trace.calls), ...prompts.filter(Boolean)));
  }
  made.append(node("h4", {}, `${trace.passages.length} passages`));
  for (const pid of trace.passages) made.append(passage(data, pid, trace.gold));
  return made;
}

async function choose(number, push = true) {
  chosen = number;
  const row = index.rows[number];
  for (const one of $("list").children) one.setAttribute("aria-selected", String(Number(one.dataset.n) === number));
  let data;
  try {
    data = await piece(Math.floor(number / index.piece));
  } catch (error) {
    $("trace").replaceChildren(node("p", { class: "hint" }, error.message));
    return;
  }
  if (chosen !== number) return;
  const sides = [...new Set([side("a"), side("b")])].map((n) => half(data, data.traces[row.qid], n));
  $("trace").replaceChildren(
    node("h3", {}, row.question),
    node("p", { class: "cost" }, `gold: ${row.gold} · ${row.qid}${row.hops ? ` · ${row.hops} hops` : ""}`),
    node("div", { class: "sides" }, ...sides),
  );
  if (push) history.replaceState(null, "", `#q=${encodeURIComponent(row.qid)}&a=${side("a")}&b=${side("b")}`);
}

function move(by) {
  const at = shown.indexOf(chosen);
  const next = shown[Math.min(Math.max(at + by, 0), shown.length - 1)];
  if (next === undefined) return;
  choose(next);
  while ($("list").children.length <= shown.indexOf(next)) more();
  item(next).scrollIntoView({ block: "nearest" });
}

function follow() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const number = index.rows.findIndex((row) => row.qid === asked.get("q"));
  if (number < 0) return;
  for (const name of ["a", "b"]) if (asked.get(name) in index.runs) $(`run-${name}`).value = asked.get(name);
  filter();
  choose(number, false);
  $("questions").scrollIntoView();
}

function fill(id, values) {
  for (const value of [...new Set(values)].filter(Boolean).sort()) $(id).append(node("option", { value }, value));
}

function start() {
  for (const name of ["a", "b"])
    index.runs.forEach((label, n) => $(`run-${name}`).append(node("option", { value: n }, label)));
  const [a, b] = index.pairs[0] || [0, Math.min(1, index.runs.length - 1)];
  $("run-a").value = a;
  $("run-b").value = b;
  fill("type", index.rows.map((row) => row.type));
  fill("cause", index.rows.flatMap((row) => row.cells.map((cell) => cell && cell.cause)));
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("input", () => {
    filter();
    if (chosen !== null) choose(chosen);
  });
  $("list").addEventListener("scroll", () => {
    const list = $("list");
    if (list.scrollTop + 2 * list.clientHeight > list.scrollHeight) more();
  });
  $("list").addEventListener("click", (event) => {
    const chosenItem = event.target.closest("li");
    if (chosenItem) choose(Number(chosenItem.dataset.n));
  });
  $("list").addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (by) {
      event.preventDefault();
      move(by);
    }
  });
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() === "#14171b";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  addEventListener("hashchange", follow);
  filter();
  follow();
}

// A served page is made again when its runs have new records; the address keeps what was open.
async function followRuns() {
  const first = await (await fetch("version")).text();
  setInterval(async () => {
    const now = await fetch("version").then((reply) => reply.text(), () => first);
    if (now !== first) location.reload();
  }, 3000);
}

start();
if (index.live) followRuns();
