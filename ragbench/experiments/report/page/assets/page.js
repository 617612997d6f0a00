"use strict";
// The overview: one sentence, four questions, one table, and the list of questions.
// Text of questions, passages, answers and prompts is untrusted: it reaches the page only as text nodes.
const $ = (id) => document.getElementById(id);
const DRAWN = new Set("svg g line circle rect text path polyline title".split(" "));
const known = (x) => x !== null && x !== undefined;

function node(tag, attributes = {}, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (known(value) && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => known(child) && child !== false && child !== ""));
  return made;
}

// ---------------------------------------------------------------- numbers and words
const whole = (x) => Math.round(x).toLocaleString("en");
const score = (x) => (!known(x) ? "–" : Math.abs(x) < 100 ? x.toFixed(3).replace(/^-(0\.000)$/, "$1").replace(/^(-?)0\./, "$1.").replace("-", "−") : whole(x));
const signed = (x) => (known(x) && score(x)[0] !== "−" ? "+" : "") + score(x);
const amount = (x) => (!known(x) ? "–" : x >= 100 ? whole(x) : x.toFixed(1));
const dollars = (x) => (!known(x) ? "–" : x >= 1000 ? whole(x) : x >= 0.1 || x === 0 ? x.toFixed(2) : String(Number(x.toPrecision(2))));
const words = (name) => name.replace("/", ": ").replaceAll("_", " ");
const sum = (values) => values.reduce((a, b) => a + b, 0);
const count = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;

// ---------------------------------------------------------------- data and state
let data = prepared(JSON.parse($("data").textContent));
const CAUSES = { retrieval: "not found", reading: "misread", control: "wrong steps", data: "doubtful gold" };
const colour = (level) => Object.keys(CAUSES).indexOf(level);

// Derive the columns of the list of questions from the data.
function prepared(raw) {
  const column = (of) => raw.cells.map((cells) => cells.map(of));
  raw.causes = [...new Set(raw.cells.flatMap((cells) => cells.map((cell) => (cell ? cell[1] : ""))))].filter(Boolean).sort();
  raw.asked = column((cell) => cell !== null);
  raw.answers = column((cell) => (cell ? cell[0] : null));
  raw.why = column((cell) => (cell ? cell[1] : ""));
  return raw;
}

const places = () => [...data.programs.keys()].filter((at) => data.programs[at].group === Number(state.group));
const family = () => data.families[state.metric][state.group];
const mean = (at) => data.programs[at].means[state.metric] || {};
const value = (at) => mean(at)[state.metric];
const best = () => { const scored = places().filter((at) => known(value(at))); return known(family().best) ? family().best : scored[0] ?? places()[0]; };
const reference = () => (state.ref !== "" && places().includes(Number(state.ref)) ? Number(state.ref) : best());
const programOf = (run) => data.programs.findIndex((program) => program.runs.includes(run));
const runAt = (name) => Math.max(0, data.runs.findIndex((run) => run.folder === state[name]));
const letter = (at) => data.programs[at].key;
// Levels of causes that a program of the group has.
const LEVELS = () => Object.keys(CAUSES).filter((level) => places().some((at) => ofLevel(at, level)));
const ofLevel = (at, level) => sum(Object.entries(data.programs[at].causes).filter(([cause]) => cause.split("/")[0] === level).map(([, n]) => n));

// The comparison of the program at `at` minus the reference; null without one.
function against(at, ref = reference()) {
  const pairs = family().pairs || {};
  if (pairs[`${ref},${at}`]) return pairs[`${ref},${at}`];
  const turned = pairs[`${at},${ref}`];
  if (!turned) return null;
  const flip = (x) => (known(x) ? -x : x);
  const word = { better: "worse", worse: "better" }[turned.word] || turned.word;
  return { difference: flip(turned.difference), low: flip(turned.high), high: flip(turned.low), corrected_low: flip(turned.corrected_high), corrected_high: flip(turned.corrected_low), word, breakdown: turned.breakdown };
}
// A program that was not tested against the best is not filled.
const isAlive = (at) => { const d = against(at, best()); return !known(best()) || at === best() || (Boolean(d) && d.word !== "worse"); };

function start() {
  const first = data.families[data.metric][0];
  const order = data.programs.map((program, at) => [program, at]).filter(([program]) => program.group === 0).map(([, at]) => at).sort((a, b) => data.programs[a].rank - data.programs[b].rank);
  const left = known(first.best) ? first.best : order[0] ?? 0;
  const right = known(first.baseline) && first.baseline !== left ? first.baseline : order.find((at) => at !== left) ?? left;
  const folder = (at) => (data.programs[at] ? data.runs[data.programs[at].runs[0]].folder : "");
  return { group: "0", metric: data.metric, ref: "", sort: "", show: "", cause: "", who: "", from: "", to: "", find: "", q: "", left: folder(left), right: folder(right) };
}
const initial = start();
const state = { ...initial };

// ---------------------------------------------------------------- the sentence and the four questions
function rich(parts) {
  return parts.map(([kind, text]) => (kind === "b" ? node("b", {}, text) : text));
}

function showTexts() {
  const { headline, facts, title } = data.texts[state.metric][state.group];
  document.title = title;
  $("headline").replaceChildren(...rich(headline));
  $("facts").replaceChildren(...facts.map(([question, answer]) => node("div", {}, node("dt", {}, question), node("dd", {}, rich(answer)))));
  $("about").replaceChildren(...rich(data.groups[state.group].about));
}

// ---------------------------------------------------------------- drawing, shared with figures for papers
const line = (x1, y1, x2, y2, more) => node("line", { x1, y1, x2, y2, ...more });
const label = (x, y, anchor, text, more = {}) => node("text", { x, y, "text-anchor": anchor, ...more }, text);

