"use strict";
// One question: the traces of two runs next to each other, with their prompts and the differences between them.
const pieces = new Map();
const forgetTraces = () => pieces.clear();

async function piece(run, number) {
  const name = `piece-${run}-${number}`;
  if (!pieces.has(name) && data.live) pieces.set(name, await (await fetch(`piece/${run}/${number}`)).json());
  if (!pieces.has(name)) {
    const bytes = Uint8Array.from(atob($(name).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    pieces.set(name, JSON.parse(await new Response(stream).text()));
  }
  return pieces.get(name);
}

const titled = (record, pid) => (record.passages.find((p) => p.pid === pid) || {}).title || pid;
const gold = (record, pid) => record.gold_pids.includes(pid) && node("b", { class: "good" }, " gold");
const paragraph = (text) => text && node("p", {}, text);

function hits(search, record) {
  const hit = ([pid, x]) => node("li", {}, titled(record, pid), node("span", { class: "quiet" }, ` ${Number(x).toFixed(2)}`), gold(record, pid));
  return [node("p", {}, `query: ${search.query}${search.cached ? " (repeated)" : ""}`), node("ol", {}, search.hits.map(hit))];
}

// The steps of a program, each with its searches. Searches without a step come first.
function stepsOf(record) {
  const left = [...record.searches];
  const steps = record.steps.map((step) => {
    const at = step.action === "answer" ? -1 : left.findIndex((search) => search.query === step.input);
    const notes = Object.entries(step.notes).map(([name, note]) => `${name}: ${typeof note === "object" ? JSON.stringify(note) : note}`);
    const from = step.pids.map((pid) => titled(record, pid)).join("; ");
    return node("div", { class: "step" }, node("b", {}, step.action), node("span", { class: "quiet" }, callsIn([step])),
      at < 0 ? ` ${step.input}` : hits(left.splice(at, 1)[0], record), paragraph(step.thought),
      paragraph(step.observation && `→ ${step.observation}`), at < 0 && paragraph(from && `from: ${from}`), paragraph(notes.join("; ")));
  });
  return [...left.map((search) => node("div", { class: "step" }, node("b", {}, "search"), hits(search, record))), ...steps];
}

function callsIn(steps) {
  const calls = steps.flatMap((step) => step.calls || []).map((call) => call + 1);
  return calls.length ? ` (call ${calls.join(", ")})` : "";
}

// A plan or a tree: each node under its parent or its first dependency, with its calls.
function treeOf(record) {
  const root = node("ul", {});
  const lists = new Map();
  for (const one of [record.tree, record.plan].flat()) {
    if (!one || !known(one.id)) continue;
    const asked = one.question || one.query || one.id;
    const steps = record.steps.filter((step) => [step.input, step.notes.node].some((of) => of && (of === one.id || of === one.question)));
    const found = one.answer || Object.values(one.values || {}).flat().join(", ");
    const inner = node("ul", {});
    (lists.get(known(one.parent) ? one.parent : (one.depends_on || [])[0]) || root).append(
      node("li", {}, asked, found && ` → ${found}`, node("span", { class: "quiet" }, one.state && ` ${one.state}`, callsIn(steps)), inner));
    lists.set(one.id, inner);
  }
  return root.children.length ? root : "";
}

function lastSecond(part) {
  const record = part && part.records[state.q];
  return record ? Math.max(0.001, ...record.ledger.calls.map((call) => (call.started_s || 0) + call.latency_s)) : 0;
}

// The calls in time, from 0 to `most` seconds on both sides.
function timeline(calls, most) {
  if (!calls.length) return "";
  const X = (v) => `${((100 * v) / most).toFixed(2)}%`;
  const bar = (call) => node("svg", { "aria-hidden": "true", height: 18 }, node("rect", { x: X(call.started_s || 0), width: X(Math.max(most / 200, call.latency_s)), y: 3, height: 12, fill: call.error ? "var(--bad)" : "var(--c0)" }));
  const name = (call, i) => `${i + 1}. ${call.signature || call.kind}`;
  const tokens = (call) => `${whole(call.prompt_tokens)}+${whole(call.completion_tokens)} tokens${call.cached ? ", cached" : ""}`;
  const rows = calls.map((call, i) => node("tr", {}, node("td", { title: name(call, i) }, name(call, i)), node("td", { class: "pic" }, bar(call)), node("td", { class: "w" }, tokens(call))));
  const foot = node("tr", {}, node("td", {}, "seconds"), node("td", { class: "pic ticks" }, `0 to ${most.toFixed(1)}`), node("td", {}));
  return node("table", { class: "times" }, node("tbody", {}, rows, foot));
}

// Messages are stored as JSON and shown as role and text.
function message(text) {
  try {
    const { role, content } = JSON.parse(text);
    return `${role}:\n${[content].flat().map((part) => (typeof part === "string" ? part : part.text || JSON.stringify(part))).join("\n")}`;
  } catch (error) {
    return text;
  }
}

// The prompt as messages and the reply. Messages between the first and the last are folded as demonstrations.
function messages(call, texts) {
  const sent = (call.prompt || []).map((name) => texts[name]).filter(Boolean).map(message);
  const pre = (text) => node("pre", {}, text);
  const shown = sent.length > 2 ? [pre(sent[0]), node("details", {}, node("summary", {}, `${Math.ceil((sent.length - 2) / 2)} demonstrations`), sent.slice(1, -1).map(pre)), pre(sent.at(-1))] : sent.map(pre);
  const reply = texts[call.reply];
  return { sent: sent.join("\n"), shown: [...shown, reply && pre(message(reply))].filter(Boolean) };
}

function prompts(record, texts, other) {
  return record.ledger.calls.map((call, i) => {
    const { sent, shown } = messages(call, texts);
    const like = (each) => each.signature === call.signature;
    const theirs = other && other.record.ledger.calls.filter(like)[record.ledger.calls.slice(0, i).filter(like).length];
    const before = theirs ? messages(theirs, other.texts).sent : "";
    return shown.length > 0 && node("details", {}, node("summary", {}, `${i + 1}. ${call.signature || call.kind}: prompt and reply`),
      shown, before && before !== sent && difference(before, sent, other.name));
  });
}

// Words of a prompt that the other prompt lacks, and the reverse, in place.
function difference(before, after, name) {
  const box = node("pre", {});
  const fold = node("details", {}, node("summary", {}, `differences from ${name}`), box);
  fold.addEventListener("toggle", () => {
    if (!box.childNodes.length) box.append(...changes(before.split(/(\s+)/), after.split(/(\s+)/)));
  });
  return fold;
}

function changes(a, b) {
  let [from, enda, endb] = [0, a.length, b.length];
  while (from < enda && from < endb && a[from] === b[from]) from += 1;
  while (enda > from && endb > from && a[enda - 1] === b[endb - 1]) enda -= 1, endb -= 1;
  const [x, y] = [a.slice(from, enda), b.slice(from, endb)];
  const around = (words) => (words.length > 24 ? [...words.slice(0, 12), " … ", ...words.slice(-12)] : words).join("");
  const part = (words, kind) => words.length > 0 && node("span", { class: kind }, words.join(""));
  const made = x.length * y.length > 4e6 ? [part(x, "bad"), part(y, "good")] : aligned(x, y).map(([kind, words]) => (kind ? part(words, kind) : around(words)));
  return [around(a.slice(0, from)), ...made, around(a.slice(enda))].filter(Boolean);
}

// Longest common subsequence of words: runs of [kind, words]. The kind is empty for common words.
function aligned(x, y) {
  const lengths = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i -= 1)
    for (let j = y.length - 1; j >= 0; j -= 1)
      lengths[i][j] = x[i] === y[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  const runs = [];
  const add = (kind, word) => (runs.length && runs.at(-1)[0] === kind ? runs.at(-1)[1].push(word) : runs.push([kind, [word]]));
  let [i, j] = [0, 0];
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) { add("", x[i]); i += 1; j += 1; }
    else if (j === y.length || (i < x.length && lengths[i + 1][j] >= lengths[i][j + 1])) { add("bad", x[i]); i += 1; }
    else { add("good", y[j]); j += 1; }
  }
  return runs;
}

