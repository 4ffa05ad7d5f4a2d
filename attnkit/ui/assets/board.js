// The board of the Lab: one column per variant with its diagram and accuracy, learning curve,
// attention map and score asymmetry. Nodes are made once for a layout; a tick changes attributes,
// texts and pixels only.
// data: see attnkit/figures/board.py, and {alt, file}

import { isPrinting, mounted, once, onWidth, say, setTextForm, unpacked, windowSize } from "./panels.js";
import { saveMenu } from "./save.js";
import { paperOf } from "./trace.js";
import { clamp, el, percent, sequential, set, share, svg, textWidth } from "./ink.js";
import { chartFrame, fillLegend } from "./chart.js";
import { inLanguage, tr, trN } from "./language.js";
import { headOf, heatMap, tipIn } from "./maps.js";

const inPercent = (part) => inLanguage(percent(part), part);

const CURVE = 92, MAP = 208, ASYMMETRY = 64, AXIS = 15, GAP = 14, NARROWEST = 118, LETTER = 6.2, BOLD = 5.9, HIGH = 11, CHARTS = 108;
const SHORT_NAMES = 200, PHONE = 640;
const PEEK = 34, BESIDE = 128, CELL = 6; // on a phone: what shows of the next column, and columns and cells that two side by side have at least
const SPARE = 20, LOW = 700; // pixels that a window leaves free, and the height below which it leaves none
const LEAST = 230, MOST = CURVE + MAP + ASYMMETRY + 320; // pixels for the curve, the map and the asymmetry together
const COMFORTABLE = 150; // pixels; narrower columns stand in two bands where the window is high enough
const PHONE_COMFORTABLE = 165; // pixels; the same on a phone, where heads have small diagrams in narrower columns
const CROWDED = 100; // pixels for the three measures of a band, if one band would have to be scrolled sideways
const ROWS = 10, FACTS = 64; // rows of the grid for a band, and pixels for the last of them
const HALF = [{ value: 0.5, dash: "dot" }]; // the level of an asymmetry

export default function showBoard({ data: packed, parentElement }) {
  const data = unpacked(packed), { root, state, gone } = mounted(parentElement, "ak-board", mountBoard);
  state.data = data;
  set(state.grid, "aria-label", data.alt);
  document.documentElement.style.setProperty("--ak-paper", paperOf(root)); // of the bar, which is outside
  state.steps = floats(data.steps);
  arrange(root, state);
  fill(state);
  state.draws += 1;
  Object.assign(root.dataset, { draws: state.draws, step: data.step });
  return gone;
}

function mountBoard(root) {
  const state = { draws: 0, host: { tip: tipIn(root), link: null } };
  saveMenu(once(root, "div", "ak-board-save"), () => ({
    body: state.grid, heading: `${state.data.title}. ${state.data.alt.split(". ")[0]}`, name: state.data.file, table: () => tableOf(state),
  }))(tr("accuracy, attention and asymmetry of every variant"));
  state.grid = once(root, "div", "ak-board-grid");
  Object.assign(state.grid, { tabIndex: 0, onkeydown: (event) => step(state, event), onmouseleave: () => read(state, null) });
  state.grid.setAttribute("role", "group");
  const redraw = () => arrange(root, state) && fill(state);
  const above = new ResizeObserver(redraw); // what stands above the board leaves it more room or less
  above.observe(root.closest("[data-testid=stMainBlockContainer]") ?? document.body);
  addEventListener("resize", redraw);
  state.ends = [onWidth(root, redraw), () => removeEventListener("resize", redraw), () => above.disconnect()];
  return state;
}

const floats = (text) => new Float32Array(Uint8Array.from(atob(text || ""), (c) => c.charCodeAt(0)).buffer);