// Round values between `low` and `high`, about `most` of them.
function ticks(low, high, most = 4) {
  const step = 10 ** Math.floor(Math.log10((high - low) / most || 1));
  const wide = [1, 2, 5, 10].map((by) => by * step).find((by) => (high - low) / by <= most) || 10 * step;
  const made = [];
  for (let at = Math.ceil(low / wide - 1e-9) * wide; at <= high + wide * 1e-9; at += wide) made.push(Number(at.toPrecision(12)));
  return made;
}

const stroke = (at) => ({ worse: "var(--bad)", better: "var(--good)" })[(against(at) || {}).word] || "var(--accent)";

// Scale of the differences from the reference.
function differences() {
  const rows = places().map((at) => against(at)).filter((d) => d && known(d.low));
  const low = Math.min(-0.02, ...rows.map((d) => d.corrected_low ?? d.low));
  const high = Math.max(0.02, ...rows.map((d) => d.corrected_high ?? d.high));
  return { low, high, x: (v, width) => 6 + ((width - 12) * (v - low)) / (high - low) };
}

// Difference with its interval: thick at 95 %, thin at the corrected level.
function interval(at, width, y) {
  const { x } = differences();
  const d = at === reference() ? null : against(at);
  const drawn = [];
  if (d && known(d.low)) {
    if (known(d.corrected_low)) drawn.push(line(x(d.corrected_low, width), y, x(d.corrected_high, width), y, { stroke: stroke(at), "stroke-width": 1 }));
    drawn.push(line(x(d.low, width), y, x(d.high, width), y, { stroke: stroke(at), "stroke-width": 4 }));
  }
  if (d || at === reference()) drawn.push(node("circle", { cx: x(d ? d.difference : 0, width), cy: y, r: 4, fill: "var(--paper)", stroke: stroke(at), "stroke-width": 2 }));
  return drawn;
}

// Width of the drawings of differences, so that the table fits into the window without scaling.
const forestWidth = () => (innerWidth > 600 && innerWidth < 1200 ? 110 : 226);

function forest(at) {
  const W = forestWidth();
  const d = against(at);
  const name = at === reference() ? "reference" : d ? `${signed(d.difference)}, 95 % interval ${signed(d.low)} to ${signed(d.high)}` : "no shared questions";
  const { x } = differences();
  return node("svg", { width: W, height: 20, viewBox: `0 0 ${W} 20`, role: "img", "aria-label": name }, line(x(0, W), innerWidth > 600 ? -6 : 0, x(0, W), 26, { stroke: "var(--axis)" }), interval(at, W, 10));
}

// A dot for each seed of a program with several runs.
function seeds(at) {
  const { runs } = data.programs[at];
  if (runs.length < 2) return "";
  const means = runs.map((run) => { const of = data.scores[state.metric][run].filter(known); return sum(of) / of.length; });
  return node("svg", { width: 90, height: 10, role: "img", "aria-label": `runs: ${means.map(score).join(", ")}` }, line(0, 5, 90, 5, { stroke: "var(--hair)" }), means.map((m) => node("circle", { cx: 4 + 82 * m, cy: 5, r: 3, fill: "var(--accent)" }, node("title", {}, score(m)))));
}

// ---------------------------------------------------------------- the table
const costOf = (at) => data.programs[at].cost_usd;
const hasPrices = () => places().some((at) => costOf(at));
const logScale = (values, from, to) => {
  const [low, high] = [Math.min(...values) / 1.1, Math.max(...values) * 1.1];
  return (v) => from + ((to - from) * Math.log(v / low)) / Math.log(high / low || 2);
};

// Wrong answers by cause; a click lists these questions.
function wrong(at) {
  const most = Math.max(1, ...places().map((each) => sum(Object.values(data.programs[each].causes))));
  const { runs } = data.programs[at];
  const per = runs.length > 1 ? " a run" : "";
  const bar = LEVELS().map((level) => {
    const n = ofLevel(at, level);
    if (!n) return "";
    const kinds = Object.entries(data.programs[at].causes).filter(([cause]) => cause.startsWith(`${level}/`));
    const each = kinds.map(([cause, k]) => `${whole(k)} ${cause.split("/")[1].replaceAll("_", " ")}`).join(", ");
    const words = `${letter(at)}: ${whole(n)} ${CAUSES[level]}${per} (${each})`;
    const button = node("button", { type: "button", class: `c${colour(level)}`, title: words, "aria-label": `${words}; list them`, onclick: () => jump({ cause: level, who: String(at), left: data.runs[runs[0]].folder }) });
    button.style.width = `${(120 * n) / most}px`;
    return button;
  });
  return node("div", { class: "wrong" }, bar);
}

// Columns of the table: head, sort key, class and cell function. Columns without a known value are omitted.
function columns() {
  const all = [
    { name: "key", head: "", by: (at) => data.programs[at].rank, kind: "k", cell: (at) => letter(at) },
    { name: "program", head: "program", by: (at) => data.programs[at].name, kind: "nm", row: true, cell: named },
    { name: "score", head: data.labels[state.metric] || state.metric, by: (at) => -(value(at) ?? -Infinity), kind: "f", cell: scored },
    { name: "difference", head: `difference from ${letter(reference())}`, by: (at) => -(against(at) || { difference: at === reference() ? 0 : -Infinity }).difference, kind: "pic", cell: forest },
    { name: "word", head: "", kind: "w x", cell: verdict },
    { name: "usd", head: "$ per 1,000", by: costOf, kind: "n x num", cell: (at) => dollars(known(costOf(at)) ? 1000 * costOf(at) : null), needs: hasPrices() },
    { name: "seconds", head: "p95 s", by: (at) => data.programs[at].p95_s, kind: "n x hide num", cell: (at) => amount(data.programs[at].p95_s), needs: places().some((at) => data.programs[at].p95_s) },
    { name: "tokens", head: "tokens", by: (at) => data.programs[at].tokens, kind: hasPrices() ? "n x hide num" : "n x num", cell: (at) => amount(data.programs[at].tokens), needs: places().some((at) => data.programs[at].tokens) },
    { name: "calls", head: "calls", by: (at) => data.programs[at].calls, kind: "n x hide num", cell: (at) => amount(data.programs[at].calls), needs: new Set(places().map((at) => data.programs[at].calls)).size > 1 },
    { name: "gold_in_context", head: "gold in context", by: (at) => -(data.programs[at].gold_in_context ?? -Infinity), kind: "n x hide num", cell: (at) => score(data.programs[at].gold_in_context), needs: places().some((at) => known(data.programs[at].gold_in_context)) },
    { name: "wrong", head: node("span", {}, "wrong: ", LEVELS().map((level, i) => [i ? " · " : "", node("span", { class: `t${colour(level)}` }, CAUSES[level])])), by: (at) => sum(Object.values(data.programs[at].causes)), kind: "x", cell: wrong, needs: LEVELS().length > 0 },
  ];
  return all.filter((column) => column.needs !== false);
}

