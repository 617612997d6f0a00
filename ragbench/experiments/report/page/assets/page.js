"use strict";
// Text of questions, passages, answers and prompts is untrusted: it reaches the page as text nodes.
const $ = (id) => document.getElementById(id);
let data = JSON.parse($("data").textContent);

function node(tag, attributes, ...children) {
  const name = "http://www.w3.org/2000/svg";
  const drawn = ["svg", "line", "circle", "path"].includes(tag);
  const made = drawn ? document.createElementNS(name, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (known(value) && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => known(child) && child !== false && child !== ""));
  return made;
}

// A table whose columns are a head, a class, what makes the cell of a row, and the run that it is of.
function table(columns, rows, attributes = () => ({})) {
  const heads = columns.map(([head, kind, , run]) => node("th", { scope: "col", class: kind }, known(run) && badge(run), head));
  const lines = rows.map((row) =>
    node("tr", attributes(row), columns.map(([head, kind, cell], at) =>
      node(at ? "td" : "th", { scope: at ? null : "row", class: kind, "data-label": head }, node("span", {}, cell(row))))));
  return node("table", { class: "cards" }, node("thead", {}, node("tr", {}, heads)), node("tbody", {}, lines));
}

// ---------------------------------------------------------------- numbers, names and colours
const known = (x) => x !== null && x !== undefined;
const whole = (x) => Math.round(x).toLocaleString("en");
const score = (x) => (!known(x) ? "–" : Math.abs(x) < 100 ? x.toFixed(3).replace(/^(-?)0\./, "$1.") : whole(x));
const signed = (x) => (known(x) && x >= 0 ? "+" : "") + score(x);
const amount = (x) => (!known(x) ? "–" : x >= 100 ? whole(x) : x.toFixed(1));
const dollars = (x) => (!known(x) ? "unknown" : x >= 100 ? whole(x) : String(Number(x.toPrecision(3))));
const words = (name) => name.replace("/", ": ").replaceAll("_", " ");
// A value of a row with its interval, such as ".793 [.71, .86]".
const interval = (row, name, show) =>
  `${show(row[name])}${known(row[`${name}_low`]) ? ` [${show(row[`${name}_low`])}, ${show(row[`${name}_high`])}]` : ""}`;
const mean = (run) => run.means[state.metric] || {};
const value = (run) => mean(run)[state.metric];
const priced = () => data.runs.some((run) => run.cost_usd) && data.runs.every((run) => known(run.cost_usd));
// Eight colours that colour-blind eyes tell apart, times as many shapes as are needed.
const SHAPES = ["Circle", "Square", "Triangle", "Diamond", "Star", "Cross", "Wye"];
const colour = (at) => `var(--s${at % 8})`;
const AXES = { cost_usd: "dollars", tokens: "tokens", calls: "calls", p50_s: "seconds (median)" };
const shape = (at) => SHAPES[Math.floor(at / 8) % SHAPES.length];
const badge = (at) =>
  node("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" },
    node("path", { d: d3.symbol(d3[`symbol${shape(at)}`], 60)(), fill: colour(at) }));
const called = (at) => [badge(at), data.runs[at].name];

// ---------------------------------------------------------------- what to use
const against = (baseline, at) => ((data.contrasts[state.metric] || {})[baseline] || {})[at];

function showAdvice() {
  const found = data.advice[state.metric] || {};
  const line = (word, text) => node("p", {}, node("b", {}, word), ` ${text}`);
  const price = (run) => (priced() ? `$${dollars(run.cost_usd * 1000)}` : `${amount(run.tokens * 1000)} tokens`);
  const [use, ...more] = found.sentences || [];
  const lines = more.map((sentence) => node("p", { class: "quiet" }, sentence));
  if (use && !known(found.use)) {
    lines.unshift(line("UNDECIDED", use.replace(/^undecided: /, "")));
  } else if (use) {
    const other = found.use === found.best ? "" : ` against ${price(data.runs[found.best])}`;
    lines.unshift(line("USE", `${use.replace(/^use /, "")}; 1,000 questions: ${price(data.runs[found.use])}${other}`));
  } else if (data.runs.length < 2) {
    lines.push(line("ONE PROGRAM", `${data.runs[0].name}: run another on the same questions to compare`));
  }
  const verdicts = data.artefacts.filter((each) => each.kind === "verdict");
  for (const { conclusions, folder } of verdicts)
    lines.push(line("COMPILING", conclusions[state.metric] || Object.values(conclusions)[0] || folder));
  data.runs.forEach((run, at) => {
    const d = known(run.before) && against(run.before, at);
    if (!d || verdicts.some((each) => run.folder.startsWith(`${each.folder}/`))) return;
    const told = { better: "helps", worse: "hurts" }[d.verdict.split(" ")[0].replace(",", "")] || "not shown to help";
    const times = run.tokens / data.runs[run.before].tokens;
    const taken = Number.isFinite(times) ? `, ${times.toFixed(1)} times the tokens` : "";
    lines.push(line("COMPILING", `${run.name}: ${told}, ${interval(d, "difference", signed)}${taken} (one compile)`));
  });
  $("advice").replaceChildren(...lines);
}

