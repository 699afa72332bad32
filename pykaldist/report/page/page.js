// Draws the page of experiments from the JSON in it (write.py says what that holds). Nothing is loaded from elsewhere.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const GAP = -1;
const SHOWN = 50; // utterances at first, and with each press of the button for more

/* ---------- Elements ---------- */

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);
const put = (holder, ...children) => holder.replaceChildren(...children.flat().filter((child) => child != null));

/* ---------- Numbers and words ---------- */

const fixed = (value, digits = 2) => (value == null ? "" : value.toFixed(digits));
const percent = (share, digits = 1) => (share == null ? "" : `${(100 * share).toFixed(digits)} %`);
const whole = (value) => (value == null ? "" : Math.round(value).toLocaleString("en"));
const rate = (errors, words) => (words ? (100 * errors) / words : null);
const signed = (value) => (value == null ? "" : `${value > 0 ? "+" : value < 0 ? "\u2212" : "\u00b1"}${Math.abs(value).toFixed(2)}`);
const pValue = (p) => (p == null ? "" : p < 0.001 ? "< 0.001" : p.toFixed(3));
const symbol = (number) => (number === GAP ? "***" : page.symbols[number]);
const short = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1).replace("e+", "e") : String(Number(value.toPrecision(3)));
};

function clock(seconds) {
  if (seconds == null) return "";
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function said(value) { // an option's value, as a command line has it
  if (value === null) return "none";
  if (value === "") return "(empty)";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/* ---------- What is chosen ---------- */

const scored = page.systems.map((system, index) => ({ ...system, index }));
const best = (systems) => systems.reduce((found, one) => (found == null || one.wer < found.wer ? one : found), null);
const chosen = { system: best(scored)?.index ?? null, against: null };
const listeners = [];
const whenChosen = (draw) => { listeners.push(draw); draw(); };
const changed = () => listeners.forEach((draw) => draw());
const system = () => scored[chosen.system];

/* ---------- Tables ---------- */

// A table whose columns are sorted by a press of their head. Columns: {name, number, value: row -> what is sorted, cell: row -> what is shown}.
function table(columns, rows, { caption, sort = null, descending = false, rowClass = () => null, label } = {}) {
  const kept = columns.filter((column) => rows.some((row) => column.value(row) !== null && column.value(row) !== undefined && column.value(row) !== ""));
  const body = el("tbody");
  let by = kept.find((column) => column.name === sort) ?? null, down = descending;
  const heads = kept.map((column) => el("th", { scope: "col", class: column.number ? "number" : null },
    el("button", { type: "button", title: column.help ?? null, onclick: () => { down = by === column ? !down : Boolean(column.number); by = column; draw(); } }, column.name)));

  function draw() {
    const ordered = [...rows];
    if (by) ordered.sort((a, b) => compare(by.value(a), by.value(b)) * (down ? -1 : 1));
    heads.forEach((head, i) => kept[i] === by ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
    put(body, ...ordered.map((row) => el("tr", { class: rowClass(row) },
      ...kept.map((column, i) => el(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: column.number ? "number" : column.kind ?? null },
        (column.cell ?? ((one) => String(column.value(one) ?? "")))(row))))));
  }
  draw();
  const whole = el("table", {}, caption ? el("caption", {}, caption) : null, el("thead", {}, el("tr", {}, ...heads)), body);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label ?? caption ?? "table" }, whole);
}

function compare(a, b) {
  if (a == null || b == null) return (a == null) - (b == null);
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}

/* ---------- Charts ---------- */

const WIDTH = 640, HEIGHT = 270, LEFT = 58, RIGHT = 14, TOP = 12, BOTTOM = 38;

function ticks(low, high, count = 5) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-6; tick += step) found.push(Number(tick.toPrecision(10)));
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    for (const factor of high - low > 2.5 ? [1] : [1, 2, 5]) {
      const tick = power + Math.log10(factor);
      if (tick >= low - 1e-9 && tick <= high + 1e-9) found.push(tick);
    }
  }
  return found;
}

