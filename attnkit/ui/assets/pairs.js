// Pairs of roles on the Similarity page: their marks, measures, and what they have in common.

import PALETTE from "../../variants/palette.json" with { type: "json" };
import { el, share, svg } from "./ink.js";
import { listed } from "./sentences.js";
import { SHAPES } from "./charts.js";

// Pairs differ in dash and shape; colours mean variants.
export const PAIR_INK = {
  QK: { color: "currentColor", dash: "solid", shape: "circle" },
  QV: { color: "currentColor", dash: "dash", shape: "square" },
  KV: { color: "currentColor", dash: "dot", shape: "triangle" },
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
export const MARKS = { 1: " ▲", 0: " =", "-1": " ▼" };

/** Whether one matrix makes both roles of a pair, as its weights say at a frame. */
export function isOneMatrix(film, p, c, k) {
  const cos = alikeAt(film, p, c, "cos_weights", k);
  return alikeAt(film, p, c, "cka_weights", k) > TWIN && (Number.isNaN(cos) || cos > TWIN);
}

/** How many pairs of vectors are less alike than, as alike as and more alike than random, at a frame. */
function countSides(film, k) {
  const counts = { n: 0, one: 0, all: 0, "-1": 0, 0: 0, 1: 0 };
  film.variants.forEach((_, p) => film.header.pairs.forEach((__, c) => {
    if (!notesOf(film, p).has_head) return;
    counts.all += 1;
    if (isOneMatrix(film, p, c, k)) return (counts.one += 1);
    const side = beside(alikeAt(film, p, c, "cka_activations", k), randomAt(film, p, c, "cka_activations", k));
    if (Number.isNaN(side)) return;
    counts[side] += 1;
    counts.n += 1;
  }));
  const most = [-1, 0, 1].find((side) => counts.n > 0 && 3 * counts[side] >= 2 * counts.n);
  return { ...counts, most };
}

/** The sentence to take away at the shown step: how alike vectors of different matrices are. */
export function concludeAlike(film) {
  const now = countSides(film, film.at), { n, most } = now;
  if (!n) return now.one && now.one === now.all ? "Each pair here shares one matrix, so there is nothing to compare." : "Nothing can be compared here.";
  const before = film.step === 0 ? "Before training" : "";
  if (most === undefined) {
    const [[first, side], ...others] = [-1, 0, 1].filter((each) => now[each]).map((each) => [now[each], each]);
    const more = listed(others.map(([count, each]) => `${count} ${SIDES[each].split(" ", 2).join(" ")}`));
    return `${before ? `${before}, of` : "Of"} ${n} pairs with matrices of their own, ${first} ${first > 1 ? "are" : "is"} ${SIDES[side]} matrices make them, ${more}.`;
  }
  const where = "where two of Q, K and V have matrices of their own,", all = now[most] === n;
  const [how, count] = [`${all ? "" : "mostly "}${SIDES[most]}`, all ? "" : ` (${now[most]} of ${n} pairs)`];
  const trained = !before && most && film.steps[0] === 0 && countSides(film, 0).most !== most;
  const end = trained ? `training makes their vectors ${how} matrices do${count}.` : `their vectors are ${how} matrices make them${count}.`;
  return before ? `${before}, ${where} ${end}` : `${where[0].toUpperCase()}${where.slice(1)} ${end}`;
}

/** What a variant's pair has in common at the shown step: a verdict, and the numbers behind it. */
export function saidOf(film, p, c) {
  const name = pairName(film.header.pairs[c]);
  const [cos, weights, activations] = ["cos_weights", "cka_weights", "cka_activations"].map((m) => alikeAt(film, p, c, m));
  const [cosRandom, ofWeights, ofActivations] = ["cos_weights", "cka_weights", "cka_activations"].map((m) => randomAt(film, p, c, m));
  const same = isOneMatrix(film, p, c);
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