function named(at) {
  const { name, row: short, model_short: model, model: full, n, asked, done, failed } = data.programs[at];
  const several = new Set(places().map((each) => data.programs[each].model_short)).size > 1;
  const state = [done ? "" : `${whole(n)}/${whole(asked)}`, failed ? `${whole(failed)} failed` : ""].filter(Boolean).join(", ");
  const quiet = [several && model, state].filter(Boolean).join(" · ");
  return node("div", { title: `${name}\n${full}` }, node("span", {}, short), quiet && node("small", {}, quiet), node("small", { class: "small" }, spending(at)));
}

// Costs of a program in a line, for windows that have no room for columns.
function spending(at) {
  const { p95_s: seconds, tokens, calls } = data.programs[at];
  const priced = [known(costOf(at)) && `$${dollars(1000 * costOf(at))} per 1,000`, seconds && `p95 ${amount(seconds)} s`];
  const facts = hasPrices() ? priced : [tokens && `${amount(tokens)} tokens`, calls && `${amount(calls)} calls`];
  return facts.filter(Boolean).join(" · ");
}

function scored(at) {
  const row = mean(at);
  const [low, high] = [row[`${state.metric}_low`], row[`${state.metric}_high`]];
  return [node("b", {}, score(value(at))), known(low) && node("small", {}, `${score(low)}–${score(high)}`), seeds(at)];
}

function verdict(at) {
  if (at === reference()) return "reference";
  const d = against(at);
  if (!d) return data.programs[at].control ? "control" : data.programs[at].done ? "–" : "not complete";
  const word = ["better", "worse", "equivalent"].includes(d.word) ? ` ${d.word}` : "";
  const limit = known(d.breakdown) ? `holds unless more than ${Math.round(100 * d.breakdown)} % of unseen documents fail as a whole` : null;
  return node("span", { class: { better: "good", worse: "bad" }[d.word] || "", title: limit }, `${signed(d.difference)}${word}`);
}

function sorted() {
  const by = (columns().find((column) => column.name === state.sort) || columns()[0]).by;
  const order = (a, b) => { const [x, y] = [by(a) ?? Infinity, by(b) ?? Infinity]; return x < y ? -1 : x > y ? 1 : 0; };
  return places().sort(order);
}

function showPrograms() {
  const shown = columns();
  const head = (column) => {
    const active = (state.sort || "key") === column.name;
    if (!column.head) return node("td", { class: column.kind });
    const button = node("button", { type: "button", onclick: () => set({ sort: column.name === state.sort ? "" : column.name }) }, column.head, active ? " ▾" : "");
    return node("th", { scope: "col", class: column.kind, "aria-sort": active ? "ascending" : null }, column.by ? button : column.head);
  };
  const row = (at) => node("tr", { class: isAlive(at) ? "alive" : "" }, shown.map((column) => node(column.row ? "th" : "td", { scope: column.row ? "row" : null, class: column.kind }, column.cell(at))));
  const { low, high, x } = differences();
  const W = forestWidth();
  const axis = node("tr", { "aria-hidden": "true" }, shown.map((column) => node("td", { class: column.kind }, column.name === "difference" && node("svg", { class: "axis", width: W, height: 16 }, [2, 3, 4, 5].slice(W < 200 ? 0 : 1).map((most) => ticks(low, high, most)).find((made, i) => made.length > 1 || i === 2).map((t) => label(x(t, W), 11, "middle", t === 0 ? "0" : score(t).replace(/\.?0+$/, "")))))));
  const table = node("table", { class: "main" }, node("thead", {}, node("tr", {}, shown.map(head))), node("tbody", {}, sorted().map(row), axis));
  $("programs").replaceChildren(table);
  const { tests, clusters, n } = family();
  const parts = ["Thick line: 95 % interval of the paired difference."];
  if (tests) parts.push(`Thin line: the same, corrected for ${count(tests, "comparison")} (Holm); better or worse: it excludes 0.`);
  if (n) parts.push(`${count(n, "shared question")}${clusters && clusters < n ? ` in ${count(clusters, "cluster")}` : ""}.`);
  const scopes = [...new Set(Object.values(family().pairs || {}).map((pair) => pair.scope).filter(Boolean))];
  if (scopes.length) parts.push(`Intervals and words hold ${scopes.join("; ")}.`);
  const costs = [hasPrices() && "dollars: list price", places().some((at) => data.programs[at].p95_s) && "p95 s: 95 % of questions take less"].filter(Boolean).join("; ");
  if (costs) parts.push(`As if nothing were cached; ${costs}.`);
  $("programs-note").textContent = parts.join(" ");
}

// ---------------------------------------------------------------- score by cost
const MEASURES = () => (hasPrices() ? ["cost_usd", 1000, "$ per 1,000 questions", dollars] : ["tokens", 1, "tokens a question", whole]);

