"use strict";
// Text of questions, passages, answers and prompts is untrusted: it reaches the page as text nodes.
const $ = (id) => document.getElementById(id);
let data = JSON.parse($("data").textContent);
const state = { metric: data.metric, baseline: 0, axis: "cost_usd", knob: "", differ: false, cause: "", find: "", left: 0, right: 0, q: "" };

function node(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}
function svg(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// ---------------------------------------------------------------- numbers and names
const known = (x) => x !== null && x !== undefined;
const f3 = (x) => (known(x) ? (Math.abs(x) < 100 ? x.toFixed(3).replace(/^(-?)0\./, "$1.") : Math.round(x).toLocaleString("en")) : "–");
const signed = (x) => (known(x) ? (x >= 0 ? "+" : "") + f3(x) : "–");
const amount = (x) => (known(x) ? (x >= 100 ? Math.round(x).toLocaleString("en") : x.toFixed(1)) : "–");
const dollars = (x) => (known(x) ? (x >= 100 ? Math.round(x).toLocaleString("en") : Number(x.toPrecision(3)).toString()) : "unknown");
const ends = (low, high, show) => (known(low) ? `[${show(low)}, ${show(high)}]` : "");
const mean = (run) => run.means[state.metric] || {};
const value = (run) => mean(run)[state.metric];
// Eight colours that colour-blind eyes tell apart, times as many shapes as are needed.
const SHAPES = ["circle", "square", "triangle", "diamond", "star", "cross", "wye"];
const colour = (at) => `var(--s${at % 8})`;
const shape = (at) => SHAPES[Math.floor(at / 8) % SHAPES.length];
function badge(at) {
  const made = svg("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" });
  const symbol = { circle: d3.symbolCircle, square: d3.symbolSquare, triangle: d3.symbolTriangle, diamond: d3.symbolDiamond, star: d3.symbolStar, cross: d3.symbolCross, wye: d3.symbolWye };
  made.append(svg("path", { d: d3.symbol(symbol[shape(at)], 60)(), fill: colour(at) }));
  return made;
}

// ---------------------------------------------------------------- what to use
const against = (baseline, run) => ((data.contrasts[state.metric] || {})[baseline] || {})[run];
const plain = (verdict) => (verdict.startsWith("no difference") ? "unclear" : verdict);

const priced = () => data.runs.some((run) => run.cost_usd) && data.runs.every((run) => known(run.cost_usd));

function showAdvice() {
  const found = data.advice[state.metric] || {};
  const lines = [];
  const line = (word, ...rest) => lines.push(node("p", {}, node("b", {}, word), " ", ...rest));
  const [use, ...more] = found.sentences || [];
  const price = (at) => (priced() ? `$${dollars(data.runs[at].cost_usd * 1000)}` : `${amount(data.runs[at].tokens * 1000)} tokens`);
  if (use) line("USE", use.replace(/^use /, ""), `; 1,000 questions: ${price(found.use)}${found.use === found.best ? "" : ` against ${price(found.best)}`}`);
  else if (data.runs.length < 2) line("ONE PROGRAM", `${data.runs[0].name}: run another on the same questions to compare`);
  lines.push(...more.map((sentence) => node("p", { class: "quiet" }, sentence)));
  for (const one of data.artefacts.filter((each) => each.kind === "verdict"))
    line("COMPILING", (one.conclusions || {})[state.metric] || Object.values(one.conclusions || {})[0] || one.folder);
  const verdicts = data.artefacts.filter((each) => each.kind === "verdict").map((each) => `${each.folder}/`);
  data.runs.forEach((run, at) => {
    const d = known(run.before) && !verdicts.some((folder) => run.folder.startsWith(folder)) && against(run.before, at);
    if (!d) return;
    const helps = d.verdict.startsWith("better") ? "helps" : d.verdict.startsWith("worse") ? "hurts" : "not shown to help";
    const times = run.tokens && data.runs[run.before].tokens ? `, ${(run.tokens / data.runs[run.before].tokens).toFixed(1)} times the tokens` : "";
    line("COMPILING", `${run.name}: ${helps}, ${signed(d.difference)} ${ends(d.difference_low, d.difference_high, signed)}${times} (one compile)`);
  });
  $("advice").replaceChildren(...lines);
}

// ---------------------------------------------------------------- the table of programs
function range(low, at, high, from, to, zero, fill) {
  const x = (v) => 3 + (114 * (v - from)) / (to - from || 1);
  const made = svg("svg", { class: "range", width: 120, height: 14, "aria-hidden": "true" });
  if (known(zero)) made.append(svg("line", { x1: x(zero), x2: x(zero), y1: 0, y2: 14, stroke: "var(--line)", "stroke-width": 1.5 }));
  if (known(low)) made.append(svg("line", { x1: x(low), x2: x(high), y1: 7, y2: 7, stroke: fill, "stroke-width": 2 }));
  if (known(at)) made.append(svg("circle", { cx: x(at), cy: 7, r: 4, fill }));
  return made;
}