// ---------------------------------------------------------------- the table of programs
function range(low, at, high, from, to, fill) {
  const x = (v) => 3 + (114 * (v - from)) / (to - from || 1);
  return node("svg", { class: "range", width: 120, height: 14, "aria-hidden": "true" },
    from < 0 && node("line", { x1: x(0), x2: x(0), y1: 0, y2: 14, stroke: "var(--line)", "stroke-width": 1.5 }),
    known(low) && node("line", { x1: x(low), x2: x(high), y1: 7, y2: 7, stroke: fill, "stroke-width": 2 }),
    known(at) && node("circle", { cx: x(at), cy: 7, r: 4, fill }));
}

const seen = {};
function progress(run) {
  if (run.done) return "done";
  const first = (seen[run.folder] = seen[run.folder] || { n: run.n, t: Date.now() });
  const rate = (1000 * (run.n - first.n)) / (Date.now() - first.t || 1);
  const left = (run.asked - run.n) / rate;
  const clock = rate ? `, ${Math.floor(left / 60)}:${String(Math.round(left % 60)).padStart(2, "0")} left` : "";
  return `${run.n}/${run.asked}${clock}, $${dollars(run.billed_usd)}${data.live ? "" : " (not finished)"}`;
}

function showPrograms() {
  const [m, base] = [state.metric, place("baseline")];
  const ends = (row, name) => [row[`${name}_low`], row[name], row[`${name}_high`]];
  const differences = data.runs.map((run, at) => against(base, at));
  const numbers = (rows, name) => rows.filter(Boolean).flatMap((row) => ends(row, name)).filter(known);
  const [from, to] = [0, ...numbers(data.runs.map(mean), m)].reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [0, 0.001]);
  const reach = Math.max(0.001, ...numbers(differences, "difference").map(Math.abs));
  const most = Math.max(...data.runs.map((run) => mean(run).n || 0));
  const some = (name) => data.runs.some((run) => known(run[name]));
  const kind = (d) => ({ better: "good", worse: "bad" })[d.verdict.split(/\W/)[0]] || "quiet";
  const drawn = (row, name, left, right, at, show, more) =>
    node("span", { class: "whole" }, range(...ends(row, name), left, right, colour(at)), interval(row, name, show), more);
  const columns = [
    ["program", "", ({ at }) => called(at)],
    [m, "", ({ run, at }) => drawn(mean(run), m, from, to, at, score, mean(run).n < most && ` (${mean(run).n})`)],
    some("evidence") && ["evidence shown", "", ({ run }) => score(run.evidence) +
      (run.without_evidence > run.right / 3 ? ` (${run.without_evidence} of ${run.right} right without it)` : "")],
    [`vs ${data.runs[base].name}`, "", ({ at, d }) => at === base ? "baseline" : !d ? "–" :
      drawn(d, "difference", -reach, reach, at, signed, d.n < most && ` on the shared ${d.n}`)],
    ["verdict", "", ({ d }) => !d ? "–" : node("span", { title: d.verdict, class: kind(d) }, d.verdict.startsWith("no ") ? "unclear" : d.verdict)],
    ["$/1k questions", "n", ({ run }) => dollars(known(run.cost_usd) ? run.cost_usd * 1000 : null)],
    some("index_usd") && ["index $", "n", ({ run }) => "index_usd" in run ? dollars(run.index_usd) : "–"],
    ["tokens", "n", ({ run }) => amount(run.tokens)],
    ["calls", "n", ({ run }) => amount(run.calls)],
    ["p95 s", "n", ({ run }) => amount(run.p95_s)],
    ["failed", "n", ({ run }) => String(run.failed)],
    ["state", "", ({ run }) => progress(run)],
  ].filter(Boolean);
  const rows = data.runs.map((run, at) => ({ run, at, d: differences[at] }));
  rows.sort((a, b) => (value(b.run) ?? -1) - (value(a.run) ?? -1));
  $("programs").replaceChildren(
    node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of programs" }, table(columns, rows)),
    node("p", { class: "quiet" }, "Means and differences with 95 % intervals; verdicts corrected over all programs (Holm). Spending per question as if nothing were cached, at list price. Evidence found: share of questions whose gold passages were all retrieved."));
}

