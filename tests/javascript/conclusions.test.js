// The sentences that pages conclude with, in every situation that a film can be in, and their tables.
import assert from "node:assert/strict";
import { test } from "node:test";
import { concludeDirection, directionTable } from "../../attnkit/ui/assets/direction.js";
import { concludeLookup } from "../../attnkit/ui/assets/followed.js";
import { concludeAlike } from "../../attnkit/ui/assets/pairs.js";
import { listed, percents } from "../../attnkit/ui/assets/sentences.js";

/** A film of frames at some steps: of each, arrays by name → [shape, values]; the last is shown. */
function filmOf(header, variants, frames, steps = frames.map((_, k) => 600 * k)) {
  const film = {
    header, variants, steps, at: frames.length - 1,
    get step() { return film.steps[film.at]; },
    shape: (name) => frames[film.at][name]?.[0],
    get: (name, k = film.at) => Float32Array.from(frames[k][name][1]),
    part(name, indices, k = film.at) {
      const [shape, values] = frames[k][name], size = shape.slice(indices.length).reduce((a, b) => a * b, 1);
      const from = indices.reduce((sum, index, d) => sum * shape[d] + index, 0) * size;
      return Float32Array.from(values.slice(from, from + size));
    },
    value: (name, indices, k) => film.part(name, indices, k)[0],
  };
  return film;
}

// Asymmetry: each variant as [name, must, error, right, mirrored, accuracy, scores there and back].

const PEOPLE = { labels: ["Zoe", "Eli"], positions: [0, 1], target: [1, -1], reverse: [-1, 0], request: { layer: 0, head: 0 }, notes: [] };
const SCORED = [1.36, 1.36];

function directionFilm(variants, { step = 600, header = {} } = {}) {
  const frame = Object.fromEntries(["accuracy", "asymmetry"].map((name) => [name, [[variants.length], variants.map(([, , , , , value]) => value)]]));
  variants.forEach(([, must, error, right, mirrored, , [there, back] = SCORED], p) => Object.assign(frame, {
    [`${p}.must`]: [[1], [must]], [`${p}.error`]: [[1, 2], [error, error]], [`${p}.mass`]: [[2], [right, mirrored]],
    [`${p}.scores`]: [[1, 2, 2], [9, there, back, 9]], [`${p}.a`]: [[1, 1], [error ** 2 / 4]],
  }));
  const shown = { ...PEOPLE, notes: variants.map(() => ({ n_maps: 1 })), ...header };
  return filmOf(shown, variants.map(([name]) => ({ name, text: name, n_heads: 1 })), [frame], [step]);
}
const concluded = (variants, given) => concludeDirection(directionFilm(variants, given));
const FREE = ["QKV", 0, 0.4, 0.97, 0.01, 1, [3, -1]], LOST = ["Q=K", 1, 0, 0.47, 0.46, 0.5];

test("variants that must be symmetric and split evenly cannot tell a direction", () => {
  assert.equal(concluded([FREE, LOST, ["K=V", 0, 0.3, 0.9, 0.02, 1], ["Q=K=V", 1, 1e-7, 0.45, 0.46, 0.48]]),
    "Q=K and Q=K=V score Zoe→Eli and Eli→Zoe the same, so they cannot tell the two directions apart: 48% to 50% right. The others can: 100% right.");
  assert.equal(concluded([LOST]),
    "Q=K scores Zoe→Eli and Eli→Zoe the same, so it cannot tell the two directions apart: 50% right.");
});

test("only the variants that attend to the right entry are said to tell the direction", () => {
  assert.equal(concluded([FREE, LOST, ["K=V", 0, 0.3, 0.2, 0.15, 0.4]]),
    "Q=K scores Zoe→Eli and Eli→Zoe the same, so it cannot tell the two directions apart: 50% right. QKV can: 100% right.");
  assert.equal(concluded([LOST, ["Q=K=V", 1, 0, 0.7, 0.2, 0.95], FREE]),
    "Q=K and Q=K=V score Zoe→Eli and Eli→Zoe the same. Q=K cannot tell the two directions apart: 50% right. QKV can: 100% right.");
});

test("symmetric scores that solve a task cost nothing there", () => {
  assert.equal(concluded([["Q=K", 1, 0, 0.9, NaN, 1], FREE]),
    "Q=K scores Zoe→Eli and Eli→Zoe the same, and that costs nothing here: 100% right.");
});

