// A Plotly figure of panels that keeps its DOM node, zoom and hover while its data change.
// Out of sight it is not drawn anew: it catches up when it is scrolled to.
// data: {figure, legend: [{dash, text, color?}], height, narrowest, alt, file}
// With the name of a file it can be saved, where the page has loaded what saves (load_board).

import {
  columnsFor, once, onSight, onWidth, states, unpacked, whenGone, whenPlotly,
} from "./panels.js";

const GAP_X = 20, TITLE_LINE = 18, LETTER = 8.2;

export default function showFigure({ data: packed, parentElement }) {
  const data = unpacked(packed);
  const root = once(parentElement, "div", "ak-figure");
  let state = states.get(root);
  if (!state) {
    state = { draws: 0 };
    states.set(root, state);
    state.legend = once(root, "div", "ak-legend");
    state.plot = once(root, "div", "ak-plot");
    state.endWidth = onWidth(root, () => whenPlotly(state, () => draw(root, state)));
    state.endSight = onSight(root, (visible) => {
      state.visible = visible;
      if (visible && state.late) whenPlotly(state, () => draw(root, state));
    });
  }
  state.data = data;
  if (data.file && window.attnkitSave) state.named ??= offerSave(root, state);
  state.named?.(headingOf(data));
  setLegend(state.legend, data.legend);
  state.plot.setAttribute("role", "img");
  state.plot.setAttribute("aria-label", data.alt);
  state.plot.style.minHeight = `${rowsOf(root, data).height}px`;
  if (state.visible || !state.draws) whenPlotly(state, () => draw(root, state));
  else state.late = true;
  return whenGone(root, () => {
    state.endWidth();
    state.endSight();
    clearInterval(state.waiting);
    if (window.Plotly) window.Plotly.purge(state.plot);
    states.delete(root);
  });
}

const headingOf = ({ alt }) => alt.split(". ")[0];

const offerSave = (root, state) => window.attnkitSave(once(root, "div", "ak-figure-save"), () => ({
  body: state.plot, heading: headingOf(state.data), legend: state.legend, name: state.data.file, table: () => tableOf(state.data),
}));

const numbersOf = ({ bdata }) => new Float32Array(Uint8Array.from(atob(bdata), (c) => c.charCodeAt(0)).buffer);

/** The mean lines with the limits of the bands before them, for the file of comma-separated values. */
function tableOf({ figure: { data, layout }, file, asymmetry }) {
  const steps = [...numbersOf({ bdata: asymmetry.steps })], asymmetries = asymmetry.means.map((bdata) => numbersOf({ bdata }));
  const rows = data.flatMap(({ hovertemplate, xaxis, x, y }, i) => {
    if (!hovertemplate) return [];
    const band = data.slice(0, i).findLast(({ fill }) => fill), limits = numbersOf(band.y);
    const known = [...numbersOf(band.x).subarray(0, limits.length / 2)], means = numbersOf(y);
    const panel = (xaxis.slice(1) || 1) - 1, variant = layout.annotations[panel].text.match(/<b>(.*)<\/b>/)[1];
    const measure = hovertemplate.split("%")[0].trim() || file.split("-").at(-1);
    return [...numbersOf(x)].map((step, k) => {
      const at = known.indexOf(step);
      return [variant, measure, step, means[k], ...(at < 0 ? ["", ""] : [limits.at(-1 - at), limits[at]]), asymmetries[panel][steps.indexOf(step)]];
    });
  });
  return { columns: ["variant", "measure", "step", "mean", "low", "high", "asymmetry"], rows };
}

/** How panels stand: columns, upper edges of rows, which titles of several lines push down. */
function rowsOf(root, data) {
  const { layout } = data.figure;
  const width = root.clientWidth || 1000;
  const columns = columnsFor(width, layout.meta.panels, data.narrowest);
  const inner = width - layout.margin.l - layout.margin.r;
  const cell = (inner - GAP_X * (columns - 1)) / columns;
  const titles = layout.annotations.map((a) => wrapped(a.text, Math.floor(cell / LETTER)));
  const tops = [];
  let height = 0;
  for (let first = 0; first < titles.length; first += columns) {
    const most = Math.max(...titles.slice(first, first + columns).map((lines) => lines.length));
    tops.push(height + layout.margin.t + (most - 1) * TITLE_LINE);
    height = tops.at(-1) - layout.margin.t + data.height;
  }
  return { columns, cell, titles, tops, height };
}

