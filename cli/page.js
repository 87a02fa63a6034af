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

/* Zooming into one chart zooms into all that have time. */
let shown = [data.span[0], data.span[1]];
let following = false;

function showTime(range) {
  const first = Math.max(data.span[0], Math.min(range[0], range[1])), last = Math.min(data.span[1], Math.max(range[0], range[1]));
  if (following || !(last > first)) { return; }
  following = true;
  shown = [first, last];
  byId("whole").hidden = first === data.span[0] && last === data.span[1];
  Promise.all(timeCharts.map((id) => Plotly.relayout(id, { "xaxis.range": shown.slice() })))
    .finally(() => { following = false; });
}

const showWholeTime = () => showTime([data.span[0], data.span[1]]);

function followTime(id) {
  if (timeCharts.includes(id)) { return; }
  timeCharts.push(id);
  byId(id).on("plotly_relayout", (change) => {
    if (change["xaxis.range[0]"] !== undefined) { showTime([change["xaxis.range[0]"], change["xaxis.range[1]"]]); }
  });
  byId(id).on("plotly_doubleclick", showWholeTime);
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

/* Buttons of which one is pressed. */
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
    " Drag across a chart to look closer, in all charts; double-click for the whole time.";
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

/* ---- map ------------------------------------------------------------------------------------------------------ */

let colourBy = "state";
let map = null;

function readMap() {
  const m = data.map;
  map = {
    ...m, laid: new Uint8Array(bytesOf(m.laid)), held: new Uint8Array(bytesOf(m.held)),
    pending: new Uint8Array(bytesOf(m.pending)), owner: new Uint32Array(bytesOf(m.owner)),
  };
}

/* What divides objects, by the name of the choice. */
const keysOf = {
  "call site": (o) => data.map.sites[o[5]] || "no call stack",
  tag: (o) => data.map.tags[o[6]] || "no tag",
  stream: (o) => (data.map.streams[o[7]] === "0" ? "default stream" : "stream " + data.map.streams[o[7]]),
};

function mapChoices() {
  const m = data.map, names = ["state"];
  if (Object.keys(m.sites).length > 1) { names.push("call site"); }
  if (m.tags.length > 1) { names.push("tag"); }
  if (m.streams.length > 1) { names.push("stream"); }
  return names;
}

/* Colour 0 is a free cell; a cell without memory has none. */
function stateOf(i) {
  const laid = map.laid[i], held = map.held[i], pending = map.pending[i];
  if (laid < 3) { return null; }
  if (pending > held && pending > 25) { return 5; }
  const share = held / laid;
  return share < 0.02 ? 0 : Math.max(1, Math.min(4, Math.ceil(share * 4)));
}

function stateColours(g) {
  return g.dark ? ["#2b3542", "#23497f", "#2f66b5", "#4384e0", "#7db0ff", "#f2a83b"]
                : ["#cdd5e0", "#b3cef5", "#7faceb", "#4683d8", "#1f55a8", "#e08a00"];
}

function groupCells() {
  const key = keysOf[colourBy], areas = new Map(), names = map.objects.map(key);
  for (let i = 0; i < map.owner.length; i++) {
    if (map.owner[i] && map.held[i] + map.pending[i] > 12) {
      const name = names[map.owner[i] - 1];
      areas.set(name, (areas.get(name) || 0) + 1);
    }
  }
  // A name has the colour that it has in the chart of who holds memory.
  const known = (data.groups[colourBy] || []).map((group) => group.name).slice(0, 9);
  const numbers = names.map((name) => (known.includes(name) ? known.indexOf(name) + 1 : 10));
  const top = known.filter((name) => areas.has(name));
  return { legend: top.map((name) => [name, known.indexOf(name) + 1]), numbers, others: areas.size > top.length };
}

function mapPicture(g) {
  if (colourBy === "state") {
    return {
      of: stateOf, colours: stateColours(g),
      legend: [["free", 0], ["up to a quarter held", 1], ["half", 2], ["three quarters", 3], ["full", 4],
               ["freed, awaiting other streams", 5]],
    };
  }
  const groups = groupCells();
  const legend = groups.legend;
  if (groups.others) { legend.push(["all others", 10]); }
  return {
    of: (i) => (map.laid[i] < 3 ? null : map.owner[i] && map.held[i] + map.pending[i] > 12 ? groups.numbers[map.owner[i] - 1] : 0),
    colours: [stateColours(g)[0], ...g.palette], legend: [...legend, ["free", 0]],
  };
}

/* One colour for each whole number. */
function scaleOf(colours) {
  const scale = [];
  colours.forEach((c, i) => { scale.push([i / colours.length, c], [(i + 1) / colours.length, c]); });
  return scale;
}

function drawMap() {
  const g = ground(), picture = mapPicture(g), z = [];
  for (let row = 0; row < map.rows; row++) {
    const line = new Array(map.columns);
    for (let c = 0; c < map.columns; c++) { line[c] = picture.of(row * map.columns + c); }
    z.push(line);
  }
  const dx = (data.span[1] - data.span[0]) / map.columns;
  const borders = map.stretches.length > 60 ? [] : map.stretches.slice(1).map((s) => ({
    type: "line", x0: 0, x1: 1, xref: "paper", y0: s[2], y1: s[2], line: { color: g.soft, width: 0.6, dash: "dot" },
  }));
  Plotly.react("map", [{
    type: "heatmap", z, x0: data.span[0] + dx / 2, dx, y0: map.row_bytes / 2, dy: map.row_bytes, zmin: -0.5,
    zmax: picture.colours.length - 0.5, colorscale: scaleOf(picture.colours), showscale: false, hoverinfo: "none",
    hoverongaps: true,
  }], layout(g, {
    height: 430, plot_bgcolor: g.plot, hovermode: "closest", shapes: borders,
    xaxis: { range: shown.slice(), showgrid: false },
    yaxis: { ...sizeTicks(map.total), range: [0, map.total], showgrid: false },
  }), config);
  drawLegend("legend-map", [...picture.legend.map(([name, i]) => [name, picture.colours[i]]), ["no memory", g.plot]]);
  followTime("map");
  const words = "Addresses that ever had memory, end to end: " + size(map.total) + " in " + count(map.stretches.length) +
    (map.stretches.length === 1 ? " piece" : " pieces") + ". A row is " + size(map.row_bytes) + ", a column " + duration(dx) +
    "; a cell has the mean of both.";
  text("lead-map", words);
  describe("map", "Picture of memory addresses over time. " + words);
}

function addressAt(byte) {
  let s = map.stretches[0];
  for (const other of map.stretches) { if (other[2] <= byte) { s = other; } }
  return s[0] + (byte - s[2]);
}

function objectWords(o) {
  const flags = o[8], lines = ["<b>" + size(o[1]) + "</b> at " + hex(o[0])];
  const from = flags & 1 ? "from " + place(o[2]) : "from before the history";
  const to = flags & 2 ? " to " + place(o[3]) : ", still held at the end";
  lines.push("held " + from + to + (flags & 2 && o[4] > o[3] ? ", pending to " + place(o[4]) : ""));
  const site = data.map.sites[o[5]], tag = data.map.tags[o[6]];
  if (site) { lines.push(escaped(site)); }
  if (tag) { lines.push("tag " + escaped(tag)); }
  return lines;
}

function cellWords(row, column) {
  const i = row * map.columns + column, o = map.owner[i] ? map.objects[map.owner[i] - 1] : null;
  const laid = map.laid[i] / 255, held = map.held[i] / 255, pending = map.pending[i] / 255;
  const lines = ["<span>" + place(data.span[0] + (column + 0.5) * (data.span[1] - data.span[0]) / map.columns) + ", from " +
                 hex(addressAt(row * map.row_bytes)) + "</span>"];
  if (laid < 0.01) { return lines.concat(["<b>no memory here</b>"]); }
  lines.push(percent(held) + " held" + (pending > 0.01 ? ", " + percent(pending) + " pending" : "") + ", " +
             percent(Math.max(0, laid - held - pending)) + " free" + (laid < 0.99 ? ", " + percent(1 - laid) + " without memory" : ""));
  if (o && held + pending > 0.01) { lines.push("<span>most of it:</span>", ...objectWords(o)); }
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
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
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

/* Stacks of one line of the program are one row. */
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
               "2,000 steps, so every peak is there; areas and the map show means; the call tree leaves out what holds less " +
               "than 0.2 %, and the map names the 40,000 allocations that it first meets.");
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
  byId("whole").hidden = true;
  if (data.map) { readMap(); }
  drawAgain();
}

/* Charts in the order of the page, a breath after each: the first is there while the last is made. */
async function drawCharts() {
  const steps = [];
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
  if (data.map) {
    readMap();
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
    draw();
    if (name === "map") { watchMap(); }
    await new Promise((done) => setTimeout(done));
  }
  document.documentElement.dataset.drawn = String(Math.round(performance.now()));
}

for (const b of document.querySelectorAll("[data-theme-choice]")) {
  b.addEventListener("click", () => setTheme(b.dataset.themeChoice));
}
byId("whole").addEventListener("click", showWholeTime);
addEventListener("keydown", (e) => { if (e.key === "Escape") { showWholeTime(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
markTheme();
drawHead();
drawVerdict();
drawFigures();
drawFooter();
drawCharts();
})();