const seen = {};
function progress(run) {
  if (run.done) return "done";
  const first = (seen[run.folder] = seen[run.folder] || { n: run.n, t: Date.now() });
  const rate = (run.n - first.n) / ((Date.now() - first.t) / 1000 || 1);
  const left = rate > 0 ? (run.asked - run.n) / rate : null;
  const clock = known(left) ? `, ${Math.floor(left / 60)}:${String(Math.round(left % 60)).padStart(2, "0")} left` : "";
  return `${run.n}/${run.asked}${clock}, $${dollars(run.billed_usd)}${data.live ? "" : " (not finished)"}`;
}

function showPrograms() {
  const m = state.metric;
  const order = data.runs.map((run, at) => at).sort((a, b) => (value(data.runs[b]) ?? -1) - (value(data.runs[a]) ?? -1));
  const all = data.runs.flatMap((run) => [mean(run)[`${m}_low`], mean(run)[`${m}_high`], value(run)]).filter(known);
  const [from, to] = [Math.min(...all, 0), Math.max(...all)];
  const differences = data.runs.map((run, at) => against(state.baseline, at));
  const reach = Math.max(0.001, ...differences.flatMap((d) => (d ? [Math.abs(d.difference_low ?? d.difference), Math.abs(d.difference_high ?? d.difference)] : [])));
  const most = Math.max(...data.runs.map((run) => mean(run).n || 0));
  const evidence = data.runs.some((run) => known(run.all_recall));
  const index = data.runs.some((run) => "index_usd" in run);
  const heads = [["program"], [m], ...(evidence ? [["evidence found"]] : []), [`vs ${data.runs[state.baseline].name}`], ["verdict"],
    ["$/1k questions", 1], ...(index ? [["index $", 1]] : []), ["tokens", 1], ["calls", 1], ["p95 s", 1], ["failed", 1], ["state"]];
  const rows = order.map((at) => {
    const run = data.runs[at];
    const [low, high, d] = [mean(run)[`${m}_low`], mean(run)[`${m}_high`], differences[at]];
    const n = mean(run).n && mean(run).n < most ? ` (${mean(run).n})` : "";
    const shared = d && d.n < most ? ` on the shared ${d.n}` : "";
    const unsupported = run.without_evidence > run.right / 3 ? ` (${run.without_evidence} of ${run.right} right without it)` : "";
    const cells = [
      [node("span", { class: "whole" }, range(low, value(run), high, from, to, null, colour(at)), `${f3(value(run))} ${ends(low, high, f3)}${n}`)],
      ...(evidence ? [[f3(run.all_recall) + unsupported]] : []),
      at === state.baseline ? ["baseline"] : d ? [node("span", { class: "whole" }, range(d.difference_low, d.difference, d.difference_high, -reach, reach, 0, colour(at)), `${signed(d.difference)} ${ends(d.difference_low, d.difference_high, signed)}${shared}`)] : ["–"],
      [d ? node("span", { title: d.verdict, class: d.verdict.startsWith("better") ? "good" : d.verdict.startsWith("worse") ? "bad" : "quiet" }, plain(d.verdict)) : "–"],
      [known(run.cost_usd) ? dollars(run.cost_usd * 1000) : "unknown"], ...(index ? [["index_usd" in run ? dollars(run.index_usd) : "–"]] : []),
      [amount(run.tokens)], [amount(run.calls)], [known(run.p95_s) ? run.p95_s.toFixed(1) : "–"], [String(run.failed)], [progress(run)],
    ];
    return node("tr", { "data-run": at }, node("th", { scope: "row" }, badge(at), " ", run.name),
      ...cells.map((cell, i) => node("td", { class: heads[i + 1][1] ? "n" : null, "data-label": heads[i + 1][0] }, node("span", {}, ...cell))));
  });
  $("programs").className = "cards";
  $("programs").replaceChildren(node("thead", {}, node("tr", {}, ...heads.map(([name, right]) => node("th", { scope: "col", class: right ? "n" : null }, name)))), node("tbody", {}, ...rows));
  const found = evidence ? " Evidence found: share of questions whose gold passages were all retrieved." : "";
  $("legend").textContent = `Means and differences with 95 % intervals; verdicts corrected over all programs (Holm). Spending per question as if nothing were cached, at list price.${found}`;
}