/** Measure the room, and build the nodes anew if labels or sizes differ from what stands; return whether they do. */
function arrange(root, state) {
  const { columns, maps, turn } = state.data, n = columns.length;
  const room = root.clientWidth || 1100;
  const narrow = windowSize().width <= PHONE;
  const widthOf = (inRow) => Math.floor((room - GAP * (inRow - 1)) / inRow);
  const bands = bandsOf(root, state, narrow || n < 3 ? Infinity : widthOf(n)), perBand = Math.ceil(n / bands);
  const width = narrow ? widthOnPhone(room, n, maps) : Math.max(NARROWEST, widthOf(perBand));
  const rows = width < SHORT_NAMES && maps?.short_rows ? maps.short_rows : maps?.rows ?? [];
  const left = Math.max(34, 7 + textWidth(rows)), answers = Math.ceil(LETTER * (maps?.answer_letters ?? 0)), right = answers ? 22 + answers : 4;
  const top = headOf(maps?.columns ?? []);
  const total = narrow ? CURVE + MAP + ASYMMETRY + 60 : settledRoom(root, state, bands);
  const high = Math.min(MAP + (total - CURVE - MAP - ASYMMETRY) * 0.5, total - CHARTS), nRows = maps?.rows.length || 8;
  const most = Math.floor((high - top) / nRows);
  const cellWidth = Math.max(4, Math.floor(Math.min((width - left - right) / (maps?.columns.length || 8), 1.6 * Math.max(most, HIGH))));
  const cellHeight = Math.max(nRows > 8 ? 7 : HIGH, Math.floor(Math.min(most, cellWidth * 1.25)));
  const map = maps ? top + cellHeight * nRows + 2 : high;
  const free = Math.max(total - map, CHARTS);
  const curve = Math.round(free * 0.58), asymmetry = Math.round(free - curve);
  const swiped = narrow && n * (width + GAP) - GAP > room;
  const size = { swiped, bands, perBand, width, left, answers, top, cellWidth, cellHeight, map, curve, asymmetry };
  const shape = JSON.stringify([size, rows, root.clientWidth, turn, state.data.last_step, state.data.quantity, state.data.asks_trained, state.data.top, state.data.mark, maps && [maps.rows, maps.columns, maps.target, maps.reverse],
    columns.map(({ name, color, diagram, curve, levels, map: panel, asymmetry }) => [name, color, diagram, !curve, levels.length, panel?.lacking, !asymmetry])]);
  if (state.shape === shape) return false;
  Object.assign(state, { shape, size, rows });
  state.grid.style.gridTemplateColumns = `repeat(${perBand}, ${narrow || width === NARROWEST ? `${width}px` : "minmax(0, 1fr)"})`;
  state.grid.classList.toggle("ak-narrow", width < (narrow ? PHONE_COMFORTABLE : COMFORTABLE));
  state.grid.style.gridTemplateRows = `repeat(${ROWS * bands}, auto)`;
  state.grid.replaceChildren();
  buildHeadings(state);
  state.columns = columns.map((column, i) => buildColumn(state, column, i));
  return true;
}

/** Half of a phone where that is legible; else one column fills it. The edge of one more shows that there are more. */
function widthOnPhone(room, n, maps) {
  const half = Math.floor((room - GAP - (n > 2 ? PEEK : 0)) / 2), names = Math.max(34, 7 + textWidth(maps?.short_rows ?? maps?.rows ?? []));
  const answers = maps?.answer_letters ? 22 + LETTER * maps.answer_letters : 4, cell = (half - names - answers) / (maps?.columns.length || 8);
  return n > 1 && half >= BESIDE && cell >= CELL ? half : Math.min(room, 420) - (n > 1 ? PEEK : 0);
}

/** Two bands of columns, one below the other, where one would have very narrow columns and the window is high enough; else one. */
function bandsOf(root, state, width) {
  if (isPrinting() || width >= COMFORTABLE) return 1;
  const least = (width < NARROWEST ? CROWDED : LEAST) - (state.size?.bands === 2 ? 2 * SPARE : 0); // a line more above changes nothing
  return roomBelow(root, state, 2) >= least ? 2 : 1;
}