// ---------------------------------------------------------------- charts
// Each name goes to the first place beside its dot where it overlaps nothing.
function label(plot, points) {
  const [sx, sy, right] = [plot.scale("x"), plot.scale("y"), Number(plot.getAttribute("width"))];
  const at = points.map((p) => [sx.apply(p.x), sy.apply(p.y)]);
  const taken = at.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]);
  const free = (a) => a[0] > 0 && a[2] < right && a[1] > 0 && !taken.some((b) => b[0] < a[2] && a[0] < b[2] && b[1] < a[3] && a[1] < b[3]);
  points.forEach(({ name }, i) => {
    const [[x, y], w] = [at[i], 6.2 * name.length];
    const places = [[9, -6], [-w - 9, -6], [9, 15], [-w - 9, 15], [-w / 2, -12], [-w / 2, 20]];
    const box = places.map(([dx, dy]) => [x + dx, y + dy - 10, x + dx + w, y + dy + 2]).find(free);
    if (!box) return;
    taken.push(box);
    d3.select(plot).append("text").attr("x", box[0]).attr("y", box[3] - 2).attr("font-size", 11).attr("text-anchor", "start").text(name);
  });
}

// A chart whose parts are groups to a screen reader.
function grouped(plot) {
  for (const part of [plot, ...plot.querySelectorAll("g[aria-label]")]) part.setAttribute("role", "group");
  return plot;
}

// Settings in which runs differ that differ in nothing else: the runs of each such group.
function knobs() {
  const found = {};
  for (const name of new Set(data.runs.flatMap((run) => Object.keys(run.settings)))) {
    const rest = ({ settings, program, before }) => JSON.stringify({ ...settings, [name]: 0, program, before: known(before) });
    const lines = d3.groups(data.runs.keys(), (at) => rest(data.runs[at])).map(([, line]) => line);
    const swept = lines.filter((line) => new Set(line.map((at) => data.runs[at].settings[name])).size > 1);
    if (swept.length) found[name] = swept;
  }
  return found;
}

// The score by what a question takes, with the programs that no other beats for less, or by a swept knob, a line for each group.
function showChart() {
  const swept = knobs();
  options("axis", [...Object.entries(AXES), ...Object.keys(swept).map((name) => [name, name])]);
  const lines = swept[state.axis];
  const point = (at) => {
    const [run, m] = [data.runs[at], state.metric];
    const spent = `$ ${dollars(run.cost_usd)}, ${amount(run.tokens)} tokens, ${amount(run.calls)} calls`;
    return {
      at, name: run.name, x: (lines ? run.settings : run)[state.axis], y: value(run), low: mean(run)[`${m}_low`], high: mean(run)[`${m}_high`],
      fill: run.done ? colour(at) : "var(--paper)", colour: colour(at), symbol: shape(at).toLowerCase(),
      words: `${run.name}\n${m} ${interval(mean(run), m, score)}\n${spent}`,
    };
  };
  const shown = (lines ? lines.flat() : [...data.runs.keys()]).map(point).filter((p) => known(p.x) && known(p.y));
  const some = d3.sort(shown, (p) => p.x, (p) => -p.y);
  if (!some.length) return $("chart").replaceChildren("no prices are known: choose another axis");
  let best = -Infinity;
  const front = some.filter((p) => data.runs[p.at].done && p.y > best && ((best = p.y), true));
  const joined = lines ? lines.map((line) => some.filter((p) => line.includes(p.at))) : [front];
  const x = lines ? { type: "point", label: state.axis } : { label: `${AXES[state.axis]} per question`, zero: true, nice: true, ticks: 5 };
  const plot = Plot.plot({
    className: "chart", width: Math.max(240, Math.min($("chart").clientWidth || 600, 700)), height: 320, marginLeft: 44, x,
    y: { label: state.metric, grid: true, nice: true }, symbol: { legend: false }, ariaLabel: `${state.metric} by ${x.label}`,
    marks: [
      Plot.ruleX(some, { x: "x", y1: "low", y2: "high", stroke: "colour", strokeOpacity: 0.7, strokeWidth: 1.5 }),
      ...joined.map((line) => Plot.line(line, { x: "x", y: "y", curve: lines ? "linear" : "step-after", stroke: "var(--quiet)", strokeDasharray: "3 3" })),
      Plot.dot(some, { x: "x", y: "y", fill: "fill", stroke: "colour", strokeWidth: 1.5, symbol: "symbol", r: 5 }),
      Plot.tip(some, Plot.pointer({ x: "x", y: "y", title: "words" })),
    ],
  });
  label(plot, some);
  plot.addEventListener("click", () => plot.value && set({ right: data.runs[plot.value.at].folder, differ: "yes" }));
  $("chart").replaceChildren(grouped(plot));
}