// ---------------------------------------------------------------- charts
const width = (id) => Math.max(240, Math.min($(id).clientWidth || 600, 700));
function label(plot, points, x, y) {
  // Each name goes to the first place beside its dot where it overlaps nothing.
  const [sx, sy] = [plot.scale("x"), plot.scale("y")];
  const right = Number(plot.getAttribute("width"));
  const taken = points.map((p) => ({ x0: sx.apply(p[x]) - 5, x1: sx.apply(p[x]) + 5, y0: sy.apply(p[y]) - 5, y1: sy.apply(p[y]) + 5 }));
  for (const p of points) {
    const [px, py, w] = [sx.apply(p[x]), sy.apply(p[y]), 6.2 * p.name.length];
    for (const [dx, dy] of [[9, -6], [-w - 9, -6], [9, 15], [-w - 9, 15], [-w / 2, -12], [-w / 2, 20]]) {
      const box = { x0: px + dx, x1: px + dx + w, y0: py + dy - 10, y1: py + dy + 2 };
      const free = box.x0 > 0 && box.x1 < right && box.y0 > 0 && !taken.some((t) => t.x0 < box.x1 && box.x0 < t.x1 && t.y0 < box.y1 && box.y0 < t.y1);
      if (!free) continue;
      taken.push(box);
      plot.append(svg("text", { x: box.x0, y: py + dy, "text-anchor": "start", "font-size": 11 }, p.name));
      break;
    }
  }
}

function dots(points, x, y, more) {
  return [
    Plot.ruleX(points, { x, y1: "low", y2: "high", stroke: "colour", strokeOpacity: 0.7, strokeWidth: 1.5 }),
    ...more,
    Plot.dot(points, { x, y, fill: (p) => (p.done ? p.colour : "var(--paper)"), stroke: "colour", strokeWidth: 1.5, symbol: "symbol", r: 5 }),
    Plot.tip(points, Plot.pointer({ x, y, title: "words" })),
  ];
}

function points(x) {
  return data.runs.map((run, at) => ({
    at, name: run.name, x: x(run), y: value(run), low: mean(run)[`${state.metric}_low`], high: mean(run)[`${state.metric}_high`],
    done: run.done, colour: colour(at), symbol: shape(at),
    words: `${run.name}\n${state.metric} ${f3(value(run))} ${ends(mean(run)[`${state.metric}_low`], mean(run)[`${state.metric}_high`], f3)}\n$ ${known(run.cost_usd) ? dollars(run.cost_usd) : "unknown"}, ${amount(run.tokens)} tokens, ${amount(run.calls)} calls`,
  })).filter((p) => known(p.x) && known(p.y));
}

function put(id, plot) {
  plot.setAttribute("role", "group");
  plot.addEventListener("click", () => plot.value && set({ right: plot.value.at, differ: true }));
  for (const part of plot.querySelectorAll("g[aria-label]")) part.setAttribute("role", "group");
  $(id).replaceChildren(plot);
}

function showPareto() {
  const some = points((run) => run[state.axis]);
  if (!some.length) return $("pareto").replaceChildren(node("p", { class: "hint" }, "no prices are known: choose another axis"));
  let best = -Infinity;
  const front = some.filter((p) => p.done).sort((a, b) => a.x - b.x || b.y - a.y).filter((p) => p.y > best && ((best = p.y), true));
  const name = { cost_usd: "dollars per question", tokens: "tokens per question", calls: "LM calls per question", p50_s: "seconds per question (median)" }[state.axis];
  const plot = Plot.plot({ className: "chart", width: width("pareto"), height: 320, marginLeft: 44, ariaLabel: `${state.metric} and ${name}`,
    x: { label: name, zero: true, nice: true, ticks: 5 }, y: { label: state.metric, grid: true, nice: true }, symbol: { legend: false },
    marks: dots(some, "x", "y", [Plot.line(front, { x: "x", y: "y", curve: "step-after", stroke: "var(--quiet)", strokeDasharray: "3 3" })]) });
  label(plot, some, "x", "y");
  put("pareto", plot);
}

// Settings in which runs differ that differ in nothing else: one line for each such group.
function knobs() {
  const found = {};
  for (const name of new Set(data.runs.flatMap((run) => Object.keys(run.settings)))) {
    const groups = new Map();
    data.runs.forEach((run, at) => {
      if (!known(run.settings[name])) return;
      const rest = JSON.stringify([known(run.before), run.program, Object.entries(run.settings).filter(([other]) => other !== name).sort()]);
      groups.set(rest, [...(groups.get(rest) || []), at]);
    });
    const lines = [...groups.values()].filter((line) => new Set(line.map((at) => data.runs[at].settings[name])).size > 1);
    if (lines.length) found[name] = lines;
  }
  return found;
}