// Curves over each other. Series: {name, colour: a number, dashed, points: [{x, y, note, rejected}]}.
function lineChart({ title, xName, yName, series, log = false }) {
  const drawn = series.map((one) => ({ ...one, points: one.points.filter((point) => Number.isFinite(point.y) && (!log || point.y > 0)) }))
    .filter((one) => one.points.length);
  if (!drawn.length) return null;
  const values = drawn.flatMap((one) => one.points.map((point) => point.y));
  log &&= Math.max(...values) > 8 * Math.min(...values); // a logarithmic scale has no good marks within less
  const height = (y) => (log ? Math.log10(y) : y);
  const xs = drawn.flatMap((one) => one.points.map((point) => point.x)), ys = drawn.flatMap((one) => one.points.map((point) => height(point.y)));
  const whole = xs.every(Number.isInteger);
  let [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
  const margin = (y1 - y0) * 0.06 || Math.abs(y1) * 0.1 || 0.5;
  y0 -= margin; y1 += margin;
  if (!log && y0 < 0 && Math.min(...ys) >= 0) y0 = 0;
  const px = (x) => LEFT + ((x - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT), py = (y) => HEIGHT - BOTTOM - ((y - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
  const axis = svg("g", { class: "axis" });
  let marks = log ? logTicks(y0, y1) : ticks(y0, y1);
  if (marks.length < 2) marks = ticks(y0, y1, 4);
  for (const tick of marks) {
    axis.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: py(tick), y2: py(tick) }),
      svg("text", { x: LEFT - 6, y: py(tick) + 4, "text-anchor": "end" }, short(log ? 10 ** tick : tick)));
  }
  for (const tick of ticks(x0, x1, 6).filter((one) => !whole || Number.isInteger(one))) {
    axis.append(svg("text", { x: px(tick), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, short(tick)));
  }
  axis.append(svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, xName));
  const marksOf = (one) => one.points.map((point) => svg("circle", { class: point.rejected ? "rejected" : "point", r: 3.5, cx: px(point.x), cy: py(height(point.y)) },
    svg("title", {}, `${one.name}: ${short(point.y)} at ${xName} ${short(point.x)}${point.note ?? ""}`)));
  const curves = drawn.map((one) => svg("g", { class: `s${one.colour % 8}` },
    svg("path", { class: `series${one.dashed ? " dashed" : ""}`, d: one.points.map((point, i) => `${i ? "L" : "M"}${px(point.x).toFixed(1)} ${py(height(point.y)).toFixed(1)}`).join("") }),
    one.points.length <= 60 ? marksOf(one) : []));
  const describe = `${title}: ${drawn.map((one) => `${one.name} from ${short(one.points[0].y)} to ${short(one.points.at(-1).y)}`).join("; ")}`;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": describe }, axis, ...curves);
  return el("figure", {}, el("figcaption", {}, `${title}${yName ? ` (${yName})` : ""}`), picture, legend(drawn), numbers(drawn, xName));
}

function legend(series) {
  return el("ul", { class: "legend" }, ...series.map((one) => el("li", {},
    svg("svg", { viewBox: "0 0 26 10", class: `s${one.colour % 8}`, "aria-hidden": "true" },
      svg("path", { class: `series${one.dashed ? " dashed" : ""}`, d: "M0 5H26" })), one.name)));
}

function numbers(series, xName) { // what a chart shows, as a table
  const rows = series.flatMap((one) => one.points.map((point) => ({ name: one.name, ...point })));
  const holder = el("details", { class: "no-print" }, el("summary", {}, "Numbers"));
  holder.addEventListener("toggle", () => {
    if (holder.open && holder.children.length === 1) {
      holder.append(table([{ name: "curve", value: (row) => row.name }, { name: xName, number: true, value: (row) => row.x, cell: (row) => short(row.x) },
        { name: "value", number: true, value: (row) => row.y, cell: (row) => String(Number(row.y.toPrecision(6))) }], rows, { label: "numbers of the curves" }));
    }
  });
  return holder;
}

/* ---------- Sections ---------- */

function section(id, title, ...children) {
  byId("main").append(el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children));
  byId("toolbar").querySelector(".links").append(el("a", { href: `#${id}` }, title));
}

function drawHead() {
  byId("title").textContent = page.title;
  byId("subtitle").textContent = `pykaldist ${page.version} · made ${page.made}`;
  byId("footer").append(el("p", {}, `Made by pykaldist ${page.version}, ${page.made}. Everything in this page is in this file.`));
  const links = el("div", { class: "controls links", style: "margin:0" });
  const bar = byId("toolbar");
  bar.append(links, el("span", { class: "space" }));
  if (scored.length) {
    bar.append(el("label", {}, "System", systemSelect("system", false)));
    if (scored.length > 1) bar.append(el("label", {}, "against", systemSelect("against", true)));
  }
  document.querySelector(".headline").append(themeButton());
}

function systemSelect(name, none) {
  const select = el("select", { id: `choose-${name}`, onchange: () => { chosen[name] = select.value === "" ? null : Number(select.value); changed(); } },
    none ? el("option", { value: "" }, "none") : null, ...scored.map((one) => el("option", { value: one.index }, one.name)));
  listeners.push(() => { select.value = chosen[name] ?? ""; });
  select.value = chosen[name] ?? "";
  return select;
}