function passage(one, record) {
  const marked = (record.support || []).filter(([title]) => title === one.title).map(([, n]) => n);
  const sentences = (one.sentences || []).map((text, n) => node(marked.includes(n) ? "mark" : "span", {}, `${text} `));
  return node("details", {}, node("summary", {}, one.title || one.pid, gold(record, one.pid)), node("p", {}, sentences.length ? sentences : one.text));
}

function verdictMark(run, i) {
  const x = data.scores[state.metric][run][i];
  if (!known(x)) return "";
  return node("span", { class: x >= 1 ? "good" : x > 0 ? "quiet" : "bad" }, x >= 1 ? "✓ " : x > 0 ? `${score(x)} ` : "✗ ");
}

function side(run, i, part, other, most) {
  const record = part && part.records[state.q];
  const head = node("h2", {}, `${letter(programOf(run))} ${data.runs[run].name}`);
  if (!record) return node("div", { class: "side" }, head, paragraph("This run does not have this question."));
  const { calls } = record.ledger;
  const tokens = sum(calls.map((call) => call.prompt_tokens + call.completion_tokens));
  const failure = record.failure && `failed: ${record.failure.boundary}/${record.failure.error}: ${record.failure.message}`;
  const why = data.why[run][i];
  return node("div", { class: "side" }, head,
    node("div", { class: "answer" }, verdictMark(run, i), failure || record.answer || "no answer",
      paragraph(`${record.stop_reason || "failed"}${why ? `, ${words(why)}` : ""}; ${count(calls.length, "call")}, ${count(tokens, "token")}, ${record.latency_s.toFixed(1)} s`)),
    treeOf(record), timeline(calls, most), stepsOf(record), prompts(record, part.texts, other),
    node("details", {}, node("summary", {}, count(record.passages.length, "passage")), record.passages.map((one) => passage(one, record))));
}