test("an accuracy in between is told beside that of the others", () => {
  assert.equal(concluded([["Q=K", 1, 0, 0.6, 0.3, 0.8], FREE]),
    "Q=K scores Zoe→Eli and Eli→Zoe the same, and it is right in 80%. QKV is right in 100%.");
  assert.equal(concluded([["Q=K", 1, 0, 0.1, 0.1, 0.5]]), // it hardly looks at either
    "Q=K scores Zoe→Eli and Eli→Zoe the same, and it is right in 50%.");
});

test("before training nothing is said of what is right", () => {
  const both = [["QKV", 0, 0.4, 0.12, 0.13, 0.03], ["Q=K", 1, 0, 0.4, 0.4, 0.04]];
  assert.equal(concluded(both, { step: 0 }), "Q=K scores Zoe→Eli and Eli→Zoe the same, even before training. QKV scores them differently.");
  assert.equal(concluded(both.slice(0, 1), { step: 0 }), "QKV scores Zoe→Eli and Eli→Zoe differently, even before training.");
});

test("where no variant must be symmetric, it is said which tell the direction", () => {
  const other = ["K=V", 0, 0.3, 0.9, 0.02, 0.99];
  assert.equal(concluded([FREE]), "QKV scores Zoe→Eli and Eli→Zoe differently, and tells the two directions apart: 100% right.");
  assert.equal(concluded([FREE, other]), "Both variants score Zoe→Eli and Eli→Zoe differently, and tell the two directions apart: 99% to 100% right.");
  assert.equal(concluded([FREE, ["K=V", 0, 0.3, 0.2, 0.2, 0.3]]), "Both variants score Zoe→Eli and Eli→Zoe differently. QKV tells the two directions apart: 100% right.");
  assert.equal(concluded([["QKV", 0, 0.3, 0.8, NaN, 0.9]]), "QKV scores Zoe→Eli and Eli→Zoe differently, and is right in 90%.");
  assert.equal(concluded([["QKV", 0, 0, 0.1, 0.1, 0.1]]), "QKV scores Zoe→Eli and Eli→Zoe the same here, although nothing forces it to: 10% right.");
});

test("scores that hardly differ are called nearly the same", () => {
  const near = ["Reformer", 0, 0.1, 0.5, 0.4, 0.6];
  assert.equal(concluded([near]), "Reformer scores Zoe→Eli and Eli→Zoe nearly the same, and is right in 60%.");
  assert.equal(concluded([near, FREE]), "No variant here scores both directions exactly the same: 60% to 100% right.");
  assert.equal(concluded([near, LOST], { step: 0 }), "Q=K scores Zoe→Eli and Eli→Zoe the same, even before training.");
  assert.match(directionTable.finding(directionFilm([near])), /≈ 1\.36/);
});

test("tokens of one name are told apart, and without a pair no names are given", () => {
  assert.match(concluded([LOST], { header: { labels: ["Eli", "Eli"], positions: [0, 9] } }), /^Q=K scores Eli \(token 1\)→Eli \(token 10\) and Eli \(token 10\)→Eli \(token 1\) the same/);
  assert.match(concluded([LOST], { header: { target: [-1, -1] } }), /^Q=K scores both directions the same, so/);
});

test("layers with two sequences and diverged runs have no direction to speak of", () => {
  assert.match(concluded([FREE], { header: { square: false } }), /^Queries and keys belong to different sequences here/);
  assert.equal(concluded([["QKV", 0, NaN, NaN, NaN, NaN]]), "Training diverged, so there are no scores to compare.");
  assert.match(concluded([LOST, ["QKV", 0, NaN, NaN, NaN, NaN]]), /50% right\.$/);
});

test("the table gives both scores, marks those that are the same, and shares in percent", () => {
  const film = directionFilm([FREE, LOST]);
  assert.equal(directionTable.finding(film),
    "QKV: score Zoe→Eli 3.00, score Eli→Zoe ≠ −1.00, attention on the right entry 97%, attention on the mirrored entry 1%, accuracy 100%. " +
    "Q=K: score Zoe→Eli 1.36, score Eli→Zoe = 1.36, attention on the right entry 47%, attention on the mirrored entry 46%, accuracy 50%.");
  assert.deepEqual(directionTable.table(film).rows[1].slice(0, 2), ["Q=K", 1]);
});