function themeButton() {
  const themes = ["system", "light", "dark"];
  let theme = "system";
  try { theme = localStorage.getItem("pykaldist-theme") ?? "system"; } catch { /* a page from the disk may have no storage */ }
  const button = el("button", { type: "button", onclick: () => set(themes[(themes.indexOf(theme) + 1) % themes.length]) });
  function set(name) {
    theme = name;
    if (name === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = name;
    button.textContent = `Colours: ${name}`;
    try { localStorage.setItem("pykaldist-theme", name); } catch { /* likewise */ }
  }
  set(themes.includes(theme) ? theme : "system");
  return button;
}

/* ---------- Word error rates ---------- */

function drawResults() {
  const cards = el("div", { class: "cards" }), forest = el("figure", { class: "wide" }), tables = el("div", { class: "panel" });
  section("results", "Word error rates", cards, forest, tables,
    el("p", { class: "note" }, "Intervals: 95 %, by the bootstrap over utterances. p: matched-pairs test on the utterances' errors, two-sided, against the system that is chosen above. ",
      "Better: in how many of the drawn test sets a system makes fewer errors than that one."));
  whenChosen(() => {
    put(cards, summary());
    put(forest, intervals());
    put(tables, resultTable());
  });
}

function card(value, what) {
  return el("div", { class: "card" }, el("div", { class: "value" }, value), el("div", { class: "what" }, what));
}

function summary() {
  const one = system(), set = page.sets[one.set], seconds = (set?.seconds ?? []).filter((value) => value != null).reduce((a, b) => a + b, 0);
  const cards = [card(`${fixed(one.wer)} %`, `WER of ${one.name}${one.interval ? `, ${fixed(one.interval[0])} to ${fixed(one.interval[1])}` : ""}`),
    card(`${whole(one.errors)} / ${whole(one.words)}`, "errors / words")];
  cards.push(card(one.edits.join(" · "), "substitutions · insertions · deletions"));
  if (set) {
    cards.push(card(percent(one.wrongUtterances / set.utterances.length), `of ${whole(set.utterances.length)} utterances have an error`));
    const speakers = set.maps.speaker ? `, ${new Set(set.maps.speaker).size} speakers` : "";
    cards.push(card(seconds ? clock(seconds) : set.name, `test speech: ${set.name}${speakers}`));
  }
  return cards;
}

function intervals() {
  const row = 30, left = 190, height = scored.length * row + 46;
  const high = Math.max(...scored.map((one) => one.interval?.[1] ?? one.wer)), low = Math.min(...scored.map((one) => one.interval?.[0] ?? one.wer));
  const x1 = high + (high - low) * 0.08 + 0.5, x0 = Math.max(0, low - (high - low) * 0.08 - 0.5), width = 1000;
  const px = (wer) => left + ((wer - x0) / (x1 - x0)) * (width - left - 70);
  const axis = svg("g", { class: "axis" });
  for (const tick of ticks(x0, x1, 8)) {
    axis.append(svg("line", { x1: px(tick), x2: px(tick), y1: 8, y2: height - 34 }), svg("text", { x: px(tick), y: height - 18, "text-anchor": "middle" }, short(tick)));
  }
  axis.append(svg("text", { x: (left + width - 70) / 2, y: height - 2, "text-anchor": "middle" }, "WER %"));
  const against = scored[chosen.against];
  const rows = scored.map((one, i) => {
    const y = 8 + row * (i + 0.5), name = one.name.length > 28 ? `\u2026${one.name.slice(-27)}` : one.name;
    return svg("g", { class: one.index === chosen.system ? "s1" : "s0" }, svg("title", {}, `${one.name}: ${fixed(one.wer)} %`),
      svg("text", { x: left - 10, y: y + 4, "text-anchor": "end", class: one.index === chosen.system ? "strong" : null }, name),
      one.interval ? svg("line", { class: "interval", x1: px(one.interval[0]), x2: px(one.interval[1]), y1: y, y2: y }) : null,
      svg("circle", { class: "point", cx: px(one.wer), cy: y, r: 6 }),
      svg("text", { x: px(one.interval?.[1] ?? one.wer) + 12, y: y + 4 }, fixed(one.wer)));
  });
  const mark = against ? svg("line", { class: "mark", x1: px(against.wer), x2: px(against.wer), y1: 4, y2: height - 34 }) : null;
  return [el("figcaption", {}, "WER and its 95 % interval"), svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Word error rates: ${scored.map((one) => `${one.name} ${fixed(one.wer)} %`).join(", ")}` }, axis, mark, ...rows)];
}

function resultTable() {
  const beside = (one) => (chosen.against == null ? null : page.beside[chosen.against][one.index]);
  const several = page.sets.length > 1;
  const columns = [
    { name: "system", value: (one) => one.name, cell: (one) => el("button", { type: "button", class: "link", onclick: () => { chosen.system = one.index; changed(); } }, one.name) },
    { name: "test set", value: (one) => (several ? page.sets[one.set]?.name ?? null : null) },
    { name: "WER %", number: true, value: (one) => one.wer, cell: (one) => fixed(one.wer) },
    { name: "95 % interval", number: true, value: (one) => one.interval?.[0], cell: (one) => (one.interval ? `${fixed(one.interval[0])} to ${fixed(one.interval[1])}` : "") },
    { name: "difference", number: true, value: (one) => beside(one)?.difference,
      cell: (one) => { const found = beside(one); return found ? el("span", { class: found.difference < 0 ? "good" : found.difference > 0 ? "bad" : null }, signed(found.difference)) : ""; } },
    { name: "p", number: true, value: (one) => beside(one)?.p, cell: (one) => pValue(beside(one)?.p) },
    { name: "better", number: true, value: (one) => beside(one)?.better, cell: (one) => percent(beside(one)?.better) },
    { name: "sub", number: true, value: (one) => one.edits[0] }, { name: "ins", number: true, value: (one) => one.edits[1] }, { name: "del", number: true, value: (one) => one.edits[2] },
    { name: "words", number: true, value: (one) => one.words },
    { name: "LMWT", number: true, value: (one) => one.lmwt }, { name: "penalty", number: true, value: (one) => one.penalty, cell: (one) => fixed(one.penalty, 1) },
    { name: "dev WER %", number: true, value: (one) => one.devWer, cell: (one) => fixed(one.devWer) },
    { name: "frame acc. %", number: true, value: (one) => one.frameAccuracy, cell: (one) => fixed(one.frameAccuracy == null ? null : 100 * one.frameAccuracy) },
    { name: "training", number: true, value: (one) => one.trainSeconds, cell: (one) => (one.trainSeconds == null ? "" : clock(one.trainSeconds) + (one.time === "simulated" ? " simulated" : "")) },
    { name: "model", value: (one) => one.model },
  ];
  return table(columns, scored, { caption: "Scored systems", rowClass: (one) => (one.index === chosen.system ? "chosen" : null) });
}

/* ---------- The sweep ---------- */

function drawSweep() {
  const panel = el("div", { class: "panel" });
  section("sweep", "Weights and penalties", panel);
  whenChosen(() => put(panel, heatMap(system())));
}

function heatMap(one) {
  const { lmwts, penalties, wers } = one.sweep, all = wers.flat().filter((wer) => wer != null);
  if (!all.length) return [el("p", {}, `${one.name} has no sweep (wer_<lmwt>_<penalty>).`)];
  const low = Math.min(...all), high = Math.max(...all);
  const shade = (wer) => { // most of the shades for the lower half, where points are near each other
    const share = high > low ? Math.sqrt((wer - low) / (high - low)) : 0;
    return `color-mix(in oklab, var(--heat-bad) ${(100 * share).toFixed(0)}%, var(--heat-good))`;
  };
  const cell = (wer, lmwt, penalty) => {
    const used = lmwt === one.lmwt && Number(penalty) === one.penalty;
    return el("td", { class: [wer === low ? "best" : "", used ? "used" : ""].join(" "), style: wer == null ? null : `background:${shade(wer)}`,
      title: `LMWT ${lmwt}, penalty ${penalty}: ${fixed(wer)} %${used ? " (reported)" : ""}` }, fixed(wer));
  };
  const grid = el("table", { class: "heat" }, el("caption", {}, `WER % of ${one.name} by language model weight (LMWT) and word insertion penalty; framed: the lowest, underlined: the one that is reported`),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "penalty"), ...lmwts.map((lmwt) => el("th", { scope: "col" }, lmwt)))),
    el("tbody", {}, ...penalties.map((penalty, i) => el("tr", {}, el("th", { scope: "row" }, penalty), ...lmwts.map((lmwt, j) => cell(wers[i][j], lmwt, penalty))))));
  return [el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "sweep" }, grid), edge(one, low)];
}

function edge(one, low) {
  const { lmwts, penalties, wers } = one.sweep, where = [];
  const has = (rows) => rows.some((wer) => wer === low);
  const inner = wers.slice(penalties.length > 2 ? 1 : 0, penalties.length > 2 ? -1 : undefined).some((row) => row.slice(1, -1).includes(low));
  if (inner) return null;
  if (has(wers.map((row) => row[0]))) where.push(`LMWT ${lmwts[0]}`);
  if (has(wers.map((row) => row.at(-1)))) where.push(`LMWT ${lmwts.at(-1)}`);
  if (penalties.length > 2 && has(wers[0])) where.push(`penalty ${penalties[0]}`);
  if (penalties.length > 2 && has(wers.at(-1))) where.push(`penalty ${penalties.at(-1)}`);
  return where.length ? el("p", { class: "bad" }, `The lowest WER stands at the edge of the sweep (${where.join(", ")}): a lower one may stand beyond it.`) : null;
}

/* ---------- Training ---------- */

const TIMES = ["compute", "exchange", "wait", "load", "other"];

function staleness(line) {
  const late = Object.entries(line.staleness ?? {}), count = late.reduce((sum, [, n]) => sum + n, 0);
  return count ? late.reduce((sum, [steps, n]) => sum + Number(steps) * n, 0) / count : null;
}

function drawTraining() {
  const axes = { epochs: (run) => run.history.map((_, i) => i + 1), seconds: (run) => sums(run.history.map((line) => line.seconds.total)),
    frames: (run) => sums(run.history.map((line) => line.frames)) };
  const holder = el("div", { class: "charts" });
  const select = el("select", { onchange: () => draw() }, ...Object.keys(axes).map((name) => el("option", { value: name }, name)));
  section("training", "Training", el("p", { class: "note" }, "Solid: training data, dashed: held-out data. An empty point: the epoch was rejected. Times are measured unless a name says simulated."),
    el("div", { class: "controls" }, el("label", {}, "Curves over", select)), holder, timeSplit(), speedUps(), speeds(), differences(), ...page.runs.map(runPanel));

  function draw() {
    const places = page.runs.map(axes[select.value]);
    const series = (value, { dashed = false, suffix = "", only = () => true } = {}) => page.runs.map((run, i) => ({ name: run.name + suffix, colour: i, dashed,
      points: only(run) ? run.history.map((line, k) => ({ x: places[i][k], y: value(line), rejected: !line.accepted, note: line.accepted ? "" : " (rejected)" })) : [] }));
    const both = (key, factor, only) => [...series((line) => factor * (line[`train_${key}`] ?? NaN), { suffix: ", training", only }),
      ...series((line) => factor * (line[`cv_${key}`] ?? NaN), { dashed: true, suffix: ", held out", only })];
    const objectives = [...new Set(page.runs.map((run) => run.objective))];
    const charts = [
      ...objectives.map((objective) => ({ title: "Loss", yName: objective, series: both("loss", 1, (run) => run.objective === objective) })),
      { title: "Frame accuracy", yName: "%", series: both("acc", 100) },
      { title: "Word error rate on lattices", yName: "%", series: both("wer", 100) },
      { title: "Learning rate", log: true, series: series((line) => line.learn_rate) },
      { title: "Disagreement between workers", yName: "relative distance of their models", log: true, series: series((line) => (line.disagreement > 0 ? line.disagreement : NaN)) },
      { title: "Cosine of workers' updates", yName: "1: all go one way", series: series((line) => line.update_cosine ?? NaN) },
      { title: "Staleness", yName: "mean number of updates", series: series((line) => staleness(line) ?? NaN) },
      { title: "Frames a second", yName: "all workers", series: series((line) => line.frames / line.seconds.total) },
    ];
    holder.replaceChildren(...charts.map((one) => lineChart({ xName: select.value, ...one })).filter(Boolean));
  }
  draw();
}

function sums(values) {
  let total = 0;
  return values.map((value) => (total += value));
}

function timeSplit() {
  const bars = page.runs.flatMap((run) => run.history.map((line, i) => ({ name: `${run.name}, epoch ${i + 1}`, ...line.seconds })));
  if (!bars.some((bar) => bar.compute != null)) return null;
  const row = 22, left = 190, width = 1000, height = bars.length * row + 36, most = Math.max(...bars.map((bar) => bar.total));
  const px = (seconds) => left + (seconds / most) * (width - left - 70);
  const axis = svg("g", { class: "axis" });
  for (const tick of ticks(0, most, 8)) axis.append(svg("line", { x1: px(tick), x2: px(tick), y1: 0, y2: height - 32 }), svg("text", { x: px(tick), y: height - 18, "text-anchor": "middle" }, short(tick)));
  axis.append(svg("text", { x: (left + width - 70) / 2, y: height - 2, "text-anchor": "middle" }, "seconds"));
  const rows = bars.map((bar, i) => {
    let from = 0;
    const parts = { ...bar, other: Math.max(0, bar.total - ["compute", "exchange", "wait", "load"].reduce((sum, name) => sum + (bar[name] ?? 0), 0)) };
    return svg("g", {}, svg("text", { x: left - 8, y: i * row + 15, "text-anchor": "end" }, bar.name.length > 30 ? `\u2026${bar.name.slice(-29)}` : bar.name),
      ...TIMES.map((name, k) => { const begin = from; from += parts[name] ?? 0; return svg("rect", { class: `bar s${k === 4 ? 7 : k}`, x: px(begin), y: i * row + 3, width: Math.max(0, px(from) - px(begin)), height: row - 7 },
        svg("title", {}, `${bar.name}: ${name} ${fixed(parts[name] ?? 0)} s, ${percent((parts[name] ?? 0) / bar.total)}`)); }),
      svg("text", { x: px(bar.total) + 6, y: i * row + 15 }, clock(bar.total)));
  });
  const key = el("ul", { class: "legend" }, ...["computing", "exchanging", "waiting for others", "loading", "other (held-out data, checkpoints)"].map((name, k) => el("li", {},
    svg("svg", { viewBox: "0 0 26 10", class: `s${k === 4 ? 7 : k}`, "aria-hidden": "true" }, svg("rect", { class: "bar", width: 26, height: 10 })), name)));
  return el("figure", { class: "wide" }, el("figcaption", {}, "Where the time of an epoch goes (mean over workers)"),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Seconds of each epoch: ${bars.map((bar) => `${bar.name} ${clock(bar.total)}`).join(", ")}` }, axis, ...rows), key);
}