function showCurve() {
  const found = knobs();
  $("sweep").hidden = !Object.keys(found).length;
  if ($("sweep").hidden) return;
  if (!(state.knob in found)) state.knob = Object.keys(found).sort((a, b) => found[b].flat().length - found[a].flat().length)[0];
  options("knob", Object.keys(found).map((name) => [name, name]), state.knob);
  const some = found[state.knob].flatMap((line, group) => points((run) => run.settings[state.knob]).filter((p) => line.includes(p.at)).map((p) => ({ ...p, group, colour: colour(line[0]), symbol: shape(line[0]) })));
  const ordered = [...new Set(some.map((p) => p.x))].sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
  some.sort((a, b) => ordered.indexOf(a.x) - ordered.indexOf(b.x));
  const plot = Plot.plot({ className: "chart", width: width("curve"), height: 320, marginLeft: 44, ariaLabel: `${state.metric} by ${state.knob}`,
    x: { type: "point", domain: ordered, label: state.knob }, y: { label: state.metric, grid: true, nice: true },
    marks: dots(some, "x", "y", [Plot.line(some, { x: "x", y: "y", z: "group", stroke: "colour", strokeWidth: 1.5 })]) });
  label(plot, [...new Map(some.map((p) => [p.group, { ...p, name: data.runs[found[state.knob][p.group][0]].program }])).values()], "x", "y");
  put("curve", plot);
}

function showCauses() {
  $("failures").hidden = !data.causes.length;
  const most = Math.max(1, ...data.runs.flatMap((run) => Object.values(run.causes)));
  const head = node("tr", {}, node("th", { scope: "col" }, "cause"), ...data.runs.map((run, at) => node("th", { scope: "col", class: "n", title: run.name }, badge(at), node("span", { class: "name" }, ` ${run.name.slice(0, 14)}`))));
  const rows = data.causes.map((cause) => node("tr", {}, node("th", { scope: "row" }, cause.replace("/", ": ").replaceAll("_", " ")),
    ...data.runs.map((run, at) => {
      const n = run.causes[cause] || 0;
      const bar = svg("svg", { width: 34, height: 10, "aria-hidden": "true" });
      bar.append(svg("rect", { x: 0, y: 1, height: 8, width: (34 * n) / most, fill: colour(at) }));
      return node("td", { class: "n" }, n ? node("button", { type: "button", title: `${run.name}: ${cause}`, onclick: () => set({ cause, left: at }) }, bar, ` ${n}`) : "");
    })));
  $("causes").replaceChildren(node("table", {}, node("thead", {}, head), node("tbody", {}, ...rows)));
}

// ---------------------------------------------------------------- the list of questions
let shown = [];
let cols = [];
let haystack = null;
function matches(i) {
  const scores = data.scores[state.metric];
  if (state.cause && !data.runs.some((run, at) => data.causes[data.why[at][i]] === state.cause)) return false;
  if (state.differ) {
    const first = scores.find((column) => known(column[i]));
    if (!first || !scores.some((column) => known(column[i]) && column[i] !== first[i])) return false;
  }
  return !state.find || haystack[i].includes(state.find.toLowerCase());
}

function columns() {
  const rest = data.runs.map((run, at) => at).filter((at) => at !== state.left && at !== state.right);
  return [...new Set([state.left, state.right, ...rest])].slice(0, Math.max(2, Math.min(5, Math.floor(($("list-box").clientWidth || 1200) / 230))));
}

function verdictOf(at, i) {
  const score = data.scores[state.metric][at][i];
  if (!known(score)) return data.asked[at][i] ? "" : "not asked";
  return score === 1 ? node("span", { class: "good" }, "✓ ") : score === 0 ? node("span", { class: "bad" }, "✗ ") : node("span", { class: "quiet" }, `${f3(score)} `);
}

function item(i) {
  const q = data.questions[i];
  return node("tr", { "data-q": q.qid, "aria-current": q.qid === state.q ? "true" : null },
    node("td", { "data-label": "question" }, node("button", { type: "button", onclick: () => set({ q: q.qid }) }, q.question)),
    node("td", { "data-label": "gold" }, node("span", { class: "a" }, q.gold)),
    ...cols.map((at) => {
      const answer = data.answers[at][i];
      const why = data.causes[data.why[at][i]] || "";
      return node("td", { "data-label": data.runs[at].name, title: why }, node("span", { class: "a" }, verdictOf(at, i), data.asked[at][i] ? answer ?? "failed" : ""));
    }));
}

