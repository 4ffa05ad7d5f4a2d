// The board of the Lab: one column per variant with its diagram and accuracy, learning curve,
// attention map and score asymmetry. Nodes are made once for a layout; a tick changes attributes,
// texts and pixels only.
// data: see attnkit/figures/board.py, and {alt, file}

import { isPrinting, once, onWidth, say, setTextForm, states, unpacked, whenGone, windowSize } from "./panels.js";
import { saveMenu } from "./save.js";
import { paperOf, round } from "./trace.js";
import { clamp, el, paint, percent, placeIn, sequential, set, share, show, svg } from "./ink.js";

const CURVE = 92, MAP = 208, ASYMMETRY = 64, AXIS = 15, GAP = 14, NARROWEST = 118, LETTER = 6.2, BOLD = 5.9, HIGH = 11, CHARTS = 108;
const SHORT_NAMES = 200, PHONE = 640;
const SPARE = 20, LOW = 700; // pixels that a window leaves free, and the height below which it leaves none
const LEAST = 230, MOST = CURVE + MAP + ASYMMETRY + 320; // pixels for the curve, the map and the asymmetry together
const COMFORTABLE = 150; // pixels; narrower columns stand in two bands where the window is high enough
const CROWDED = 100; // pixels for the three measures of a band, if one band would have to be scrolled sideways
const ROWS = 10, FACTS = 64; // rows of the grid for a band, and pixels for the last of them
const FINE = 14; // pixels; thick frames would hide smaller cells
const LINES = { dot: "2 3", dash: "6 4", longdashdot: "9 3 2 3" };

export default function showBoard({ data: packed, parentElement }) {
  const data = unpacked(packed);
  const root = once(parentElement, "div", "ak-board");
  let state = states.get(root);
  if (!state) {
    state = { draws: 0 };
    states.set(root, state);
    state.tip = once(root, "div", "ak-tip");
    state.named = saveMenu(once(root, "div", "ak-board-save"), () => ({
      body: state.grid, heading: `${state.data.title}. ${state.data.alt.split(". ")[0]}`, name: state.data.file, table: () => tableOf(state),
    }));
    state.named("accuracy, attention and asymmetry of every variant");
    state.grid = once(root, "div", "ak-board-grid");
    Object.assign(state.grid, { tabIndex: 0, onkeydown: (event) => step(state, event) });
    state.grid.setAttribute("role", "group");
    state.grid.onmouseleave = () => read(state, null);
    const redraw = () => arrange(root, state) && fill(state);
    state.endWidth = onWidth(root, redraw);
    addEventListener("resize", redraw);
    const above = new ResizeObserver(redraw); // what stands above the board leaves it more room or less
    above.observe(root.closest("[data-testid=stMainBlockContainer]") ?? document.body);
    state.endHeight = () => {
      removeEventListener("resize", redraw);
      above.disconnect();
    };
  }
  state.data = data;
  set(state.grid, "aria-label", data.alt);
  document.documentElement.style.setProperty("--ak-paper", paperOf(root)); // of the bar, which is outside
  state.steps = floats(data.steps);
  arrange(root, state);
  fill(state);
  state.draws += 1;
  Object.assign(root.dataset, { draws: state.draws, step: data.step });
  return whenGone(root, () => {
    state.endWidth();
    state.endHeight();
    states.delete(root);
  });
}

const floats = (text) => new Float32Array(Uint8Array.from(atob(text || ""), (c) => c.charCodeAt(0)).buffer);

const lettersWide = (texts) => Math.ceil(LETTER * Math.max(0, ...texts.map((text) => text.length)));