function mapPlot(w = 420, h = 250) {
  const [name, scale, axis, show] = MEASURES();
  const points = places().filter((at) => data.programs[at][name] > 0 && known(value(at))).map((at) => ({ at, cost: scale * data.programs[at][name], y: value(at) }));
  if (points.length < 2) return null;
  const X = logScale(points.map((p) => p.cost), 34, w - 24);
  const [low, high] = [Math.min(...points.map((p) => p.y)) - 0.03, Math.max(...points.map((p) => p.y)) + 0.03];
  const Y = (v) => h - 40 - ((h - 56) * (v - low)) / (high - low);
  const drawn = node("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "img", "aria-label": `${data.labels[state.metric] || state.metric} by ${axis}` });
  for (const t of ticks(low, high, 5)) drawn.append(line(34, Y(t), w - 10, Y(t), { stroke: "var(--hair)" }), label(28, Y(t) + 4, "end", score(t).replace(/0$/, "")));
  const costs = points.map((p) => p.cost).sort((a, b) => a - b);
  const shown = [costs[0], costs[Math.floor(costs.length / 2)], costs.at(-1)];
  shown.filter((cost, i) => i === 0 || X(cost) - X(shown[i - 1]) > 50).forEach((cost) => drawn.append(label(X(cost), h - 20, "middle", `${name === "cost_usd" ? "$" : ""}${show(cost)}`)));
  drawn.append(label((34 + w) / 2, h - 4, "middle", axis));
  let top = -Infinity;
  const front = [];
  for (const p of [...points].sort((a, b) => a.cost - b.cost || b.y - a.y))
    if (p.y > top) { if (front.length) front.push([X(p.cost), Y(top)]); front.push([X(p.cost), Y(p.y)]); top = p.y; }
  drawn.append(node("polyline", { points: front.map((p) => p.join(",")).join(" "), fill: "none", stroke: "var(--axis)", "stroke-dasharray": "2 3" }));
  const put = [];
  for (const p of points) {
    const [x0, y0] = [X(p.cost), Y(p.y)];
    let [x, y] = [x0, y0];
    for (let turn = 0; put.some(([a, b]) => Math.hypot(a - x, b - y) < 20) && turn < 200; turn += 1) { x = x0 + (4 + turn) * Math.cos(turn * 2.4); y = Math.max(10, Math.min(h - 46, y0 + (4 + turn) * Math.sin(turn * 2.4))); }
    put.push([x, y]);
    const alive = isAlive(p.at);
    if (x !== x0) drawn.append(line(x0, y0, x, y, { stroke: "var(--axis)" }), node("circle", { cx: x0, cy: y0, r: 2, fill: "var(--axis)" }));
    drawn.append(node("circle", { cx: x, cy: y, r: 9.5, fill: alive ? "var(--accent)" : "var(--paper)", stroke: alive ? "var(--accent)" : "var(--axis)" }, node("title", {}, data.programs[p.at].name)), label(x, y + 4, "middle", letter(p.at), { "font-weight": 600, fill: alive ? "var(--paper)" : "var(--ink)", class: "key" }));
  }
  for (const text of drawn.querySelectorAll(".key")) text.style.fill = text.getAttribute("fill");
  return drawn;
}

function showMap() {
  const drawn = mapPlot();
  $("map-section").hidden = !drawn;
  if (!drawn) return;
  drawn.setAttribute("width", "100%");
  drawn.removeAttribute("height");
  $("map").replaceChildren(drawn);
  const without = places().filter((at) => !known(data.programs[at][MEASURES()[0]]));
  const unpriced = without.length ? ` Not drawn, cost unknown: ${without.map(letter).join(", ")}.` : "";
  $("map-note").textContent = `Dotted: no program scores more for less. Filled: not significantly worse than ${letter(best())}.${unpriced}`;
}

// ---------------------------------------------------------------- kinds of questions
const LEAST = 5;
function kindRows() {
  const rows = [];
  for (const [by, kinds] of Object.entries(data.kinds)) {
    const names = [...new Set(kinds.filter(known))].sort();
    if (names.length < 2) continue;
    for (const name of names) {
      const of = [...kinds.keys()].filter((i) => kinds[i] === name && inGroup(i));
      if (of.length < LEAST) continue;
      const means = places().map((at) => {
        const values = data.programs[at].runs.flatMap((run) => of.map((i) => data.scores[state.metric][run][i])).filter(known);
        return values.length ? sum(values) / values.length : null;
      });
      if (means.some(known)) rows.push({ name: by === "hops" ? count(Number(name), "hop") : words(String(name)), n: of.length, means });
    }
  }
  return rows;
}

function showKinds() {
  const rows = kindRows();
  $("kinds-section").hidden = !rows.length;
  $("kinds-title").textContent = `${data.labels[state.metric] || state.metric} by kind of question`;
  const X = (v) => `${2 + 96 * Math.max(0, Math.min(1, v))}%`;
  const row = ({ name, n, means }) => {
    const drawn = node("svg", { width: "100%", height: 20, role: "img", "aria-label": places().map((at, i) => `${letter(at)} ${score(means[i])}`).join(", ") }, line(X(0), 10, X(1), 10, { stroke: "var(--hair)" }));
    const rank = (at) => (at === best() ? 2 : isAlive(at) ? 1 : 0);
    [...places().entries()].sort((a, b) => rank(a[1]) - rank(b[1])).forEach(([i, at]) => known(means[i]) && drawn.append(node("circle", { cx: X(means[i]), cy: 10, r: 4, fill: at === best() ? "var(--accent)" : isAlive(at) ? "var(--part)" : "var(--paper)", stroke: isAlive(at) ? "var(--accent)" : "var(--axis)" }, node("title", {}, `${letter(at)} ${score(means[i])}`))));
    const top = means.indexOf(Math.max(...means.filter(known)));
    return node("tr", {}, node("td", {}, name, node("span", { class: "w" }, ` ${n}`)), node("td", { class: "pic" }, drawn), node("td", { class: "w" }, `${letter(places()[top])} ${score(means[top])}`));
  };
  const note = node("p", { class: "note" }, `Filled: ${letter(best())}. Pale: not significantly worse than ${letter(best())}. Hollow: significantly worse. Right: the highest. Kinds with fewer than ${LEAST} questions are left out; these means are not tested.`);
  $("kinds").replaceChildren(node("table", { class: "kinds" }, node("tbody", {}, rows.map(row))), note);
}

// ---------------------------------------------------------------- the questions: strip, filters and list
let order = [];
let shown = [];
let haystack = null;
const inGroup = (i) => places().some((at) => data.programs[at].runs.some((run) => data.asked[run][i]));
const scoreAt = (at, i) => { const values = data.programs[at].runs.map((run) => data.scores[state.metric][run][i]).filter(known); return values.length ? sum(values) / values.length : null; };
const right = (x) => known(x) && x >= 1;

function index() {
  const text = (q, i) => [q.qid, q.question, q.gold, ...q.titles, ...data.answers.map((column) => column[i] || "")];
  haystack = haystack || data.questions.map((q, i) => text(q, i).join(" ").toLowerCase());
}

const sides = () => [programOf(runAt("left")), programOf(runAt("right"))];
const FILTERS = {
  "": ["all", () => true],
  won: ["right for L, wrong for R", (i) => sideScores(i, (l, r) => right(l) && !right(r))],
  lost: ["wrong for L, right for R", (i) => sideScores(i, (l, r) => !right(l) && right(r))],
  none: ["no program right", (i) => places().every((at) => !right(scoreAt(at, i)))],
  every: ["every program right", (i) => places().every((at) => !known(scoreAt(at, i)) || right(scoreAt(at, i)))],
  failed: ["failed", (i) => places().some((at) => data.programs[at].runs.some((run) => data.asked[run][i] && data.answers[run][i] === null))],
};
function sideScores(i, test) {
  const [l, r] = [runAt("left"), runAt("right")].map((run) => data.scores[state.metric][run][i]);
  return known(l) && known(r) && test(l, r);
}

function causeMatches(i) {
  if (!state.cause) return true;
  const runs = state.who === "" ? places().flatMap((at) => data.programs[at].runs) : (data.programs[state.who] || { runs: [] }).runs;
  return runs.some((run) => data.why[run][i] && (data.why[run][i] === state.cause || data.why[run][i].split("/")[0] === state.cause));
}

function orderQuestions() {
  const sums = data.questions.map((_, i) => sum(places().map((at) => scoreAt(at, i) || 0)));
  order = [...data.questions.keys()].filter(inGroup).sort((a, b) => sums[b] - sums[a]);
}

function select() {
  if (state.find) index();
  const find = state.find.toLowerCase();
  const test = (FILTERS[state.show] || FILTERS[""])[1];
  const [from, to] = state.from === "" ? [0, order.length] : [Number(state.from), Number(state.to)];
  shown = order.slice(from, to).filter((i) => test(i) && causeMatches(i) && (!find || haystack[i].includes(find)));
}

function showButtons() {
  const [l, r] = sides().map(letter);
  const button = ([name, [text, test]]) => {
    const n = order.filter(test).length;
    if (name && !n) return "";
    if (["won", "lost"].includes(name) && l === r) return "";
    const words = text.replace("L", l).replace("R", r);
    return node("button", { type: "button", "aria-pressed": String(state.show === name && !state.cause && state.from === ""), onclick: () => set({ show: name, cause: "", who: "", from: "", to: "" }) }, `${words} · ${whole(n)}`);
  };
  const extra = [];
  if (state.cause) extra.push(node("button", { type: "button", "aria-pressed": "true", onclick: () => set({ cause: "", who: "" }) }, `${state.who === "" ? "" : `${letter(Number(state.who))}: `}${CAUSES[state.cause] || words(state.cause)} ✕`));
  if (state.from !== "") extra.push(node("button", { type: "button", "aria-pressed": "true", onclick: () => set({ from: "", to: "" }) }, `questions ${Number(state.from) + 1} to ${state.to} ✕`));
  $("buttons").replaceChildren(...Object.entries(FILTERS).map(button), ...extra);
}

// All questions, easiest first: a row for each program. A drag selects a range.
function drawStrip() {
  const box = $("strip");
  const ratio = devicePixelRatio || 1;
  const rows = places().sort((a, b) => data.programs[a].rank - data.programs[b].rank);
  const height = Math.max(20, Math.min(140, 7 * rows.length));
  box.style.height = `${height}px`;
  const width = box.clientWidth;
  if (!width) return;
  box.width = width * ratio;
  box.height = height * ratio;
  const pen = box.getContext("2d");
  const look = getComputedStyle(document.documentElement);
  const colour = (name) => look.getPropertyValue(name).trim();
  const [on, part, miss, dim] = ["--c0", "--part", "--miss", "--paper"].map(colour);
  pen.scale(ratio, ratio);
  const [w, h] = [width / Math.max(1, order.length), height / rows.length];
  rows.forEach((at, row) => order.forEach((i, column) => {
    const x = scoreAt(at, i);
    if (!known(x)) return;
    pen.fillStyle = x >= 1 ? on : x > 0 ? part : miss;
    pen.fillRect(column * w, row * h, Math.max(w - (w > 3 ? 0.6 : 0), 0.5), h - 1);
  }));
  if (state.from !== "") {
    pen.fillStyle = dim;
    pen.globalAlpha = 0.7;
    pen.fillRect(0, 0, Number(state.from) * w, height);
    pen.fillRect(Number(state.to) * w, 0, width, height);
  }
  box.setAttribute("aria-valuemax", String(order.length));
  box.setAttribute("aria-valuenow", String(state.from === "" ? 1 : Number(state.from) + 1));
}

function listenToStrip() {
  const box = $("strip");
  const at = (event) => Math.max(0, Math.min(order.length, ((event.clientX - box.getBoundingClientRect().left) / box.clientWidth) * order.length));
  let begun = null;
  box.addEventListener("pointerdown", (event) => { begun = at(event); box.setPointerCapture(event.pointerId); });
  box.addEventListener("pointerup", (event) => {
    if (begun === null) return;
    const [low, high] = [begun, at(event)].sort((a, b) => a - b);
    begun = null;
    const from = Math.floor(low);
    set({ from: String(Math.min(from, order.length - 1)), to: String(Math.min(order.length, Math.max(Math.ceil(high), from + (high - low < order.length / 200 ? 25 : 1)))) });
  });
  box.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25 }[event.key];
    if (event.key === "Escape") set({ from: "", to: "" });
    if (!by) return;
    event.preventDefault();
    const from = Math.max(0, Math.min(order.length - 1, (state.from === "" ? 0 : Number(state.from)) + by));
    set({ from: String(from), to: String(Math.min(order.length, from + 25)) });
  });
}

