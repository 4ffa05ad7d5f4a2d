// Pairs of roles on the Similarity page: their colours, measures, and what they have in common.

import PALETTE from "../../variants/palette.json" with { type: "json" };
import { el, share, svg } from "./ink.js";
import { SHAPES } from "./charts.js";

// A pair has the colour of the sharing that ties it.
export const PAIR_INK = {
  QK: { color: PALETTE.sharings["Q=K"], dash: "solid" },
  QV: { color: PALETTE.sharings["Q=V"], dash: "dash" },
  KV: { color: PALETTE.sharings["K=V"], dash: "dot" },
};
export const RANDOM = PALETTE.reference, TWIN = 0.999995;
const ABOVE = "more alike than random", WITHIN = "as alike as random", BELOW = "less alike than random";

export const pairName = (pair) => `${pair[0]} and ${pair[1]}`;
export const notesOf = (film, p) => film.header.notes[p];
const measureAt = (film, name) => film.header.measures.indexOf(name);
export const alikeAt = (film, p, c, name, k) => film.value(`${p}.alike`, [c, measureAt(film, name)], k);
export const randomAt = (film, p, c, name, k) => film.part(`${p}.random`, [c, measureAt(film, name)], k);
export const range = ([, low, high]) => `${share(low)} to ${share(high)}`;
export const readsAll = (film, p) => Math.max(...notesOf(film, p).widths) >= film.header.d_model;

/** Where a value lies beside what random matrices give: 1 above, −1 below, 0 within, NaN unknown. */
export function beside(value, [, low, high]) {
  if (!Number.isFinite(value) || !Number.isFinite(low)) return NaN;
  return value > high ? 1 : value < low ? -1 : 0;
}
const SIDES = { 1: ABOVE, 0: WITHIN, "-1": BELOW };
export const MARKS = { 1: " ▲", 0: "", "-1": " ▼" };

/** What a variant's pair has in common at the shown step: a verdict, and the numbers behind it. */
export function saidOf(film, p, c) {
  const name = pairName(film.header.pairs[c]);
  const [cos, weights, activations] = ["cos_weights", "cka_weights", "cka_activations"].map((m) => alikeAt(film, p, c, m));
  const [cosRandom, ofWeights, ofActivations] = ["cos_weights", "cka_weights", "cka_activations"].map((m) => randomAt(film, p, c, m));
  const same = weights > TWIN && (Number.isNaN(cos) || cos > TWIN);
  if (same && Number.isNaN(activations)) return { name, verdict: "one matrix; no token has both.", numbers: "" };
  if (same && activations > TWIN) return { name, verdict: "one and the same.", numbers: "" };
  const sides = [beside(weights, ofWeights), beside(activations, ofActivations)];
  let verdict = `weights ${SIDES[sides[0]]}, activations ${SIDES[sides[1]]}.`;
  if (same) verdict = "one matrix, but different vectors: what acts on them after it differs.";
  else if (Number.isNaN(sides[1])) verdict = `weights ${SIDES[sides[0]]}; no token has both.`;
  else if (sides[0] === sides[1]) verdict = `${SIDES[sides[0]]}.`;
  const parts = [`weights ${share(weights)} (random ${range(ofWeights)})`];
  if (Number.isFinite(activations)) parts.push(`activations ${share(activations)} (random ${range(ofActivations)})`);
  if (Number.isFinite(cos)) parts.push(`cosine of weights ${share(cos)} (random ${range(cosRandom)})`);
  const numbers = parts.join(", ");
  return { name, verdict, numbers: `${numbers[0].toUpperCase()}${numbers.slice(1)}.` };
}

export function markLegend(parent, shape, color, text) {
  const item = el("span", "", parent);
  const sample = svg("svg", { viewBox: "-8 -8 16 16", width: 16, height: 16, "aria-hidden": "true" }, item);
  Object.assign(sample.style, { width: "16px", height: "16px" });
  const mark = svg("path", { d: SHAPES[shape], fill: color }, sample);
  el("span", "", item, text);
  return mark;
}