/** Measure the room, and build the nodes anew if labels or sizes differ from what stands; return whether they do. */
function arrange(root, state) {
  const { columns, maps, turn } = state.data, n = columns.length;
  const room = root.clientWidth || 1100;
  const narrow = windowSize().width <= PHONE;
  const widthOf = (inRow) => Math.floor((room - GAP * (inRow - 1)) / inRow);
  const bands = bandsOf(root, state, narrow || n < 3 ? Infinity : widthOf(n)), perBand = Math.ceil(n / bands);
  const width = narrow ? Math.min(room, 420) - (n > 1 ? 34 : 0) : Math.max(NARROWEST, widthOf(perBand));
  const rows = width < SHORT_NAMES && maps?.short_rows ? maps.short_rows : maps?.rows ?? [];
  const left = Math.max(34, 8 + lettersWide(rows)), right = maps?.answer_letters ? 22 + Math.ceil(LETTER * maps.answer_letters) : 4;
  const single = (maps?.columns ?? []).every((text) => text.length === 1 || text === "rest");
  const top = single && !maps?.columns.includes("rest") ? 16 : 8 + lettersWide(maps?.columns ?? []);
  const total = narrow ? CURVE + MAP + ASYMMETRY + 60 : settledRoom(root, state, bands);
  const high = Math.min(MAP + (total - CURVE - MAP - ASYMMETRY) * 0.5, total - CHARTS), nRows = maps?.rows.length || 8;
  const most = Math.floor((high - top) / nRows);
  const cellWidth = Math.max(4, Math.floor(Math.min((width - left - right) / (maps?.columns.length || 8), 1.6 * Math.max(most, HIGH))));
  const cellHeight = Math.max(nRows > 8 ? 7 : HIGH, Math.floor(Math.min(most, cellWidth * 1.25)));
  const map = maps ? top + cellHeight * nRows + 2 : high;
  const free = Math.max(total - map, CHARTS);
  const curve = Math.round(free * 0.58), asymmetry = Math.round(free - curve);
  const size = { bands, perBand, width, left, right, top, cellWidth, cellHeight, single, map, curve, asymmetry };
  const shape = JSON.stringify([size, rows, root.clientWidth, turn, state.data.last_step, state.data.quantity, state.data.top, maps && [maps.rows, maps.columns, maps.target, maps.reverse],
    columns.map(({ name, color, diagram, curve, levels, map: panel, asymmetry }) => [name, color, diagram, !curve, levels.length, panel?.lacking, !asymmetry])]);
  if (state.shape === shape) return false;
  Object.assign(state, { shape, size, rows });
  state.grid.style.gridTemplateColumns = `repeat(${perBand}, ${narrow || width === NARROWEST ? `${width}px` : "minmax(0, 1fr)"})`;
  state.grid.classList.toggle("ak-narrow", width < COMFORTABLE);
  state.grid.style.gridTemplateRows = `repeat(${ROWS * bands}, auto)`;
  state.grid.replaceChildren();
  buildHeadings(state);
  state.columns = columns.map((column, i) => buildColumn(state, column, i));
  return true;
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
  const scrolled = root.closest("[data-testid=stMain]")?.scrollTop ?? 0;
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
  const words = {
    3: state.data.quantity === "loss" ? "Loss on held-out examples" : "Accuracy on held-out examples",
    5: "Attention on one held-out example", 8: "Score asymmetry",
  };
  const build = (band) => Object.fromEntries(Object.entries(words).map(([row, text]) => {
    const line = el("div", "ak-board-heading", state.grid);
    Object.assign(line.style, { gridRow: ROWS * band + Number(row), maxWidth: `${state.grid.clientWidth - (row === "3" ? 46 : 0)}px` });
    el("b", "", line, text);
    return [row, el("span", "", line, "")];
  }));
  state.headings = build(0);
  if (state.size.bands === 2) build(1); // the first ones explain
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
  drawn.curve = buildChart(state, box, 4, size.curve, column, state.data.top, column.levels);
  drawn.map = buildMap(state, box, column);
  drawn.pair = el("div", "ak-board-pair", box);
  drawn.pairs = [el("span", "", drawn.pair, ""), el("span", "", drawn.pair, "")];
  drawn.asymmetry = buildChart(state, box, 9, size.asymmetry, column, 1, [{ value: 0.5, dash: "dot" }]);
  drawn.facts = el("div", "ak-board-facts", box, "");
  return drawn;
}

