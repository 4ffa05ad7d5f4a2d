// What the figures of the pages compute from a film: maps, symmetric parts, projections.
import assert from "node:assert/strict";
import { test } from "node:test";
import { partsOf } from "../../attnkit/ui/assets/score_parts.js";
import { mapOf } from "../../attnkit/ui/assets/followed.js";
import { project } from "../../attnkit/ui/assets/joint.js";

/** A film of one frame that holds some arrays: name → [shape, values]. */
function filmOf(header, arrays, variants = [{ name: "Q=K", n_heads: 2 }]) {
  const film = {
    header, variants, steps: [0], at: 0,
    shape: (name) => arrays[name]?.[0],
    get: (name) => Float32Array.from(arrays[name][1]),
    part(name, indices) {
      const [shape, values] = arrays[name], size = shape.slice(indices.length).reduce((a, b) => a * b, 1);
      const from = indices.reduce((sum, index, d) => sum * shape[d] + index, 0) * size;
      return Float32Array.from(values.slice(from, from + size));
    },
    value: (name, indices) => film.part(name, indices)[0],
  };
  return film;
}
const near = (found, expected) => found.forEach((value, i) => assert.ok(Math.abs(value - expected[i]) < 1e-6, `${i}: ${value}`));

test("a matrix is the sum of its symmetric and its antisymmetric part", () => {
  const s = Float32Array.from([1, 2, 3, 4, 5, 6, 7, 8, 10]), { even, odd } = partsOf(s, 3, {});
  near(even, [1, 3, 5, 3, 5, 7, 5, 7, 10]);
  near(odd, [0, -1, -2, 1, 0, -1, 2, 1, 0]);
});

test("the mean of all heads has rows that still sum to 1", () => {
  const film = filmOf({ layer: 1, head: 0 }, { "0.grid.0": [[2, 1, 2], [255, 0, 51, 204]] });
  near(mapOf(film, 0, { layer: 0, head: 1 }), [0.2, 0.8]);
  near(mapOf(film, 0, { layer: 0, head: null }), [0.6, 0.4]);
});

test("a projection tells how much of the spread it shows", () => {
  // Two queries that differ along x, and along a third axis that the plane leaves out.
  const arrays = {
    "0.vectors": [[1, 2, 3], [1, 0, 1, -1, 0, -1]], "0.scale": [[1], [2]], "0.centre": [[3], [0, 0, 0]],
    "0.plane": [[3, 2], [1, 0, 0, 1, 0, 0]],
  };
  const kept = { x: new Float64Array(2), y: new Float64Array(2) };
  project(filmOf({ tokens: [0, 1] }, arrays), 0, [{ r: 0, i: 0 }, { r: 0, i: 1 }], 0, kept);
  near([...kept.x, ...kept.y, kept.share], [2, -2, 0, 0, 0.5]);
});
