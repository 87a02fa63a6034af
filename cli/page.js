/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the page from its data, with plotly.js.
 */
"use strict";
(function () {

const data = JSON.parse(document.getElementById("data").textContent);
Object.assign(data, data.views[data.axis]);  // what depends on the axis
const byId = (id) => document.getElementById(id);
const drawn = {};           // chart -> the function that draws it again
const timeCharts = [];      // charts whose time axes move together
const mono = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";

// Okabe and Ito's colours, which all kinds of colour vision tell apart, adapted to either ground.
const palettes = {
  light: ["#2f6fd0", "#d98200", "#00896b", "#c2569b", "#7a5fc7", "#4aa3d8", "#a8502a", "#8a8f00", "#5b6b7d", "#b9c0ca"],
  dark: ["#5d9bf5", "#f2a83b", "#33c29d", "#e58ac4", "#a893f0", "#7cc7f2", "#dd8a62", "#c9cd4a", "#8fa0b3", "#4c5866"],
};

/* ---- theme ----------------------------------------------------------------------------------------------- */

function isDark() {
  const asked = document.documentElement.dataset.theme;
  return asked ? asked === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function ground() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    dark: isDark(), ink: value("--ink"), soft: value("--soft"), line: value("--line"), card: value("--card"),
    plot: value("--plot"), warn: value("--warn"), hold: value("--hold"), palette: palettes[isDark() ? "dark" : "light"],
  };
}

function markTheme() {
  const now = document.documentElement.dataset.theme || "auto";
  for (const b of document.querySelectorAll("[data-theme-choice]")) {
    b.setAttribute("aria-pressed", String(b.dataset.themeChoice === now));
  }
}

function setTheme(choice) {
  if (choice === "auto") {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = choice;
  }
  try { localStorage.setItem("terrazzo-theme", choice); } catch (e) { /* then it is forgotten */ }
  markTheme();
  drawAgain();
}

function drawAgain() {
  for (const draw of Object.values(drawn)) { draw(); }
}

/* ---- words ----------------------------------------------------------------------------------------------- */

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

function unitOf(bytes) {
  let unit = 0;
  while (unit < 4 && Math.abs(bytes) >= 1024 ** (unit + 1)) { unit++; }
  return unit;
}

function size(bytes) {
  const unit = unitOf(bytes), value = bytes / 1024 ** unit;
  return (unit === 0 ? String(Math.round(value)) : value.toPrecision(value >= 1000 ? 4 : 3)) + " " + units[unit];
}

const count = (n) => Math.round(n).toLocaleString("en-US");
const percent = (x) => (100 * x).toFixed(x > 0 && x < 0.0995 ? 1 : 0) + " %";
const hex = (n) => "0x" + n.toString(16);

function place(x) {
  if (!data.timed) { return "event " + count(x); }
  const span = data.span[1] - data.span[0];
  return span < 0.01 ? (x * 1e6).toFixed(0) + " µs" : span < 1 ? (x * 1e3).toFixed(1) + " ms" :
    x < 600 ? x.toFixed(2) + " s" : Math.floor(x / 60) + " min " + Math.round(x % 60) + " s";
}

function duration(x) {
  return !data.timed ? count(x) + " events" : x < 1e-3 ? (x * 1e6).toFixed(0) + " µs" : x < 1 ? (x * 1e3).toFixed(1) + " ms" :
    x < 120 ? x.toFixed(1) + " s" : (x / 60).toFixed(1) + " min";
}

function text(id, words) { byId(id).textContent = words; }

function element(name, words, className) {
  const e = document.createElement(name);
  if (words !== undefined) { e.textContent = words; }
  if (className) { e.className = className; }
  return e;
}

/* Long names lose their middle, where paths differ least. */
function shorten(name, most) {
  return name.length <= most ? name : name.slice(0, Math.ceil(most * 0.45)) + "…" + name.slice(-Math.floor(most * 0.5));
}

const escaped = (s) => s.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/* ---- numbers ---------------------------------------------------------------------------------------------- */

function bytesOf(base64) {
  if (Uint8Array.fromBase64) { return Uint8Array.fromBase64(base64).buffer; }
  const binary = atob(base64), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) { bytes[i] = binary.charCodeAt(i); }
  return bytes.buffer;
}

const reals = (base64) => new Float64Array(bytesOf(base64));

/* Ticks at round numbers of one unit of bytes. */
function sizeTicks(most) {
  const unit = unitOf(most || 1), scale = 1024 ** unit, top = most / scale;
  const rough = top / 5, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) || power;
  const at = [], words = [];
  for (let v = 0; v <= top * 1.0001; v += step) {
    at.push(v * scale);
    words.push(v === 0 ? "0" : +v.toFixed(6) + " " + units[unit]);
  }
  return { tickmode: "array", tickvals: at, ticktext: words };
}

/* ---- what charts share -------------------------------------------------------------------------------------- */

function layout(g, more) {
  const time = {
    range: [data.span[0], data.span[1]], gridcolor: g.line, linecolor: g.line, zeroline: false, automargin: true,
    title: { text: data.timed ? "seconds since the first event" : "events", font: { size: 12, color: g.soft }, standoff: 8 },
    tickfont: { size: 12 }, tickformat: data.timed ? "" : ",d", fixedrange: false, hoverformat: "",
  };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: g.soft },
    margin: { l: 76, r: 16, t: 10, b: 44 }, dragmode: "zoom", hovermode: "x unified",
    hoverlabel: { bgcolor: g.card, bordercolor: g.line, font: { color: g.ink, size: 13 }, namelength: -1, align: "left" },
    showlegend: false, ...more,
    xaxis: { ...time, ...(more.xaxis || {}) },
    yaxis: { gridcolor: g.line, linecolor: g.line, zeroline: false, fixedrange: true, tickfont: { size: 12 },
             ...(more.yaxis || {}) },
  };
}

const config = { responsive: true, displayModeBar: false, scrollZoom: false, doubleClick: false };

/* Zooming into one chart zooms into all that have a time axis. */
let shown = [data.span[0], data.span[1]];
let following = false;

function showTime(range) {
  const first = Math.max(data.span[0], Math.min(range[0], range[1])), last = Math.min(data.span[1], Math.max(range[0], range[1]));
  if (following || !(last > first)) { return; }
  following = true;
  shown = [first, last];
  byId("whole").hidden = first === data.span[0] && last === data.span[1] && !shownBytes;
  drawMapSoon();
  Promise.all(timeCharts.map((id) => Plotly.relayout(id, { "xaxis.range": shown.slice() })))
    .finally(() => { following = false; });
}