/** Pixels that the curve, the map and the asymmetry of a band may fill together, so that all three are in one view. */
function roomBelow(root, { grid, headings, columns }, bands) {
  if (isPrinting()) return CURVE + MAP + ASYMMETRY;
  const scrolled = root.closest("[data-testid=stMain]")?.scrollTop ?? scrollY;
  const zoom = root.currentCSSZoom ?? 1, start = root.getBoundingClientRect().top + scrolled;
  const lines = Object.values(headings ?? {}).reduce((sum, span) => sum + span.parentElement.offsetHeight, 0);
  const head = (columns?.[0]?.box.querySelector(".ak-board-head").offsetHeight ?? 70) + 17;
  const others = bands * head + (lines || 57) + (bands - 1) * (57 + FACTS);
  const bar = grid.offsetHeight - grid.clientHeight; // that scrolls the columns sideways
  return Math.floor(((innerHeight - start) / zoom - others - bar - 4) / bands);
}

/** The room that a band takes; it keeps what it has where a line more or less stands above it. */
function settledRoom(root, state, bands) {
  const room = roomBelow(root, state, bands), spare = room - state.room;
  if (!(spare >= 0 && spare <= 2 * SPARE)) state.room = room - (innerHeight < LOW ? 0 : SPARE);
  return clamp(state.room, LEAST, MOST);
}

function buildHeadings(state) {
  const heldOut = state.data.quantity === "loss" ? tr("Loss on held-out examples") : tr("Accuracy on held-out examples");
  const words = {
    3: state.data.asks_trained ? tr("Accuracy on all rows") : heldOut,
    5: state.data.asks_trained ? tr("Attention on one example") : tr("Attention on one held-out example"),
    8: tr("Score asymmetry"),
  };
  const build = (band) => Object.fromEntries(Object.entries(words).map(([row, text]) => {
    const line = el("div", "ak-board-heading", state.grid);
    Object.assign(line.style, { gridRow: ROWS * band + Number(row), maxWidth: `${state.grid.clientWidth - (row === "3" ? 46 : 0)}px` });
    el("b", "", line, text);
    return [row, el("span", "", line, "")];
  }));
  state.headings = build(0);
  state.explained = ["ak-nearby", ""].map((name) => el("span", name, state.headings[5])); // a projector leaves the first out
  if (state.size.bands === 2) build(1); // the first ones explain
  if (state.size.swiped) el("span", "ak-board-swipe ak-not-saved", state.headings[3].parentElement, tr("Swipe sideways: there are {n} columns.", { n: state.data.columns.length }));
  state.legend = el("span", "ak-legend", state.headings[3].parentElement);
}

function buildColumn(state, column, i) {
  const { size } = state, box = el("div", "ak-board-column", state.grid);
  const band = Math.floor(i / size.perBand);
  Object.assign(box.style, { gridColumn: (i % size.perBand) + 1, gridRow: `${ROWS * band + 1} / span ${ROWS}` });
  box.classList.toggle("ak-below", band > 0);
  box.setAttribute("role", "group");
  box.style.setProperty("--ak-color", column.color);
  const head = el("div", "ak-board-head", box), words = el("div", "", head);
  head.title = [column.second, column.meaning].filter(Boolean).join("\n");
  const name = el("b", "", words);
  setTextForm(name, column.name);
  name.classList.toggle("ak-long", column.name.length > (size.width < SHORT_NAMES ? 9 : 14));
  const value = el("span", "ak-value", words, ""), note = el("span", "ak-note", words, "");
  head.insertAdjacentHTML("beforeend", column.diagram);
  const drawn = { box, value, note };
  drawn.curve = buildChart(state, box, 4, size.curve, column, state.data.top, column.levels.map(({ dash }) => ({ dash })));
  drawn.map = buildMap(state, box, column);
  drawn.pair = el("div", "ak-board-pair", box);
  drawn.pairs = [el("span", "", drawn.pair, ""), el("span", "", drawn.pair, "")];
  drawn.asymmetry = buildChart(state, box, 9, size.asymmetry, column, 1, HALF);
  drawn.facts = el("div", "ak-board-facts", box, "");
  return drawn;
}