function more() {
  const body = $("list").tBodies[0];
  body.append(...shown.slice(body.rows.length, body.rows.length + 30).map(item));
}

function index() {
  haystack = haystack || data.questions.map((q, i) => [q.qid, q.question, q.gold, ...q.titles, ...data.answers.map((column) => column[i] || "")].join(" ").toLowerCase());
}

function showList() {
  if (state.find) index();
  shown = data.questions.map((q, i) => i).filter(matches);
  cols = columns();
  const head = node("tr", {}, node("th", { scope: "col" }, "question"), node("th", { scope: "col" }, "gold"), ...cols.map((at) => node("th", { scope: "col" }, badge(at), " ", data.runs[at].name)));
  $("list").className = "cards";
  $("list").replaceChildren(node("thead", {}, head), node("tbody"));
  more();
  $("count").textContent = `${shown.length.toLocaleString("en")} of ${data.questions.length.toLocaleString("en")} questions`;
}

// ---------------------------------------------------------------- one question, two runs side by side
const pieces = new Map();
async function piece(at, number) {
  const name = `piece-${at}-${number}`;
  if (!pieces.has(name)) {
    if (data.live) pieces.set(name, await (await fetch(`piece/${at}/${number}`)).json());
    else {
      const bytes = Uint8Array.from(atob($(name).textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      pieces.set(name, JSON.parse(await new Response(stream).text()));
    }
  }
  return pieces.get(name);
}

function hits(search, record) {
  const titles = new Map(record.passages.map((p) => [p.pid, p.title || p.pid]));
  return node("div", {}, node("p", {}, `query: ${search.query}${search.cached ? " (searched before)" : ""}`),
    node("ol", { class: "hits" }, ...search.hits.map(([pid, score]) => {
      const gold = record.gold_pids.includes(pid);
      return node("li", { class: gold ? "gold" : null }, `${titles.get(pid) || pid} `, node("span", { class: "quiet" }, Number(score).toFixed(2)), gold ? node("b", { class: "good" }, " gold") : "");
    })));
}

function stepNode(step, record, left) {
  const found = step.action === "answer" ? -1 : left.findIndex((search) => search.query === step.input);
  const search = found >= 0 ? left.splice(found, 1)[0] : null;
  const titles = new Map(record.passages.map((p) => [p.pid, p.title || p.pid]));
  const notes = Object.entries(step.notes || {}).map(([name, note]) => `${name}: ${typeof note === "object" ? JSON.stringify(note) : note}`).join("; ");
  return node("div", { class: "step" }, node("b", {}, step.action), step.input && !search ? ` ${step.input}` : "", search ? hits(search, record) : "",
    step.thought ? node("p", {}, step.thought) : "", step.observation ? node("p", {}, `→ ${step.observation}`) : "",
    !search && step.pids && step.pids.length ? node("p", { class: "quiet" }, `from: ${step.pids.map((pid) => titles.get(pid) || pid).join("; ")}`) : "",
    notes ? node("p", { class: "quiet" }, notes) : "");
}

function stepsOf(record) {
  const left = [...record.searches];
  const nodes = record.steps.map((step) => stepNode(step, record, left));
  const parents = record.steps.map((step) => step.parent);
  const roots = nodes.filter((made, i) => {
    const parent = nodes[parents[i]];
    if (!parent || parent === made) return true;
    parent.append(made);
    return false;
  });
  // Searches that no step names are those that a program begins with.
  return [...left.map((search) => node("div", { class: "step" }, node("b", {}, "search"), hits(search, record))), ...roots];
}

// A plan is a list of nodes with `id` and `depends_on`; a tree has `question` and `children`.
function treeOf(record) {
  const label = (one) => `${one.question || one.query || one.id || ""}${one.answer ? ` → ${one.answer}` : ""}${one.values ? ` → ${Object.values(one.values).flat().join(", ")}` : ""}`;
  const list = (some, under, depth) => (some.length && depth < 40 ? node("ul", { class: "tree" }, ...some.map((one) => node("li", {}, label(one), list(under(one), under, depth + 1)))) : "");
  if (Array.isArray(record.plan) && record.plan.length && known(record.plan[0].id)) {
    const parent = (one) => known(one.parent) ? one.parent : (one.depends_on || [])[0];
    const ids = new Set(record.plan.map((one) => one.id));
    return list(record.plan.filter((one) => !ids.has(parent(one))), (one) => record.plan.filter((other) => parent(other) === one.id && other !== one), 0);
  }
  const roots = [].concat(record.tree || []).filter((one) => one && typeof one === "object");
  return list(roots, (one) => (one.children || []).filter((child) => child && typeof child === "object"), 0);
}

function timeline(calls) {
  if (!calls.length) return "";
  let clock = 0;
  const spans = calls.map((call) => {
    const from = known(call.started_s) ? call.started_s : clock;
    clock = Math.max(clock, from + call.latency_s);
    return [from, call.latency_s];
  });
  const first = Math.min(...spans.map(([from]) => from));
  const whole = Math.max(...spans.map(([from, took]) => from + took)) - first || 1;
  const made = svg("svg", { class: "time", viewBox: `0 0 680 ${calls.length * 18}`, role: "img", "aria-label": "calls in time" });
  calls.forEach((call, i) => {
    const x = (360 * (spans[i][0] - first)) / whole;
    made.append(svg("rect", { x, y: i * 18 + 4, height: 9, width: Math.max(2, (360 * spans[i][1]) / whole), fill: call.error ? "var(--bad)" : "var(--s0)" }));
    made.append(svg("text", { x: 370, y: i * 18 + 13, "font-size": 11 }, `${call.signature || call.kind} ${call.prompt_tokens}+${call.completion_tokens}, ${call.latency_s.toFixed(1)} s${call.cached ? ", cached" : ""}`));
  });
  return made;
}

// A message is kept as JSON; people read its role and its text.
function message(text) {
  try {
    const { role, content } = JSON.parse(text);
    const parts = [].concat(content).map((part) => (typeof part === "string" ? part : part && typeof part.text === "string" ? part.text : JSON.stringify(part)));
    return `${role}:\n${parts.join("\n")}`;
  } catch (error) {
    return text;
  }
}
const textsOf = (call, texts) => [...(call.prompt || []), call.reply].map((name) => texts[name]).filter(Boolean).map(message);
function prompts(record, texts, other) {
  return record.ledger.calls.map((call, i) => {
    const mine = textsOf(call, texts);
    if (!mine.length) return "";
    const same = record.ledger.calls.slice(0, i).filter((each) => each.signature === call.signature).length;
    const theirs = other && other.record.ledger.calls.filter((each) => each.signature === call.signature)[same];
    const before = theirs ? textsOf(theirs, other.texts) : [];
    const diff = before.length && before[0] !== mine[0] ? node("details", {}, node("summary", {}, `what differs from ${other.name}`), difference(before.slice(0, -1).join("\n"), mine.slice(0, -1).join("\n"))) : "";
    return node("details", {}, node("summary", {}, `${i + 1}. ${call.signature || call.kind}: prompt and reply`), ...mine.map((text) => node("pre", {}, text)), diff);
  });
}

// The lines of two texts, those of one alone marked: the longest common subsequence.
function difference(before, after) {
  const [a, b] = [before.split("\n").slice(0, 600), after.split("\n").slice(0, 600)];
  const long = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) long[i][j] = a[i] === b[j] ? long[i + 1][j + 1] + 1 : Math.max(long[i + 1][j], long[i][j + 1]);
  const made = node("pre");
  for (let i = 0, j = 0; i < a.length || j < b.length; ) {
    if (i < a.length && j < b.length && a[i] === b[j]) made.append(`  ${a[i++]}\n`), j++;
    else if (j < b.length && (i === a.length || long[i][j + 1] >= long[i + 1][j])) made.append(node("span", { class: "add" }, `+ ${b[j++]}\n`));
    else made.append(node("span", { class: "del" }, `- ${a[i++]}\n`));
  }
  return made;
}

function passage(one, record) {
  const gold = record.gold_pids.includes(one.pid);
  const marked = new Set((record.support || []).filter(([title]) => title === one.title).map(([, n]) => n));
  const text = one.sentences && one.sentences.length ? one.sentences.map((sentence, i) => (marked.has(i) ? node("mark", {}, `${sentence} `) : `${sentence} `)) : one.text;
  return node("details", {}, node("summary", {}, one.title || one.pid, gold ? node("b", { class: "good" }, " gold") : ""), node("p", {}, text));
}

function half(at, i, part, other) {
  const run = data.runs[at];
  const record = part && part.records[data.questions[i].qid];
  const made = node("div", { class: "side" }, node("h4", {}, badge(at), " ", run.name));
  if (!record) return made.append(node("p", { class: "hint" }, "This run has not asked this question.")), made;
  const calls = record.ledger.calls;
  const tokens = calls.reduce((sum, call) => sum + call.prompt_tokens + call.completion_tokens, 0);
  const failure = record.failure ? `failed: ${record.failure.boundary}/${record.failure.error}: ${record.failure.message}` : null;
  const why = data.causes[data.why[at][i]];
  made.append(
    node("div", { class: "answer" }, verdictOf(at, i), failure || record.answer || "no answer", node("div", { class: "quiet" }, `gold: ${data.questions[i].gold}`),
      node("div", { class: "quiet" }, `${record.stop_reason || "failed"}${why ? `, ${why.replaceAll("_", " ")}` : ""}; ${calls.length} calls, ${tokens.toLocaleString("en")} tokens, ${record.latency_s.toFixed(1)} s`)),
    treeOf(record), ...stepsOf(record), timeline(calls), ...prompts(record, part.texts, other),
    node("details", {}, node("summary", {}, `${record.passages.length} passages`), ...record.passages.map((one) => passage(one, record))));
  return made;
}

let opened = "";
async function showTrace(scroll) {
  const i = data.questions.findIndex((q) => q.qid === state.q);
  const wanted = i < 0 ? "" : JSON.stringify([state.q, state.left, state.right, state.metric, data.asked[state.left][i], data.asked[state.right][i]]);
  if (wanted === opened) return;
  opened = wanted;
  if (i < 0) return $("trace").replaceChildren();
  const sides = [...new Set([state.left, state.right])];
  let parts;
  try {
    parts = await Promise.all(sides.map((at) => piece(at, Math.floor(i / data.piece))));
  } catch (error) {
    parts = sides.map(() => null);
  }
  if (opened !== wanted) return;
  const asOther = (n) => { const record = parts[n] && parts[n].records[state.q]; return record ? { record, texts: parts[n].texts, name: data.runs[sides[n]].name } : null; };
  $("trace").replaceChildren(node("h3", {}, data.questions[i].question), node("p", { class: "quiet" }, `${state.q}${data.questions[i].type ? `, ${data.questions[i].type}` : ""}`),
    node("div", { class: "sides" }, ...sides.map((at, n) => half(at, i, parts[n], n === 1 ? asOther(0) : null))));
  if (scroll) $("trace").scrollIntoView({ block: "start" });
}

// ---------------------------------------------------------------- artefacts
function table(heads, rows) {
  return node("div", { class: "scroll" }, node("table", {}, node("thead", {}, node("tr", {}, ...heads.map((head) => node("th", { scope: "col" }, head)))),
    node("tbody", {}, ...rows.map((row) => node("tr", {}, ...row.map((cell) => node("td", {}, known(cell) ? cell : "–")))))));
}

function artefact(one) {
  const made = node("details", {}, node("summary", {}, `${one.kind} ${one.folder}`));
  if (one.kind === "verdict") {
    made.append(table(["contrast", "metric", "n", "A", "B", "B - A", "verdict"], (one.contrasts || []).map((c) =>
      [`${c.b} - ${c.a}`, c.metric, c.n, f3(c.mean_a), f3(c.mean_b), `${signed(c.difference)} ${c.interval ? ends(c.interval.low, c.interval.high, signed) : ""}`, c.verdict])));
    (one.prompts || []).forEach((seed, n) => made.append(node("details", {}, node("summary", {}, `prompts of compile ${n + 1}`),
      ...seed.map((change) => node("div", {}, node("h4", {}, `${change.predictor} (${change.signature}), ${change.demos.length} demonstrations`),
        difference(change.before, change.after), ...change.demos.map((demo) => node("pre", {}, Object.entries(demo).map(([k, v]) => `${k}: ${typeof v === "string" ? v : JSON.stringify(v)}`).join("\n"))))))));
  } else if (one.kind === "sweep") {
    made.append(table(["cell", "state", "reason"], (one.cells || []).map((cell) => [cell.cell, cell.state, cell.reason])));
    made.append(table(["cell", "against", "metric", "n", "difference", "verdict"], (one.contrasts || []).flatMap((c) => Object.entries(c.scores || {}).map(([metric, s]) =>
      [c.cell, c.baseline, metric, s.n, `${signed(s.difference)} ${s.interval ? ends(s.interval.low, s.interval.high, signed) : ""}`, s.verdict]))));
  } else made.append(table(["program", "metric", "score", "difference", "n", "knobs"], (one.front || []).map((p) =>
    [p.name, p.metric, f3(p.score), `${signed(p.difference)} ${ends(p.difference_low, p.difference_high, signed)}`, p.n, JSON.stringify(p.knobs)])));
  return made;
}

function showArtefacts() {
  const cards = data.runs.map((run, at) => node("details", {}, node("summary", {}, badge(at), ` ${run.name}, run card`), node("p", { class: "hint" }, run.folder), table(["setting", "value"], run.card)));
  $("artefacts").replaceChildren($("h-artefacts"), ...data.artefacts.map(artefact), ...cards);
}

// ---------------------------------------------------------------- state, address and controls
function options(id, pairs, chosen) {
  const wanted = JSON.stringify(pairs);
  if ($(id).dataset.options !== wanted) $(id).replaceChildren(...pairs.map(([at, name]) => node("option", { value: at }, name)));
  $(id).dataset.options = wanted;
  $(id).value = chosen;
}

const names = () => data.runs.map((run, at) => [at, run.name]);
function controls() {
  options("metric", data.metrics.map((name) => [name, name]), state.metric);
  options("baseline", data.baselines.map((at) => [at, data.runs[at].name]), state.baseline);
  options("left", names(), state.left);
  options("right", names(), state.right);
  options("cause", [["", "any"], ...data.causes.map((cause) => [cause, cause.replace("/", ": ").replaceAll("_", " ")])], state.cause);
  $("axis").value = state.axis;
  $("differ").checked = state.differ;
  if (document.activeElement !== $("find")) $("find").value = state.find;
}

const RUNS = ["baseline", "left", "right"];
function address() {
  const shown = new URLSearchParams();
  for (const [name, now] of Object.entries(state)) if (now !== start[name]) shown.set(name, RUNS.includes(name) ? data.runs[now].name : String(now));
  history.replaceState(null, "", shown.size ? `#${shown}` : location.pathname + location.search);
}
function follow() {
  const asked = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, start);
  for (const [name, text] of asked) {
    const at = data.runs.findIndex((run) => run.name === text);
    if (RUNS.includes(name)) state[name] = at >= 0 && (name !== "baseline" || data.baselines.includes(at)) ? at : state[name];
    else if (name === "metric") state.metric = data.metrics.includes(text) ? text : state.metric;
    else if (name in state) state[name] = name === "differ" ? text === "true" : text;
  }
}