function showWhole() {
  shownBytes = null;
  showTime([data.span[0], data.span[1]]);
}

function followTime(id) {
  if (timeCharts.includes(id)) { return; }
  timeCharts.push(id);
  byId(id).on("plotly_relayout", (change) => {
    if (change["xaxis.range[0]"] !== undefined) { showTime([change["xaxis.range[0]"], change["xaxis.range[1]"]]); }
  });
  byId(id).on("plotly_doubleclick", showWhole);
}

/* Names and colours above a chart: they wrap as text does, and never cover a line. */
function drawLegend(id, items) {
  byId(id).replaceChildren(...items.map(([name, colour]) => {
    const li = element("li"), swatch = element("i");
    swatch.style.background = colour;
    li.append(swatch, element("span", shorten(name, 90)));
    return li;
  }));
}

function describe(id, words) {
  byId(id).setAttribute("role", "img");
  byId(id).setAttribute("aria-label", words);
}

/* Makes buttons, one of which is pressed. */
function choices(id, names, chosen, act) {
  const box = byId(id);
  box.replaceChildren(...names.map((name) => {
    const b = element("button", name[0].toUpperCase() + name.slice(1));
    b.type = "button";
    b.setAttribute("aria-pressed", String(name === chosen));
    b.addEventListener("click", () => {
      for (const other of box.children) { other.setAttribute("aria-pressed", String(other === b)); }
      act(name);
    });
    return b;
  }));
  box.hidden = names.length < 2;
}

function hide(id) { byId(id).hidden = true; }

/* ---- head ----------------------------------------------------------------------------------------------------- */

function drawHead() {
  document.title = data.title + " – memory report";
  text("title", data.title);
  text("kind", "Memory report of " + data.source);
  const facts = ["device " + data.device];
  if (data.events) { facts.push(count(data.events) + " events"); }
  if (data.views.time) {
    const span = data.views.time.span;
    facts.push("over " + (span[1] - span[0] < 1 ? ((span[1] - span[0]) * 1e3).toFixed(1) + " ms" : (span[1] - span[0]).toFixed(1) + " s"));
    facts.push("from " + new Date(data.start_us / 1000).toISOString().replace("T", " ").replace(/\..*/, " UTC"));
  }
  if (data.events_noted > data.events) { facts.push("older events were forgotten"); }
  text("facts", facts.join(" · "));
}

function drawVerdict() {
  if (!data.verdict) { return; }
  const card = byId("verdict"), lines = data.verdict.split("\n").filter((line) => line.trim());
  for (const line of lines.slice(0, 3)) { card.append(element("p", line)); }
  if (lines.length > 3) {
    const more = element("details");
    more.append(element("summary", "The whole report"), element("pre", data.verdict));
    card.append(more);
  }
  card.classList.toggle("calm", !data.failure_count);
  card.hidden = false;
}

function drawFigures() {
  const box = byId("figures");
  const add = (value, words) => {
    const f = element("div", undefined, "figure");
    f.append(element("b", value), element("span", words));
    box.append(f);
  };
  add(size(data.held_peak), "held by the program at its peak");
  if (data.reserved_peak) {
    add(size(data.reserved_peak), "reserved from the device at most");
    add(size(data.reserved_end), "reserved at the end");
  }
  add(size(data.held_end), "held at the end");
  if (data.reserved_end) {
    add(size(Math.max(0, data.reserved_end - data.allocated_end)), "free, pending or lost to edges at the end");
  }
  if (data.failure_count) { add(count(data.failure_count), "requests that ran out of memory"); }
  add(count(data.lives), "allocations seen");
}

/* ---- levels --------------------------------------------------------------------------------------------------- */

function levelTraces(g) {
  const l = data.levels, traces = [];
  const line = (part, name, more) => {
    const x = reals(part.x), y = reals(part.y);
    traces.push({
      x, y, name, mode: "lines", type: "scatter", customdata: Array.from(y, size),
      hovertemplate: "%{customdata}", ...more, line: { shape: "hv", width: 1.6, ...(more.line || {}) },
    });
  };
  if (l.reserved) {
    line(l.reserved, "reserved from the device",
         { line: { color: g.palette[8] }, fill: "tozeroy", fillcolor: g.dark ? "#8fa0b31c" : "#5b6b7d18" });
  }
  line(l.held, "held by the program",
       { line: { color: g.hold }, fill: "tozeroy", fillcolor: g.dark ? "#5d9bf540" : "#2f6fd033" });
  if (reals(l.pending.y).some((v) => v > 0)) {
    line(l.pending, "freed, awaiting other streams", { line: { color: g.palette[1] } });
  }
  return traces;
}

function failureMarks(g, top) {
  if (!data.failures.length) { return []; }
  return [{
    x: data.failures.map((f) => f[0]), y: data.failures.map(() => top), mode: "markers", type: "scatter",
    name: "ran out of memory", marker: { symbol: "triangle-down", size: 11, color: g.warn },
    customdata: data.failures.map((f) => size(f[1]) + " asked for, the device had " + size(f[2])),
    hovertemplate: "%{customdata}",
  }];
}

function drawLevels() {
  const g = ground(), most = Math.max(data.held_peak, data.reserved_peak);
  const traces = levelTraces(g).concat(failureMarks(g, most * 1.04));
  const lines = data.failures.map((f) => ({
    type: "line", x0: f[0], x1: f[0], y0: 0, y1: 1, yref: "paper", line: { color: g.warn, width: 1, dash: "dot" },
  }));
  const left = (data.span[2] - data.span[0]) / (data.span[1] - data.span[0]) > 0.7;
  const peak = {
    x: data.span[2], y: data.held_peak, text: "peak " + size(data.held_peak), showarrow: true, arrowhead: 0,
    arrowcolor: g.soft, ax: left ? -46 : 46, ay: data.held_peak > most * 0.85 ? 26 : -26,
    xanchor: left ? "right" : "left", font: { color: g.ink, size: 13 }, bgcolor: g.card, borderpad: 3,
  };
  drawLegend("legend-levels", traces.map((trace) => [trace.name, (trace.line || trace.marker).color]));
  Plotly.react("levels", traces, layout(g, {
    height: 320, shapes: lines, annotations: [peak],
    xaxis: { range: shown.slice(), hoverformat: data.timed ? ".4f" : ",d",
             unifiedhovertitle: { text: data.timed ? "at %{x} s" : "event %{x}" } },
    yaxis: { ...sizeTicks(most * 1.06), range: [0, most * 1.1 || 1] },
  }), config);
  followTime("levels");
  const rest = data.reserved_peak ? " The device gave " + size(data.reserved_peak) + " at most." : "";
  const words = "The program held " + size(data.held_peak) + " at its peak, at " + place(data.span[2]) + "." + rest +
    " Drag across a chart to look closer, in all charts; double-click for the whole time. Click for what is held at a moment.";
  text("lead-levels", words);
  describe("levels", "Lines of reserved and held memory over time. " + words);
}