/** A title `<span>■</span> <b>name</b>` in lines of so many letters, broken at spaces if possible. */
function wrapped(title, letters) {
  const [, square, name] = title.match(/^(.*?<\/span>) <b>(.*)<\/b>$/);
  const lines = [];
  for (let word of name.split(" ")) {
    while (word.length > letters - 2) {
      lines.push(word.slice(0, letters - 2));
      word = word.slice(letters - 2);
    }
    const joined = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && joined.length <= letters - 2) lines[lines.length - 1] = joined;
    else lines.push(word);
  }
  return lines.map((line, i) => (i ? `<b>${line}</b>` : `${square} <b>${line}</b>`));
}

function draw(root, state) {
  state.late = false;
  const { figure } = state.data;
  const layout = arranged(root, figure.layout, rowsOf(root, state.data), state.data.height);
  window.Plotly.react(state.plot, figure.data, layout, {
    displaylogo: false,
    displayModeBar: false,
    doubleClick: "reset",
    responsive: false,
  }).then(() => {
    if (states.get(root) !== state) return;
    state.draws += 1;
    state.plot.dataset.draws = state.draws;
    state.plot.dataset.step = figure.layout.meta.step;
    if (state.draws === 1) followHover(state);
    if (state.hovered !== undefined) hoverAll(state, state.hovered);
  });
}

/** The layout with panels placed in rows, and ink taken from the page's theme. */
function arranged(root, given, { columns, cell, titles, tops, height }, panelHeight) {
  const ink = getComputedStyle(root);
  const text = ink.color;
  const paper = ink.getPropertyValue("--st-background-color").trim() || "#fff";
  const rule = ink.getPropertyValue("--st-border-color").trim() || "rgba(128,128,128,0.25)";
  const width = root.clientWidth || 1000;
  const margin = { ...given.margin, t: tops[0] };
  const inner = width - margin.l - margin.r;
  const innerHeight = height - margin.t - margin.b;
  const cellHeight = panelHeight - given.margin.t - given.margin.b;
  const layout = {
    ...given,
    margin,
    width,
    height,
    font: { color: text, size: 12, family: ink.fontFamily },
    colorway: [text], // of lines without a colour of their own
    hoverlabel: { font: { size: 12, color: paper }, bgcolor: text },
    annotations: given.annotations.map((a, i) => ({
      ...a, text: titles[i].join("<br>"), align: "left", font: { color: text, size: 14 },
    })),
  };
  for (let panel = 0; panel < given.meta.panels; panel++) {
    const suffix = panel === 0 ? "" : panel + 1;
    const column = panel % columns, row = Math.floor(panel / columns);
    const left = (column * (cell + GAP_X)) / inner;
    const top = 1 - (tops[row] - tops[0]) / innerHeight;
    const line = { gridcolor: rule, linecolor: rule, tickcolor: rule };
    layout["xaxis" + suffix] = {
      ...given["xaxis" + suffix], ...line,
      domain: [left, Math.min(1, left + cell / inner)],
    };
    layout["yaxis" + suffix] = {
      ...given["yaxis" + suffix], ...line,
      domain: [Math.max(0, top - cellHeight / innerHeight), top],
      showticklabels: column === 0,
    };
  }
  return layout;
}

/** Hovering one panel shows the same step in all, also after the data have changed. */
function followHover(state) {
  state.plot.on("plotly_hover", (event) => {
    if (!event.event) return;
    state.hovered = event.points[0].x;
    hoverAll(state, state.hovered);
  });
  state.plot.addEventListener("mouseleave", () => {
    state.hovered = undefined;
    window.Plotly.Fx.unhover(state.plot);
  });
}

function hoverAll(state, x) {
  const subplots = state.plot._fullLayout?._subplots?.cartesian;
  if (subplots) window.Plotly.Fx.hover(state.plot, { xval: x }, subplots);
}

function setLegend(element, entries) {
  const wanted = JSON.stringify(entries);
  if (element.dataset.entries === wanted) return;
  element.dataset.entries = wanted;
  element.replaceChildren(
    ...entries.map(({ dash, text, color }) => {
      const item = document.createElement("span");
      item.innerHTML = '<svg viewBox="0 0 30 8" aria-hidden="true"><path d="M1 4H29"/></svg>';
      const line = item.querySelector("path");
      line.classList.add(`ak-dash-${dash}`);
      if (color) line.style.cssText = `stroke: ${color}; stroke-width: 2.5`;
      item.append(text);
      return item;
    }),
  );
}