function mark(x, text) {
  const kind = !known(x) ? "none" : x >= 1 ? "on" : x > 0 ? "part" : "";
  return node("i", { class: kind }, text);
}

// The questions that match, one line each; 60 at first, more when the list is scrolled to its end.
function showList() {
  select();
  showButtons();
  drawStrip();
  const programs = places().sort((a, b) => data.programs[a].rank - data.programs[b].rank);
  const squares = programs.slice(0, 26);
  const [l, r] = [runAt("left"), runAt("right")];
  const runs = l === r ? [l] : [l, r];
  const says = (run) => node("th", { scope: "col", class: "a" }, `${letter(programOf(run))} says`);
  const head = node("tr", {}, node("th", { scope: "col", class: "q" }, "question, easiest first"), node("th", { scope: "col", class: "g" }, "right answer"), squares.map((at) => node("th", { scope: "col", class: "c", title: data.programs[at].name }, letter(at))), runs.map(says));
  const answer = (run, i) => {
    if (!data.asked[run][i]) return "not run";
    const why = data.why[run][i];
    const said = data.answers[run][i] ?? "failed";
    return state.cause && why ? `${said} (${words(why)})` : said;
  };
  const row = (i) => node("tr", { "data-q": data.questions[i].qid, "aria-current": String(state.q === data.questions[i].qid) },
    node("td", { title: data.questions[i].question }, node("button", { type: "button", onclick: () => set({ q: data.questions[i].qid }) }, data.questions[i].question)),
    node("td", { class: "g", title: data.questions[i].gold }, data.questions[i].gold),
    squares.map((at) => { const x = scoreAt(at, i); return node("td", { class: "c", title: `${letter(at)} ${score(x)}` }, mark(x, !known(x) ? "–" : x >= 1 ? "✓" : x > 0 ? "½" : "✗")); }),
    runs.map((run) => node("td", { class: "a", title: answer(run, i) }, answer(run, i))));
  const body = node("tbody", {}, shown.slice(0, 60).map(row));
  const box = $("list");
  box.replaceChildren(node("table", { class: squares.length > 9 ? "qs many" : "qs" }, node("thead", {}, head), body));
  box.onscroll = () => {
    if (box.scrollTop + 2 * box.clientHeight > box.scrollHeight) body.append(...shown.slice(body.rows.length, body.rows.length + 60).map(row));
  };
  $("count").textContent = `${whole(shown.length)} of ${count(order.length, "question")}`;
}