/** Axes, levels and lines of a chart that shares its left edge with the map below it. */
function buildChart(state, box, row, height, column, top, levels) {
  const { size, data } = state, right = size.width - 4, bottom = height - AXIS;
  const node = svg("svg", { width: size.width, height, viewBox: `0 0 ${size.width} ${height}`, class: "ak-board-chart", "aria-hidden": "true" }, box);
  node.style.gridRow = row;
  const x = (step) => size.left + ((right - size.left) * step) / (data.last_step || 1);
  const y = (value) => bottom - ((bottom - 8) * clamp(value, 0, top)) / top;
  const percent = data.quantity === "accuracy" && row === 4;
  for (const value of [0, top / 2, top]) {
    svg("path", { d: `M${size.left} ${y(value)}H${right}`, class: "ak-rule" }, node);
    const text = svg("text", { x: size.left - 4, y: y(value) + 4, "text-anchor": "end" }, node);
    text.textContent = percent ? `${value * 100}%` : value === 0 ? "0" : Number(value.toFixed(1));
  }
  svg("text", { x: size.left, y: height - 3 }, node).textContent = "0";
  svg("text", { x: right, y: height - 3, "text-anchor": "end" }, node).textContent = LETTER * (`${data.last_step}`.length + 9) > right - size.left ? data.last_step : `${data.last_step} steps`;
  if (data.turn) svg("path", { d: `M${x(data.turn)} 8V${bottom}`, class: "ak-level" }, node);
  const drawnLevels = levels.map(({ dash }) => svg("path", { class: "ak-level", "stroke-dasharray": LINES[dash] }, node));
  const previous = svg("path", { class: "ak-previous" }, node);
  const band = svg("path", { class: "ak-band", fill: column.color }, node);
  const runs = svg("path", { class: "ak-run", stroke: column.color }, node);
  const mean = svg("path", { class: "ak-line", stroke: column.color }, node);
  const cursor = svg("path", { class: "ak-cursor" }, node);
  const reading = svg("text", { x: right, y: 14, "text-anchor": "end", class: "ak-reading" }, node);
  node.onmousemove = (event) => {
    const share = (placeIn(node, event).x - size.left) / (right - size.left);
    read(state, nearest(state.steps, share * data.last_step));
  };
  return { node, x, y, right, bottom, drawnLevels, previous, band, runs, mean, cursor, reading };
}

function buildMap(state, box, column) {
  const { size, data } = state, { left, top, cellWidth: w, cellHeight: h } = size, panel = column.map;
  const holder = el("div", "ak-board-map", box);
  holder.style.height = `${size.map}px`;
  if (!panel || panel.lacking) {
    el("div", "ak-note", holder, panel?.lacking ?? "The attention map appears here.");
    return { holder };
  }
  const { rows, columns, target, reverse } = data.maps, right = left + columns.length * w;
  const canvas = el("canvas", "", holder);
  Object.assign(canvas, { width: columns.length, height: rows.length });
  canvas.style.cssText = `left: ${left}px; top: ${top}px; width: ${columns.length * w}px; height: ${rows.length * h}px`;
  const over = svg("svg", { width: size.width, height: size.map, viewBox: `0 0 ${size.width} ${size.map}`, "aria-hidden": "true" }, holder);
  over.classList.toggle("ak-fine", Math.min(w, h) < FINE);
  // Where rows are lower, or columns narrower, than a line of text, only some of them are named.
  const every = Math.ceil(HIGH / h), everyColumn = size.single ? 1 : Math.ceil((HIGH + 1) / w);
  const rest = columns.indexOf("rest");
  columns.forEach((text, j) => {
    if (j !== rest && (j % everyColumn || (everyColumn > 1 && Math.abs(rest - j) < everyColumn && rest >= 0))) return;
    const x = left + (j + 0.5) * w + (size.single && text.length === 1 ? 0 : 4), y = top - 5;
    const turned = size.single && text.length === 1 ? { "text-anchor": "middle" } : { transform: `rotate(-90 ${x} ${y})` };
    svg("text", { x, y, ...turned }, over).textContent = text;
  });
  const grid = [...columns.slice(1).map((_, j) => `M${left + (j + 1) * w} ${top}v${rows.length * h}`), ...rows.slice(1).map((_, i) => `M${left} ${top + (i + 1) * h}H${right}`)];
  svg("path", { d: grid.join(""), class: "ak-board-lines" }, over);
  const answers = rows.map((_, i) => {
    const y = top + (i + 0.5) * h + 4;
    if (i % every === 0) svg("text", { x: left - 5, y, "text-anchor": "end" }, over).textContent = state.rows[i];
    if (target[i] >= 0) {
      const place = { x: left + target[i] * w + 1, y: top + i * h + 1, width: w - 2, height: h - 2 };
      for (const name of ["ak-halo", "ak-target"]) svg("rect", { ...place, class: name }, over);
    }
    return svg("text", { x: right + 5, y, display: i % every === 0 ? "inline" : "none" }, over);
  });
  const circle = (i, j, parent) => {
    const place = { cx: left + (j + 0.5) * w, cy: top + (i + 0.5) * h, r: Math.max(2, Math.min(w, h) / 2 - 3) };
    for (const name of ["ak-halo", "ak-reverse"]) svg("circle", { ...place, class: name }, parent);
  };
  const reversed = svg("g", {}, over), mark = svg("g", {}, over);
  reverse.forEach((j, i) => j >= 0 && circle(i, j, reversed));
  circle(0, 0, mark);
  for (const name of ["ak-halo", "ak-mark"]) svg("path", { class: name }, mark);
  over.onmousemove = (event) => {
    const { x, y } = placeIn(over, event), i = Math.floor((y - top) / h), j = Math.floor((x - left) / w);
    tell(state, drawn, i in rows && j in columns ? [i, j] : null, event);
  };
  over.onmouseleave = () => tell(state, drawn, null);
  const drawn = { holder, canvas, answers, reversed, mark, levels: new Float32Array(rows.length * columns.length) };
  return drawn;
}