function showCauses() {
  $("failures").hidden = !data.causes.length;
  const count = (cause, at) => data.runs[at].causes[cause] &&
    node("button", { type: "button", onclick: () => set({ cause, left: data.runs[at].folder }) }, String(data.runs[at].causes[cause]));
  $("causes").replaceChildren(table(
    [["cause", "", words], ...data.runs.map((run, at) => [run.name, "n", (cause) => count(cause, at), at])], data.causes));
}

// ---------------------------------------------------------------- the list of questions
let shown = [];
let haystack = null;
function index() {
  const text = (q, i) => [q.qid, q.question, q.gold, ...q.titles, ...data.answers.map((column) => column[i] || "")];
  haystack = haystack || data.questions.map((q, i) => text(q, i).join(" ").toLowerCase());
}

function matches(q, i) {
  const scores = data.scores[state.metric];
  const first = (scores.find((column) => known(column[i])) || [])[i];
  const cause = data.causes.indexOf(state.cause);
  return (!state.cause || data.why.some((column) => column[i] === cause)) &&
    (!state.differ || scores.some((column) => known(column[i]) && column[i] !== first)) && (!state.find || haystack[i].includes(state.find.toLowerCase()));
}

function mark(at, i) {
  const x = data.scores[state.metric][at][i];
  if (!known(x)) return data.asked[at][i] ? "" : "not asked";
  return node("span", { class: x === 1 ? "good" : x === 0 ? "bad" : "quiet" }, x === 1 ? "✓ " : x === 0 ? "✗ " : `${score(x)} `);
}

// The questions that match, 30 rows at first, and more where the list is scrolled to its end.
function showList() {
  if (state.find) index();
  shown = data.questions.map((q, i) => i).filter((i) => matches(data.questions[i], i));
  const most = Math.max(2, Math.min(5, Math.floor(($("list").clientWidth || 1200) / 230)));
  const runs = [...new Set([place("left"), place("right"), ...data.runs.keys()])].slice(0, most);
  const [box, old] = [$("list"), $("list").querySelectorAll("tbody tr").length];
  const top = box.scrollTop;
  const answer = (at, i) => [mark(at, i), data.asked[at][i] ? data.answers[at][i] ?? "failed" : ""];
  const columns = [
    ["question", "", (i) => node("button", { type: "button", onclick: () => set({ q: data.questions[i].qid }) }, data.questions[i].question)],
    ["gold", "", (i) => data.questions[i].gold],
    ...runs.map((at) => [data.runs[at].name, "", (i) => answer(at, i), at]),
  ];
  const rows = (some) => table(columns, some, (i) => ({ "data-q": data.questions[i].qid }));
  box.replaceChildren(rows(shown.slice(0, Math.max(30, old))));
  box.onscroll = () => {
    const body = box.querySelector("tbody");
    if (box.scrollTop + 2 * box.clientHeight > box.scrollHeight)
      body.append(...rows(shown.slice(body.rows.length, body.rows.length + 30)).tBodies[0].rows);
  };
  box.scrollTop = top;
  $("count").textContent = `${whole(shown.length)} of ${whole(data.questions.length)} questions`;
}

// ---------------------------------------------------------------- one question, two runs side by side
const pieces = new Map();
async function piece(at, number) {
  const name = `piece-${at}-${number}`;
  if (!pieces.has(name) && data.live) pieces.set(name, await (await fetch(`piece/${at}/${number}`)).json());
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
  return [node("p", {}, `query: ${search.query}${search.cached ? " (searched before)" : ""}`), node("ol", {}, search.hits.map(hit))];
}

// What a program did, each search with the step that asked for it; the others begin the list.
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