const button = (text, onclick, title) => node("button", { type: "button", onclick, title }, text);
function step(by) {
  const at = shown.findIndex((i) => data.questions[i].qid === state.q);
  const next = data.questions[shown[at + by]];
  if (next) set({ q: next.qid });
}

async function copyQuestion() {
  const text = $("question").innerText;
  await navigator.clipboard.writeText(text).then(() => { $("copied").textContent = "copied"; }, () => { $("copied").textContent = "this browser does not let the page copy"; });
}

let opened = "";
let scrolled = 0;
async function showQuestion() {
  const i = data.questions.findIndex((q) => q.qid === state.q);
  const runs = [...new Set([runAt("left"), runAt("right")])];
  const wanted = JSON.stringify([state.q, runs, state.metric, runs.map((run) => data.asked[run] && data.asked[run][i])]);
  if (wanted === opened) return;
  const was = !$("question").hidden;
  opened = wanted;
  for (const row of $("list").querySelectorAll("tbody tr")) row.setAttribute("aria-current", row.dataset.q === state.q);
  if (i < 0) {
    $("question").hidden = true;
    $("overview").hidden = false;
    if (was) { showList(); scrollTo(0, scrolled); }
    return;
  }
  const parts = await Promise.all(runs.map((run) => piece(run, Math.floor(i / data.piece)).catch(() => null)));
  if (opened !== wanted) return;
  if (!was) scrolled = scrollY;
  const record = parts[0] && parts[0].records[state.q];
  const first = record && { record, texts: parts[0].texts, name: data.runs[runs[0]].name };
  const { question, qid, type, gold: right } = data.questions[i];
  const at = shown.indexOf(i);
  const most = Math.max(...parts.map(lastSecond));
  const picker = (name) => node("label", {}, `${name} `, node("select", { oninput: (event) => set({ [name]: event.target.value }) },
    data.runs.map((run, n) => node("option", { value: run.folder, selected: run.folder === state[name] ? "" : null }, `${letter(programOf(n))} ${run.name}`))));
  $("question").replaceChildren(
    node("nav", { class: "bar", "aria-label": "Questions" }, button("← all questions", () => set({ q: "" }), "Escape"), button("previous", () => step(-1), "k"), button("next", () => step(1), "j"),
      node("span", {}, at < 0 ? "" : `${at + 1} of ${shown.length}`), picker("left"), picker("right"), button("copy", copyQuestion), node("span", { id: "copied" })),
    node("h1", {}, question), node("p", {}, node("b", {}, `right answer: ${right} `), node("span", { class: "quiet", id: "asked" }, [qid, type].filter(Boolean).join(", "))),
    node("div", { class: "sides" }, runs.map((run, n) => side(run, i, parts[n], n === 1 && first, most))));
  $("overview").hidden = true;
  $("question").hidden = false;
  if (!was) $("question").focus();
  scrollTo(0, 0);
}

begin();