const base = page.runs.reduce((found, run) => (found == null || run.workers < found.workers ? run : found), null); // of speed-ups
const alike = (run) => run !== base && run.workers !== base.workers && run.layers === base.layers;

function speedUps() { // against the number of workers, a curve a strategy
  const runs = page.runs.filter(alike), most = Math.max(...runs.map((run) => run.workers));
  if (!runs.length) return null;
  const start = { x: base.workers, y: 1, note: ` (${base.name})` }, kinds = [...new Set(runs.map((run) => run.strategy + (run.simulated ? ", simulated" : "")))];
  const series = kinds.map((kind, i) => ({ name: kind, colour: i, points: [start, ...runs.filter((run) => run.strategy + (run.simulated ? ", simulated" : "") === kind)
    .sort((a, b) => a.workers - b.workers).map((run) => ({ x: run.workers, y: run.framesPerSecond / base.framesPerSecond, note: ` (${run.name})` }))] }));
  const linear = { name: "as many times as workers", colour: 7, dashed: true, points: [start, { x: most, y: most / base.workers }] };
  return el("div", { class: "charts" }, lineChart({ title: "Speed-up of an epoch", yName: `frames a second over those of ${base.name}`, xName: "workers", series: [...series, linear] }));
}

function speeds() {
  const columns = [
    { name: "training", value: (run) => run.name }, { name: "strategy", value: (run) => run.strategy }, { name: "workers", number: true, value: (run) => run.workers },
    { name: "epochs", number: true, value: (run) => run.history.length },
    { name: "frames/s", number: true, value: (run) => run.framesPerSecond, cell: (run) => whole(run.framesPerSecond) + (run.simulated ? " simulated" : "") },
    { name: "speed-up", number: true, value: (run) => (alike(run) ? run.framesPerSecond / base.framesPerSecond : null), cell: (run) => (alike(run) ? `${fixed(run.framesPerSecond / base.framesPerSecond)} x ${base.name}` : "") },
    { name: "time", number: true, value: (run) => run.seconds, cell: (run) => clock(run.seconds) },
    { name: "held-out loss", number: true, value: (run) => run.history.at(-1)?.cv_loss, cell: (run) => fixed(run.history.at(-1)?.cv_loss, 4) },
    { name: "held-out frame acc. %", number: true, value: (run) => run.history.at(-1)?.cv_acc, cell: (run) => fixed(run.history.at(-1)?.cv_acc == null ? null : 100 * run.history.at(-1).cv_acc) },
  ];
  return el("div", { class: "panel" }, table(columns, page.runs, { caption: "Trainings" }));
}