test("the table has only the columns that a task has", () => {
  const film = directionFilm([["Q=K", 1, 0, 0.9, NaN, 1]]);
  assert.deepEqual(directionTable.shape(film), ["score Zoe→Eli", "score Eli→Zoe", "attention on the right entry", "accuracy"]);
  assert.deepEqual(directionTable.shape(directionFilm([FREE], { header: { square: false } })), ["attention on the right entry", "attention on the mirrored entry", "accuracy"]);
  assert.match(directionTable.finding(directionFilm([LOST], { header: { target: [-1, -1] } })), /both directions = the same/);
});

// Similarity: per frame, [CKA of weights, CKA of activations] of each variant's three pairs.

function alikeFilm(...frames) {
  const header = { pairs: ["QK", "QV", "KV"], measures: ["cos_weights", "cka_weights", "cka_activations"], notes: frames[0].map(() => ({ has_head: true })) };
  const variants = frames[0].map((_, p) => ({ name: `${p}`, n_heads: 1 }));
  return filmOf(header, variants, frames.map((all) => Object.fromEntries(all.flatMap((pairs, p) => [
    [`${p}.alike`, [[3, 3], pairs.flatMap(([weights, activations]) => [weights === 1 ? 1 : 0, weights, activations])]],
    [`${p}.random`, [[3, 3, 3], pairs.flatMap(() => [0, -0.1, 0.1, 0.3, 0.2, 0.4, 0.5, 0.4, 0.6])]],
  ]))));
}
const LESS = [0.1, 0.2], AS = [0.3, 0.5], MORE = [0.5, 0.9], ONE = [1, 1], UNDEFINED = [0.3, NaN];

test("training is said to change what it has changed", () => {
  assert.equal(concludeAlike(alikeFilm([[AS, AS, AS]], [[LESS, LESS, LESS]])),
    "Where two of Q, K and V have matrices of their own, training makes their vectors less alike than random matrices do.");
  assert.equal(concludeAlike(alikeFilm([[LESS, LESS, LESS]], [[LESS, LESS, LESS]])),
    "Where two of Q, K and V have matrices of their own, their vectors are less alike than random matrices make them.");
});

test("most pairs are told from all, and a mixture from both", () => {
  assert.equal(concludeAlike(alikeFilm([[AS, AS, AS], [ONE, AS, AS]], [[MORE, MORE, AS], [ONE, MORE, MORE]])),
    "Where two of Q, K and V have matrices of their own, training makes their vectors mostly more alike than random matrices do (4 of 5 pairs).");
  assert.equal(concludeAlike(alikeFilm([[AS, AS, AS]], [[LESS, MORE, AS]])),
    "Of 3 pairs with matrices of their own, 1 is less alike than random matrices make them, 1 as alike and 1 more alike.");
});

test("before training vectors are as random matrices make them", () => {
  assert.equal(concludeAlike(alikeFilm([[AS, AS, AS]])),
    "Before training, where two of Q, K and V have matrices of their own, their vectors are as alike as random matrices make them.");
});

test("shared matrices and pairs that no token has are not compared", () => {
  assert.equal(concludeAlike(alikeFilm([[ONE, ONE, ONE]])), "Each pair here shares one matrix, so there is nothing to compare.");
  assert.equal(concludeAlike(alikeFilm([[UNDEFINED, UNDEFINED, UNDEFINED]])), "Nothing can be compared here.");
  assert.match(concludeAlike(alikeFilm([[AS, AS, AS]], [[UNDEFINED, UNDEFINED, LESS]])), /training makes their vectors less alike/);
});

// Attention: each variant as [name, weights, class of its answer]; the right entry is 1, its answer 4.

const HEADER = {
  layer: 0, row: 0, target: 1, reverse: 2, right: 4, head: 0, query_index: 0, texts: { 3: "31", 4: "14" }, askable: [{ label: "Zoe: Eli" }],
  layers: [{ title: "Layer 1", columns: ["Zoe", "Eli", "Ada"], column_titles: ["Zoe, 9", "Eli, 14", "Ada, 31"] }],
};

