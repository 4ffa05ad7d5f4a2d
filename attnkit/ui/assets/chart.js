// The frame of every chart over training steps: axes, reference levels, bands, lines and a cursor. It
// makes its nodes once; drawing changes attributes only. The board and the films use it.

import { clamp, el, placeIn, round, set, show, svg } from "./ink.js";

export const DASHES = { solid: "", dash: "6 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4", longdashdot: "9 3 2 3" };

export const SHAPES = {
  circle: "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0 -4.5 0Z",
  square: "M-4 -4H4V4H-4Z",
  triangle: "M0 -5.2L5 3.8H-5Z",
};

/**
 * Options: width, height, margin {left, right, top, bottom}, curves [{color, dash, className}], levels
 * [{dash, text}], className, label. Returns the scales x and y, the four sides, and these functions:
 *   scaleTo(last, low, high)              the ends of both axes; steps begin at 0
 *   drawAxis(down, across, caption)       [[value, text]], [[step, text, anchor]]
 *   draw(k, steps, values, low, high)     curve k and its band, where they are numbers
 *   drawLevel(k, value), pointAt(step)    a step of null hides the cursor
 *   onStep(seen, left, pressed)           called with the step that is pointed at, and the event
 */
export function chartFrame(parent, { width, height, margin, curves, levels = [], className, label }) {
  const node = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: className, "aria-hidden": "true" }, parent);
  const { left, top } = margin, right = width - margin.right, bottom = height - margin.bottom;
  if (label) svg("text", { x: 2, y: 12, class: "ak-quiet" }, node).textContent = label;
  const axis = svg("g", { class: "ak-axis" }, node);
  const drawnLevels = levels.map(({ dash = "dot", text }) => {
    const group = svg("g", { class: "ak-level" }, node), line = svg("path", { "stroke-dasharray": DASHES[dash] }, group);
    const words = svg("text", { x: right - 2, "text-anchor": "end" }, group);
    words.textContent = text ?? "";
    return { line, words };
  });
  const bands = curves.map(({ color }) => svg("path", { fill: color ?? "none", class: "ak-band" }, node));
  const lines = curves.map(({ color, dash, className: own }) => svg("path", { class: own ?? "ak-line", stroke: color ?? "", "stroke-dasharray": dash ?? "" }, node));
  const cursor = svg("path", { class: "ak-cursor" }, node);
  const scale = { across: right - left, low: 0, high: 1, down: bottom - top }; // of both axes; pixels per step and unit
  const x = (step) => round(left + step * scale.across);
  const y = (value) => round(bottom - (clamp(value, scale.low, scale.high) - scale.low) * scale.down);

  /** A line through the points that are numbers; a step back begins another one. */
  function lineOf(xs, values) {
    let text = "", open = false;
    for (let k = 0; k < values.length; k++) {
      const known = Number.isFinite(values[k]);
      if (known) text += `${open && xs[k] >= xs[k - 1] ? "L" : "M"}${xs[k]} ${y(values[k])}`;
      open = known;
    }
    return text;
  }

  function bandOf(xs, low, high) {
    let there = "", back = "";
    for (let k = 0; k < low.length; k++) {
      if (!Number.isFinite(low[k]) || !Number.isFinite(high[k])) continue;
      there += `${there ? "L" : "M"}${xs[k]} ${y(high[k])}`;
      back = `L${xs[k]} ${y(low[k])}${back}`;
    }
    return there && `${there}${back}Z`;
  }

  return {
    node, left, right, top, bottom, x, y,
    scaleTo: (last, low, high) => Object.assign(scale, { across: (right - left) / last, low, high, down: (bottom - top) / (high - low) }),
    drawAxis(down, across, caption) {
      axis.replaceChildren();
      for (const [value, text] of down) {
        svg("path", { d: `M${left} ${y(value)}H${right}` }, axis);
        svg("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, axis).textContent = text;
      }
      for (const [step, text, anchor = "middle"] of across) svg("text", { x: x(step), y: bottom + (caption ? 16 : 12), "text-anchor": anchor }, axis).textContent = text;
      if (caption) svg("text", { x: (left + right) / 2, y: height - 3, "text-anchor": "middle", class: "ak-quiet" }, axis).textContent = caption;
    },
    draw(k, steps, values, low = [], high = []) {
      const xs = Array.from(steps, x);
      set(lines[k], "d", lineOf(xs, values));
      set(bands[k], "d", bandOf(xs, low, high));
    },
    drawLevel(k, value) {
      const { line, words } = drawnLevels[k];
      set(line, "d", `M${left} ${y(value)}H${right}`);
      set(words, "y", y(value) - 4 < top + 8 ? y(value) + 14 : y(value) - 4);
    },
    pointAt: (step) => set(cursor, "d", step === null ? "" : `M${x(step)} ${top}V${bottom}`),
    onStep(seen, gone, pressed) {
      const over = svg("rect", { x: left, y: top, width: right - left, height: bottom - top, class: "ak-over" }, node);
      const stepOf = (event) => (placeIn(node, event).x - left) / scale.across;
      over.onpointermove = (event) => seen(stepOf(event), event);
      over.onpointerleave = gone;
      over.onclick = pressed && ((event) => pressed(stepOf(event)));
    },
  };
}

/** A sample of a line for a legend; `style` is a name of DASHES, or "thin" or "previous". */
export function lineSample(parent, { color = "currentColor", dash, style = "solid", shape }) {
  const sample = svg("svg", { viewBox: "0 0 30 8", width: 30, height: 8, "aria-hidden": "true" }, parent);
  svg("path", { d: "M1 4H29", class: `ak-sample-line ak-dash-${style}`, stroke: color, "stroke-dasharray": dash ?? DASHES[style] ?? "" }, sample);
  if (shape) svg("path", { d: SHAPES[shape], fill: color, transform: "translate(15 4)" }, sample);
}

/** Fill a legend with entries {text, dash, color}, unless it has them. */
export function fillLegend(element, entries) {
  const wanted = JSON.stringify(entries);
  if (element.dataset.entries === wanted) return;
  element.dataset.entries = wanted;
  element.replaceChildren();
  for (const { text, dash, color } of entries) {
    const item = el("span", "", element);
    lineSample(item, { color, style: dash });
    item.append(text);
  }
}

/** Show or hide a mark, and put it at a place of a chart. */
export function placeMark(mark, x, y, known) {
  show(mark, known);
  if (known) set(mark, "transform", `translate(${x} ${y})`);
}
