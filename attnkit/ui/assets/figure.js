// A Plotly figure that keeps its DOM node, zoom and hover while its data change, inked as the page.
// Out of sight it is not drawn anew: it catches up when it is scrolled to.
// data: {figure, alt, legend: [{dash, text, color?}], narrower: [{most, figure}], panels: {height,
//        narrowest}, save: {title, name, table, asymmetry}, picks}
// Where the page is at most `most` pixels wide, that figure is drawn instead; the last that fits.
// `panels` of a figure wrap into rows. With `picks`, a mark that is pressed sends its `customdata` as
// the trigger `picked`. What saves a figure comes with Plotly, see load_plotly.

import { columnsFor, isMounted, mounted, onSight, onWidth, unpacked, whenPlotly } from "./panels.js";
import { el } from "./ink.js";
import { fillLegend } from "./chart.js";
import { menuWords } from "./menu_words.js";

const GAP_X = 20, TITLE_LINE = 18, LETTER = 8.2, HEIGHT = 300;

export default function showFigure({ data: packed, parentElement, setTriggerValue }) {
  const data = unpacked(packed), { root, state, gone } = mounted(parentElement, "ak-figure", mount);
  state.data = data;
  state.pick = (mark) => data.picks && setTriggerValue("picked", mark);
  fillLegend(state.legend, data.legend ?? []);
  state.plot.setAttribute("role", "img");
  state.plot.setAttribute("aria-label", data.alt);
  root.classList.toggle("ak-picks", Boolean(data.picks));
  state.plot.style.minHeight = `${heightOf(root, data)}px`;
  if (state.visible || !state.draws) whenPlotly(state, () => draw(root, state));
  else state.late = true;
  return gone;
}

function mount(root) {
  const top = el("div", "ak-figure-top", root);
  const state = { draws: 0, legend: el("div", "ak-legend", top), menu: el("div", "ak-figure-save", top), plot: el("div", "ak-plot", root) };
  const seen = (visible) => {
    state.visible = visible;
    if (visible && state.late) whenPlotly(state, () => draw(root, state));
  };
  const end = () => {
    clearInterval(state.waiting);
    if (window.Plotly) window.Plotly.purge(state.plot);
  };
  state.ends = [onWidth(root, () => whenPlotly(state, () => draw(root, state))), onSight(root, seen), end];
  return state;
}

const figureOf = (root, { figure, narrower = [] }) => narrower.filter(({ most }) => root.clientWidth <= most).at(-1)?.figure ?? figure;

const heightOf = (root, data) => (data.panels ? rowsOf(root, data).height : figureOf(root, data).layout.height ?? HEIGHT);

function draw(root, state) {
  state.late = false;
  const { data } = state, figure = figureOf(root, data), layout = themed(root, figure.layout);
  Object.assign(layout, { width: root.clientWidth || 1000, height: heightOf(root, data) }, data.panels && arranged(root, layout, data));
  state.plot.style.minHeight = `${layout.height}px`;
  if (data.save && window.attnkitSave) {
    state.named ??= window.attnkitSave(state.menu, () => savedOf(state), menuWords());
    state.named(data.save.title);
  }
  window.Plotly.react(state.plot, figure.data, layout, { displaylogo: false, displayModeBar: false, doubleClick: "reset", responsive: false }).then(() => {
    if (!isMounted(root, state)) return;
    state.draws += 1;
    Object.assign(state.plot.dataset, { draws: state.draws, step: figure.layout.meta?.step ?? "" });
    if (state.draws === 1) followPointer(state);
    if (state.hovered !== undefined) hoverAll(state, state.hovered);
  });
}

/** The layout with letters and lines in the colours of the page's theme. */
function themed(root, given) {
  const ink = getComputedStyle(root), text = ink.color;
  const paper = ink.getPropertyValue("--st-background-color").trim() || "#fff";
  const rule = ink.getPropertyValue("--st-border-color").trim() || "rgba(128,128,128,0.25)";
  const axes = Object.keys(given).filter((name) => /^[xy]axis\d*$/.test(name));
  return {
    ...given,
    ...Object.fromEntries(axes.map((name) => [name, { gridcolor: rule, linecolor: rule, tickcolor: rule, zerolinecolor: rule, ...given[name] }])),
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...given.font, color: text, family: ink.fontFamily },
    ...(given.meta?.panels && { colorway: [text] }), // of lines without a colour of their own
    hoverlabel: { font: { size: 12, color: paper }, bgcolor: text },
  };
}

/** How panels stand: columns, upper edges of rows, which titles of several lines push down. */
function rowsOf(root, { figure: { layout }, panels }) {
  const width = root.clientWidth || 1000, columns = columnsFor(width, layout.meta.panels, panels.narrowest);
  const inner = width - layout.margin.l - layout.margin.r, cell = (inner - GAP_X * (columns - 1)) / columns;
  const titles = layout.annotations.map((a) => wrapped(a.text, Math.floor(cell / LETTER)));
  const tops = [];
  let height = 0;
  for (let first = 0; first < titles.length; first += columns) {
    const most = Math.max(...titles.slice(first, first + columns).map((lines) => lines.length));
    tops.push(height + layout.margin.t + (most - 1) * TITLE_LINE);
    height = tops.at(-1) - layout.margin.t + panels.height;
  }
  return { columns, inner, cell, titles, tops, height };
}