function lookupFilm(variants, { header = {}, step = 600 } = {}) {
  const frame = {};
  variants.forEach(([, weights, answer], p) => {
    if (weights) frame[`${p}.weights`] = [[3], weights];
    if (answer !== undefined) Object.assign(frame, { [`${p}.logits`]: [[2], [0, 0]], [`${p}.answers`]: [[1], [answer]], [`${p}.top`]: [[1], [0]], [`${p}.total`]: [[1], [0]] });
  });
  return filmOf({ ...HEADER, ...header }, variants.map(([name]) => ({ name, n_heads: 1 })), [frame], [step]);
}
const looked = (variants, given) => concludeLookup(lookupFilm(variants, given));

test("variants that do the same are named together", () => {
  assert.equal(looked([["QKV", [0, 0.98, 0.02], 4], ["K=V", [0, 0.9, 0.1], 4], ["Q=K", [0.1, 0.44, 0.46], 3]]),
    "For “Zoe: Eli”: QKV and K=V attend to the right entry (90% to 98%) and answer right; Q=K divides its attention (44% on the right entry) and answers wrong.");
});

test("an answer that does not follow from the attention is told with but", () => {
  assert.equal(looked([["QKV", [0.2, 0.8, 0], 3]]), "For “Zoe: Eli”: QKV attends to the right entry (80%) but answers wrong.");
  assert.equal(looked([["QKV", [0.9, 0.1, 0], 4]]), "For “Zoe: Eli”: QKV attends mostly to other entries (10% on the right one) but answers right.");
});

test("without a right entry it is said where most of the attention is", () => {
  assert.equal(looked([["QKV", [0.7, 0.2, 0.1], 4], ["Q=K", [0.1, 0.2, 0.7], 3]], { header: { target: -1, reverse: -1 } }),
    "For “Zoe: Eli”: QKV attends most to Zoe, 9 (70%) and answers right; Q=K attends most to Ada, 31 (70%) and answers wrong.");
  assert.equal(looked([["QKV", [0.7, 0.2, 0.1]]], { header: { target: -1, reverse: -1 }, step: 0 }),
    "Before training, for “Zoe: Eli”: QKV attends most to Zoe, 9 (70%).");
});

test("of many different lookups, only the answers are told", () => {
  const four = [["QKV", [0, 0.9, 0.1], 4], ["Q=K", [0, 0.5, 0.5], 3], ["K=V", [0.9, 0.1, 0], 4], ["Q=V", [0, 0.9, 0.1], 3]];
  assert.equal(looked(four), "For “Zoe: Eli”: QKV and K=V answer right; Q=K and Q=V answer wrong.");
  const apart = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]].flatMap((weights) => [[`A ${weights}`, weights], [`B ${weights}`, weights]]);
  const without = { target: -1, reverse: -1 };
  assert.match(looked(apart, { header: without }), /^For “Zoe: Eli”: A .* and B .* attend most to Zoe, 9 \(70%\); /);
  const quoted = [["QKV", [0.7, 0.2, 0.1], 3], ["Q=K", [0.7, 0.2, 0.1], 4], ["K=V", [0.2, 0.7, 0.1], 3], ["Q=V", [0.2, 0.7, 0.1], 4]];
  assert.equal(looked(quoted, { header: { ...without, right: -1 } }), "For “Zoe: Eli”: the variants attend and answer differently.");
});

test("answers whose right one is not known are quoted", () => {
  assert.equal(looked([["QKV", [0.7, 0.2, 0.1], 3]], { header: { target: -1, reverse: -1, right: -1 } }),
    "For “Zoe: Eli”: QKV attends most to Zoe, 9 (70%) and answers 31.");
});

test("a variant without the head is left out, and the head is named where there are several", () => {
  assert.equal(looked([["QKV"]]), "No variant here has such a map.");
  const film = lookupFilm([["QKV", [0, 1, 0], 4], ["Q=K"]]);
  film.variants[0].n_heads = 2;
  assert.equal(concludeLookup(film), "For “Zoe: Eli” (head 1): QKV attends to the right entry (100%) and answers right.");
});

test("many names are counted, and shares are given as a range", () => {
  assert.deepEqual([["A"], ["A", "B"], ["A", "B", "C"], ["A", "B", "C", "D", "E"]].map(listed), ["A", "A and B", "A, B and C", "5 variants"]);
  assert.deepEqual([[], [0.5], [0.5, NaN, 0.48], [1, 0.999]].map(percents), ["", "50%", "48% to 50%", "99% to 100%"]);
});