/** Put the data into the nodes that stand. */
function fill(state) {
  const { data } = state;
  setLegend(state.legend, data.legend);
  say(state.headings[5], readingOf(state));
  say(state.headings[8], "0: the scores are the same both ways. 0.5: both ways are unrelated. Mean over heads and layers.");
  data.columns.forEach((column, i) => {
    const drawn = state.columns[i];
    set(drawn.box, "aria-label", column.said);
    say(drawn.value, column.value);
    say(drawn.note, column.note);
    say(drawn.facts, column.facts);
    drawCurve(state, drawn.curve, column.curve, column.levels);
    drawCurve(state, drawn.asymmetry, column.asymmetry, [{ value: 0.5 }]);
    fillMap(state, drawn.map, column.map);
    drawn.pairs.forEach((node, k) => {
      say(node, column.scores[k]?.text ?? "");
      node.className = column.scores[k]?.same ? "ak-same" : "";
    });
  });
  read(state, state.read ?? null);
}

/** How the maps are read; known before there are any, so that nothing moves when they come. */
function readingOf({ data, size }) {
  const { maps, label_legend: legend } = data;
  const named = legend && (size.width >= SHORT_NAMES || (maps && !maps.short_rows));
  const mirrored = maps ? maps.reverse.some((j) => j >= 0) : data.has_mirrors;
  const circled = mirrored ? " Circle: the entry that points back." : "";
  return `${named ? `Rows read “${legend}”. ` : ""}Each row looks at the brighter columns. Frame: the right one.${circled} ✓ ✗: its answer. ${maps?.cut ?? ""}`;
}

function drawCurve(state, chart, curve, levels) {
  chart.drawnLevels.forEach((path, k) => set(path, "d", levels[k] ? `M${chart.x(0)} ${chart.y(levels[k].value)}H${chart.x(state.data.last_step)}` : ""));
  const steps = state.steps, lineOf = (values, at = steps) => {
    let text = "", open = false;
    values.forEach((value, k) => {
      if (Number.isFinite(value)) text += `${open ? "L" : "M"}${round(chart.x(at[k]))} ${round(chart.y(value))}`;
      open = Number.isFinite(value);
    });
    return text;
  };
  chart.values = curve && Object.fromEntries(["mean", "low", "high"].map((name) => [name, floats(curve[name])]));
  const runs = floats(curve?.runs), { low, high, mean } = chart.values ?? { low: [], high: [], mean: [] };
  const known = [...low.keys()].filter((k) => Number.isFinite(low[k]) && Number.isFinite(high[k]));
  const corners = [...known.map((k) => [k, high[k]]), ...known.reverse().map((k) => [k, low[k]])];
  set(chart.band, "d", corners.length ? `M${corners.map(([k, v]) => `${round(chart.x(steps[k]))} ${round(chart.y(v))}`).join("L")}Z` : "");
  let each = "";
  for (let first = 0; first < runs.length; first += steps.length) each += lineOf(runs.subarray(first, first + steps.length));
  set(chart.runs, "d", each);
  set(chart.mean, "d", lineOf([...mean]));
  const before = floats(state.data.previous_steps); // the run before may have been longer than the chart
  set(chart.previous, "d", curve?.previous ? lineOf([...floats(curve.previous)].filter((_, k) => before[k] <= state.data.last_step), before) : "");
}

