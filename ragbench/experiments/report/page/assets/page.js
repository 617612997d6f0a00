"use strict";
// Text of questions, passages, answers and prompts is untrusted: it reaches the page as text nodes.
const $ = (id) => document.getElementById(id);
let data = unpacked(JSON.parse($("data").textContent));
const DRAWN = new Set(["svg", "g", "line", "circle", "path", "rect", "text"]);

function node(tag, attributes, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (known(value) && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => known(child) && child !== false && child !== ""));
  return made;
}

// The page's data with what follows from it: columns of the list, causes of a program, means by kind of question.
function unpacked(raw) {
  const column = (of) => raw.cells.map((cells) => cells.map(of));
  raw.causes = [...new Set(raw.cells.flatMap((cells) => cells.map((cell) => (cell ? cell[1] : ""))))].filter(Boolean).sort();
  raw.asked = column((cell) => Number(cell !== null));
  raw.answers = column((cell) => (cell ? cell[0] : null));
  raw.why = column((cell) => (cell ? raw.causes.indexOf(cell[1]) : -1));
  for (const program of raw.programs) {
    program.causes = Object.fromEntries(d3.rollup(program.runs.flatMap((run) => raw.cells[run]).filter((cell) => cell && cell[1]), (of) => of.length, (cell) => cell[1]));
    program.by = Object.entries(raw.kinds).flatMap(([by, kinds]) => byKind(raw, program.runs[0], by, kinds));
  }
  return raw;
}

function byKind(raw, run, by, kinds) {
  const asked = d3.range(kinds.length).filter((i) => raw.asked[run][i] && kinds[i] !== null);
  const groups = d3.sort(d3.groups(asked, (i) => String(kinds[i])), ([group]) => group);
  const means = (of) => Object.fromEntries(raw.metrics.map((metric) => [metric, d3.mean(of, (i) => raw.scores[metric][run][i] ?? NaN) ?? null]));
  return groups.length > 1 ? groups.map(([group, of]) => ({ by, group, n: of.length, ...means(of) })) : [];
}

// A table whose columns are a head, a class and what makes the cell of a row.
function table(columns, rows, attributes = () => ({}), kind = "") {
  const text = (head) => (typeof head === "string" ? head : head.textContent);
  const heads = columns.map(([head, of]) => node("th", { scope: "col", class: of }, head));
  const lines = rows.map((row) =>
    node("tr", attributes(row), columns.map(([head, of, cell], at) =>
      node(at ? "td" : "th", { scope: at ? null : "row", class: of, "data-label": text(head) }, cell(row)))));
  return node("table", { class: kind }, node("thead", {}, node("tr", {}, heads)), node("tbody", {}, lines));
}

// ---------------------------------------------------------------- numbers, names and colours
const known = (x) => x !== null && x !== undefined;
const whole = (x) => Math.round(x).toLocaleString("en");
const score = (x) => (!known(x) ? "–" : Math.abs(x) < 100 ? x.toFixed(3).replace(/^(-?)0\./, "$1.") : whole(x));
const signed = (x) => (known(x) && x >= 0 ? "+" : "") + score(x);
const amount = (x) => (!known(x) ? "–" : x >= 100 ? whole(x) : x.toFixed(1));
const dollars = (x) => (!known(x) ? "unknown" : x >= 1000 ? whole(x) : x >= 0.1 || x === 0 ? x.toFixed(2) : String(Number(x.toPrecision(2))));
const thousand = (x) => (known(x) ? 1000 * x : null);
const words = (name) => name.replace("/", ": ").replaceAll("_", " ");
const ends = (row, name) => [row[`${name}_low`], row[`${name}_high`]];
// A value of a row with its interval, such as ".793 [.71, .86]".
function interval(row, name, show) {
  const [low, high] = ends(row, name);
  return `${show(row[name])}${known(low) ? ` [${show(low)}, ${show(high)}]` : ""}`;
}
const programs = () => [...data.programs.keys()].filter((at) => data.programs[at].group === Number(state.group));
const family = () => data.families[state.metric][state.group];
const standing = (at) => family().standings[at] || {};
const mean = (at) => data.programs[at].means[state.metric] || {};
const value = (at) => mean(at)[state.metric];
const places = (run) => data.programs.findIndex((program) => program.runs.includes(run));
const priced = () => programs().some((at) => data.programs[at].cost_usd) && programs().every((at) => known(data.programs[at].cost_usd));
// A program has a colour, hollow as it is and filled where it is compiled; six colours that colour-blind eyes tell apart.
const SHAPES = ["Circle", "Square", "Triangle", "Diamond", "Star", "Cross", "Wye"];
const systems = () => [...new Set(data.programs.map((program) => program.system))];
const system = (at) => systems().indexOf(data.programs[at].system);
const colour = (at) => `var(--s${system(at) % 6})`;
const shape = (at) => SHAPES[Math.floor(system(at) / 6) % SHAPES.length];
const fill = (at) => (data.programs[at].compiled ? colour(at) : "var(--paper)");
const AXES = { cost_usd: "$ for 1,000 questions", tokens: "tokens a question", calls: "calls a question", p95_s: "seconds a question (p95)" };
const badge = (at) =>
  node("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" },
    node("path", { d: d3.symbol(d3[`symbol${shape(at)}`], 58)(), fill: fill(at), stroke: colour(at), "stroke-width": 2 }));
const called = (at) => [badge(at), data.programs[at].name];
const verdictClass = (d) => ({ better: "good", worse: "bad" })[d.verdict.split(/\W/)[0]] || "quiet";
function verdictWord(d) {
  const word = d.verdict.split(/[\s,]/)[0];
  return word === "no" ? "not shown" : word === "equivalent" ? "equal enough" : word;
}

// ---------------------------------------------------------------- intervals drawn on one scale
// `rows` have value, thin (corrected) and thick (95 %) ends; all are drawn between the same ends.
function scaleOf(rows) {
  const numbers = [0, ...rows.flatMap((row) => [row.at, ...row.thin, ...row.thick])].filter(known);
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  return d3.scaleLinear([low, high === low ? low + 0.1 : high], [2, 98]).nice(5);
}

const share = (x, v) => `${Math.max(0, Math.min(100, x(v))).toFixed(2)}%`;
function picture(row, x, stroke, inner) {
  const line = ([low, high], width) => known(low) && node("line", { x1: share(x, low), x2: share(x, high), y1: 9, y2: 9, stroke, "stroke-width": width });
  return node("svg", { "aria-hidden": "true" }, node("line", { x1: share(x, 0), x2: share(x, 0), y1: 0, y2: 18, stroke: "var(--axis)" }),
    line(row.thin, 1.5), line(row.thick, 5), known(row.at) && node("circle", { cx: share(x, row.at), cy: 9, r: 5, fill: inner, stroke, "stroke-width": 2 }));
}

function ticks(x, name, show) {
  const marks = x.ticks(3).map((v) => [node("line", { x1: share(x, v), x2: share(x, v), y1: 0, y2: 4, stroke: "var(--axis)" }),
    node("text", { x: share(x, v), y: 15, "text-anchor": "middle" }, show(v))]);
  return node("svg", { class: "ticks", "aria-hidden": "true" }, node("line", { x1: "0%", x2: "100%", y1: 0, y2: 0, stroke: "var(--axis)" }), marks,
    node("text", { x: "50%", y: 29, "text-anchor": "middle" }, name));
}