// A plan or a tree, each node under its parent or the first that it waits for, with the calls made for it.
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
      node("li", {}, asked, found && ` → ${found}`, node("span", { class: "quiet" }, callsIn(steps)), inner));
    lists.set(one.id, inner);
  }
  return root.children.length ? root : "";
}

function timeline(calls) {
  if (!calls.length) return "";
  const bars = calls.map((call, i) => ({
    from: call.started_s || 0, to: (call.started_s || 0) + call.latency_s, fill: call.error ? "var(--bad)" : "var(--s0)",
    words: `${i + 1}. ${call.signature || call.kind} ${call.prompt_tokens}+${call.completion_tokens}${call.cached ? ", cached" : ""}`,
  }));
  return grouped(Plot.plot({
    className: "chart", width: 640, height: 40 + 20 * calls.length, marginLeft: 240, marginTop: 4, ariaLabel: "calls in time",
    x: { label: "seconds", nice: true }, y: { label: null, domain: bars.map((bar) => bar.words) },
    marks: [Plot.barX(bars, { x1: "from", x2: "to", y: "words", fill: "fill", stroke: "fill" })],
  }));
}

// A message is kept as JSON; people read its role and its text.
function message(text) {
  try {
    const { role, content } = JSON.parse(text);
    return `${role}:\n${[content].flat().map((part) => (typeof part === "string" ? part : part.text || JSON.stringify(part))).join("\n")}`;
  } catch (error) {
    return text;
  }
}

function prompts(record, texts, other) {
  const read = (call, from) => [...(call.prompt || []), call.reply].map((name) => from[name]).filter(Boolean).map(message);
  return record.ledger.calls.map((call, i) => {
    const [mine, like] = [read(call, texts), (each) => each.signature === call.signature];
    const theirs = other && other.record.ledger.calls.filter(like)[record.ledger.calls.slice(0, i).filter(like).length];
    const before = theirs ? read(theirs, other.texts).slice(0, -1).join("\n") : "";
    return mine.length > 0 && node("details", {}, node("summary", {}, `${i + 1}. ${call.signature || call.kind}: prompt and reply`),
      mine.map((text) => node("pre", {}, text)), before && difference(before, mine.slice(0, -1).join("\n"), other.name));
  });
}

// The lines of a prompt that another one has not, and those that it alone has.
function difference(before, after, name) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  const lines = (some, others, sign, kind) => some.filter((text) => !others.includes(text)).map((text) => node("span", { class: kind }, `${sign} ${text}\n`));
  const changed = [...lines(a, b, "-", "bad"), ...lines(b, a, "+", "good")];
  return changed.length > 0 && node("details", {}, node("summary", {}, `what differs from ${name}`), node("pre", {}, changed));
}

function passage(one, record) {
  const marked = (record.support || []).filter(([title]) => title === one.title).map(([, n]) => n);
  const sentences = (one.sentences || []).map((text, n) => node(marked.includes(n) ? "mark" : "span", {}, `${text} `));
  return node("details", {}, node("summary", {}, one.title || one.pid, gold(record, one.pid)), node("p", {}, sentences.length ? sentences : one.text));
}

function side(at, i, part, other) {
  const record = part && part.records[state.q];
  const head = node("h4", {}, called(at));
  if (!record) return node("div", { class: "side" }, head, paragraph("This run has not asked this question."));
  const { calls } = record.ledger;
  const tokens = calls.reduce((sum, call) => sum + call.prompt_tokens + call.completion_tokens, 0);
  const failure = record.failure && `failed: ${record.failure.boundary}/${record.failure.error}: ${record.failure.message}`;
  const why = data.causes[data.why[at][i]];
  return node("div", { class: "side" }, head,
    node("div", { class: "answer" }, mark(at, i), failure || record.answer || "no answer", paragraph(`gold: ${data.questions[i].gold}`),
      paragraph(`${record.stop_reason || "failed"}${why ? `, ${words(why)}` : ""}; ${calls.length} calls, ${whole(tokens)} tokens, ${record.latency_s.toFixed(1)} s`)),
    treeOf(record), stepsOf(record), timeline(calls), prompts(record, part.texts, other),
    node("details", {}, node("summary", {}, `${record.passages.length} passages`), record.passages.map((one) => passage(one, record))));
}