/* ---- groups --------------------------------------------------------------------------------------------------- */

let division = null;

function drawGroups() {
  const g = ground(), columns = data.groups.columns, groups = data.groups[division];
  const step = (data.span[1] - data.span[0]) / columns;
  const x = Float64Array.from({ length: columns }, (_, i) => data.span[0] + (i + 0.5) * step);
  let most = 0;
  const sums = new Float64Array(columns);
  const areas = groups.map((group, i) => {
    const y = new Float32Array(bytesOf(group.y)), mean = y.reduce((a, b) => a + b, 0) / columns;
    y.forEach((v, k) => { sums[k] += v; });
    const change = Math.sqrt(y.reduce((a, b) => a + (b - mean) ** 2, 0) / columns) / (mean || 1);
    return { group, y, change, colour: group.name === "all others" ? g.palette[9] : g.palette[i % 9] };
  });
  // What changes least lies at the bottom, so that it does not ride on what comes and goes.
  areas.sort((a, b) => a.change - b.change);
  const traces = areas.map(({ group, y, colour }) => {
    return {
      x, y, name: escaped(shorten(group.name, 60)), type: "scatter", mode: "lines", stackgroup: "all", fillcolor: colour + "cc",
      line: { width: 0.6, color: colour }, customdata: Array.from(y, size), hovertemplate: "%{customdata}",
    };
  });
  sums.forEach((v) => { most = Math.max(most, v); });
  drawLegend("legend-groups", groups.map((group, i) => [group.name, group.name === "all others" ? g.palette[9] : g.palette[i % 9]]));
  Plotly.react("groups", traces, layout(g, {
    height: 320,
    xaxis: { range: shown.slice(), hoverformat: data.timed ? ".4f" : ",d",
             unifiedhovertitle: { text: data.timed ? "at %{x} s" : "event %{x}" } },
    yaxis: { ...sizeTicks(most), range: [0, most * 1.05 || 1] },
  }), config);
  followTime("groups");
  text("title-groups", "Who holds it, by " + division);
  const words = "Mean of each of " + count(columns) + " moments of " + duration(step) +
    "; the largest groups by what they hold at the peak.";
  text("lead-groups", words);
  describe("groups", "Stacked areas of held memory by " + division + ": " + groups.map((group) => group.name).join(", "));
}

/* ---- lives and ranges ------------------------------------------------------------------------------------------ */

let lived = null;             // columns of all allocations (lives) and of all ranges of addresses, by address
const MADE = 0, GATHERED = 1, FLIPPED = 2, ALIAS = 3, HOLE = 4;

async function unpacked(base64) {
  const packed = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint32Array(await new Response(packed).arrayBuffer());
}

/* Numbers of 64 bits from two columns; `summed`: the columns have differences from the row before. */
function wide(low, high, summed) {
  const out = new Float64Array(low.length);
  let sum = 0;
  for (let i = 0; i < out.length; i++) {
    const v = low[i] + high[i] * 4294967296;
    sum = summed ? sum + v : v;
    out[i] = sum;
  }
  return out;
}

const plus = (a, b) => a.map((v, i) => v + b[i]);

async function readLived() {
  const from = data.lived, words = await unpacked(from.packed);
  let used = 0;
  const take = (count) => words.subarray(used, used += count);
  const columns = (count, many) => Array.from({ length: many }, () => take(count));
  const l = columns(from.lives, 10), r = columns(from.ranges, 7), t = columns(from.times, 2);
  const released = plus(l[5], l[4]);
  from.packed = null;
  lived = {
    count: from.lives, address: wide(l[0], l[1], true), size: wide(l[2], l[3], false), begin: l[4], released,
    end: plus(l[6], released), site: l[7], tag: l[8], stream: l[9], times: wide(t[0], t[1], true),
    ranges: { count: from.ranges, address: wide(r[0], r[1], true), size: wide(r[2], r[3], false), begin: r[4], end: r[5],
              kind: r[6] },
  };
  findStretches();
}

/* Addresses that ever had memory, end to end: [address, size, where it begins on the axis]. */
function findStretches() {
  const r = lived.ranges, list = [];
  let total = 0;
  for (let i = 0; i < r.count; i++) {
    const last = list[list.length - 1], end = r.address[i] + r.size[i];
    if (last && r.address[i] <= last[0] + last[1]) {
      const grown = Math.max(last[1], end - last[0]);
      total += grown - last[1];
      last[1] = grown;
    } else {
      list.push([r.address[i], r.size[i], total]);
      total += r.size[i];
    }
  }
  lived.stretches = list;
  lived.total = total;
  lived.at = axisOf(lived.address);
  r.at = axisOf(r.address);
}

/* Where addresses, which ascend, are on the axis; NaN: nowhere. */
function axisOf(addresses) {
  const out = new Float64Array(addresses.length), list = lived.stretches;
  for (let i = 0, s = 0; i < out.length; i++) {
    while (s + 1 < list.length && list[s + 1][0] <= addresses[i]) { s++; }
    const inside = list.length && addresses[i] >= list[s][0] && addresses[i] < list[s][0] + list[s][1];
    out[i] = inside ? list[s][2] + (addresses[i] - list[s][0]) : NaN;
  }
  return out;
}

const placeOf = (state) => (data.timed ? lived.times[state] / 1e6 : state);

/* The newest state at a place. */
function stateAt(x) {
  let low = 0, high = data.events;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (placeOf(middle) <= x) { low = middle; } else { high = middle - 1; }
  }
  return low;
}

const siteName = (i) => data.sites[lived.site[i]] || "no call stack";
const tagName = (i) => data.tags[lived.tag[i]];
const streamName = (i) => (data.streams[lived.stream[i]] === "0" ? "default stream" : "stream " + data.streams[lived.stream[i]]);

/* ---- map ------------------------------------------------------------------------------------------------------ */

const COLUMNS = 800, ROWS = 300, TILE_ROWS = 400;
const tilesWord = data.tiled ? "tiles" : "segments";
let colourBy = "state";
let map = null;               // what is painted: cells of rows and columns, for the part that is shown
let shownBytes = null;        // [from, to) of the axis of addresses

const isRange = (kind) => kind <= FLIPPED;