const LIST = ["differ", "cause", "find", "metric", "left", "right"];
function set(changes) {
  Object.assign(state, changes);
  address();
  controls();
  const has = (...some) => some.some((name) => name in changes);
  if (has("metric", "baseline")) showAdvice(), showPrograms();
  if (has("metric", "axis")) showPareto();
  if (has("metric", "knob")) showCurve();
  if (has(...LIST)) showList();
  if (has("q", "left", "right", "metric")) {
    for (const row of $("list").tBodies[0].rows) row.toggleAttribute("aria-current", row.dataset.q === state.q), row.dataset.q === state.q && row.setAttribute("aria-current", "true");
    showTrace("q" in changes);
  }
}

function showAll() {
  document.title = data.title;
  $("about").textContent = data.about || data.title;
  for (const each of document.querySelectorAll(".y")) each.textContent = state.metric;
  controls();
  setTimeout(index, 200);
  for (const show of [showAdvice, showPrograms, showCurve, showPareto, showCauses, showList, showArtefacts, showTrace]) show();
}

// A served page asks for what is new and changes in place; what was typed and opened stays.
async function followRuns() {
  const version = await fetch("version").then((reply) => reply.text(), () => data.version);
  if (version === data.version) return;
  const [left, right, baseline] = [state.left, state.right, state.baseline].map((at) => data.runs[at].folder);
  data = await (await fetch("data")).json();
  const place = (folder) => Math.max(0, data.runs.findIndex((run) => run.folder === folder));
  Object.assign(state, { left: place(left), right: place(right), baseline: place(baseline) });
  haystack = null;
  pieces.clear();
  const at = $("list-box").scrollTop;
  showAll();
  while ($("list-box").scrollTop < at && $("list").tBodies[0].rows.length < shown.length) more(), ($("list-box").scrollTop = at);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = (name) => (document.documentElement.dataset.theme = name);
theme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
for (const id of ["metric", "axis", "knob", "cause"]) $(id).addEventListener("change", (event) => set({ [id]: event.target.value }));
for (const id of RUNS) $(id).addEventListener("change", (event) => set({ [id]: Number(event.target.value) }));
$("differ").addEventListener("change", (event) => set({ differ: event.target.checked }));
$("find").addEventListener("input", (event) => set({ find: event.target.value }));
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("list-box").addEventListener("scroll", ({ target }) => target.scrollTop + 2 * target.clientHeight > target.scrollHeight && more());
const base = data.baselines[0];
const other = (data.advice[data.metric] || {}).best;
Object.assign(state, { axis: priced() ? "cost_usd" : "tokens", baseline: base, left: base, right: known(other) && other !== base ? other : Math.min(data.runs.length - 1, base === 0 ? 1 : 0) });
const start = { ...state };
follow();
showAll();
addEventListener("hashchange", () => (follow(), showAll()));
addEventListener("resize", () => (showCurve(), showPareto(), showList()));
if (data.live) setInterval(followRuns, 2000);
