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

const PEOPLE = { labels: ["Zoe", "Eli"], positions: [0, 1], target: [1, -1], reverse: [-1, 0], pair: [0, 1], request: { layer: 0, head: 0 }, notes: [] };
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
const LOST = ["Q=K", 1, 0, 0.47, 0.46, 0.5];

/** Numbers from 0 to 1, always the same for a seed. */
function randomFrom(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
const oneOf = (random, all) => all[Math.floor(random() * all.length)];
const LETTERS = "ABCDEF", NAMES = "((?:[A-F](?:, | and )?)+)";
/** The variants named in the places where a pattern fits. */
const namedIn = (text, pattern) => [...text.matchAll(pattern)].flatMap(([, names]) => [...names.matchAll(/[A-F](?=, | |$)/g)].map(([letter]) => LETTERS.indexOf(letter)));

test("sentences on direction hold for every variant that they name, at any number", () => {
  const random = randomFrom(38);
  for (let n = 0; n < 4000; n++) {
    const variants = Array.from({ length: 1 + Math.floor(random() * 4) }, (_, p) => {
      const error = oneOf(random, [0, 1e-7, 0.99e-5, 1.01e-5, 1e-3, 0.05, 0.4]), right = random(), there = 4 * random() - 2;
      const back = error < 1e-5 ? there + 4e-6 * (random() - 0.5) : there + oneOf(random, [0.0002, 0.0027, 0.004, 1]) * (random() - 0.5);
      return [LETTERS[p], Number(error < 1e-6 && random() < 0.7), error, right, oneOf(random, [right, random() * (1 - right), NaN]), oneOf(random, [0, 0.004, 0.5, 0.994, 0.996, 0.9996, 1, random()]), [there, back]];
    });
    const film = directionFilm(variants), text = concludeDirection(film), about = `${text} ${JSON.stringify(variants)}`;
    const of = (pattern) => namedIn(text, pattern).map((p) => variants[p]);
    for (const [, , error] of of(new RegExp(`${NAMES} scores? \\S+ and \\S+ the same`, "g"))) assert.ok(error < 1e-5, about);
    for (const [, , error] of of(new RegExp(`${NAMES} scores? \\S+ and \\S+ (?:nearly|differently)`, "g"))) assert.ok(error > 1e-5, about);
    if (/^(No variant|Both variants|All \d)/.test(text)) assert.ok(variants.every(([, , error]) => error > 1e-5), about);
    for (const [, , , right, mirrored, accuracy] of of(new RegExp(`${NAMES} cannot tell`, "g"))) assert.ok(Math.abs(right - mirrored) < 0.05 && accuracy < 0.7, about);
    for (const [, , , right, mirrored] of of(new RegExp(`${NAMES} (?:can:|tells? the)`, "g"))) assert.ok(right > 2 * mirrored, about);
    for (const [shown] of text.matchAll(/\d+%/g)) assert.ok(variants.some(([, , , , , accuracy]) => (accuracy === 1 ? "100%" : `${Math.round(100 * Math.min(accuracy, 0.99))}%`) === shown), about);
    const there = directionTable.shape(film).length && directionTable.finding(film);
    for (const [, first, sign, second] of there.matchAll(/score Zoe→Eli (\S+), score Eli→Zoe ([=≈≠]) (\S+),/g)) assert.ok(sign !== "=" || first === second, there);
    for (const [, letter, first, second] of there.matchAll(/([A-F]): score Zoe→Eli (\S+), score Eli→Zoe [≈≠] (\S+),/g)) {
      const [one, other] = variants[LETTERS.indexOf(letter)].at(-1);
      assert.ok(first !== second || Math.abs(one - other) < 2e-6, there);
    }
  }
});

test("nothing is said of what is right before training, nor where attention has no direction", () => {
  const both = [["A", 0, 0.4, 0.12, 0.13, 0.03], ["B", 1, 0, 0.4, 0.4, 0.04]];
  for (const some of [both, both.slice(0, 1), both.slice(1)]) assert.doesNotMatch(concluded(some, { step: 0 }), /%/);
  assert.doesNotMatch(concluded(both, { header: { square: false } }), /%|same/);
  assert.equal(concluded([["QKV", 0, NaN, NaN, NaN, NaN]]), "Training diverged, so there are no scores to compare.");
});

test("tokens of one name are told apart, and without a pair no names are given", () => {
  assert.match(concluded([LOST], { header: { labels: ["Eli", "Eli"], positions: [0, 9] } }), /^Q=K scores Eli \(token 1\)→Eli \(token 10\) and Eli \(token 10\)→Eli \(token 1\) the same/);
  assert.match(concluded([LOST], { header: { pair: null } }), /^Q=K scores both directions the same, so/);
});

test("percentages say of what they are", () => {
  assert.match(concluded([LOST]), /50% of held-out questions right/);
  assert.match(directionTable.hint(directionFilm([LOST], { header: { seed: 3 } })), /held-out questions.* seed 3/);
});

test("the table has only the columns that a task has", () => {
  const film = directionFilm([["Q=K", 1, 0, 0.9, NaN, 1]]);
  assert.deepEqual(directionTable.shape(film), ["score Zoe→Eli", "score Eli→Zoe", "attention on the right entry", "accuracy"]);
  assert.deepEqual(directionTable.shape(directionFilm([LOST], { header: { square: false } })), ["attention on the right entry", "attention on the mirrored entry", "accuracy"]);
  assert.match(directionTable.finding(directionFilm([LOST], { header: { pair: null } })), /both directions = the same/);
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

test("each variant is said to answer as it does, whatever the others answer", () => {
  const random = randomFrom(2);
  for (let n = 0; n < 6000; n++) {
    const variants = Array.from({ length: 1 + Math.floor(random() * 6) }, (_, p) => {
      const cuts = [random(), random()].sort((a, b) => a - b);
      const weights = oneOf(random, [[0, 0.98, 0.02], [0.1, 0.44, 0.46], [cuts[0], cuts[1] - cuts[0], 1 - cuts[1]]]);
      return [LETTERS[p], weights, oneOf(random, [3, 4])];
    });
    const text = looked(variants, random() < 0.2 ? { header: { target: -1, reverse: -1 } } : {}), told = new Map();
    const say = (names, verdict) => {
      for (const [letter] of names.matchAll(/[A-F]/g)) {
        assert.ok(!told.has(letter), `${letter} is told once: ${text}`);
        told.set(letter, verdict);
      }
    };
    const clauses = text.slice(text.indexOf("”: ") + 3, -1).split("; ");
    clauses.forEach((clause) => {
      const [, subject, verdict] = clause.match(new RegExp(`^${NAMES} (?:attend|divide).* answers? (right|wrong)$`)) ?? [];
      if (subject) return say(subject, verdict);
      for (const [, names, answer] of clause.matchAll(new RegExp(`${NAMES} answers? (right|wrong)`, "g"))) say(names, answer);
    });
    for (const [letter, verdict] of told) assert.equal(verdict === "right", variants[LETTERS.indexOf(letter)][2] === 4, text);
    if (!/\d variants/.test(text)) assert.equal(told.size, variants.length, text);
    for (const [, count, verdict] of text.matchAll(/(\d) variants answer (right|wrong)/g)) assert.ok(variants.filter(([, , answer]) => (answer === 4) === (verdict === "right")).length >= count, text);
    assert.doesNotMatch(text, /\bonly\b/);
  }
});

test("an answer that does not follow from the attention is told with but", () => {
  assert.match(looked([["QKV", [0.2, 0.8, 0], 3]]), /attends to the right entry \(80%\) but answers wrong/);
  assert.match(looked([["QKV", [0.9, 0.1, 0], 4]]), /attends mostly to other entries \(10% on the right one\) but answers right/);
});

test("answers whose right one is not known are quoted, and different ones are not told apart", () => {
  const without = { target: -1, reverse: -1, right: -1 };
  assert.match(looked([["QKV", [0.7, 0.2, 0.1], 3]], { header: without }), /QKV attends most to Zoe, 9 \(70%\) and answers 31\.$/);
  const quoted = [["QKV", [0.7, 0.2, 0.1], 3], ["Q=K", [0.7, 0.2, 0.1], 4], ["K=V", [0.2, 0.7, 0.1], 3], ["Q=V", [0.2, 0.7, 0.1], 4]];
  assert.match(looked(quoted, { header: without }), /the variants attend and answer differently\.$/);
});

test("a lookup says which question, seed and head it is of; a variant without the head is left out", () => {
  assert.equal(looked([["QKV"]]), "No variant here has such a map.");
  const film = lookupFilm([["QKV", [0, 1, 0], 4], ["Q=K"]], { header: { seed: 3, is_asked: true } });
  film.variants[0].n_heads = 2;
  assert.match(concludeLookup(film), /one question “Zoe: Eli” \(seed 3, head 1\): QKV attends/);
  assert.doesNotMatch(concludeLookup(film), /Q=K/);
});

test("many names are counted, and shares are given as a range", () => {
  assert.deepEqual([["A"], ["A", "B"], ["A", "B", "C"], ["A", "B", "C", "D", "E"]].map(listed), ["A", "A and B", "A, B and C", "5 variants"]);
  assert.deepEqual([[], [0.5], [0.5, NaN, 0.48], [1, 0.999]].map(percents), ["", "50%", "48% to 50%", "99% to 100%"]);
});