// ---------------------------------------------------------------- experiments, compiles and settings
function showExperiments() {
  const made = data.artefacts.filter((each) => each.rows && each.columns).map((each) => {
    const cell = (entry) => {
      if (!entry) return node("td", {}, "–");
      const at = data.programs.findIndex((program) => program.folder === entry.folder);
      if (at < 0) return node("td", { class: "quiet" }, entry.state || "–");
      const d = (entry.contrasts || {})[state.metric];
      const word = d && node("small", { class: { better: "good", worse: "bad" }[d.word] || "" }, `${signed(d.difference)}${["better", "worse"].includes(d.word) ? ` ${d.word}` : ""}`);
      return node("td", { title: data.programs[at].name }, node("b", {}, score(value(at))), ` ${letter(at)}`, word || node("small", {}, entry.baseline ? "baseline" : ""));
    };
    const head = node("tr", {}, node("td", {}), each.columns.map((name) => node("th", { scope: "col" }, name || words(state.metric))));
    const rows = each.rows.flatMap(([group, name, entries], at) => {
      const row = node("tr", {}, node("th", { scope: "row" }, name), entries.map(cell));
      if (!group || (at && each.rows[at - 1][0] === group)) return [row];
      return [node("tr", {}, node("th", { scope: "rowgroup", colspan: each.columns.length + 1, class: "group" }, group)), row];
    });
    return node("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Cells" }, node("table", { class: "matrix" }, node("thead", {}, head), node("tbody", {}, rows)));
  });
  const lines = data.artefacts.flatMap((each) => each.lines || []).map((text) => node("p", { class: "note" }, text));
  $("experiment").replaceChildren(...made, ...lines);
}

// Compiles of one program by one optimizer: a line for each seed.
function compiles() {
  const groups = new Map();
  for (const each of data.artefacts.filter((made) => made.kind === "compile")) {
    const name = `${each.program} by ${each.optimizer}`;
    groups.set(name, [...(groups.get(name) || []), each]);
  }
  return [...groups];
}