function differences() {
  if (!page.differences.length) return null;
  const runs = page.runs.filter((run) => run.options.length);
  const columns = [{ name: "option", value: (row) => `--${row[0].replaceAll("_", "-")}` },
    ...runs.map((run, i) => ({ name: run.name, value: (row) => said(row[1][i]), cell: (row) => (row[1][i] === null ? "" : said(row[1][i])) }))];
  return el("div", { class: "panel" }, table(columns, page.differences, { caption: "Options in which trainings differ" }));
}

function runPanel(run) {
  const optionTable = (rows, caption) => table([
    { name: "option", value: (row) => `--${row[0].replaceAll("_", "-")}` }, { name: "value", kind: "value", value: (row) => said(row[1]) },
    { name: "default", kind: "value", value: (row) => said(row[2]) }, { name: "what it is", value: (row) => row[3] }], rows, { caption });
  const changedOnes = run.options.filter((row) => row[4]), others = run.options.filter((row) => !row[4]);
  return el("div", { class: "panel" }, el("h3", {}, run.name), el("dl", {}, ...run.facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    changedOnes.length ? el("div", { style: "margin-top:.8rem" }, optionTable(changedOnes, "Options that differ from their defaults")) : null,
    others.length ? el("details", { class: "no-print" }, el("summary", {}, `The other ${others.length} options, at their defaults`), optionTable(others, "Options at their defaults")) : null,
    run.layers ? el("details", { class: "no-print" }, el("summary", {}, "Layers of the network"), el("pre", { tabindex: 0 }, run.layers)) : null);
}

/* ---------- Errors ---------- */

function drawErrors() {
  const words = el("div", { class: "panel" }), phones = el("div", { class: "panel" }), groups = el("div", { class: "panel" });
  section("errors", "Where the errors are", el("div", { class: "pair-of-panels" }, words, groups), phones);
  let group = null;
  whenChosen(() => {
    const one = system();
    if (!one.aligned) { put(words, el("p", {}, `${one.name} was scored without details (wer_details).`)); put(groups); put(phones); return; }
    put(words, confusionTable(one));
    put(phones, ...(one.phoneConfusions.length ? [phoneTable(one)] : [el("p", {}, `The lattices of ${one.name} say nothing of its phones.`)]));
    const names = Object.keys(one.groups);
    group = names.includes(group) ? group : names[0];
    const select = el("select", { id: "choose-group", onchange: () => { group = select.value; put(shown, groupTable(one, group)); } },
      ...names.map((name) => el("option", { value: name, selected: name === group }, name)));
    const shown = el("div", {}, groupTable(one, group));
    put(groups, el("div", { class: "controls", style: "margin-top:0" }, el("label", {}, "WER by", select)), shown);
  });
}

function confusionTable(one) {
  const kind = ([ref, hyp]) => (ref === "***" ? "inserted" : hyp === "***" ? "left out" : "taken for");
  const columns = [
    { name: "reference", value: (row) => row[0], cell: (row) => el("button", { type: "button", class: "link", onclick: () => show({ pair: row }) }, row[0] === "***" ? "(nothing)" : row[0]) },
    { name: "what happened", value: kind }, { name: "recognised", value: (row) => row[1], cell: (row) => (row[1] === "***" ? "(nothing)" : row[1]) },
    { name: "times", number: true, value: (row) => row[2] }];
  const shown = table(columns, one.confusions, { caption: `Words that ${one.name} confuses; press one to see its utterances`, sort: "times", descending: true });
  shown.classList.add("tall");
  return shown;
}

function phoneTable(one) {
  const named = (phone) => (phone === "***" ? "(nothing)" : phone);
  const columns = [
    { name: "phone of the reference", value: (row) => row[0], cell: (row) => named(row[0]) }, { name: "recognised", value: (row) => row[1], cell: (row) => named(row[1]) },
    { name: "times", number: true, value: (row) => row[2] }];
  const shown = table(columns, one.phoneConfusions, { caption: `Phones that ${one.name} confuses, in words that are wrong`, sort: "times", descending: true });
  shown.classList.add("tall");
  return shown;
}

function groupTable(one, name) {
  const wer = (row) => rate(row[3] + row[4] + row[5], row[2]);
  const filters = name in page.sets[one.set].maps;
  const columns = [
    { name, value: (row) => row[0], cell: (row) => (filters ? el("button", { type: "button", class: "link", onclick: () => show({ map: name, value: row[0] }) }, row[0]) : row[0]) },
    { name: "utterances", number: true, value: (row) => row[1] }, { name: "words", number: true, value: (row) => row[2] },
    { name: "sub", number: true, value: (row) => row[3] }, { name: "ins", number: true, value: (row) => row[4] }, { name: "del", number: true, value: (row) => row[5] },
    { name: "WER %", number: true, value: wer, cell: (row) => fixed(wer(row)) }];
  const shown = table(columns, one.groups[name], { caption: `WER of ${one.name} by ${name}`, sort: filters ? "WER %" : name, descending: filters });
  shown.classList.add("tall");
  return shown;
}

/* ---------- Utterances ---------- */

const filter = { text: "", kind: "", map: "", value: "", pair: null };
let drawUtterances = () => {};

function show(wanted) { // the utterances of a group or of a pair of words
  Object.assign(filter, { text: "", kind: "", map: "", value: "", pair: null }, wanted);
  drawUtterances();
  byId("utterances").scrollIntoView();
  byId("utterances-title").focus();
}

function utterancesOf(one) {
  const set = page.sets[one.set];
  return one.aligned.map((flat, i) => {
    const pairs = [];
    let [words, sub, ins, del] = [0, 0, 0, 0];
    for (let k = 0; k < flat.length; k += 2) {
      const [ref, hyp] = [flat[k], flat[k + 1]];
      pairs.push([ref, hyp]);
      words += ref !== GAP;
      if (ref === GAP) ins++; else if (hyp === GAP) del++; else if (ref !== hyp) sub++;
    }
    return { i, name: set.utterances[i], pairs, words, sub, ins, del, errors: sub + ins + del, seconds: set.seconds[i] };
  });
}

function passes(one, set) {
  if (filter.kind && !(filter.kind === "wrong" ? one.errors : one[filter.kind])) return false;
  if (filter.map && filter.value && set.maps[filter.map]?.[one.i] !== filter.value) return false;
  if (filter.pair && !one.pairs.some(([ref, hyp]) => symbol(ref) === filter.pair[0] && symbol(hyp) === filter.pair[1])) return false;
  if (!filter.text) return true;
  const text = filter.text.toLowerCase();
  return one.name.toLowerCase().includes(text) || one.pairs.some(([ref, hyp]) => symbol(ref).toLowerCase().includes(text) || symbol(hyp).toLowerCase().includes(text));
}

function drawUtteranceSection() {
  const controls = el("div", { class: "controls" }), count = el("p", { role: "status", id: "count" }), list = el("div", { class: "panel" });
  section("utterances", "Utterances", el("p", { class: "note" }, "The worst first. Press a name to hear it and to see when each word was recognised. ",
    el("span", { class: "key sub" }, "taken for another word"), " ", el("span", { class: "key ins" }, "inserted"), " ", el("span", { class: "key del" }, "left out"),
    "; above: reference, below: recognised."), controls, count, list);
  byId("utterances-title").tabIndex = -1;
  const order = { by: "errors", down: true };
  let limit = SHOWN;

  drawUtterances = () => {
    const one = system();
    if (!one.aligned) { put(controls); count.textContent = ""; put(list, el("p", {}, `${one.name} was scored without details.`)); return; }
    const set = page.sets[one.set], all = utterancesOf(one);
    drawControls(set);
    const rows = () => all.filter((row) => passes(row, set));
    const draw = () => {
      const found = rows(), sum = (name) => found.reduce((total, row) => total + row[name], 0);
      count.textContent = `${whole(found.length)} of ${whole(all.length)} utterances, ${whole(sum("words"))} words, ${whole(sum("errors"))} errors${sum("words") ? `, WER ${fixed(rate(sum("errors"), sum("words")))} %` : ""}`;
      put(list, utteranceTable(one, set, found, order, limit, draw), found.length > limit ? el("button", { type: "button", class: "no-print", onclick: () => { limit += 4 * SHOWN; draw(); } }, `Show more (${whole(found.length - limit)} left)`) : null,
        set.silent ? el("p", { class: "note" }, set.silent) : set.missing ? el("p", { class: "note" }, `${whole(set.missing)} utterances have no audio here: the page is full (--max-megabytes).`) : null);
    };
    update = () => { limit = SHOWN; draw(); };
    draw();
  };
  let update = () => {};

  function drawControls(set) {
    const search = el("input", { type: "search", value: filter.text, "aria-label": "Search names and words", placeholder: "name or word", oninput: () => { filter.text = search.value.trim(); update(); } });
    const kinds = { "": "all", wrong: "with an error", sub: "with a substitution", ins: "with an insertion", del: "with a deletion" };
    const kind = el("select", { "aria-label": "Errors", onchange: () => { filter.kind = kind.value; update(); } }, ...Object.entries(kinds).map(([value, name]) => el("option", { value, selected: value === filter.kind }, name)));
    const maps = Object.entries(set.maps).filter(([, values]) => new Set(values).size > 1).map(([name, values]) => {
      const known = [...new Set(values)].filter((value) => value != null).sort((a, b) => compare(a, b));
      const select = el("select", { "data-map": name, onchange: () => { Object.assign(filter, { map: name, value: select.value }); drawUtterances(); } }, el("option", { value: "" }, "all"),
        ...known.map((value) => el("option", { value, selected: filter.map === name && filter.value === value }, value)));
      return el("label", {}, name, select);
    });
    const pair = filter.pair ? el("span", { class: "chip" }, `${filter.pair[0]} \u2192 ${filter.pair[1]}`, el("button", { type: "button", "aria-label": "Show all pairs of words", onclick: () => { filter.pair = null; drawUtterances(); } }, "\u00d7")) : null;
    put(controls, el("label", {}, "Search", search), el("label", {}, "Show", kind), ...maps, ...(pair ? [pair] : []));
  }
  whenChosen(() => drawUtterances());
}

function utteranceTable(one, set, found, order, limit, redraw) {
  const columns = [{ name: "utterance", by: "name" }, { name: "errors", number: true, by: "errors" }, { name: "words", number: true, by: "words" },
    { name: "WER %", number: true, by: "rate" }, { name: "seconds", number: true, by: "seconds" }, { name: "reference and hypothesis" }];
  const value = (row, by) => (by === "rate" ? rate(row.errors, row.words) ?? 0 : row[by]);
  const ordered = [...found].sort((a, b) => compare(value(a, order.by), value(b, order.by)) * (order.down ? -1 : 1) || compare(rate(b.errors, b.words) ?? 0, rate(a.errors, a.words) ?? 0)).slice(0, limit);
  const head = el("tr", {}, ...columns.map((column) => el("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": column.by === order.by ? (order.down ? "descending" : "ascending") : null },
    column.by ? el("button", { type: "button", onclick: () => { order.down = order.by === column.by ? !order.down : Boolean(column.number); order.by = column.by; redraw(); } }, column.name) : column.name)));
  const body = el("tbody", {}, ...ordered.map((row) => {
    const button = el("button", { type: "button", class: "link", "aria-expanded": "false", onclick: () => toggle() }, row.name);
    const line = el("tr", { "data-utterance": row.name }, el("th", { scope: "row" }, button), el("td", { class: "number" }, row.errors), el("td", { class: "number" }, row.words), el("td", { class: "number" }, fixed(rate(row.errors, row.words), 1)),
      el("td", { class: "number" }, fixed(row.seconds, 1)), el("td", {}, alignment(row.pairs)));
    let opened = null;
    function toggle() {
      if (opened) { opened.remove(); opened = null; } else { opened = el("tr", {}, el("td", { class: "detail", colspan: columns.length }, el("div", {}, ...detail(one, set, row)))); line.after(opened); }
      button.setAttribute("aria-expanded", String(Boolean(opened)));
    }
    return line;
  }));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "utterances" }, el("table", {}, el("thead", {}, head), body));
}