/** A chart that shares its left edge with the map below it: the earlier mean, every run, and the mean. */
function buildChart(state, box, row, height, { color }, top, levels) {
  const { size, data } = state, last = data.last_step || 1;
  const chart = chartFrame(box, {
    width: size.width, height, levels, className: "ak-board-chart", margin: { left: size.left, right: 4, top: 8, bottom: AXIS },
    curves: [{ className: "ak-previous" }, { className: "ak-run", color }, { color }],
  });
  chart.node.style.gridRow = row;
  chart.scaleTo(last, 0, top);
  const worded = data.quantity === "accuracy" && row === 4 ? inPercent : (value) => Number(value.toFixed(1));
  const end = trN("{n} step", "{n} steps", data.last_step), fits = LETTER * (end.length + 3) < chart.right - chart.left;
  chart.drawAxis([0, top / 2, top].map((value) => [value, worded(value)]), [[0, "0", "start"], [last, fits ? end : data.last_step, "end"]]);
  if (data.turn) svg("path", { d: `M${chart.x(data.turn)} 8V${chart.bottom}`, class: "ak-turn" }, chart.node);
  const reading = svg("text", { x: chart.right, y: 14, "text-anchor": "end", class: "ak-reading" }, chart.node);
  chart.onStep((step) => read(state, nearest(state.steps, step)));
  return { ...chart, reading };
}

function buildMap(state, box, column) {
  const { size, data: { maps, mark } } = state, panel = column.map, holder = el("div", "ak-board-map", box);
  holder.style.height = `${size.map}px`;
  if (!panel || panel.lacking) {
    el("div", "ak-note", holder, panel?.lacking ?? tr("The attention map appears here."));
    return null;
  }
  const { rows, columns, column_titles: titles, target } = maps, { left, top, cellWidth: w, cellHeight: h } = size;
  const map = heatMap(state.host, holder, {
    rows: state.rows, columns, left, top, cell: w, cellHeight: h, target, answers: size.answers, letters: HIGH,
    reverse: mark ? rows.map((_, i) => (i === mark.mirror_row ? mark.mirror_column : -1)) : maps.reverse,
    tell: (i, j, value) => tr("“{row}” attends to “{column}”: {share}", { row: rows[i], column: titles[j], share: share(value) }),
  });
  const across = columns.slice(1).map((_, j) => `M${left + (j + 1) * w} ${top}v${rows.length * h}`), down = rows.slice(1).map((_, i) => `M${left} ${top + (i + 1) * h}h${columns.length * w}`);
  map.over.prepend(svg("path", { d: [...across, ...down].join(""), class: "ak-board-lines" }));
  if (mark) {
    const [x0, y0] = map.middleOf(mark.row, mark.column), [x1, y1] = map.middleOf(mark.mirror_row, mark.mirror_column);
    const bend = 0.25, xm = (x0 + x1) / 2 + (y1 - y0) * bend, ym = (y0 + y1) / 2 - (x1 - x0) * bend;
    for (const name of ["ak-halo", "ak-mark"]) svg("path", { d: `M${x0} ${y0}Q${xm} ${ym} ${x1} ${y1}`, class: name }, map.over);
  }
  return map;
}

/** Put the data into the nodes that stand. */
function fill(state) {
  const { data } = state;
  fillLegend(state.legend, data.legend);
  readingOf(state).forEach((text, k) => say(state.explained[k], text));
  say(state.headings[8], tr("0: the scores are the same both ways. 0.5: both ways are unrelated. Mean over heads and layers."));
  data.columns.forEach((column, i) => {
    const drawn = state.columns[i];
    set(drawn.box, "aria-label", column.alt);
    say(drawn.value, column.value);
    say(drawn.note, column.note);
    say(drawn.facts, column.facts);
    drawCurve(state, drawn.curve, column.curve, column.levels);
    drawCurve(state, drawn.asymmetry, column.asymmetry, HALF);
    const { cells, answers, right } = column.map ?? {};
    if (drawn.map) drawn.map.update(Float32Array.from(atob(cells), (c) => c.charCodeAt(0) / 255), sequential(), { answers, right });
    drawn.pairs.forEach((node, k) => {
      say(node, column.scores[k]?.text ?? "");
      node.className = column.scores[k]?.same ? "ak-same" : "";
    });
  });
  read(state, state.read ?? null);
}

