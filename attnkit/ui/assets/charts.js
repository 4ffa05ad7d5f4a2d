// Charts of films: lines over training steps with a cursor at the shown step, upright bars, scatters.
//
//   lineChart(film, parent, options)   .update()      lines are read anew when the film has grown
//   chartsFigure({charts, …})                    a figure of line charts, with its words and its table
//   columnsChart(film, parent, options)   .update(values, low, high)
//   scatter(film, parent, options)     .update(x, y, limit)

import { clamp, el, limitOf, number, panelGrid, set, share, show, svg } from "./ink.js";
import { chartFrame, DASHES, lineSample, placeMark, SHAPES } from "./chart.js";
import { pointedIn } from "./maps.js";

const IN_TURN = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

/** The stroke pattern of a variant's lines: a second cue besides its colour. */
export const dashOf = (variant, v) => DASHES[variant.dash ?? IN_TURN[v % IN_TURN.length]] ?? variant.dash;

/** About `n` round numbers from low to high. */
export function ticks(low, high, n) {
  const raw = (high - low) / n || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const all = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) all.push(Number((k * step).toPrecision(12)));
  return all;
}

/**
 * One line per variant (or other series) over the steps. Options: lines [{name, color, dash,
 * values(): numbers per frame, low(), high(): the same of a band}], low, high (of the axis; else
 * from the data), levels [{value, text}], width, height (190), label (of the axis), text(value):
 * a value in words, on the axis, too, if it is given. A line may have a shape: that of its dot.
 * Pointing at a step tells all values; pressing goes there.
 */
export function lineChart(film, parent, { lines, levels = [], width, height = 190, label = "", text, ...axis }) {
  width = Math.floor(width ?? (parent.clientWidth || film.width));
  const curves = lines.map((line, v) => ({ color: line.color, dash: dashOf(line, v) }));
  const margin = { left: 44, right: 12, top: label ? 22 : 8, bottom: 34 };
  const chart = chartFrame(parent, { width, height, margin, curves, levels, label, className: "ak-chart" });
  const dots = lines.map(({ color, shape = "circle" }) => svg("path", { d: SHAPES[shape], fill: color, class: "ak-dot" }, chart.node));
  const kept = { version: -1 };

  function grow() {
    kept.version = film.version;
    kept.values = lines.map((one) => Array.from(one.values()));
    const limits = lines.map(({ low, high }) => [low ? Array.from(low()) : [], high ? Array.from(high()) : []]);
    const known = [...kept.values, ...limits.flat(), levels.map(({ value }) => value)].flat().filter(Number.isFinite);
    let low = axis.low ?? known.reduce((a, b) => Math.min(a, b), Infinity), high = axis.high ?? known.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(high > low)) [low, high] = [Math.min(0, low) || 0, Math.max(low, 0) || 1];
    const last = film.header.total_steps || film.steps.at(-1) || 1;
    chart.scaleTo(last, low, high);
    const down = ticks(low, high, 4).map((value) => [value, text ? text(value) : number(value, value % 1 ? 2 : 0)]);
    const across = ticks(0, last, Math.max(2, Math.floor(width / 110))).map((step) => [step, number(step, 0)]);
    const wanted = JSON.stringify([down, across, low, high]);
    if (kept.axis !== wanted) chart.drawAxis(down, across, "training step");
    kept.axis = wanted;
    kept.values.forEach((values, v) => chart.draw(v, film.steps, values, ...limits[v]));
    levels.forEach(({ value }, i) => chart.drawLevel(i, value));
  }

  const told = (k) => [`step ${film.steps[k]}`, ...lines.map((one, v) => `${one.name}: ${(text ?? number)(kept.values[v][k])}`)].join("\n");
  chart.onStep((step, event) => film.steps.length && film.tip.show(told(film.nearest(step)), event), film.tip.hide, (step) => film.steps.length && film.go(film.nearest(step)));
  return {
    node: chart.node,
    update() {
      if (kept.version !== film.version) grow();
      if (!film.steps.length) return;
      chart.pointAt(film.step);
      dots.forEach((dot, v) => placeMark(dot, chart.x(film.step), chart.y(kept.values[v][film.at]), Number.isFinite(kept.values[v][film.at])));
    },
  };
}

/**
 * A figure of charts side by side. `charts(film)` gives for each chart what lineChart takes, and a
 * title; the lines of all charts are the same variants in the same order. `least`: pixels of a chart.
 */