function alignment(pairs) {
  const kind = (ref, hyp) => (ref === hyp ? "" : ref === GAP ? " ins" : hyp === GAP ? " del" : " sub");
  const word = (number) => (number === GAP ? "\u2205" : symbol(number));
  return el("div", { class: "aligned" }, ...pairs.map(([ref, hyp]) => el("span", { class: `pair${kind(ref, hyp)}` }, el("span", { class: "ref" }, word(ref)), " ", el("span", { class: "hyp" }, word(hyp)))));
}

function detail(one, set, row) {
  const parts = [], found = one.recognised?.[row.i], uri = set.sounds[row.i];
  if (uri) {
    const audio = el("audio", { controls: true, preload: "metadata", src: uri, "aria-label": `Audio of ${row.name}` });
    parts.push(audio, picture(audio, uri, found, row, set.rate));
  } else if (found?.words.length) {
    parts.push(picture(null, null, found, row, 0));
  }
  const others = scored.filter((other) => other.set === one.set && other.aligned);
  parts.push(el("h4", {}, others.length > 1 ? "All systems" : "Reference and hypothesis"), ...others.map((other) => {
    const mine = utterancesOf(other)[row.i];
    return el("div", {}, el("span", { class: "dim" }, `${other.name}: ${mine.errors} of ${mine.words} wrong`), alignment(mine.pairs));
  }));
  if (found?.paths.length) {
    const paths = found.paths.map(([cost, words], k) => ({ k: k + 1, cost, words: words.map(symbol).join(" ") }));
    parts.push(el("h4", {}, `Best paths of the lattice (${one.name})`), table([{ name: "rank", number: true, value: (path) => path.k }, { name: "cost above the best", number: true, value: (path) => path.cost, cell: (path) => fixed(path.cost) },
      { name: "words", value: (path) => path.words || "(none)" }], paths, { label: "best paths of the lattice" }));
  }
  return parts;
}