// Rows of a label, a number, a picture and a word, over one axis.
function forest(rows, axis) {
  const x = scaleOf(rows);
  const lines = rows.map((row) => node("tr", {}, node("th", { scope: "row", title: row.title }, row.label), node("td", { class: "n" }, row.number),
    node("td", { class: "picture" }, picture(row, x, row.stroke, row.inner)), node("td", { class: "n" }, row.gain), node("td", { class: "word", title: row.why }, row.word)));
  const foot = node("tr", {}, node("td", {}), node("td", { class: "n" }), node("td", { class: "picture" }, ticks(x, axis, (v) => String(Number(v.toPrecision(3))))), node("td", { colspan: 2 }));
  return node("table", { class: "forest" }, node("tbody", {}, lines, foot));
}

function intervalRow(d, more) {
  return { at: d && d.difference, thick: d ? ends(d, "difference") : [], thin: d ? ends(d, "corrected") : [], gain: d ? signed(d.difference) : "",
    word: d ? node("span", { class: verdictClass(d) }, verdictWord(d)) : "", why: d && d.verdict, ...more };
}

const compared = () => programs().filter((at) => known(standing(at)[state.metric]));
const forestRows = () => d3.sort(compared(), (at) => -standing(at)[state.metric]).map((at) => {
  const d = standing(at)[state.against];
  const more = { label: called(at), title: data.programs[at].name, number: score(standing(at)[state.metric]), stroke: colour(at), inner: fill(at) };
  return at === reference() ? { ...intervalRow(null, more), at: 0, word: state.against } : intervalRow(d, more);
});

function showForest() {
  const { tests, n } = family();
  const to = reference();
  const missing = programs().filter((at) => !compared().includes(at));
  const rows = forestRows();
  $("forest-caption").textContent = known(to) ? `${state.metric} less that of ${data.programs[to].name}` : "No programs to compare";
  const notes = [`${whole(n)} shared questions; thick: 95 %, thin: corrected for ${tests} tests (Holm). A word is said where the thin line excludes 0.`];
  if (missing.length) notes.push(`Not compared (not finished, too few questions, or a control of a verdict): ${missing.map((at) => data.programs[at].name).join(", ")}.`);
  $("forest").replaceChildren(rows.length > 1 ? forest(rows, `difference in ${state.metric}`) : "", node("p", { class: "quiet" }, rows.length > 1 ? notes.join(" ") : missing.length ? notes[1] : "One program: run another on the same questions."));
}

// ---------------------------------------------------------------- what to use
const reference = () => (known(family()[state.against]) ? family()[state.against] : family().best);
const paid = (program) => known(program.cost_usd) && programs().some((at) => data.programs[at].cost_usd);
const spent = (program) => (paid(program) ? `$${dollars(thousand(program.cost_usd))}` : `${amount(program.tokens)} tokens`);

function showTiles() {
  const { advice, baseline } = family();
  const tile = (what, large, ...lines) => node("div", { class: "tile" }, node("span", { class: "what" }, what), node("b", {}, large), lines.map((line) => node("span", { class: "quiet" }, line)));
  const tiles = [];
  const chosen = advice && known(advice.use) ? advice.use : advice ? advice.best : programs()[0];
  const { [chosen]: program } = data.programs;
  if (advice) {
    const [first, ...more] = advice.sentences;
    const decided = known(advice.use);
    const pair = [advice.best, advice.rival].filter(known).map((at) => data.programs[at].name).join(" or ");
    const said = first.replace(/^(undecided|use [^:]*|no program is advised): /, "");
    tiles.push(tile(decided ? "use this" : "undecided", decided ? called(chosen) : pair || "no program", `${[said, ...more].join("; ")}.`));
    const d = known(baseline) && standing(chosen).baseline;
    const name = known(baseline) ? data.programs[baseline].name : "";
    if (d) tiles.push(tile(`${state.metric} of ${program.name} over ${name}`, signed(d.difference), node("span", { class: verdictClass(d) }, `95 %: ${ends(d, "difference").map(signed).join(" to ")}, ${verdictWord(d)}`), ` (${d.n} questions)`));
    else tiles.push(tile(state.metric, score(standing(chosen)[state.metric]), `${known(baseline) ? "it is the baseline" : "no one baseline (a plain vanilla) to set it against"}; ${whole(family().n)} questions`));
  } else {
    tiles.push(tile(programs().length > 1 ? "no advice" : "one program", called(chosen), programs().length > 1 ? "Fewer than two programs are finished over questions that they share." : "Run another on the same questions to compare."));
    tiles.push(tile(state.metric, interval(mean(chosen), state.metric, score), `${mean(chosen).n} questions, ${program.failed} failed`));
  }
  const inUnit = (each) => (paid(program) ? spent(each) : `${amount(each.tokens)} tokens`);
  const reference = known(baseline) && baseline !== chosen ? `; ${data.programs[baseline].name} ${inUnit(data.programs[baseline])}` : "";
  const unit = known(program.cost_usd) ? "tokens a question (they cost nothing)" : "tokens a question (price unknown)";
  tiles.push(tile(paid(program) ? "$ for 1,000 questions" : unit, paid(program) ? spent(program) : amount(program.tokens),
    `p95 ${amount(program.p95_s)} s${reference}`));
  const verdicts = data.artefacts.filter((each) => each.kind === "verdict");
  const told = (at) => verdicts.some((each) => data.programs[at].folder.startsWith(`${each.folder}/`));
  const lines = programs().filter((at) => known(data.programs[at].before) && !told(at)).map(compilingLine);
  if (lines.length) tiles.push(node("div", { class: "compiling" }, lines));
  $("tiles").replaceChildren(...tiles);
}

// Whether compiling helped a program, over the questions that both runs share.
function compilingLine(at) {
  const program = data.programs[at];
  const before = data.programs[program.before];
  const d = standing(at).before;
  if (!d) return node("p", {}, node("b", {}, "COMPILING "), `${program.name}: no question is shared with ${before.name}`);
  const word = { better: "helps", worse: "hurts" }[d.verdict.split(/\W/)[0]] || "not shown to help";
  const times = program.tokens / before.tokens;
  const seeds = program.runs.length > 1 ? `${program.runs.length} seeds` : "one compile";
  return node("p", {}, node("b", {}, "COMPILING "), node("span", { class: verdictClass(d) }, `${before.name}: ${word}`),
    `, ${interval(d, "difference", signed)} over ${d.n} shared questions${Number.isFinite(times) ? `, ${times.toFixed(1)} times the tokens` : ""} (${seeds})`);
}

// ---------------------------------------------------------------- the table of programs
const seen = {};
function progress(program) {
  if (program.done) return "done";
  const first = (seen[program.folder] = seen[program.folder] || { n: program.n, t: Date.now() });
  const left = (program.asked - program.n) / ((1000 * (program.n - first.n)) / (Date.now() - first.t || 1));
  const clock = Number.isFinite(left) ? `, ${Math.floor(left / 60)}:${String(Math.round(left % 60)).padStart(2, "0")} left` : "";
  return `${program.n}/${program.asked}${clock}, $${dollars(program.billed_usd)} so far`;
}