// Validation mean of each tried program. Null if every compile tried only one.
function compilePlot(seeds, w = 520, h = 200) {
  const lines = seeds.map((each) => each.tried.filter((row) => known(row.mean)).map((row) => ({ ...row, whole: row.n === each.n }))).filter((tried) => tried.length > 1);
  if (!lines.length) return null;
  const means = lines.flat().map((row) => row.mean);
  const X = (i) => 44 + ((w - 60) * i) / (Math.max(...lines.map((tried) => tried.length)) - 1);
  const [low, high] = [Math.min(...means) - 0.02, Math.max(...means) + 0.02];
  const Y = (v) => h - 36 - ((h - 50) * (v - low)) / (high - low);
  const drawn = node("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "img", "aria-label": `${seeds[0].metric} of each program that was tried` });
  for (const t of ticks(low, high, 4)) drawn.append(line(44, Y(t), w - 10, Y(t), { stroke: "var(--hair)" }), label(36, Y(t) + 4, "end", score(t)));
  for (const tried of lines) {
    drawn.append(node("polyline", { points: tried.map((row, i) => `${X(i)},${Y(row.mean)}`).join(" "), fill: "none", stroke: "var(--hair)" }));
    tried.forEach((row, i) => drawn.append(node("circle", { cx: X(i), cy: Y(row.mean), r: row.whole ? 5 : 3, fill: row.shipped ? "var(--accent)" : "var(--paper)", stroke: "var(--accent)", "stroke-width": 2 }, node("title", {}, `program ${row.number}${row.number ? "" : " (uncompiled)"}: ${score(row.mean)} on ${count(row.n, "question")}${row.shipped ? ", selected" : ""}`))));
  }
  drawn.append(label((44 + w) / 2, h - 6, "middle", "programs tried, in order"));
  return drawn;
}

function showCompiles() {
  const boxes = compiles().map(([name, seeds]) => {
    const drawn = compilePlot(seeds);
    if (!drawn) return "";
    const picked = seeds.map((each) => score((each.tried.find((row) => row.shipped) || {}).mean)).join(", ");
    const text = `${count(sum(seeds.map((each) => each.tried.length - 1)), "program")} tried on ${count(seeds[0].n, "validation question")}; ${seeds[0].metric} ${score(seeds[0].tried[0].mean)} uncompiled, ${picked} selected (filled). Selected scores are optimistic: these questions chose the program.`;
    const pays = [...new Set(seeds.flatMap((each) => each.pays_lines))];
    return node("section", {}, node("h2", {}, `Compile: ${name}`), drawn, node("p", { class: "note" }, text), pays.map((words) => node("p", { class: "note" }, words)));
  }).filter(Boolean);
  $("compiles").replaceChildren(...boxes);
  $("compiles").hidden = !boxes.length;
}

function showSettings() {
  const folded = (name, ...inner) => node("details", {}, node("summary", {}, name), inner);
  $("settings").replaceChildren(folded("Settings of each run",
    data.lms.filter(([short, long]) => short !== long).map(([short, long]) => node("p", {}, `${short} is ${long}`)),
    data.runs.map((run, at) => folded(`${letter(programOf(at))} ${run.name}`, node("pre", { tabindex: 0 }, `${run.folder}\n${JSON.stringify(run.card, null, 1)}`)))));
}

// ---------------------------------------------------------------- figures for a paper, from the same drawing code
function forestFigure(w = 640) {
  const rows = sorted().filter((at) => at === reference() || against(at));
  if (rows.length < 2) return null;
  const name = 20 + 6.2 * Math.max(...rows.map((at) => data.programs[at].short.length + 3));
  const wide = w - name - 80;
  const h = 24 * rows.length + 40;
  const { low, high, x } = differences();
  const drawn = node("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "img" });
  const inner = node("g", { transform: `translate(${name} 0)` });
  inner.append(line(x(0, wide), 4, x(0, wide), h - 34, { stroke: "var(--axis)" }));
  for (const t of ticks(low, high, 5)) inner.append(label(x(t, wide), h - 20, "middle", t === 0 ? "0" : score(t)));
  rows.forEach((at, i) => {
    drawn.append(label(4, 18 + 24 * i, "start", `${letter(at)}  ${data.programs[at].short}`, { class: "ink" }), label(w - 4, 18 + 24 * i, "end", at === reference() ? "reference" : signed(against(at).difference)));
    inner.append(...interval(at, wide, 14 + 24 * i));
  });
  drawn.append(inner, label(name + wide / 2, h - 4, "middle", `difference in ${data.labels[state.metric] || state.metric} from ${letter(reference())}`));
  return drawn;
}

function causesFigure(w = 640) {
  const rows = sorted();
  if (!LEVELS().length) return null;
  const most = Math.max(1, ...rows.map((at) => sum(Object.values(data.programs[at].causes))));
  const name = 20 + 6.2 * Math.max(...rows.map((at) => data.programs[at].short.length + 3));
  const h = 24 * rows.length + 30;
  const drawn = node("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "img" });
  LEVELS().forEach((level, i) => drawn.append(node("rect", { x: name + 110 * i, y: 4, width: 10, height: 10, fill: `var(--c${colour(level)})` }), label(name + 14 + 110 * i, 13, "start", CAUSES[level])));
  rows.forEach((at, i) => {
    drawn.append(label(4, 38 + 24 * i, "start", `${letter(at)}  ${data.programs[at].short}`));
    let from = name;
    LEVELS().forEach((level) => { const width = ((w - name - 40) * ofLevel(at, level)) / most; if (width) drawn.append(node("rect", { x: from, y: 27 + 24 * i, width: Math.max(1, width - 1), height: 14, fill: `var(--c${colour(level)})` })); from += width; });
    drawn.append(label(from + 6, 38 + 24 * i, "start", whole(sum(Object.values(data.programs[at].causes)))));
  });
  return drawn;
}

// Each figure: name, drawing with resolved colours, size and caption, or the reason for its absence.
function figures() {
  const { tests, n } = family();
  const made = [];
  const add = (name, drawn, caption, reason) => {
    if (!drawn) return made.push({ name, reason });
    drawn.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    drawn.setAttribute("font-family", "Helvetica, Arial, sans-serif");
    drawn.setAttribute("font-size", "11");
    const look = getComputedStyle(document.documentElement);
    for (const text of drawn.querySelectorAll("text:not([fill])")) text.setAttribute("fill", look.getPropertyValue("--ink").trim());
    for (const each of drawn.querySelectorAll("[style]")) each.removeAttribute("style");
    const text = drawn.outerHTML.replaceAll(/var\((--[a-z0-9-]+)\)/g, (_, of) => look.getPropertyValue(of).trim());
    return made.push({ name, svg: text, caption, width: Number(drawn.getAttribute("width")), height: Number(drawn.getAttribute("height")) });
  };
  const keys = `Letters: ${places().map((at) => `${letter(at)} ${data.programs[at].name}`).join("; ")}.`;
  const many = places().length > 40 ? "more than 40 programs do not fit" : "";
  add("differences", many ? null : forestFigure(), `Difference in ${state.metric} from ${data.programs[reference()] ? data.programs[reference()].name : ""} on ${count(n, "shared question")}. Thick: 95 % intervals; thin: corrected for ${count(tests, "comparison")} (Holm).`, many || "it needs two programs with shared questions");
  add("score-and-cost", mapPlot(640, 380), `${state.metric} by ${MEASURES()[2]}. Dotted: no program scores more for less. ${keys}`, "fewer than two programs have a known cost and a score");
  add("causes", many ? null : causesFigure(), `Wrong answers by cause, a mean over the runs of a program. ${keys}`, many || "no answer has a cause");
  compiles().forEach(([name, seeds], i) => add(`compile-${i + 1}`, compilePlot(seeds, 640, 260), `${name}: ${seeds[0].metric} of each program that was tried on ${count(seeds[0].n, "validation question")}, a line for each seed. Filled: selected.`, "fewer than two programs were tried"));
  return made;
}

// ---------------------------------------------------------------- state, address and controls
function options(id, pairs) {
  const wanted = JSON.stringify(pairs);
  if ($(id).dataset.options !== wanted) $(id).replaceChildren(...pairs.map(([at, name]) => node("option", { value: at }, name)));
  $(id).dataset.options = wanted;
  if (!pairs.some(([name]) => name === state[id])) state[id] = pairs.some(([name]) => name === initial[id]) ? initial[id] : pairs[0][0];
  $(id).value = state[id];
}

function showControls() {
  options("group", data.groups.map(({ name }, at) => [String(at), name]));
  options("metric", data.metrics.map((name) => [name, data.labels[name] || name]));
  const called = (at) => `${letter(at)} ${data.programs[at].short}`;
  const ranked = places().sort((a, b) => data.programs[a].rank - data.programs[b].rank);
  options("ref", [["", `${letter(best())} (scores most)`], ...ranked.map((at) => [String(at), called(at)])]);
  for (const id of ["group", "metric", "ref"]) $(id).parentElement.hidden = $(id).options.length < (id === "ref" ? 3 : 2);
  const runs = ranked.flatMap((at) => data.programs[at].runs.map((run, seed) => [data.runs[run].folder, `${called(at)}${data.programs[at].runs.length > 1 ? ` run ${seed + 1}` : ""}`]));
  for (const id of ["left", "right"]) options(id, runs);
  if (document.activeElement !== $("find")) $("find").value = state.find;
}

function showAll() {
  if (!data.programs.length) { showTexts(); for (const id of ["questions", "map-section", "kinds-section"]) $(id).hidden = true; return; }
  showControls();
  orderQuestions();
  for (const show of [showTexts, showExperiments, showPrograms, showMap, showKinds, showCompiles, showList, showSettings, showQuestion]) show();
  setTimeout(index, 300);
}

function set(changes) {
  Object.assign(state, changes);
  const changed = Object.entries(state).filter(([name, now]) => now !== initial[name]);
  const address = changed.length ? `#${new URLSearchParams(changed)}` : location.pathname + location.search;
  if ("q" in changes) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  if ("q" in changes) showQuestion();
  else if (Object.keys(changes).every((name) => ["find", "cause", "show", "who", "from", "to", "left", "right"].includes(name))) { showControls(); showList(); showQuestion(); }
  else showAll();
}

// Show exactly the counted questions.
function jump(changes) {
  set({ show: "", find: "", from: "", to: "", ...changes });
  $("questions").scrollIntoView({ block: "start" });
}

function follow() {
  if (location.hash === "#questions") return;
  Object.assign(state, initial, Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  showAll();
}

// A served page requests new records and updates in place. Input and opened parts stay.
async function followRuns() {
  const version = await fetch("version").then((reply) => reply.text(), () => data.version);
  if (version === data.version) return;
  data = prepared(await (await fetch("data")).json());
  haystack = null;
  forgetTraces();
  Object.assign(initial, start());
  for (const name of ["left", "right"]) if (!state[name]) state[name] = initial[name];
  for (const id of ["questions", "map-section", "kinds-section"]) $(id).hidden = false;
  showAll();
}

function begin() {
  for (const control of document.querySelectorAll("header select, #filters select, #filters input"))
    control.addEventListener("input", () => set({ [control.id]: control.value }));
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  listenToStrip();
  addEventListener("keydown", (event) => {
    const typing = ["SELECT", "INPUT"].includes(document.activeElement.tagName);
    if (event.key === "/" && !typing && !state.q) { event.preventDefault(); $("find").focus(); return; }
    if (!state.q || event.ctrlKey || event.metaKey || event.altKey || typing) return;
    if (event.key === "Escape") set({ q: "" });
    if (event.key === "j" || event.key === "ArrowRight") step(1);
    if (event.key === "k" || event.key === "ArrowLeft") step(-1);
  });
  for (const name of ["hashchange", "popstate"]) addEventListener(name, follow);
  addEventListener("resize", drawStrip);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawStrip);
  follow();
  if (data.live) setInterval(followRuns, 2000);
}