/** A title `<span>■</span> <b>name</b>` in lines of so many letters, broken at spaces if possible. */
function wrapped(title, letters) {
  const [, square, name] = title.match(/^(.*?<\/span>) <b>(.*)<\/b>$/), most = letters - 2;
  const words = name.split(" ").flatMap((word) => word.match(new RegExp(`.{1,${Math.max(1, most)}}`, "gu")) ?? []), lines = [];
  for (const word of words) {
    if (lines.length && `${lines.at(-1)} ${word}`.length <= most) lines.push(`${lines.pop()} ${word}`);
    else lines.push(word);
  }
  return lines.map((line, i) => (i ? `<b>${line}</b>` : `${square} <b>${line}</b>`));
}

/** The parts of a layout that place its panels in rows. */
function arranged(root, layout, data) {
  const { columns, inner, cell, titles, tops, height } = rowsOf(root, data);
  const margin = { ...layout.margin, t: tops[0] }, innerHeight = height - margin.t - margin.b;
  const cellHeight = data.panels.height - layout.margin.t - layout.margin.b;
  const annotations = layout.annotations.map((a, i) => ({ ...a, text: titles[i].join("<br>"), align: "left", font: { color: layout.font.color, size: 14 } }));
  const placed = { margin, annotations };
  for (let panel = 0; panel < layout.meta.panels; panel++) {
    const suffix = panel === 0 ? "" : panel + 1, column = panel % columns;
    const left = (column * (cell + GAP_X)) / inner, top = 1 - (tops[Math.floor(panel / columns)] - tops[0]) / innerHeight;
    placed[`xaxis${suffix}`] = { ...layout[`xaxis${suffix}`], domain: [left, Math.min(1, left + cell / inner)] };
    placed[`yaxis${suffix}`] = { ...layout[`yaxis${suffix}`], domain: [Math.max(0, top - cellHeight / innerHeight), top], showticklabels: column === 0 };
  }
  return placed;
}

/** Hovering one panel shows the same step in all, also after the data have changed; a press picks a mark. */
function followPointer(state) {
  const { plot } = state;
  plot.on("plotly_click", ({ points }) => {
    const mark = points.find(({ customdata }) => customdata !== undefined && customdata !== null);
    if (mark) state.pick(mark.customdata);
  });
  plot.on("plotly_hover", ({ event, points }) => {
    if (!event || !state.data.panels) return;
    state.hovered = points[0].x;
    hoverAll(state, state.hovered);
  });
  plot.addEventListener("mouseleave", () => {
    if (state.hovered !== undefined) window.Plotly.Fx.unhover(plot);
    state.hovered = undefined;
  });
}

function hoverAll(state, x) {
  const subplots = state.plot._fullLayout?._subplots?.cartesian;
  if (subplots) window.Plotly.Fx.hover(state.plot, { xval: x }, subplots);
}

/** What the menu saves. */
function savedOf({ plot, legend, data: { figure, save } }) {
  for (const map of plot.querySelectorAll("image")) map.setAttribute("image-rendering", "pixelated");
  const table = () => save.table ?? (save.asymmetry ? meansOf(figure, save) : marksOf(figure.data));
  return { body: plot, heading: save.title, legend: legend.children.length ? legend : null, name: save.name, table };
}

const numbersOf = ({ bdata }) => new Float32Array(Uint8Array.from(atob(bdata), (c) => c.charCodeAt(0)).buffer);

/** The mean lines with the limits of the bands before them. */
function meansOf({ data, layout }, { name, asymmetry }) {
  const steps = [...numbersOf({ bdata: asymmetry.steps })], asymmetries = asymmetry.means.map((bdata) => numbersOf({ bdata }));
  const rows = data.flatMap(({ hovertemplate, xaxis, x, y }, i) => {
    if (!hovertemplate) return [];
    const band = data.slice(0, i).findLast(({ fill }) => fill), limits = numbersOf(band.y);
    const known = [...numbersOf(band.x).subarray(0, limits.length / 2)], means = numbersOf(y);
    const panel = (xaxis.slice(1) || 1) - 1, variant = layout.annotations[panel].text.match(/<b>(.*)<\/b>/)[1];
    const measure = hovertemplate.split("%")[0].trim() || name.split("-").at(-1);
    return [...numbersOf(x)].map((step, k) => {
      const at = known.indexOf(step);
      return [variant, measure, step, means[k], ...(at < 0 ? ["", ""] : [limits.at(-1 - at), limits[at]]), asymmetries[panel][steps.indexOf(step)]];
    });
  });
  return { columns: ["variant", "measure", "step", "mean", "low", "high", "asymmetry"], rows };
}

/** Every mark of a figure, with what it says when it is pointed at. */
function marksOf(traces) {
  const rows = traces.flatMap(({ type, name, x, y, z, hovertext }) =>
    type === "heatmap"
      ? z.flatMap((line, i) => line.map((value, j) => [`${y[i]}, ${x[j]}`, x[j], y[i], value]))
      : x.map((_, k) => [(hovertext?.[k] ?? name ?? "").replaceAll("<br>", ", "), x[k], y[k], ""]));
  return { columns: ["what", "x", "y", "z"], rows };
}