function showPrograms() {
  const some = (name) => programs().some((at) => known(data.programs[at][name]));
  const to = reference();
  const field = (name, show) => (at) => show(data.programs[at][name]);
  const count = (at) => data.programs[at].failed ? node("button", { type: "button", onclick: () => jump({ cause: "failed", who: String(at) }) }, String(data.programs[at].failed)) : "0";
  const toggle = (at) => node("button", { type: "button", "aria-expanded": String(unfolded.has(at)), title: "settings",
    onclick: () => { if (!unfolded.delete(at)) unfolded.add(at); showPrograms(); } }, called(at));
  const columns = [
    ["program", "", toggle, (at) => data.programs[at].name],
    [state.metric, "key", (at) => interval(mean(at), state.metric, score), (at) => -(value(at) ?? -1)],
    ["n", "n", (at) => whole(mean(at).n), (at) => -mean(at).n],
    ["failed", "n", count, (at) => -data.programs[at].failed],
    known(to) && [`less ${state.against}`, "", (at) => { const d = standing(at)[state.against]; return at === to ? state.against : d ? `${interval(d, "difference", signed)}` : "–"; }, (at) => -((standing(at)[state.against] || {}).difference ?? 0)],
    known(to) && ["shown", "", (at) => { const d = standing(at)[state.against]; return d ? node("span", { class: verdictClass(d), title: d.verdict }, verdictWord(d)) : "–"; }, (at) => (standing(at)[state.against] || {}).p ?? 2],
    ["$ for 1,000", "n key", field("cost_usd", (x) => dollars(thousand(x))), (at) => data.programs[at].cost_usd ?? Infinity],
    some("index_usd") && ["index $", "n", field("index_usd", (x) => (known(x) ? dollars(x) : "–")), (at) => data.programs[at].index_usd ?? 0],
    ["tokens", "n", field("tokens", amount), (at) => data.programs[at].tokens],
    ["calls", "n", field("calls", amount), (at) => data.programs[at].calls],
    ["p95 s", "n", field("p95_s", amount), (at) => data.programs[at].p95_s],
    some("evidence") && ["evidence", "", (at) => `${score(data.programs[at].evidence)}${data.programs[at].without_evidence > data.programs[at].right / 3 ? ` (${data.programs[at].without_evidence} of ${data.programs[at].right} right without)` : ""}`, (at) => -data.programs[at].evidence],
    programs().some((at) => !data.programs[at].done || data.programs[at].runs.length > 1) && ["state", "", (at) => (data.programs[at].runs.length > 1 ? `${data.programs[at].runs.length} seeds` : progress(data.programs[at])), (at) => data.programs[at].n],
  ].filter(Boolean);
  const by = columns.find(([head]) => head === state.sort) || columns[1];
  const heads = columns.map(([head, kind, cell, key]) => [node("button", { type: "button", onclick: () => set({ sort: head }) }, head === by[0] ? `${head} ▾` : head), kind, cell, key]);
  const made = table(heads, d3.sort(programs(), by[3]), (at) => ({ class: unfolded.has(at) ? "open" : null, "data-at": at }));
  for (const row of made.tBodies[0].querySelectorAll("tr.open")) {
    const { model, folder, settings } = data.programs[row.dataset.at];
    const text = Object.entries(settings).map(([name, set]) => `${name}=${set}`).join(", ");
    row.after(node("tr", { class: "more" }, node("td", { colspan: columns.length }, `${model}; ${text}; ${folder}`)));
  }
  $("programs").replaceChildren(
    node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of programs" }, made),
    node("p", { class: "quiet" }, "Intervals are of 95 %; \"shown\" is corrected (Holm). What a question takes is as if nothing were cached, at list price. Evidence: the share of questions whose gold passages the model was all shown. A name unfolds its settings."));
}
const unfolded = new Set();

function showKinds() {
  const rows = programs().filter((at) => data.programs[at].by.length);
  $("kinds").hidden = !rows.length;
  if (!rows.length) return;
  const kinds = d3.groups(rows.flatMap((at) => data.programs[at].by), (each) => `${each.by}: ${each.group}`);
  const find = (at, kind) => data.programs[at].by.find((each) => `${each.by}: ${each.group}` === kind);
  const columns = kinds.map(([kind, [{ n, group }]]) => [`${words(String(group))} (${n})`, "n", (at) => score((find(at, kind) || {})[state.metric])]);
  $("kinds").replaceChildren(node("h2", {}, `${state.metric} by hops and type`), node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "By hops and type" }, table([["program", "", called], ...columns], rows)));
}

// ---------------------------------------------------------------- the score by what it takes
// Names stand at the right, in the order of their marks, each joined to its own; none is left out.
function label(plot, points, room) {
  const [sx, sy] = [plot.scale("x"), plot.scale("y")];
  const left = Number(plot.getAttribute("width")) - room + 16;
  const [top, bottom] = [14, Number(plot.getAttribute("height")) - 30];
  const names = d3.sort(points.map((p) => ({ ...p, px: sx.apply(p.x), py: sy.apply(p.y) })), (p) => p.py);
  names.forEach((p, i) => { p.to = Math.max(p.py, i ? names[i - 1].to + 14 : top); });
  for (let i = names.length - 1, most = bottom; i >= 0; i -= 1, most -= 14) names[i].to = Math.min(names[i].to, most), most = Math.min(most, names[i].to);
  const letters = Math.floor((room - 20) / 6.3);
  for (const p of names) {
    const short = p.name.length > letters ? `${p.name.slice(0, letters - 1)}…` : p.name;
    plot.append(node("line", { x1: p.px + 6, y1: p.py, x2: left - 4, y2: p.to, stroke: "var(--line)" }));
    const text = node("text", { class: "name", x: left, y: p.to + 4, "text-anchor": "start" }, short);
    text.append(document.createElementNS("http://www.w3.org/2000/svg", "title"));
    text.lastChild.textContent = p.name;
    plot.append(text);
  }
}

// A chart whose parts are groups to a screen reader.
function draw(settings) {
  const plot = Plot.plot({ className: "chart", ...settings });
  for (const part of [plot, ...plot.querySelectorAll("g[aria-label]")]) part.setAttribute("role", "group");
  return plot;
}

// Settings in which programs differ that differ in nothing else: the programs of each such group.
function knobs() {
  const found = {};
  for (const name of new Set(programs().flatMap((at) => Object.keys(data.programs[at].settings)))) {
    const rest = ({ settings, system, compiled }) => JSON.stringify({ ...settings, [name]: 0, system, compiled });
    const lines = d3.groups(programs(), (at) => rest(data.programs[at])).map(([, line]) => line);
    const swept = lines.filter((line) => new Set(line.map((at) => data.programs[at].settings[name])).size > 1);
    if (swept.length && name !== "program") found[name] = swept;
  }
  return found;
}