function mapChoices() {
  const names = ["state", tilesWord, "block"];
  if (data.sites.length > 1) { names.push("call site"); }
  if (data.tags.length > 1) { names.push("tag"); }
  if (data.streams.length > 1) { names.push("stream"); }
  return names;
}

/* Edges of rows: those of tiles if there can be a row for each, else at equal distances. */
function edgesOf(from, to) {
  const r = lived.ranges, edges = new Set([from, to]);
  for (let i = 0; colourBy === tilesWord && i < r.count && edges.size <= TILE_ROWS + 1; i++) {
    if (r.at[i] + r.size[i] > from && r.at[i] < to) {
      edges.add(Math.max(from, r.at[i]));
      edges.add(Math.min(to, r.at[i] + r.size[i]));
    }
  }
  if (colourBy === tilesWord && edges.size <= TILE_ROWS + 1) {
    return { edges: Float64Array.from(edges).sort(), single: true };
  }
  const bytes = Math.max(512, Math.ceil((to - from) / ROWS / 512) * 512), rows = Math.max(1, Math.ceil((to - from) / bytes));
  return { edges: Float64Array.from({ length: rows + 1 }, (_, i) => from + i * bytes), single: false };
}

function newLayer(rows) {
  return { steps: new Float32Array(rows * (COLUMNS + 1)), parts: new Float32Array(rows * COLUMNS) };
}

/* The row that a byte of the axis is in. */
function rowAt(edges, at) {
  let low = 0, high = edges.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (edges[middle] <= at) { low = middle; } else { high = middle - 1; }
  }
  return low;
}

function paintRow(layer, row, from, to, bytes) {
  const first = Math.min(COLUMNS - 1, Math.floor(from)), last = Math.min(COLUMNS - 1, Math.floor(to));
  if (first === last) {
    layer.parts[row * COLUMNS + first] += (to - from) * bytes;
    return;
  }
  layer.parts[row * COLUMNS + first] += (first + 1 - from) * bytes;
  layer.parts[row * COLUMNS + last] += (to - last) * bytes;
  layer.steps[row * (COLUMNS + 1) + first + 1] += bytes;
  layer.steps[row * (COLUMNS + 1) + last] -= bytes;
}

/* The allocation or range that takes most of a cell owns it. */
function claimRow(most, owner, row, from, to, bytes, who) {
  const last = Math.min(COLUMNS - 1, Math.floor(to));
  for (let c = Math.min(COLUMNS - 1, Math.floor(from)); c <= last; c++) {
    const part = (Math.min(to, c + 1) - Math.max(from, c)) * bytes, i = row * COLUMNS + c;
    if (part > most[i]) {
      most[i] = part;
      owner[i] = who;
    }
  }
}

/* Calls f(row, bytes) for the rows that a stretch of the axis lies in. */
function eachRow(edges, from, to, f) {
  const end = Math.min(to, edges[edges.length - 1]);
  from = Math.max(from, edges[0]);
  for (let row = from < end ? rowAt(edges, from) : edges.length; row + 1 < edges.length && edges[row] < end; row++) {
    const bytes = Math.min(end, edges[row + 1]) - Math.max(from, edges[row]);
    if (bytes > 0) { f(row, bytes); }
  }
}

/* Paints the times and addresses that are shown: how much of each cell is what, and who owns it. */
function paintMap() {
  const bytes = shownBytes || [0, lived.total], { edges, single } = edgesOf(bytes[0], bytes[1]), rows = edges.length - 1;
  const scale = COLUMNS / (shown[1] - shown[0] || 1), cells = rows * COLUMNS;
  const column = (state) => Math.max(0, Math.min(COLUMNS, (placeOf(state) - shown[0]) * scale));
  const layers = { laid: newLayer(rows), held: newLayer(rows), pending: newLayer(rows), alias: newLayer(rows),
                   hole: newLayer(rows) };
  const owner = new Uint32Array(cells), range = new Uint32Array(cells), most = new Float32Array(cells);
  const mostRange = new Float32Array(cells), l = lived, r = lived.ranges;
  for (let i = 0; i < r.count; i++) {
    const from = column(r.begin[i]), to = column(r.end[i]), layer = layers[["laid", "laid", "laid", "alias", "hole"][r.kind[i]]];
    if (!(to > from)) { continue; }
    eachRow(edges, r.at[i], r.at[i] + r.size[i], (row, part) => {
      paintRow(layer, row, from, to, part);
      claimRow(mostRange, range, row, from, to, part, i + 1);
    });
  }
  for (let i = 0; i < l.count; i++) {
    if (!(l.at[i] < bytes[1] && l.at[i] + l.size[i] > bytes[0])) { continue; }
    const from = column(l.begin[i]), to = column(l.released[i]), end = column(l.end[i]);
    if (!(end > from)) { continue; }
    eachRow(edges, l.at[i], l.at[i] + l.size[i], (row, part) => {
      if (to > from) { paintRow(layers.held, row, from, to, part); }
      if (end > to) { paintRow(layers.pending, row, to, end, part); }
      claimRow(most, owner, row, from, end, part, i + 1);
    });
  }
  map = { edges, single, rows, owner, range, from: shown[0], step: 1 / scale };
  for (const name in layers) { map[name] = sharesOf(layers[name], edges); }
}

function sharesOf(layer, edges) {
  const rows = edges.length - 1, out = new Float32Array(rows * COLUMNS);
  for (let row = 0; row < rows; row++) {
    let level = 0;
    for (let c = 0; c < COLUMNS; c++) {
      level += layer.steps[row * (COLUMNS + 1) + c];
      out[row * COLUMNS + c] = Math.max(0, Math.min(1, (level + layer.parts[row * COLUMNS + c]) / (edges[row + 1] - edges[row])));
    }
  }
  return out;
}

/* Colours 0 to 7; a cell that never had memory has none. */
function stateOf(i) {
  const laid = map.laid[i], held = map.held[i], pending = map.pending[i];
  if (laid < 0.01) { return map.alias[i] + map.hole[i] < 0.01 ? null : map.alias[i] > map.hole[i] ? 6 : 7; }
  if (pending > held && pending > 0.1) { return 5; }
  const share = held / laid;
  return share < (map.single ? 1e-4 : 0.02) ? 0 : Math.max(1, Math.min(4, Math.ceil(share * 4 - 1e-3)));
}

function stateColours(g) {
  return g.dark ? ["#2b3542", "#23497f", "#2f66b5", "#4384e0", "#7db0ff", "#f2a83b", "#5b3f6e", "#3a2230"]
                : ["#cdd5e0", "#b3cef5", "#7faceb", "#4683d8", "#1f55a8", "#e08a00", "#d5b8e6", "#f4dbe0"];
}

