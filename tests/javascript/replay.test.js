// The replay of a finished experiment: its values and its means in words.
import assert from "node:assert/strict";
import { test } from "node:test";
import { meansOf, valuesOf } from "../../attnkit/ui/assets/replay.js";

/** A film of two variants at its last step: name → [values of the variants at each step]. */
function filmOf(n_seeds, arrays) {
  return {
    header: { n_seeds, curves: { accuracy: "Accuracy", loss: "Loss" } },
    variants: [{ name: "QKV" }, { name: "Q=K" }],
    step: 20,
    line: (name, [v]) => arrays[name].map((values) => values[v]),
    value: (name, [v]) => arrays[name].at(-1)[v],
  };
}

test("shares are told in whole percent, losses with decimals, and what is missing by a dash", () => {
  const film = filmOf(2, { accuracy: [[0, 0], [0.996, NaN]], loss: [[3, 3], [0.125, 2]] });
  assert.equal(valuesOf(film, "accuracy"), "Accuracy at step 20: QKV 99%, Q=K –.");
  assert.equal(valuesOf(film, "loss"), "Loss at step 20: QKV 0.13, Q=K 2.00.");
});

test("intervals are named only where seeds differ", () => {
  const equal = { accuracy_low: [[0.5, 0.5]], accuracy_high: [[0.5, 0.5]] };
  assert.equal(meansOf(filmOf(3, equal), "accuracy"), "Means of 3 seeds.");
  const differing = { ...equal, accuracy_high: [[0.5, 0.6]] };
  assert.equal(meansOf(filmOf(3, differing), "accuracy"), "Means of 3 seeds; bands: 95% intervals.");
  assert.equal(meansOf(filmOf(1, { accuracy_low: [[NaN, NaN]], accuracy_high: [[NaN, NaN]] }), "accuracy"), "One seed.");
});