// The score by what a question takes, with the programs that no other beats for less, or by a swept knob, a line for each group.
function scorePlot(most, swept) {
  const lines = swept[state.axis];
  const times = state.axis === "cost_usd" ? 1000 : 1;
  const point = (at) => {
    const program = data.programs[at];
    const x = lines ? program.settings[state.axis] : program[state.axis];
    const shown = family().standings[at] && known(standing(at)[state.metric]) ? standing(at) : mean(at);
    const [low, high] = ends(shown, state.metric);
    const taken = `${spent(program)}${paid(program) ? " for 1,000 questions" : ""}, ${amount(program.calls)} calls`;
    return { at, name: program.name, x: lines || !known(x) ? x : times * x, y: shown[state.metric], low, high, fill: fill(at), colour: colour(at), symbol: shape(at).toLowerCase(),
      words: `${program.name}\n${state.metric} ${interval(shown, state.metric, score)}\n${taken}` };
  };
  const all = (lines ? lines.flat() : programs()).map(point);
  const some = d3.sort(all.filter((p) => known(p.x) && known(p.y)), (p) => p.x, (p) => -p.y);
  const missing = all.filter((p) => !some.includes(p)).map((p) => p.name);
  const notes = missing.length ? [`${missing.length} not drawn, ${state.axis === "cost_usd" ? "price" : state.axis} unknown: ${missing.join(", ")}.`] : [];
  if (!some.length) return { notes: ["No prices are known: choose another axis."] };
  let best = -Infinity;
  const front = some.filter((p) => data.programs[p.at].done && p.y > best && ((best = p.y), true));
  const pairs = lines ? [] : some.map((p) => [some.find((q) => q.at === data.programs[p.at].before), p]).filter(([q]) => q);
  const joined = lines ? lines.map((line) => some.filter((p) => line.includes(p.at))) : [front];
  const width = Math.max(300, Math.min(most, 760));
  const room = Math.min(width * 0.36, 26 + 6.4 * Math.max(...some.map((p) => p.name.length)));
  const x = lines ? { type: "point", label: state.axis } : { label: AXES[state.axis], zero: true, nice: true, ticks: 4 };
  const plot = draw({
    width, height: Math.max(300, 14 * some.length + 60), marginLeft: 44, marginRight: room, marginBottom: 34, x,
    y: { label: state.metric, grid: true, nice: true, ticks: 6 }, symbol: { legend: false }, ariaLabel: `${state.metric} by ${x.label}`,
    marks: [
      Plot.ruleX(some, { x: "x", y1: "low", y2: "high", stroke: "colour", strokeOpacity: 0.45, strokeWidth: 1.5 }),
      ...joined.map((line) => Plot.line(line, { x: "x", y: "y", curve: lines ? "linear" : "step-after", stroke: lines ? line[0] && line[0].colour : "var(--axis)", strokeDasharray: lines ? null : "3 3" })),
      ...pairs.map(([q, p]) => Plot.arrow([p], { x1: q.x, y1: q.y, x2: "x", y2: "y", stroke: p.colour, strokeWidth: 1.5, inset: 7, headLength: 7 })),
      Plot.dot(some, { x: "x", y: "y", fill: "fill", stroke: "colour", strokeWidth: 2, symbol: "symbol", r: 5 }),
      Plot.tip(some, Plot.pointer({ x: "x", y: "y", title: "words" })),
    ],
  });
  label(plot, some, room);
  notes.push(lines ? "A line for each group that differs in nothing else." : "Dashed: no finished program is better for less. Hollow: as it is; filled: compiled, with an arrow from what it was.");
  return { plot, notes };
}

function showChart() {
  const swept = knobs();
  options("axis", [...Object.entries(AXES), ...Object.keys(swept).map((name) => [name, name])]);
  const { plot, notes } = scorePlot($("chart").clientWidth || 600, swept);
  if (plot) plot.addEventListener("click", () => plot.value && set({ right: data.runs[data.programs[plot.value.at].runs[0]].folder, show: "differ" }));
  $("chart").replaceChildren(plot || "", ...notes.map((text) => node("p", { class: "quiet" }, text)));
}

// ---------------------------------------------------------------- why answers are wrong
const LEVELS = ["retrieval", "reading", "control", "data"];
function showCauses() {
  $("failures").hidden = !data.causes.length;
  const levels = [...LEVELS, ...new Set(data.causes.map((cause) => cause.split("/")[0]).filter((level) => !LEVELS.includes(level)))];
  const of = (at, level) => d3.sum(Object.entries(data.programs[at].causes).filter(([cause]) => cause.split("/")[0] === level), ([, n]) => n);
  const most = Math.max(1, ...programs().map((at) => d3.sum(levels, (level) => of(at, level))));
  const bars = (at) => {
    let from = 0;
    const bar = levels.map((level, i) => { const n = of(at, level); from += n; return n > 0 && node("rect", { x: `${(100 * (from - n)) / most}%`, width: `${(100 * n) / most}%`, y: 3, height: 12, fill: `var(--c${i % 4})` }); });
    return node("svg", { "aria-hidden": "true" }, bar);
  };
  const key = (level, i) => node("span", {}, node("svg", { width: 12, height: 12, "aria-hidden": "true" }, node("rect", { width: 12, height: 12, fill: `var(--c${i % 4})` })), level);
  const button = (at, cause, n, text) => node("button", { type: "button", title: cause, onclick: () => jump({ cause, who: String(at) }) }, text || String(n));
  const columns = levels.map((level, i) => [key(level, i), "n", (at) => { const n = of(at, level); return n ? button(at, level, n) : "0"; }]);
  const details = (at) => Object.entries(data.programs[at].causes).sort((a, b) => b[1] - a[1]).flatMap(([cause, n], i) => [i ? ", " : "", button(at, cause, n, `${words(cause)} ${n}`)]);
  $("causes").replaceChildren(node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Causes" }, table([["program", "", called], ["wrong", "picture", bars], ...columns], programs())),
    node("details", {}, node("summary", {}, "each cause (a count shows those questions)"), table([["program", "", called], ["causes", "", details]], programs())));
}

// ---------------------------------------------------------------- the list of questions
let shown = [];
let haystack = null;
function index() {
  const text = (q, i) => [q.qid, q.question, q.gold, ...q.titles, ...data.answers.map((column) => column[i] || "")];
  haystack = haystack || data.questions.map((q, i) => text(q, i).join(" ").toLowerCase());
}

const SHOW = { "": "all", differ: "where programs differ", won: "right side better", lost: "left side better", both: "both right", neither: "both wrong" };
function compareSides(i) {
  const scores = data.scores[state.metric];
  const [a, b] = [scores[place("left")][i], scores[place("right")][i]];
  if (!known(a) || !known(b)) return "";
  if (a !== b) return b > a ? "won" : "lost";
  return a === 1 ? "both" : "neither";
}

function matches(q, i) {
  const scores = data.scores[state.metric].filter((_, run) => data.programs[places(run)].group === Number(state.group)).map((column) => column[i]).filter(known);
  if (!inGroup(i)) return false;
  if (state.find && !haystack[i].includes(state.find.toLowerCase())) return false;
  if (state.show === "differ" && new Set(scores).size < 2) return false;
  if (state.show && state.show !== "differ" && compareSides(i) !== state.show) return false;
  if (!state.cause) return true;
  const runs = state.who === "" ? programs().flatMap((at) => data.programs[at].runs) : (data.programs[state.who] || { runs: [] }).runs;
  if (state.cause === "failed") return runs.some((run) => data.asked[run][i] && data.answers[run][i] === null);
  return runs.some((run) => { const why = data.causes[data.why[run][i]]; return why && (why === state.cause || why.split("/")[0] === state.cause); });
}
const inGroup = (i) => programs().some((at) => data.programs[at].runs.some((run) => data.asked[run][i]));