/** How rows are read, and how the maps are; known before there are any, so that nothing moves when they come. */
function readingOf({ data, size }) {
  const { maps, label_legend: legend } = data;
  const named = legend && (size.width >= SHORT_NAMES || (maps && !maps.short_rows));
  const mirrored = maps ? maps.reverse.some((j) => j >= 0) : data.has_mirrors;
  const ofMaps = [
    tr("Each row looks at the brighter columns. Frame: the right one."),
    mirrored && tr("Circle: the entry that points back."),
    tr("✓ ✗: its answer."),
    maps?.cut,
  ].filter(Boolean).join(" ");
  const ofRows = named ? tr("Rows read “{legend}”.", { legend }) : "";
  return [ofRows && `${ofRows} `, ofMaps];
}

function drawCurve({ data, steps }, chart, curve, levels) {
  levels.forEach(({ value }, k) => chart.drawLevel(k, value));
  chart.values = curve && Object.fromEntries(["mean", "low", "high"].map((name) => [name, floats(curve[name])]));
  const { low, high, mean } = chart.values ?? { low: [], high: [], mean: [] }, runs = floats(curve?.runs);
  const before = floats(data.previous_steps), known = before.filter((step) => step <= data.last_step); // the run before may have been longer
  chart.draw(0, known, floats(curve?.previous).subarray(0, known.length));
  chart.draw(1, Float32Array.from(runs, (_, k) => steps[k % steps.length]), runs);
  chart.draw(2, steps, mean, low, high);
}

/** Show the values of all charts at one evaluation, or none. */
function read(state, k) {
  state.read = k;
  (state.columns ?? []).forEach((column, i) => {
    for (const chart of [column.curve, column.asymmetry]) {
      const known = k !== null && chart.values && k < chart.values.mean.length;
      const { mean, low, high } = chart.values ?? {};
      chart.pointAt(known ? state.steps[k] : null);
      const worded = chart === column.curve && state.data.quantity === "accuracy" ? inPercent : share;
      const values = known && { step: state.steps[k], value: worded(mean[k]), low: worded(low[k]), high: worded(high[k]) };
      const at = known && tr("step {step}: {value}", values), varies = known && Number.isFinite(low[k]) && values.low !== values.high;
      const longest = varies ? tr("step {step}: {value} ({low} to {high})", values) : at;
      const last = chart === column.asymmetry && chart.values ? state.data.columns[i].asymmetry_value : "";
      const forms = known ? [longest, at, values.value] : [last, last.split(", ")[0]];
      const text = forms.find((form) => BOLD * form.length < chart.right - chart.left) ?? forms.at(-1); // the longest that fits
      say(chart.reading, text);
      if (text) set(chart.reading, "y", baselineOf(chart, state.steps, text));
    }
  });
}

/** Return where a reading covers the fewest points of its curve: above it, below it or at the bottom. */
function baselineOf({ values, x, y, right, bottom }, steps, text) {
  const from = right - LETTER * text.length;
  const points = [...values.mean].flatMap((value, k) => (x(steps[k]) >= from ? [y(value)] : []));
  const covered = (at) => points.filter((point) => Math.abs(point - at + 4) < 7).length;
  return [14, 11, 32, bottom - 5].reduce((best, at) => (covered(at) < covered(best) ? at : best));
}

function nearest(steps, wanted) {
  let best = null;
  steps.forEach((step, k) => {
    if (best === null || Math.abs(step - wanted) < Math.abs(steps[best] - wanted)) best = k;
  });
  return best;
}

/** Arrow keys move through the evaluations; where columns scroll sideways, keys scroll them. */
function step(state, event) {
  const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key], n = state.steps.length;
  if (event.key === "Escape") return read(state, null);
  if (!way || !n || state.grid.scrollWidth > state.grid.clientWidth + 1) return;
  event.preventDefault();
  read(state, clamp((state.read ?? (way > 0 ? -1 : n)) + way, 0, n - 1));
}

/** The means of every chart, for the file of comma-separated values. */
function tableOf({ data, steps, columns }) {
  const rows = data.columns.flatMap(({ name }, i) => [...steps].map((step, k) => {
    const { curve, asymmetry } = columns[i];
    return [name, step, ...["mean", "low", "high"].map((part) => curve.values?.[part][k]), asymmetry.values?.mean[k]];
  }));
  return { columns: ["variant", "step", data.quantity, "low", "high", "asymmetry"], rows };
}