let opened = "";
async function showTrace() {
  const [i, runs] = [data.questions.findIndex((q) => q.qid === state.q), [...new Set([place("left"), place("right")])]];
  for (const row of $("list").querySelectorAll("tbody tr")) row.setAttribute("aria-current", row.dataset.q === state.q);
  const wanted = JSON.stringify([state.q, runs, state.metric, runs.map((at) => data.asked[at][i])]);
  if (wanted === opened) return;
  opened = wanted;
  if (i < 0) return $("trace").replaceChildren();
  const parts = await Promise.all(runs.map((at) => piece(at, Math.floor(i / data.piece)).catch(() => null)));
  if (opened !== wanted) return;
  const first = parts[0] && parts[0].records[state.q] && { record: parts[0].records[state.q], texts: parts[0].texts, name: data.runs[runs[0]].name };
  const { question, qid, type } = data.questions[i];
  $("trace").replaceChildren(node("h3", {}, question), node("p", { class: "quiet" }, [qid, type].filter(Boolean).join(", ")),
    node("div", { class: "sides" }, runs.map((at, n) => side(at, i, parts[n], n === 1 && first))));
}

function showArtefacts() {
  const folded = (name, ...inner) => node("details", {}, node("summary", {}, name), inner);
  $("artefacts").replaceChildren(
    ...data.artefacts.map(({ kind, folder, table: [heads, ...rows] }) =>
      folded(`${kind} ${folder}`, table(heads.map((head, n) => [head, "", (row) => row[n]]), rows))),
    ...data.runs.map((run, at) => folded(called(at), node("pre", {}, `${run.folder}\n${JSON.stringify(run.card, null, 1)}`))));
}

// ---------------------------------------------------------------- state, address and controls
// Runs stand in the state by their folders; what a select does not offer is as at the start.
const base = data.baselines[0];
const other = (data.advice[data.metric] || {}).best;
const right = known(other) && other !== base ? other : data.runs.length > 1 && base === 0 ? 1 : 0;
const start = { metric: data.metric, baseline: data.runs[base].folder, left: data.runs[base].folder, right: data.runs[right].folder,
  axis: "", differ: "", cause: "", find: "", q: "" };
const state = { ...start };
const place = (name) => Math.max(0, data.runs.findIndex((run) => run.folder === state[name]));
start.axis = priced() ? "cost_usd" : "tokens";

function options(id, pairs) {
  const wanted = JSON.stringify(pairs);
  if ($(id).dataset.options !== wanted) $(id).replaceChildren(...pairs.map(([at, name]) => node("option", { value: at }, name)));
  $(id).dataset.options = wanted;
  if (!pairs.some(([name]) => name === state[id])) state[id] = start[id] || pairs[0][0];
  $(id).value = state[id];
}

function showAll() {
  const runs = data.runs.map((run) => [run.folder, run.name]);
  options("metric", data.metrics.map((name) => [name, name]));
  options("baseline", data.baselines.map((at) => runs[at]));
  for (const id of ["left", "right"]) options(id, runs);
  options("cause", [["", "any"], ...data.causes.map((cause) => [cause, words(cause)])]);
  $("differ").checked = state.differ;
  if (document.activeElement !== $("find")) $("find").value = state.find;
  document.title = data.title;
  $("about").textContent = data.about || data.title;
  for (const show of [showAdvice, showPrograms, showChart, showCauses, showList, showArtefacts, showTrace]) show();
  setTimeout(index, 200);
}

function set(changes) {
  Object.assign(state, changes);
  const changed = Object.entries(state).filter(([name, now]) => now !== start[name]);
  history.replaceState(null, "", changed.length ? `#${new URLSearchParams(changed)}` : location.pathname + location.search);
  if ("q" in changes) showTrace().then(() => $("trace").scrollIntoView({ block: "start" }));
  else if (Object.keys(changes).every((name) => ["find", "cause", "differ"].includes(name))) showList();
  else showAll();
}

function follow() {
  Object.assign(state, start, Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  showAll();
}

// A served page asks for what is new and changes in place; what was typed and opened stays.
async function followRuns() {
  const version = await fetch("version").then((reply) => reply.text(), () => data.version);
  if (version === data.version) return;
  data = await (await fetch("data")).json();
  haystack = null;
  pieces.clear();
  showAll();
}

for (const control of document.querySelectorAll("select, input"))
  control.addEventListener("input", () => set({ [control.id]: control.type === "checkbox" ? (control.checked ? "yes" : "") : control.value }));
$("filters").addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", follow);
addEventListener("resize", showAll);
follow();
if (data.live) setInterval(followRuns, 2000);
