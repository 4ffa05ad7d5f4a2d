// Charts of films: lines over training steps with a cursor at the shown step, upright bars, scatters.
//
//   lineChart(film, parent, options)   .update()      lines are read anew when the film has grown
//   columnsChart(film, parent, options)   .update(values, low, high)
//   scatter(film, parent, options)     .update(x, y, limit)

import { clamp, el, limitOf, number, pointedIn, set, show, svg } from "./ink.js";

const DASHES = { solid: "", dash: "6 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4", longdashdot: "9 3 2 3" };
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
  const margin = { left: 44, right: 12, top: label ? 22 : 8, bottom: 34 };
  const node = svg("svg", { width, height, class: "ak-chart", "aria-hidden": "true" }, parent);
  if (label) svg("text", { x: 2, y: 12, class: "ak-quiet" }, node).textContent = label;
  const right = width - margin.right, bottom = height - margin.bottom;
  const grid = svg("g", { class: "ak-axis" }, node);
  const bands = lines.map(({ color, low }) => low && svg("path", { fill: color, class: "ak-band" }, node));
  const drawnLevels = levels.map(({ text }) => {
    const group = svg("g", { class: "ak-level" }, node);
    const line = svg("path", {}, group);
    const words = svg("text", { x: right - 2, "text-anchor": "end" }, group);
    words.textContent = text;
    return { line, words };
  });
  const paths = lines.map((line, v) => svg("path", {
    class: "ak-line", stroke: line.color, "stroke-dasharray": dashOf(line, v),
  }, node));
  const cursor = svg("path", { class: "ak-cursor" }, node);
  const dots = lines.map(({ color, shape }) => svg("path", { d: SHAPES[shape] ?? SHAPES.circle, fill: color, class: "ak-dot" }, node));
  const over = svg("rect", {
    x: margin.left, y: margin.top, width: right - margin.left, height: bottom - margin.top, class: "ak-over",
  }, node);
  const kept = { version: -1 };
  const x = (step) => margin.left + ((right - margin.left) * step) / (film.header.total_steps || film.steps.at(-1) || 1);
  const y = (value) => bottom - ((bottom - margin.top) * (clamp(value, kept.low, kept.high) - kept.low)) / (kept.high - kept.low || 1);
  const line = (values) => {
    let d = "", down = false;
    values.forEach((value, k) => {
      if (Number.isFinite(value)) d += `${down ? "L" : "M"}${x(film.steps[k]).toFixed(1)} ${y(value).toFixed(1)}`;
      down = Number.isFinite(value);
    });
    return d;
  };

  function grow() {
    kept.version = film.version;
    kept.values = lines.map((one) => Array.from(one.values()));
    kept.low = axis.low ?? Infinity;
    kept.high = axis.high ?? -Infinity;
    const limits = lines.map((one) => [one.low ? Array.from(one.low()) : [], one.high ? Array.from(one.high()) : []]);
    for (const value of [...kept.values, ...limits.flat()].flat().concat(levels.map((level) => level.value))) {
      if (!Number.isFinite(value)) continue;
      if (axis.low === undefined && value < kept.low) kept.low = value;
      if (axis.high === undefined && value > kept.high) kept.high = value;
    }
    if (!(kept.high > kept.low)) [kept.low, kept.high] = [Math.min(0, kept.low) || 0, Math.max(kept.low, 0) || 1];
    drawAxis();
    paths.forEach((path, v) => set(path, "d", line(kept.values[v])));
    bands.forEach((band, v) => {
      if (!band) return;
      const [low, high] = limits[v], known = film.steps.map((_, k) => k).filter((k) => Number.isFinite(low[k]) && Number.isFinite(high[k]));
      const edge = (values, order) => order.map((k) => `${x(film.steps[k]).toFixed(1)} ${y(values[k]).toFixed(1)}`).join("L");
      set(band, "d", known.length ? `M${edge(high, known)}L${edge(low, known.toReversed())}Z` : "");
    });
    levels.forEach(({ value }, i) => {
      set(drawnLevels[i].line, "d", `M${margin.left} ${y(value).toFixed(1)}H${right}`);
      set(drawnLevels[i].words, "y", (y(value) - 4 < margin.top + 8 ? y(value) + 14 : y(value) - 4).toFixed(1));
    });
  }

  function drawAxis() {
    const down = ticks(kept.low, kept.high, 4), across = ticks(0, film.header.total_steps || film.steps.at(-1) || 1, Math.max(2, Math.floor(width / 110)));
    const wanted = JSON.stringify([down, across, kept.low, kept.high]);
    if (kept.axis === wanted) return;
    kept.axis = wanted;
    grid.replaceChildren();
    for (const value of down) {
      svg("path", { d: `M${margin.left} ${y(value).toFixed(1)}H${right}` }, grid);
      svg("text", { x: margin.left - 6, y: y(value) + 4, "text-anchor": "end" }, grid).textContent = text ? text(value) : number(value, value % 1 ? 2 : 0);
    }
    across.forEach((step) => {
      svg("text", { x: x(step), y: bottom + 16, "text-anchor": "middle" }, grid).textContent = number(step, 0);
    });
    svg("text", { x: (margin.left + right) / 2, y: height - 3, "text-anchor": "middle", class: "ak-quiet" }, grid).textContent = "training step";
  }

  const told = (k) => [`step ${film.steps[k]}`, ...lines.map((one, v) => `${one.name}: ${(text ?? number)(kept.values[v][k])}`)].join("\n");
  const nearest = (event) => {
    const box = over.getBoundingClientRect(), part = (event.clientX - box.left) / box.width;
    return film.nearest(part * (film.header.total_steps || film.steps.at(-1) || 1));
  };
  over.onpointermove = (event) => film.steps.length && film.tip.show(told(nearest(event)), event);
  over.onpointerleave = () => film.tip.hide();
  over.onclick = (event) => film.steps.length && film.go(nearest(event));
  return {
    node,
    update() {
      if (kept.version !== film.version) grow();
      if (!film.steps.length) return;
      const at = x(film.step).toFixed(1);
      set(cursor, "d", `M${at} ${margin.top}V${bottom}`);
      dots.forEach((dot, v) => {
        const value = kept.values[v][film.at];
        show(dot, Number.isFinite(value));
        if (!Number.isFinite(value)) return;
        set(dot, "transform", `translate(${at} ${y(value).toFixed(1)})`);
      });
    },
  };
}

/** Colour, dash and name of every line, for a chart that no player bar explains. */
export function lineLegend(parent, lines) {
  const node = el("div", "ak-film-legend", parent);
  lines.forEach((line, v) => {
    const item = el("span", "", node);
    const sample = svg("svg", { width: 30, height: 8, "aria-hidden": "true" }, item);
    svg("path", { d: "M1 4H29", class: "ak-line", stroke: line.color, "stroke-dasharray": dashOf(line, v) }, sample);
    if (line.shape) svg("path", { d: SHAPES[line.shape], fill: line.color, transform: "translate(15 4)" }, sample);
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

export const SHAPES = {
  circle: "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0 -4.5 0Z",
  square: "M-4 -4H4V4H-4Z",
  triangle: "M0 -5.2L5 3.8H-5Z",
};

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