export const chartsFigure = ({ charts, least = 300, ...figure }) => ({
  height: 210,
  build(film, body) {
    const all = charts(film), grid = panelGrid(film, body, all.length, least);
    return all.map(({ title, ...chart }, k) => {
      if (title) el("div", "ak-panel-title", grid.boxes[k], title);
      return lineChart(film, grid.boxes[k], { width: grid.inner, height: 180, ...chart });
    });
  },
  update: (_, drawn) => drawn.forEach((chart) => chart.update()),
  finding: (film) => `At step ${film.step} of ${film.header.total_steps}: ` + film.variants.map(({ name }, v) => {
    const known = charts(film).map(({ title, label, lines, text = share }) => [[label, title].filter(Boolean).join(", "), text(lines[v].values()[film.at])]);
    return `${name}: ${known.filter(([, value]) => value !== "–").map((part) => part.join(" ")).join(", ") || "–"}.`;
  }).join(" "),
  table(film) {
    const values = charts(film).map(({ lines }) => lines.map((line) => line.values()));
    return {
      columns: ["step", "variant", ...charts(film).map(({ title, label }) => [label, title].filter(Boolean).join(", "))],
      rows: film.steps.flatMap((step, k) => film.variants.map(({ text }, v) => [step, text, ...values.map((lines) => lines[v][k])])),
    };
  },
  ...figure,
});

/** Colour, dash and name of every line, for a chart that no player bar explains. */
export function lineLegend(parent, lines) {
  const node = el("div", "ak-film-legend", parent);
  lines.forEach((line, v) => {
    const item = el("span", "", node);
    lineSample(item, { ...line, style: "solid", dash: dashOf(line, v) });
    el("span", "", item, line.name);
  });
}

/** Upright bars around zero. Options: width, height, tell(k, value), tokens, color */
export function columnsChart(film, parent, { n, width, height = 64, tell, tokens, color }) {
  const gap = width / n > 4 ? 1 : 0, w = width / n;
  const node = svg("svg", { width, height, class: "ak-columns", "aria-hidden": "true" }, parent);
  const zero = svg("path", { class: "ak-zero" }, node);
  const kept = { values: [] };
  const drawn = Array.from({ length: n }, (_, k) => svg("rect", { x: (k * w).toFixed(2), width: Math.max(0.5, w - gap).toFixed(2), class: "ak-column" }, node));
  const tellAnew = pointedIn(film, node, { n, tell: (k) => tell(k, kept.values[k]), tokens });
  return {
    node,
    update(values, low, high) {
      kept.values = values;
      const range = high - low || 1, y = (value) => 1 + ((height - 2) * (high - clamp(value, low, high))) / range;
      set(zero, "d", `M0 ${y(0).toFixed(1)}H${width}`);
      drawn.forEach((bar, k) => {
        const value = Number.isFinite(values[k]) ? values[k] : 0;
        set(bar, "y", Math.min(y(value), y(0)).toFixed(1));
        set(bar, "height", Math.abs(y(value) - y(0)).toFixed(1));
        set(bar, "class", value < 0 ? "ak-column ak-below" : "ak-column");
        if (color) bar.style.fill = value < 0 ? "" : color;
      });
      tellAnew();
    },
  };
}

/**
 * Points on two axes of one scale, 0 in the middle. Options: points [{shape: circle | square |
 * triangle, color, label, token, title}], width, height (both as wide by default)
 */
export function scatter(film, parent, { points, width, height }) {
  width = Math.floor(width ?? (parent.clientWidth || film.width));
  height ??= width;
  const node = svg("svg", { width, height, class: "ak-scatter", "aria-hidden": "true" }, parent);
  const cx = width / 2, cy = height / 2, reach = Math.min(width, height) / 2 - 16;
  svg("path", { d: `M0.5 0.5H${width - 0.5}V${height - 0.5}H0.5Z`, class: "ak-frame" }, node);
  svg("path", { d: `M0 ${cy}H${width}M${cx} 0V${height}`, class: "ak-zero" }, node);
  const kept = { x: [], y: [] };
  const drawn = points.map((point, i) => {
    const group = svg("g", { class: "ak-point" }, node);
    const mark = svg("path", { d: SHAPES[point.shape] ?? SHAPES.circle, fill: point.color }, group);
    if (point.label) svg("text", { x: 7, y: 4 }, group).textContent = point.label;
    group.onpointerenter = (event) => {
      film.link.point(point.token);
      film.tip.show(`${point.title ?? point.label ?? i + 1}\nx ${number(kept.x[i], 3)}, y ${number(kept.y[i], 3)}`, event);
    };
    group.onpointerleave = () => {
      film.link.point();
      film.tip.hide();
    };
    return { group, mark };
  });
  film.link.on(node, (token) => {
    drawn.forEach(({ group }, i) => {
      group.classList.toggle("ak-linked-point", token !== undefined && points[i].token === token);
    });
  });
  return {
    node,
    update(xs, ys, limit) {
      Object.assign(kept, { x: xs, y: ys });
      const factor = reach / (limit || Math.max(limitOf(xs), limitOf(ys)) || 1);
      drawn.forEach(({ group }, i) => {
        const known = Number.isFinite(xs[i]) && Number.isFinite(ys[i]);
        show(group, known);
        if (!known) return;
        const at = [cx + xs[i] * factor, cy - ys[i] * factor].map((value, c) => clamp(value, 6, (c ? height : width) - 6).toFixed(1));
        set(group, "transform", `translate(${at})`);
      });
    },
  };
}
