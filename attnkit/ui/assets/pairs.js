// Pairs of roles on the Similarity page: their marks and measures.

import PALETTE from "../../variants/palette.json" with { type: "json" };
import { el, share, svg } from "./ink.js";
import { SHAPES } from "./chart.js";

// Pairs differ in dash and shape; colours mean variants.
export const PAIR_INK = {
  QK: { color: "currentColor", dash: "solid", shape: "circle" },
  QV: { color: "currentColor", dash: "dash", shape: "square" },
  KV: { color: "currentColor", dash: "dot", shape: "triangle" },
};
export const RANDOM = PALETTE.reference, TWIN = 0.999995;

export const pairName = (pair) => `${pair[0]} and ${pair[1]}`;
export const notesOf = (film, p) => film.header.notes[p];
const measureAt = (film, name) => film.header.measures.indexOf(name);
export const alikeAt = (film, p, c, name, k) => film.value(`${p}.alike`, [c, measureAt(film, name)], k);
export const randomAt = (film, p, c, name, k) => film.part(`${p}.random`, [c, measureAt(film, name)], k);
export const range = ([, low, high]) => `${share(low)} to ${share(high)}`;
export const readsAll = (film, p) => Math.max(...notesOf(film, p).widths) >= film.header.d_model;

export function markLegend(parent, shape, color, text) {
  const item = el("span", "", parent);
  const sample = svg("svg", { viewBox: "-8 -8 16 16", width: 16, height: 16, "aria-hidden": "true" }, item);
  Object.assign(sample.style, { width: "16px", height: "16px" });
  const mark = svg("path", { d: SHAPES[shape], fill: color }, sample);
  el("span", "", item, text);
  return mark;
}