function mark(run, i) {
  const x = data.scores[state.metric][run][i];
  if (!known(x)) return data.asked[run][i] ? "" : "not asked";
  return node("span", { class: x === 1 ? "good" : x === 0 ? "bad" : "quiet" }, x === 1 ? "✓ " : x === 0 ? "✗ " : `${score(x)} `);
}

// The questions that match, 30 rows at first, and more where the list is scrolled to its end.
function showList() {
  if (state.find) index();
  shown = data.questions.map((q, i) => i).filter((i) => matches(data.questions[i], i));
  const most = Math.max(2, Math.min(5, Math.floor(($("list").clientWidth || 1200) / 230)));
  const runs = [...new Set([place("left"), place("right"), ...programs().flatMap((at) => data.programs[at].runs)])].slice(0, most);
  const [box, old] = [$("list"), $("list").querySelectorAll("tbody tr").length];
  const top = box.scrollTop;
  const answer = (run, i) => [mark(run, i), data.asked[run][i] ? data.answers[run][i] ?? "failed" : ""];
  const columns = [
    ["question", "", (i) => node("button", { type: "button", onclick: () => set({ q: data.questions[i].qid }) }, data.questions[i].question)],
    ["gold", "", (i) => data.questions[i].gold],
    ...runs.map((run) => [node("span", {}, badge(places(run)), data.runs[run].name), "", (i) => answer(run, i)]),
  ];
  const rows = (some) => table(columns, some, (i) => ({ "data-q": data.questions[i].qid }));
  box.replaceChildren(rows(shown.slice(0, Math.max(30, old))));
  box.onscroll = () => {
    const body = box.querySelector("tbody");
    if (box.scrollTop + 2 * box.clientHeight > box.scrollHeight)
      body.append(...rows(shown.slice(body.rows.length, body.rows.length + 30)).tBodies[0].rows);
  };
  box.scrollTop = top;
  const counts = d3.rollup(data.questions.keys(), (of) => of.length, compareSides);
  const [a, b] = ["left", "right"].map((name) => data.runs[place(name)].name);
  const pair = a === b ? [] : [["won", `${b} better`], ["lost", `${a} better`]].map(([kind, name]) =>
    node("button", { type: "button", onclick: () => set({ show: state.show === kind ? "" : kind }) }, ` · ${name}: ${counts.get(kind) || 0}`));
  const all = data.questions.filter((_, i) => inGroup(i)).length;
  $("count").replaceChildren(`${whole(shown.length)} of ${whole(all)} questions`, ...pair);
}

// ---------------------------------------------------------------- one question, two runs side by side
const pieces = new Map();
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
      node("li", {}, asked, found && ` → ${found}`, node("span", { class: "quiet" }, one.state && ` ${one.state}`, callsIn(steps)), inner));
    lists.set(one.id, inner);
  }
  return root.children.length ? root : "";
}