/* A name has the same colour as in the chart of who holds memory. */
function groupPicture(g) {
  const names = { "call site": data.sites.map((s) => s || "no call stack"), tag: data.tags.map((s) => s || "no tag"),
                  stream: data.streams.map((s) => (s === "0" ? "default stream" : "stream " + s)) }[colourBy];
  const key = { "call site": lived.site, tag: lived.tag, stream: lived.stream }[colourBy];
  const known = (data.groups[colourBy] || []).map((group) => group.name).slice(0, 9);
  const numbers = names.map((name) => (known.includes(name) ? known.indexOf(name) + 1 : 10)), seen = new Set();
  for (const o of map.owner) { if (o) { seen.add(numbers[key[o - 1]]); } }
  const legend = known.map((name, i) => [name, i + 1]).filter((item) => seen.has(item[1]));
  if (seen.has(10)) { legend.push(["all others", 10]); }
  return { legend, of: (o) => numbers[key[o]] };
}

function mapPicture(g) {
  const colours = stateColours(g), gone = [];
  if (map.alias.some((v) => v > 0.01)) { gone.push(["mapped here still, used elsewhere", "alias"]); }
  if (map.hole.some((v) => v > 0.01)) { gone.push([data.tiled ? "hole: moved away or given back" : "returned to the driver", "hole"]); }
  const back = gone.map(([name, kind]) => [name, colours[kind === "alias" ? 6 : 7]]);
  if (colourBy === "state" || colourBy === tilesWord) {
    const words = map.single ? ["idle", "up to a quarter in use", "half", "three quarters", "full"] :
      ["free", "up to a quarter held", "half", "three quarters", "full"];
    const legend = words.map((name, i) => [name, colours[i]]);
    if (map.pending.some((v) => v > 0.1)) { legend.push(["freed, awaiting other streams", colours[5]]); }
    return { of: stateOf, colours, legend: [...legend, ...back] };
  }
  const block = colourBy === "block", groups = block ? { legend: [], of: (o) => 1 + (Math.imul(o, 2654435761) >>> 16) % 8 } :
    groupPicture(g);
  const all = [colours[0], ...g.palette, colours[6], colours[7]];
  const of = (i) => {
    const state = stateOf(i);
    return state === null || state === 0 ? state : state >= 6 ? state + 5 : groups.of(map.owner[i] - 1);
  };
  const legend = block ? [["colours only tell neighbours apart", all[1]]] : groups.legend.map(([name, i]) => [name, all[i]]);
  return { of: (i) => (map.owner[i] || stateOf(i) === null || stateOf(i) >= 6 ? of(i) : 0), colours: all,
           legend: [...legend, ["free", all[0]], ...back] };
}

/* One colour for each whole number. */
function scaleOf(colours) {
  const scale = [];
  colours.forEach((c, i) => { scale.push([i / colours.length, c], [(i + 1) / colours.length, c]); });
  return scale;
}

/* Ticks at round numbers of the addresses that are shown. */
function byteTicks(from, to) {
  const ticks = sizeTicks(to - from), step = ticks.tickvals.length > 1 ? ticks.tickvals[1] : to - from, at = [];
  for (let v = Math.ceil(from / step) * step; v <= to; v += step) { at.push(v); }
  return { tickmode: "array", tickvals: at, ticktext: at.map((v) => (v ? size(v) : "0")) };
}

function borderLines(g, from, to) {
  const line = (at, colour, dash) => ({ type: "line", x0: 0, x1: 1, xref: "paper", y0: at, y1: at, layer: "above",
                                        line: { color: colour, width: dash ? 0.8 : 1, dash: dash || "solid" } });
  const inside = lived.stretches.slice(1).map((s) => s[2]).filter((at) => at > from && at < to);
  const lines = inside.length > 60 ? [] : inside.map((at) => line(at, g.soft, "dot"));
  if (map.single && map.rows <= 120) {
    for (const at of map.edges) { lines.push(line(at, g.plot)); }
  }
  return lines;
}

function drawMap() {
  paintMap();
  const g = ground(), picture = mapPicture(g), z = [], bytes = shownBytes || [0, lived.total];
  for (let row = 0; row < map.rows; row++) {
    const line = new Array(COLUMNS);
    for (let c = 0; c < COLUMNS; c++) { line[c] = picture.of(row * COLUMNS + c); }
    z.push(line);
  }
  Plotly.react("map", [{
    type: "heatmap", z, x0: map.from + map.step / 2, dx: map.step, y: map.edges, zmin: -0.5,
    zmax: picture.colours.length - 0.5, colorscale: scaleOf(picture.colours), showscale: false, hoverinfo: "none",
    hoverongaps: true,
  }], layout(g, {
    height: 430, plot_bgcolor: g.plot, hovermode: "closest", shapes: borderLines(g, bytes[0], bytes[1]),
    xaxis: { range: shown.slice(), showgrid: false },
    yaxis: { ...byteTicks(bytes[0], bytes[1]), range: bytes.slice(), showgrid: false, fixedrange: false },
  }), config);
  drawLegend("legend-map", [...picture.legend, ["no memory", g.plot]]);
  followTime("map");
  tellMap(bytes);
}

function tellMap(bytes) {
  const r = lived.ranges, pieces = new Set();
  for (let i = 0; i < r.count; i++) { if (isRange(r.kind[i])) { pieces.add(r.at[i]); } }
  const what = data.tiled ? count(pieces.size) + " places of tiles in " + count(data.windows.length) + " windows" :
    count(lived.stretches.length) + (lived.stretches.length === 1 ? " piece" : " pieces");
  const rows = map.single ? "a row is one of the " + tilesWord : "a row is " + size(map.edges[1] - map.edges[0]);
  const words = "Addresses that ever had memory, end to end: " + size(lived.total) + ", " + what + ". " +
    (colourBy === tilesWord && !map.single ? "Drag a box to see single " + tilesWord + "; " : "Drag a box to look closer; ") +
    rows + ", a column " + duration(map.step) + ". Point at a cell to see what lies there, click for all that is held then.";
  text("lead-map", words);
  describe("map", "Picture of memory addresses over time, " + size(bytes[1] - bytes[0]) + " of them. " + words);
}

let redrawing = 0;

/* Repaints the part of the map that is shown, at its scale. */
function drawMapSoon() {
  if (!lived || !data.addressed) { return; }
  clearTimeout(redrawing);
  redrawing = setTimeout(drawMap, 60);
}