function fillMap(state, drawn, panel) {
  if (!panel || !drawn.canvas) return;
  const { cellWidth: w, cellHeight: h, left, top } = state.size, { mark } = state.data;
  const levels = Float32Array.from(atob(panel.cells), (c) => c.charCodeAt(0) / 255);
  paint(drawn.canvas, levels, sequential());
  drawn.levels = levels;
  drawn.name = panel.name;
  panel.answers.forEach((text, i) => {
    if (panel.right[i] === null) return;
    say(drawn.answers[i], `${text} ${panel.right[i] ? "✓" : "✗"}`);
    set(drawn.answers[i], "class", panel.right[i] ? "ak-right" : "ak-wrong");
  });
  show(drawn.reversed, !mark);
  show(drawn.mark, Boolean(mark));
  if (!mark) return;
  const at = (i, j) => [left + (j + 0.5) * w, top + (i + 0.5) * h];
  const [x0, y0] = at(mark.row, mark.column), [x1, y1] = at(mark.mirror_row, mark.mirror_column);
  for (const circle of drawn.mark.querySelectorAll("circle")) {
    set(circle, "cx", x1);
    set(circle, "cy", y1);
  }
  const bend = 0.25, xm = (x0 + x1) / 2 + (y1 - y0) * bend, ym = (y0 + y1) / 2 - (x1 - x0) * bend;
  for (const path of drawn.mark.querySelectorAll("path")) set(path, "d", `M${x0} ${y0}Q${xm} ${ym} ${x1} ${y1}`);
}

/** Show the values of all charts at one evaluation, or none. */
function read(state, k) {
  state.read = k;
  (state.columns ?? []).forEach((column, i) => {
    for (const chart of [column.curve, column.asymmetry]) {
      const known = k !== null && chart.values && k < chart.values.mean.length;
      const { mean, low, high } = chart.values ?? {};
      set(chart.cursor, "d", known ? `M${chart.x(state.steps[k])} 4V${chart.bottom}` : "");
      const worded = chart === column.curve && state.data.quantity === "accuracy" ? percent : share;
      const varies = known && Number.isFinite(low[k]) && worded(low[k]) !== worded(high[k]);
      const limits = varies ? ` (${worded(low[k])} to ${worded(high[k])})` : "";
      const at = known && `step ${state.steps[k]}: ${worded(mean[k])}`;
      const last = chart === column.asymmetry && chart.values ? state.data.columns[i].asymmetry_value : "";
      const forms = known ? [`${at}${limits}`, at, worded(mean[k])] : [last, last.split(", ")[0]];
      const text = forms.find((form) => BOLD * form.length < chart.right - state.size.left) ?? forms.at(-1); // the longest that fits
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

function tell(state, drawn, cell, event) {
  const { tip } = state, { maps } = state.data;
  tip.style.display = cell ? "block" : "none";
  if (!cell) return;
  const [i, j] = cell, { x, y, width } = placeIn(tip.parentElement, event);
  say(tip, `“${maps.rows[i]}” attends to “${maps.column_titles[j]}”: ${share(drawn.levels[i * maps.columns.length + j])}`);
  tip.style.left = `${clamp(x + 12, 0, width - tip.offsetWidth)}px`;
  tip.style.top = `${y - 30}px`;
}

function setLegend(element, entries) {
  const wanted = JSON.stringify(entries);
  if (element.dataset.entries === wanted) return;
  element.dataset.entries = wanted;
  element.replaceChildren(...entries.map(({ dash, text }) => {
    const item = el("span", "");
    item.innerHTML = '<svg viewBox="0 0 30 8" aria-hidden="true"><path d="M1 4H29"/></svg>';
    item.querySelector("path").classList.add(`ak-dash-${dash}`);
    item.append(text);
    return item;
  }));
}

/** The means of every chart, for the file of comma-separated values. */
function tableOf({ data, steps, columns }) {
  const rows = data.columns.flatMap(({ name }, i) => [...steps].map((step, k) => {
    const { curve, asymmetry } = columns[i];
    return [name, step, ...["mean", "low", "high"].map((part) => curve.values?.[part][k]), asymmetry.values?.mean[k]];
  }));
  return { columns: ["variant", "step", data.quantity, "low", "high", "asymmetry"], rows };
}