/* ---------- Sound in pictures ---------- */

const FFT = 512, WINDOW = 0.025, SHIFT = 0.005, PIXELS_PER_SECOND = 130; // seconds

// The spectrogram of an utterance, with its words and phones in time below it; a press on a word plays it.
function picture(audio, uri, found, row, sampling) {
  const ends = [...every(found?.words ?? [], 3), ...every(found?.phones ?? [], 3)].map((timed) => timed[1] / 100);
  const seconds = Math.max(row.seconds ?? 0, ...ends, 0.1);
  const canvas = el("canvas", { width: 10, height: FFT / 2, role: "img", "aria-label": `Spectrogram of ${row.name}, 0 to ${sampling / 2000} kHz` });
  const cursor = el("div", { class: "cursor", style: "left:0" });
  const tier = (timed, kind) => el("div", { class: "tier", role: "group", "aria-label": kind === "word" ? "Words in time" : "Phones in time" }, ...every(timed, 3).map(([begin, end, what]) => {
    const style = `left:${begin / seconds}%;width:${(end - begin) / seconds}%`, title = `${symbol(what)}, ${fixed(begin / 100)} to ${fixed(end / 100)} s`;
    return kind === "word" && audio ? el("button", { type: "button", style, title, onclick: () => play(begin / 100, end / 100) }, symbol(what)) : el("span", { class: kind, style, title }, kind === "phone" ? symbol(what).replace(/_[BIES]$/, "") : symbol(what));
  }));
  const tiers = found ? [found.phones.length ? tier(found.phones, "phone") : null, found.words.length ? tier(found.words, "word") : null] : [];
  const whole = el("div", { class: "picture", style: `min-width:${Math.round(seconds * PIXELS_PER_SECOND)}px` }, uri ? canvas : null, ...tiers, audio ? cursor : null);
  let stop = null;
  function play(begin, end) {
    audio.currentTime = begin;
    stop = end;
    audio.play();
  }
  if (audio) {
    const follow = () => {
      cursor.style.left = `${(100 * audio.currentTime) / seconds}%`;
      if (stop !== null && audio.currentTime >= stop) { audio.pause(); stop = null; }
      if (!audio.paused) requestAnimationFrame(follow);
    };
    audio.addEventListener("play", follow);
    audio.addEventListener("seeked", follow);
    spectrogram(uri, canvas, sampling).catch((error) => { canvas.replaceWith(el("p", { class: "note" }, `This browser cannot decode the audio (${error.message}).`)); });
  }
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "times of words and phones" }, whole);
}