function addressAt(byte) {
  let s = lived.stretches[0];
  for (const other of lived.stretches) { if (other[2] <= byte) { s = other; } }
  return s[0] + (byte - s[2]);
}

function windowWords(address) {
  const w = data.windows.find((other) => other[0] <= address && address < other[0] + other[1]);
  if (!w) { return []; }
  const pool = w[3] ? ", pool " + w[3] : "";
  return data.tiled ? ["in a window for " + w[5] + " memory (" + w[4] + pool + "): " + size(w[2]) + " of " + size(w[1]) + " laid"] :
    ["in a" + (w[4][0] === "e" ? "n " : " ") + w[4] + " of " + size(w[1]) + pool];
}

function rangeWords(i) {
  const r = lived.ranges, since = r.begin[i] > 0 ? " at " + place(placeOf(r.begin[i])) : " before the history";
  const piece = data.tiled ? "tile" : "piece", what = piece + " of " + size(r.size[i]) + " at " + hex(r.address[i]);
  const how = { [MADE]: ", made", [GATHERED]: ", moved here", [FLIPPED]: ", moved back here" };
  if (r.kind[i] === ALIAS) { return [what + ": its memory is used elsewhere" + (r.begin[i] ? ", since " + place(placeOf(r.begin[i])) : "")]; }
  if (r.kind[i] === HOLE) { return ["no memory here any more, since " + place(placeOf(r.begin[i]))]; }
  return [what + how[r.kind[i]] + since];
}

function lifeWords(i) {
  const l = lived, lines = ["<b>" + size(l.size[i]) + "</b> at " + hex(l.address[i]) + ", " + streamName(i)];
  const gone = l.released[i] <= data.events, waits = l.end[i] > l.released[i] && gone;
  lines.push("held " + (l.begin[i] ? "from " + place(placeOf(l.begin[i])) : "from before the history") +
             (gone ? " for " + duration(placeOf(l.released[i]) - placeOf(l.begin[i])) : ", still held at the end") +
             (waits ? ", then pending for " + duration(placeOf(l.end[i]) - placeOf(l.released[i])) : ""));
  if (l.site[i]) { lines.push(escaped(data.sites[l.site[i]])); }
  if (l.tag[i]) { lines.push("tag " + escaped(tagName(i))); }
  return lines;
}

function cellWords(row, column) {
  const i = row * COLUMNS + column, laid = map.laid[i], held = map.held[i], pending = map.pending[i];
  const address = addressAt(map.edges[row]);
  const lines = ["<span>" + place(map.from + (column + 0.5) * map.step) + ", from " + hex(address) + "</span>"];
  if (laid < 0.01 && !map.range[i]) { return lines.concat(["<b>no memory here</b>"], windowWords(address)); }
  if (laid >= 0.01) {
    lines.push(percent(held) + " held" + (pending > 0.01 ? ", " + percent(pending) + " pending" : "") + ", " +
               percent(Math.max(0, laid - held - pending)) + " free" + (laid < 0.99 ? ", " + percent(1 - laid) + " without memory" : ""));
  }
  if (map.owner[i] && held + pending > 0) { lines.push("<span>most of it:</span>", ...lifeWords(map.owner[i] - 1)); }
  if (map.range[i]) { lines.push("<span>" + rangeWords(map.range[i] - 1).concat(windowWords(address)).join("<br>") + "</span>"); }
  return lines;
}

function watchMap() {
  const tip = byId("tip");
  byId("map").on("plotly_hover", (event) => {
    const point = event.points[0], at = event.event;
    if (!point || !at) { return; }
    const where = point.pointNumber;
    tip.innerHTML = cellWords(where[0], where[1]).join("<br>");
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = at.clientX + 16 + box.width > innerWidth ? at.clientX - box.width - 16 : at.clientX + 16;
    const y = Math.min(at.clientY + 16, innerHeight - box.height - 8);
    tip.style.left = Math.max(8, x) + "px";
    tip.style.top = Math.max(8, y) + "px";
  });
  byId("map").on("plotly_unhover", () => { tip.hidden = true; });
  byId("map").on("plotly_click", (event) => {
    const [row, column] = event.points[0].pointNumber, owner = map.owner[row * COLUMNS + column];
    showMoment(stateAt(map.from + (column + 0.5) * map.step), owner ? owner - 1 : -1);
  });
  byId("map").on("plotly_relayout", (change) => {
    if (change["yaxis.range[0]"] === undefined) { return; }
    shownBytes = [Math.max(0, change["yaxis.range[0]"]), Math.min(lived.total, change["yaxis.range[1]"])];
    byId("whole").hidden = false;
    drawMapSoon();
  });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
}

/* ---- a moment ---------------------------------------------------------------------------------------------------- */

const LISTED = 15;

/* The largest allocations that are held in a state, and the sums of all. */
function heldAt(state) {
  const l = lived, largest = [];
  let bytes = 0, held = 0;
  for (let i = 0; i < l.count; i++) {
    if (l.begin[i] > state || l.released[i] <= state) { continue; }
    bytes += l.size[i];
    held++;
    if (largest.length < LISTED || l.size[i] > l.size[largest[LISTED - 1]]) {
      let at = largest.length;
      while (at > 0 && l.size[largest[at - 1]] < l.size[i]) { at--; }
      largest.splice(at, 0, i);
      largest.length = Math.min(largest.length, LISTED);
    }
  }
  return { bytes, held, largest };
}

function blockRow(i, state, chosen) {
  const l = lived, tr = element("tr", undefined, i === chosen ? "chosen" : ""), gone = l.released[i] <= data.events;
  const age = l.begin[i] ? duration(Math.max(0, placeOf(state) - placeOf(l.begin[i]))) : "since before the history";
  const rest = gone ? duration(Math.max(0, placeOf(l.released[i]) - placeOf(state))) : "to the end";
  tr.append(element("td", size(l.size[i]), "number"), element("td", siteName(i), "site"), element("td", streamName(i)));
  if (data.tags.length > 1) { tr.append(element("td", tagName(i) || "–")); }
  tr.append(element("td", age, "number"), element("td", rest, "number"));
  if (data.addressed) { tr.append(element("td", hex(l.address[i]), "address")); }
  return tr;
}