const lastSecond = (part) => { const record = part && part.records[state.q]; return record ? Math.max(0.001, ...record.ledger.calls.map((call) => (call.started_s || 0) + call.latency_s)) : 0; };
// The calls in time, from 0 to `most` seconds on both sides.
function timeline(calls, most) {
  if (!calls.length) return "";
  const x = d3.scaleLinear([0, most], [0, 100]);
  const bar = (call) => node("svg", { "aria-hidden": "true" }, node("rect", { x: share(x, call.started_s || 0), width: `${Math.max(0.5, x(call.latency_s)).toFixed(2)}%`, y: 3, height: 12, fill: call.error ? "var(--bad)" : "var(--s0)" }));
  const name = (call, i) => `${i + 1}. ${call.signature || call.kind}`;
  const rows = calls.map((call, i) => node("tr", {}, node("th", { scope: "row", title: name(call, i) }, name(call, i)), node("td", { class: "picture" }, bar(call)),
    node("td", { class: "word" }, `${whole(call.prompt_tokens)}+${whole(call.completion_tokens)}${call.cached ? ", cached" : ""}`)));
  const foot = node("tr", {}, node("td", {}), node("td", { class: "picture" }, ticks(x, "seconds", String)), node("td", {}));
  return node("table", { class: "forest times" }, node("tbody", {}, rows, foot));
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

// The prompt as messages, those between the first and the last folded as demonstrations, and the reply.
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

// The words of a prompt that another one has not, and those that it alone has, in their places.
function difference(before, after, name) {
  const box = node("pre", {});
  const fold = node("details", {}, node("summary", {}, `what differs from ${name}`), box);
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

// The longest common words of `x` and `y` in order: runs of [kind, words], kind empty where both have them.
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

function side(run, i, part, other, most) {
  const record = part && part.records[state.q];
  const head = node("h3", {}, badge(places(run)), data.runs[run].name);
  if (!record) return node("div", { class: "side" }, head, paragraph("This run has not asked this question."));
  const { calls } = record.ledger;
  const tokens = d3.sum(calls, (call) => call.prompt_tokens + call.completion_tokens);
  const failure = record.failure && `failed: ${record.failure.boundary}/${record.failure.error}: ${record.failure.message}`;
  const why = data.causes[data.why[run][i]];
  return node("div", { class: "side" }, head,
    node("div", { class: "answer" }, mark(run, i), failure || record.answer || "no answer",
      paragraph(`${record.stop_reason || "failed"}${why ? `, ${words(why)}` : ""}; ${calls.length} calls, ${whole(tokens)} tokens, ${record.latency_s.toFixed(1)} s`)),
    treeOf(record), timeline(calls, most), stepsOf(record), prompts(record, part.texts, other),
    node("details", {}, node("summary", {}, `${record.passages.length} passages`), record.passages.map((one) => passage(one, record))));
}

const button = (text, onclick, title) => node("button", { type: "button", onclick, title }, text);
function step(by) {
  const at = shown.findIndex((i) => data.questions[i].qid === state.q);
  const next = data.questions[shown[at + by]];
  if (next) set({ q: next.qid });
}

async function copyQuestion() {
  const text = $("question").innerText;
  await navigator.clipboard.writeText(text).then(() => { $("copied").textContent = "copied"; }, () => { $("copied").textContent = "the browser does not let this page copy"; });
}

let opened = "";
let scrolled = 0;
async function showQuestion() {
  const [i, runs] = [data.questions.findIndex((q) => q.qid === state.q), [...new Set([place("left"), place("right")])]];
  const wanted = JSON.stringify([state.q, runs, state.metric, runs.map((run) => data.asked[run][i])]);
  if (wanted === opened) return;
  const was = !$("question").hidden;
  opened = wanted;
  for (const row of $("list").querySelectorAll("tbody tr")) row.setAttribute("aria-current", row.dataset.q === state.q);
  if (i < 0) {
    $("question").hidden = true;
    $("overview").hidden = false;
    if (was) { showAll(); scrollTo(0, scrolled); }
    return;
  }
  const parts = await Promise.all(runs.map((run) => piece(run, Math.floor(i / data.piece)).catch(() => null)));
  if (opened !== wanted) return;
  if (!was) scrolled = scrollY;
  const first = parts[0] && parts[0].records[state.q] && { record: parts[0].records[state.q], texts: parts[0].texts, name: data.runs[runs[0]].name };
  const { question, qid, type, gold: right } = data.questions[i];
  const at = shown.indexOf(i);
  const most = Math.max(...parts.map(lastSecond));
  const picker = (name) => node("label", {}, `${name} `, node("select", { oninput: (event) => set({ [name]: event.target.value }) },
    data.runs.map((run) => node("option", { value: run.folder, selected: run.folder === state[name] ? "" : null }, run.name))));
  $("question").replaceChildren(
    node("nav", { class: "bar", "aria-label": "Questions" }, button("← all questions", () => set({ q: "" }), "Escape"), button("previous", () => step(-1), "k"), button("next", () => step(1), "j"),
      node("span", { class: "quiet" }, at < 0 ? "" : `${at + 1} of ${shown.length}`), picker("left"), picker("right"), button("copy", copyQuestion), node("span", { id: "copied", class: "quiet" })),
    node("h2", {}, question), node("p", {}, node("b", {}, `gold: ${right} `), node("span", { class: "quiet", id: "asked" }, [qid, type].filter(Boolean).join(", "))),
    node("div", { class: "sides" }, runs.map((run, n) => side(run, i, parts[n], n === 1 && first, most))));
  $("overview").hidden = true;
  $("question").hidden = false;
  if (!was) $("question").focus();
  scrollTo(0, 0);
}

// ---------------------------------------------------------------- verdicts, sweeps and races
function contrastForest(rows, axis, name) {
  return forest(rows.map((d) => intervalRow(d, { label: name(d), title: name(d), number: whole(d.n), stroke: "var(--s0)", inner: "var(--s0)" })), axis);
}

const chooseMetric = (by) => (state.metric in by ? state.metric : Object.keys(by)[0]);
function verdictOf(each) {
  const metric = chooseMetric(each.headlines);
  const [heads, ...rows] = each.table;
  return [node("p", {}, each.headlines[metric]), each.controls[metric].map(paragraph), paragraph(each.price),
    contrastForest(each.contrasts.filter((d) => d.metric === metric), `difference in ${metric} (thick: 95 %, thin: corrected)`, (d) => d.contrast),
    node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Arms" }, table(heads.map((head, n) => [head, n ? "n" : "", (row) => row[n]]), rows))];
}

// A sweep as a matrix: programs down, what was swept across; its own baseline in each comparison.
function sweepOf(each) {
  const cells = each.cells.map((cell) => ({ ...cell, at: data.programs.findIndex((program) => program.folder === cell.folder) }));
  const done = cells.filter((cell) => cell.at >= 0);
  if (!done.length) return [node("p", {}, "No cell of the sweep has a record yet.")];
  const of = (cell) => ({ program: data.programs[cell.at].system + (data.programs[cell.at].compiled ? " compiled" : ""), ...data.programs[cell.at].settings });
  const names = [...new Set(done.flatMap((cell) => Object.keys(of(cell))))];
  const differing = names.filter((name) => new Set(done.map((cell) => of(cell)[name])).size > 1 && !/^(retriever\.|set$|program_source)/.test(name));
  const [down, ...across] = differing.length ? differing.sort((a, b) => (b === "program") - (a === "program")) : ["program"];
  const column = (cell) => across.filter((name) => known(of(cell)[name])).map((name) => `${name}=${of(cell)[name]}`).join(", ") || state.metric;
  const contrasts = new Map(each.contrasts.filter((c) => c.metric === state.metric).map((c) => [c.cell, c]));
  const values = done.map((cell) => value(cell.at)).filter(known);
  const shade = d3.scaleQuantize([Math.min(...values), Math.max(...values) + 1e-9], ["h0", "h1", "h2", "h3", "h4"]);
  const best = d3.greatest(done, (cell) => value(cell.at) ?? -1);
  const box = (cell) => {
    const d = contrasts.get(cell.label);
    return node("td", { class: shade(value(cell.at) ?? values[0]), title: cell.label }, node("b", {}, `${score(value(cell.at))}${cell === best ? " (most)" : ""}`), d && node("span", { class: verdictClass(d) }, `${signed(d.difference)} ${verdictWord(d)}`));
  };
  const heads = d3.sort([...new Set(done.map(column))], (a, b) => a.localeCompare(b, "en", { numeric: true }));
  const rows = d3.groups(done, (cell) => String(of(cell)[down])).map(([name, line]) => node("tr", {}, node("th", { scope: "row" }, down === "program" ? name : `${down}=${name}`),
    heads.map((head) => { const cell = line.find((each) => column(each) === head); return cell ? box(cell) : node("td", {}, "–"); })));
  const bases = [...new Set([...contrasts.values()].map((c) => c.baseline))];
  const undone = cells.filter((cell) => cell.state !== "done").map((cell) => `${cell.label}: ${cell.state}${cell.reason ? `, ${cell.reason}` : ""}`);
  return [node("p", {}, `${state.metric}: ${done.length} of ${cells.length} cells; the most is ${score(value(best.at))} (${best.label}), and the most of ${done.length} is partly luck`),
    node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Matrix" }, node("table", { class: "heat" }, node("thead", {}, node("tr", {}, node("td", {}), heads.map((head) => node("th", { scope: "col" }, head)))), node("tbody", {}, rows))),
    bases.length > 0 && paragraph(`Below each score: the difference from its own baseline (${bases.join("; ")}), corrected over the sweep.`), paragraph(undone.join("; "))];
}

// A race: how many questions each program was asked before it was out, and why.
function raceOf(each) {
  const bar = (runner) => node("svg", { "aria-hidden": "true" }, node("rect", { x: "0%", width: "100%", y: 3, height: 12, fill: "var(--line)" }),
    node("rect", { x: "0%", width: `${(100 * runner.questions) / each.stream}%`, y: 3, height: 12, fill: runner.outcome.startsWith("out") ? "var(--c1)" : "var(--s0)" }));
  const columns = [["program", "", (r) => r.program], [each.metric, "n", (r) => score(r.score)], ["questions", "n", (r) => whole(r.questions)], [`of ${each.stream}`, "picture", bar],
    ["$ for 1,000", "n", (r) => dollars(r.usd_1k)], ["outcome", "", (r) => r.outcome]];
  return [node("p", {}, each.sentence), paragraph(each.saved), node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Race" }, table(columns, each.runners))];
}

// ---------------------------------------------------------------- compiles
const titleOf = (each) => `${each.program} by ${each.optimizer}${known(each.seed) ? `, seed ${each.seed}` : ""}`;
// The mean of each program that was tried on validation, by the tokens that validation had taken.
function learningPlot(each, width) {
  let spentTokens = 0;
  let best = -Infinity;
  const points = each.tried.filter((row) => known(row.mean)).map((row) => {
    spentTokens += row.tokens || 0;
    if (row.n === each.n) best = Math.max(best, row.mean);
    return { x: spentTokens, y: row.mean, best, whole: row.n === each.n, words: `program ${row.number}${row.number ? "" : " (as it is)"}: ${score(row.mean)} of ${row.n} questions${row.shipped ? ", kept" : ""}`, kept: row.shipped };
  });
  const line = points.filter((p) => Number.isFinite(p.best));
  return draw({
    width, height: 220, marginLeft: 44, marginBottom: 34, ariaLabel: `${each.metric} by tokens of validation`,
    x: { label: "tokens of validation so far", zero: true, nice: true, ticks: 4 }, y: { label: each.metric, grid: true, nice: true, ticks: 5 },
    marks: [
      Plot.line(line, { x: "x", y: "best", curve: "step-after", stroke: "var(--axis)" }),
      Plot.dot(points, { x: "x", y: "y", r: (p) => (p.whole ? 5 : 3), stroke: "var(--s0)", strokeWidth: 2, fill: (p) => (p.kept ? "var(--s0)" : "var(--paper)") }),
      Plot.tip(points, Plot.pointer({ x: "x", y: "y", title: "words" })),
    ],
  });
}

// What was spent after so many questions, as it is and compiled, the compile included.
function breakEvenPlot(each, width) {
  const [unit, back] = Object.entries(each.pays).find(([, one]) => one.once && one.before && known(one.after)) || [];
  if (!back) return null;
  const saved = back.before - back.after;
  const most = Math.max(1000, saved > 0 ? (2 * back.once) / saved : 0);
  const lines = [{ name: "as it is", from: 0, each: back.before, stroke: "var(--s0)" }, { name: "compiled", from: back.once, each: back.after, stroke: "var(--s1)" }];
  return draw({
    width, height: 220, marginLeft: 60, marginRight: 60, marginBottom: 34, ariaLabel: `${unit} by questions`,
    x: { label: "questions", zero: true, nice: true, ticks: 4 }, y: { label: unit === "$" ? "$ in all" : "tokens in all", grid: true, zero: true, nice: true, ticks: 5 },
    marks: lines.map((line) => [
      Plot.link([line], { x1: 0, y1: line.from, x2: most, y2: line.from + line.each * most, stroke: line.stroke, strokeWidth: 2 }),
      Plot.text([line], { x: most, y: line.from + line.each * most, text: "name", textAnchor: "start", dx: 5, fill: "currentColor" }),
    ]),
  });
}

const compiles = () => data.artefacts.filter((each) => each.kind === "compile");
function showCompiles() {
  $("compiles").hidden = !compiles().length;
  const width = Math.max(280, Math.min(($("overview").clientWidth || 900) / 2 - 20, 560));
  const box = (each) => {
    const tried = each.tried.filter((row) => row.number);
    const kept = each.tried.find((row) => row.shipped) || {};
    const words = `${tried.length} programs tried on ${each.n} validation questions, ${each.metric} ${score(each.tried[0].mean)} as it is, ${score(kept.mean)} of the one that is kept: chosen by these questions, which flatters it`;
    const pays = Object.entries(each.pays).map(([unit, back]) => paragraph(`in ${unit}: ${back.words}`));
    return [node("figure", {}, node("figcaption", {}, titleOf(each)), node("p", { class: "quiet" }, words), learningPlot(each, width)), node("figure", {}, node("figcaption", {}, "When the compile pays for itself"), pays.length ? pays : paragraph("No run of this program and of the one before it are on this page."), breakEvenPlot(each, width))];
  };
  $("compiles").replaceChildren(node("h2", {}, "Compiles"), node("div", { class: "pairs" }, compiles().flatMap(box)));
}

// ---------------------------------------------------------------- figures for a paper
// A forest as one drawing.
function forestPlot(rows, axis, width) {
  const shown = rows.filter((row) => known(row.at));
  return draw({
    width, height: 46 + 22 * shown.length, marginLeft: 20 + 6.4 * Math.max(...shown.map((row) => row.title.length)), marginRight: 70, marginBottom: 34, ariaLabel: axis,
    x: { label: axis, nice: true, ticks: 5, labelAnchor: "center" }, y: { domain: shown.map((row) => row.title), label: null, tickSize: 0 },
    marks: [
      Plot.ruleX([0], { stroke: "var(--axis)" }),
      Plot.ruleY(shown.filter((row) => known(row.thin[0])), { x1: (row) => row.thin[0], x2: (row) => row.thin[1], y: "title", stroke: "stroke", strokeWidth: 1.5 }),
      Plot.ruleY(shown.filter((row) => known(row.thick[0])), { x1: (row) => row.thick[0], x2: (row) => row.thick[1], y: "title", stroke: "stroke", strokeWidth: 5 }),
      Plot.dot(shown, { x: "at", y: "title", r: 4.5, fill: "inner", stroke: "stroke", strokeWidth: 2 }),
      Plot.text(shown, { y: "title", frameAnchor: "right", dx: 66, textAnchor: "end", text: (row) => (row.gain ? row.gain : ""), fill: "currentColor" }),
    ],
  });
}

function causesPlot(width) {
  const rows = programs().flatMap((at) => d3.rollups(Object.entries(data.programs[at].causes), (of) => d3.sum(of, ([, n]) => n), ([cause]) => cause.split("/")[0]).map(([level, n]) => ({ name: data.programs[at].name, level, n })));
  if (!rows.length) return null;
  const levels = LEVELS.filter((level) => rows.some((row) => row.level === level));
  const names = programs().map((at) => data.programs[at].name);
  return draw({
    width, height: 60 + 24 * names.length, marginLeft: 20 + 6.4 * Math.max(...names.map((name) => name.length)), marginBottom: 34, ariaLabel: "wrong answers by cause",
    x: { label: "wrong answers", nice: true, ticks: 5 }, y: { domain: names, label: null, tickSize: 0 },
    marks: [Plot.barX(rows, { x: "n", y: "name", fill: (row) => `var(--c${levels.indexOf(row.level) % 4})`, order: (row) => levels.indexOf(row.level) }),
      levels.map((level, i) => [Plot.dot([level], { frameAnchor: "top-left", dx: 6 + 90 * i, dy: -10, r: 5, fill: `var(--c${i % 4})` }), Plot.text([level], { frameAnchor: "top-left", dx: 14 + 90 * i, dy: -15, text: [level], fill: "currentColor" })])],
    marginTop: 26,
  });
}

// Each plot alone, its colours resolved: name, drawing and caption.
function figures() {
  const { tests, n } = family();
  const level = "95 % intervals (t, by clusters of questions that vary together)";
  const test = `paired t tests of the mean, corrected over ${tests} tests (Holm)`;
  const made = [];
  const add = (name, plot, caption) => {
    if (!plot) return;
    plot.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    plot.setAttribute("font-family", "Helvetica, Arial, sans-serif");
    const look = getComputedStyle(document.documentElement);
    const text = plot.outerHTML.replaceAll(/var\((--[a-z0-9-]+)\)/g, (_, of) => look.getPropertyValue(of).trim()).replaceAll("currentColor", look.getPropertyValue("--ink").trim());
    const [width, height] = ["width", "height"].map((side) => Number(plot.getAttribute(side)));
    made.push({ name, svg: text, caption: caption.join(" "), width, height });
  };
  const rows = forestRows();
  if (rows.length > 1) add("differences", forestPlot(rows, `difference in ${state.metric}`, 640), [`${state.metric} less that of ${data.programs[reference()].name} over ${n} shared questions.`, `Thick: 95 % intervals; thin: at the level that the correction leaves; ${test}.`]);
  const { plot, notes } = scorePlot(640, knobs());
  add("score-and-cost", plot, [`${state.metric} over ${n} questions by ${AXES[state.axis] || state.axis}, with ${level}; no difference is tested here.`, ...notes]);
  add("causes", causesPlot(640), [`Wrong answers by cause, of ${programs().map((at) => `${whole(mean(at).n)} (${data.programs[at].name})`).join(", ")} questions; counts, no test.`]);
  compiles().forEach((each, i) => {
    add(`compile-${i + 1}`, learningPlot(each, 640), [`${titleOf(each)}: ${each.metric} of each program that was tried, over ${each.n} validation questions (small: over some of them), by the tokens that validation had taken. The filled one is kept; it was chosen by these questions, so no test.`]);
    add(`break-even-${i + 1}`, breakEvenPlot(each, 640), [`${titleOf(each)}: what so many questions take, compiled and as it is.`, ...Object.entries(each.pays).map(([unit, back]) => `In ${unit}: ${back.words} (paired 95 % interval).`)]);
  });
  return made;
}

const ARTEFACTS = { verdict: verdictOf, sweep: sweepOf, race: raceOf };
function showArtefacts() {
  const shown = data.artefacts.filter((each) => each.kind in ARTEFACTS);
  $("artefact").replaceChildren(...shown.map((each) => node("section", { class: "artefact", "aria-label": each.kind }, ARTEFACTS[each.kind](each))));
  const folded = (name, ...inner) => node("details", {}, node("summary", {}, name), inner);
  $("settings").replaceChildren(
    node("p", {}, "LMs: ", data.lms.map(([short, long]) => (short === long ? short : `${short} is ${long}`)).join("; ")),
    ...data.artefacts.filter((each) => each.kind === "tune").map(({ folder, table: [heads, ...rows] }) => folded(`tune ${folder}`, table(heads.map((head, n) => [head, "", (row) => row[n]]), rows))),
    ...data.runs.map((run, at) => folded([badge(places(at)), run.name], node("pre", {}, `${run.folder}\n${JSON.stringify(run.card, null, 1)}`))));
}

// ---------------------------------------------------------------- state, address and controls
// Runs stand in the state by their folders; what a select does not offer is as at the start.
function beginning() {
  const { baseline, best } = data.families[data.metric][0];
  const left = known(baseline) ? baseline : 0;
  const right = known(best) && best !== left ? best : data.programs.length > 1 && left === 0 ? 1 : 0;
  const folder = (at) => data.runs[data.programs[at].runs[0]].folder;
  return { group: "0", metric: data.metric, against: known(baseline) ? "baseline" : "best", left: folder(left), right: folder(right), axis: "", show: "", cause: "", who: "", find: "", q: "", sort: "" };
}
const start = beginning();
const state = { ...start };
const place = (name) => Math.max(0, data.runs.findIndex((run) => run.folder === state[name]));
start.axis = priced() ? "cost_usd" : programs().some((at) => data.programs[at].cost_usd) ? "cost_usd" : "tokens";

function options(id, pairs) {
  const wanted = JSON.stringify(pairs);
  if ($(id).dataset.options !== wanted) $(id).replaceChildren(...pairs.map(([at, name]) => node("option", { value: at }, name)));
  $(id).dataset.options = wanted;
  if (!pairs.some(([name]) => name === state[id])) state[id] = pairs.some(([name]) => name === start[id]) ? start[id] : pairs[0][0];
  $(id).value = state[id];
}

function showControls() {
  options("group", data.groups.map(({ about }, at) => [String(at), about.split(" · ")[0]]));
  $("of-data").hidden = data.groups.length < 2;
  options("metric", data.metrics.map((name) => [name, name]));
  const { baseline, best } = family();
  const named = (at, word) => (known(at) ? `${data.programs[at].name} (${word})` : word);
  options("against", [known(baseline) && ["baseline", named(baseline, "baseline")], ["best", named(best, "the best")]].filter(Boolean));
  const runs = programs().flatMap((at) => data.programs[at].runs).map((run) => [data.runs[run].folder, data.runs[run].name]);
  for (const id of ["left", "right"]) options(id, runs);
  options("show", Object.entries(SHOW));
  const levels = [...new Set(data.causes.map((cause) => cause.split("/")[0]))];
  options("cause", [["", "any"], ["failed", "failed"], ...levels.map((level) => [level, level]), ...data.causes.filter((cause) => !levels.includes(cause)).map((cause) => [cause, words(cause)])]);
  options("who", [["", "any program"], ...programs().map((at) => [String(at), data.programs[at].name])]);
  if (document.activeElement !== $("find")) $("find").value = state.find;
  document.title = data.title;
  $("about").textContent = data.groups[state.group].about || data.title;
}

function showAll() {
  showControls();
  for (const show of [showArtefacts, showTiles, showForest, showChart, showPrograms, showKinds, showCauses, showCompiles, showList, showQuestion]) show();
  setTimeout(index, 200);
}

function set(changes) {
  Object.assign(state, changes);
  const changed = Object.entries(state).filter(([name, now]) => now !== start[name]);
  const address = changed.length ? `#${new URLSearchParams(changed)}` : location.pathname + location.search;
  if ("q" in changes) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  if ("q" in changes) showQuestion();
  else if (Object.keys(changes).every((name) => ["find", "cause", "show", "who"].includes(name))) { showControls(); showList(); }
  else showAll();
}

// Show exactly the questions that were counted.
function jump(changes) {
  set({ show: "", find: "", ...changes });
  $("questions").scrollIntoView({ block: "start" });
}

function follow() {
  if (location.hash === "#questions") return;
  Object.assign(state, start, Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  showAll();
}

// A served page asks for what is new and changes in place; what was typed and opened stays.
async function followRuns() {
  const version = await fetch("version").then((reply) => reply.text(), () => data.version);
  if (version === data.version) return;
  const open = new Set([...document.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
  data = unpacked(await (await fetch("data")).json());
  haystack = null;
  pieces.clear();
  showAll();
  for (const each of document.querySelectorAll("#overview details > summary")) each.parentElement.open = open.has(each.textContent);
}

for (const control of document.querySelectorAll("header select, form select, form input, figcaption select"))
  control.addEventListener("input", () => set({ [control.id]: control.value }));
$("filters").addEventListener("submit", (event) => event.preventDefault());
addEventListener("keydown", (event) => {
  if (!state.q || event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT"].includes(document.activeElement.tagName)) return;
  if (event.key === "Escape") set({ q: "" });
  if (event.key === "j" || event.key === "ArrowRight") step(1);
  if (event.key === "k" || event.key === "ArrowLeft") step(-1);
});
addEventListener("hashchange", follow);
addEventListener("popstate", follow);
addEventListener("resize", showAll);
follow();
if (data.live) setInterval(followRuns, 2000);