function every(flat, size) {
  return Array.from({ length: flat.length / size }, (_, i) => flat.slice(i * size, (i + 1) * size));
}

async function spectrogram(uri, canvas, sampling) {
  const bytes = Uint8Array.from(atob(uri.slice(uri.indexOf(",") + 1)), (letter) => letter.charCodeAt(0));
  const sound = await new OfflineAudioContext(1, 1, sampling).decodeAudioData(bytes.buffer);
  const samples = sound.getChannelData(0), width = Math.min(FFT, Math.round(WINDOW * sampling)), shift = Math.round(SHIFT * sampling), bins = FFT / 2;
  const frames = Math.max(1, Math.floor((samples.length - width) / shift) + 1), levels = new Float32Array(frames * bins);
  const taper = Float32Array.from({ length: width }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / (width - 1)));
  const real = new Float32Array(FFT), imaginary = new Float32Array(FFT);
  let top = -Infinity;
  for (let t = 0; t < frames; t++) {
    real.fill(0);
    imaginary.fill(0);
    for (let i = 0; i < width; i++) { // with preemphasis, as features have it
      const at = t * shift + i;
      real[i] = ((samples[at] ?? 0) - 0.97 * (samples[at - 1] ?? 0)) * taper[i];
    }
    fourier(real, imaginary);
    for (let k = 0; k < bins; k++) {
      const level = 10 * Math.log10(real[k] ** 2 + imaginary[k] ** 2 + 1e-12);
      levels[t * bins + k] = level;
      top = Math.max(top, level);
    }
  }
  canvas.width = frames;
  canvas.height = bins;
  const context = canvas.getContext("2d"), image = context.createImageData(frames, bins);
  for (let t = 0; t < frames; t++) {
    for (let k = 0; k < bins; k++) {
      const [r, g, b] = colour(Math.min(1, Math.max(0, (levels[t * bins + k] - top + 65) / 60)));
      image.data.set([r, g, b, 255], 4 * ((bins - 1 - k) * frames + t));
    }
  }
  context.putImageData(image, 0, 0);
}

const SCALE = [[0, 0, 8], [60, 15, 95], [145, 40, 125], [225, 80, 95], [252, 160, 85], [252, 250, 200]];

function colour(share) {
  const place = share * (SCALE.length - 1), i = Math.min(SCALE.length - 2, Math.floor(place)), part = place - i;
  return SCALE[i].map((from, k) => from + (SCALE[i + 1][k] - from) * part);
}

function fourier(real, imaginary) { // in place, of a power of two of numbers
  const n = real.length;
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) { [real[i], real[j]] = [real[j], real[i]]; [imaginary[i], imaginary[j]] = [imaginary[j], imaginary[i]]; }
  }
  for (let size = 2; size <= n; size *= 2) {
    const angle = (-2 * Math.PI) / size, half = size / 2;
    for (let start = 0; start < n; start += size) {
      for (let k = 0; k < half; k++) {
        const c = Math.cos(angle * k), s = Math.sin(angle * k), a = start + k, b = a + half;
        const re = real[b] * c - imaginary[b] * s, im = real[b] * s + imaginary[b] * c;
        real[b] = real[a] - re; imaginary[b] = imaginary[a] - im;
        real[a] += re; imaginary[a] += im;
      }
    }
  }
}

/* ---------- The page ---------- */

drawHead();
if (scored.length) {
  drawResults();
  drawSweep();
}
if (page.runs.length) drawTraining();
if (scored.length) {
  drawErrors();
  drawUtteranceSection();
}