/* Lists the largest allocations that are held in a state, after the one that was clicked on if it is smaller. */
function showMoment(state, chosen) {
  if (!lived) { return; }
  const { bytes, held, largest } = heldAt(state), head = element("tr");
  const rows = largest.includes(chosen) || chosen < 0 ? largest : [chosen, ...largest];
  for (const [words, name] of [["Size", "number"], ["Call site", ""], ["Stream", ""], ...(data.tags.length > 1 ? [["Tag", ""]] : []),
                               ["Age", "number"], ["Held on", "number"], ...(data.addressed ? [["Address", ""]] : [])]) {
    head.append(element("th", words, name));
  }
  byId("blocks").replaceChildren(head, ...rows.map((i) => blockRow(i, state, chosen)));
  text("title-moment", "Held at " + place(placeOf(state)));
  text("lead-moment", count(held) + (held === 1 ? " allocation holds " : " allocations hold ") + size(bytes) +
       (held > largest.length ? "; the " + LISTED + " largest" : "") + ".");
  byId("moment").hidden = false;
}

function watchMoments(id) {
  byId(id).on("plotly_click", (event) => {
    if (event.points.length) { showMoment(stateAt(event.points[0].x), -1); }
  });
}

/* ---- fragmentation --------------------------------------------------------------------------------------------- */

function drawFragmentation() {
  const g = ground(), f = data.fragmentation;
  const x = reals(f.x), reserved = reals(f.reserved), free = reals(f.free), largest = reals(f.largest);
  const unused = Array.from(free, (v, i) => (reserved[i] ? v / reserved[i] : 0));
  const scattered = Array.from(free, (v, i) => (reserved[i] && v ? (v - largest[i]) / reserved[i] : 0));
  const line = (y, name, colour, words) => ({
    x, y, name, type: "scatter", mode: "lines", line: { shape: "hv", width: 1.6, color: colour }, customdata: words,
    hovertemplate: "%{customdata}",
  });
  const last = x.length - 1;
  drawLegend("legend-fragmentation", [["reserved and free", g.palette[0]], ["free, outside the largest piece", g.palette[1]]]);
  Plotly.react("fragmentation", [
    line(unused, "reserved and free", g.palette[0], unused.map((v, i) => percent(v) + " (" + size(free[i]) + ")")),
    line(scattered, "free, outside the largest piece", g.palette[1],
         scattered.map((v, i) => percent(v) + " (" + size(Math.max(0, free[i] - largest[i])) + "; largest piece " +
                                 size(largest[i]) + ")")),
  ], layout(g, {
    height: 250,
    xaxis: { range: shown.slice(), hoverformat: data.timed ? ".4f" : ",d",
             unifiedhovertitle: { text: data.timed ? "at %{x} s" : "event %{x}" } },
    yaxis: { range: [0, 1], tickformat: ".0%", dtick: 0.25 },
  }), config);
  followTime("fragmentation");
  const words = "Shares of reserved memory, at " + count(x.length) + " moments. At the end " + size(free[last]) + " of " +
    size(reserved[last]) + " are free, the largest piece is " + size(largest[last]) + ".";
  text("lead-fragmentation", words);
  describe("fragmentation", "Lines of fragmentation over time. " + words);
}

/* ---- call sites -------------------------------------------------------------------------------------------------- */

let moment = "peak";

/* Frames that all memory has in common say nothing: the picture begins where it first branches. Nor does native code
 * that only passes the call on: what it calls stands in its place. */
function branches(nodes) {
  const children = nodes.map(() => []);
  nodes.forEach((n) => { if (n[1] >= 0) { children[n[1]].push(n[0]); } });
  let root = 0, common = [];
  while (children[root].length === 1 && nodes[children[root][0]][4] >= 0.995 * nodes[0][4] &&
         children[children[root][0]].length) {
    root = children[root][0];
    common.push(nodes[root][2]);
  }
  const passesOn = (i) => children[i].length === 1 && !/\.py(:|$)/.test(nodes[i][3]) &&
    nodes[children[i][0]][4] >= 0.995 * nodes[i][4];
  const kept = [root], parent = { [root]: -1 }, level = { [root]: 1 };
  for (let k = 0; k < kept.length; k++) {
    for (let i of children[kept[k]]) {
      while (passesOn(i)) { i = children[i][0]; }
      parent[i] = kept[k];
      level[i] = level[kept[k]] + 1;
      kept.push(i);
    }
  }
  return { root, common, kept, parent, depth: Math.max(...Object.values(level)) };
}

function hashOf(words) {
  let h = 0;
  for (let i = 0; i < words.length; i++) { h = (h * 31 + words.charCodeAt(i)) >>> 0; }
  return h;
}

function flameColour(words, dark) {
  const hue = [205, 28, 165, 325, 260, 195, 14, 62][hashOf(words) % 8];
  return dark ? "hsl(" + hue + " 38% 34%)" : "hsl(" + hue + " 62% 80%)";
}

function drawFlame(g, part) {
  const nodes = part.nodes, tree = branches(nodes), whole = nodes[0][4] || 1;
  const file = (i) => nodes[i][3].replace(/:\d+$/, "");
  const words = (i) => (i === tree.root ? "all memory" : escaped(nodes[i][2]));
  Plotly.react("stacks", [{
    type: "icicle", branchvalues: "total", sort: true,
    ids: tree.kept.map(String), labels: tree.kept.map(words),
    parents: tree.kept.map((i) => (i === tree.root ? "" : String(tree.parent[i]))),
    values: tree.kept.map((i) => nodes[i][4]),
    text: tree.kept.map((i) => size(nodes[i][4])),
    customdata: tree.kept.map((i) => [escaped(nodes[i][3]), size(nodes[i][4]), percent(nodes[i][4] / whole), count(nodes[i][5])]),
    texttemplate: "%{label}  %{text}",
    hovertemplate: "<b>%{label}</b><br>%{customdata[0]}<br>%{customdata[1]}, %{customdata[2]} of all, " +
      "%{customdata[3]} allocations<extra></extra>",
    tiling: { orientation: "v", pad: 1 }, pathbar: { visible: true, side: "bottom", thickness: 22, textfont: { size: 12, color: g.ink } },
    marker: { colors: tree.kept.map((i) => (i === tree.root ? g.line : flameColour(file(i), g.dark))),
              line: { width: 0 } },
    textfont: { size: 12, color: g.dark ? "#f1f4f8" : "#1b2330" }, outsidetextfont: { color: g.ink },
    insidetextfont: { color: g.dark ? "#f1f4f8" : "#1b2330" }, textposition: "middle left",
  }], {
    ...layout(g, {}), height: 40 + 24 * Math.min(40, tree.depth), margin: { l: 0, r: 0, t: 0, b: 26 }, hovermode: "closest",
    uniformtext: { minsize: 10, mode: "hide" },
  }, config);
  return tree;
}

/* Joins the stacks of one line of the program into one row. */
function joinHolders(holders) {
  const rows = new Map();
  for (const [site, bytes, allocations, category] of holders) {
    const key = site + "\n" + category, row = rows.get(key) || [site, 0, 0, category];
    row[1] += bytes;
    row[2] += allocations;
    rows.set(key, row);
  }
  return [...rows.values()].sort((a, b) => b[1] - a[1]).slice(0, 15);
}

function drawHolders(g, part) {
  const rows = joinHolders(part.holders), most = rows.length ? rows[0][1] : 1, whole = part.nodes[0] ? part.nodes[0][4] : 1;
  const known = rows.some((r) => r[3]);
  const head = element("tr");
  for (const [words, name] of [["Call site", ""], ...(known ? [["For", ""]] : []), ["Held", "number"], ["Share", "number"],
                               ["Allocations", "number"], ["", ""]]) {
    head.append(element("th", words, name));
  }
  const body = rows.map((r) => {
    const tr = element("tr"), bar = element("td", undefined, "bar"), fill = element("i");
    tr.append(element("td", r[0], "site"));
    if (known) { tr.append(element("td", r[3] ? data.categories[r[3]] : "–")); }
    tr.append(element("td", size(r[1]), "number"), element("td", percent(r[1] / (whole || 1)), "number"),
              element("td", count(r[2]), "number"));
    fill.style.width = 100 * r[1] / most + "%";
    bar.append(fill);
    tr.append(bar);
    return tr;
  });
  byId("holders").replaceChildren(head, ...body);
}

function drawStacks() {
  const g = ground(), part = data.stacks[moment], when = moment === "peak" ? "at the peak" : "at the end";
  text("title-stacks", "Call sites that hold memory " + when);
  drawHolders(g, part);
  if (part.nodes.length < 2) {
    byId("stacks").hidden = true;
    const stacks = part.holders.some((r) => r[0] !== "no call stack");
    text("lead-stacks", !part.holders.length ? "Nothing was held " + when + "." : stacks ?
      "No call stack holds 0.2 % of the memory; these hold the most." : "The snapshot has no call stacks.");
    return;
  }
  byId("stacks").hidden = false;
  const tree = drawFlame(g, part);
  text("lead-stacks", "A box is a function with what it and all that it calls hold. Click one to look closer." +
    (tree.common.length ? " All of it was called from " + tree.common.slice(-3).join(" › ") + "." : ""));
  describe("stacks", "Flame graph of call stacks that hold memory " + when + "; the table below has the largest.");
}

/* ---- all ------------------------------------------------------------------------------------------------------------ */

function drawFooter() {
  const notes = [];
  if (data.events > 2000) {
    notes.push("Condensed from " + count(data.events) + " events. Lines keep the first, least, most and last value of each of " +
               "2,000 steps, so every peak is there; areas and the map show means, of which the map's are finer the closer you look; " +
               "the call tree leaves out what holds less than 0.2 %.");
  }
  if (!data.events) {
    notes.push("The snapshot has no history: only its last moment is known.");
  }
  notes.push("Held is what the program asked for; the allocator's rounding is not in it. Made by terrazzo " + data.version +
             ". Drawn with plotly.js, which is part of this file.");
  byId("footer").append(...notes.map((n) => element("p", n)));
}

function useAxis(axis) {
  Object.assign(data, data.views[axis]);
  shown = data.span.slice(0, 2);
  shownBytes = null;
  byId("whole").hidden = true;
  closeMoment();
  drawAgain();
}

/* "#at=N" lists what is held in state N; "#map=tiles" colours the map by tiles; "#addresses=A,B" shows a part of it. */
function showAsked() {
  const asked = new URLSearchParams(location.hash.slice(1)), at = asked.get("at"), by = asked.get("map");
  const part = (asked.get("addresses") || "").split(",").map(Number);
  if (at !== null && Number(at) <= data.events) { showMoment(Math.max(0, Math.floor(Number(at))), -1); }
  if (by && mapChoices().includes(by) && drawn.map) {
    [...byId("choose-map").children].find((b) => b.textContent.toLowerCase() === by).click();
  }
  if (drawn.map && part.length === 2 && part[1] > part[0] && part[0] < lived.total) {
    shownBytes = [part[0], Math.min(part[1], lived.total)];
    byId("whole").hidden = false;
    drawMap();
  }
}

/* Draws the charts in the page's order, pausing after each: the first is there while the last is being made. */
async function drawCharts() {
  const steps = [];
  let reading = null;
  choices("choose-axis", Object.keys(data.views), data.axis, useAxis);
  if (data.events) {
    steps.push(["levels", drawLevels]);
  } else {
    hide("card-levels");
  }
  const divisions = Object.keys(data.groups).filter((k) => k !== "columns" && data.groups[k].length);
  if (data.events && divisions.length) {
    division = divisions[0];
    choices("choose-groups", divisions, division, (name) => { division = name; drawGroups(); });
    steps.push(["groups", drawGroups]);
  } else {
    hide("card-groups");
  }
  if (data.addressed && data.lived.ranges) {
    choices("choose-map", mapChoices(), colourBy, (name) => { colourBy = name; drawMap(); });
    steps.push(["map", drawMap]);
  } else {
    hide("card-map");
  }
  if (data.fragmentation && data.events) {
    steps.push(["fragmentation", drawFragmentation]);
  } else {
    hide("card-fragmentation");
  }
  choices("choose-stacks", data.events ? ["peak", "end"] : ["end"], moment = data.events ? moment : "end",
          (name) => { moment = name; drawStacks(); });
  steps.push(["stacks", drawStacks]);
  for (const [name, draw] of steps) {
    drawn[name] = draw;
    if (name === "map") { await (reading = reading || readLived()); }
    draw();
    reading = reading || readLived();
    if (name === "map") { watchMap(); }
    if (["levels", "groups", "fragmentation"].includes(name)) { watchMoments(name); }
    await new Promise((done) => setTimeout(done));
  }
  await (reading || readLived());
  showAsked();
  document.documentElement.dataset.drawn = String(Math.round(performance.now()));
}

for (const b of document.querySelectorAll("[data-theme-choice]")) {
  b.addEventListener("click", () => setTheme(b.dataset.themeChoice));
}
byId("whole").addEventListener("click", showWhole);
const closeMoment = () => { byId("moment").hidden = true; };
byId("close-moment").addEventListener("click", closeMoment);
addEventListener("keydown", (e) => {
  if (e.key !== "Escape") { return; }
  if (byId("moment").hidden) { showWhole(); } else { closeMoment(); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
markTheme();
drawHead();
drawVerdict();
drawFigures();
drawFooter();
drawCharts();
})();
