// Films: the blob that the server sends, and the frames that a page reads from it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { newFilm, takeBlob } from "../../attnkit/ui/assets/film.js";

/** Pack arrays of bytes as safetensors does: {name: [dtype, shape, Uint8Array]}. */
function packed(header, tensors) {
  const entries = { __metadata__: { inspected: JSON.stringify(header) } };
  let end = 0;
  for (const [name, [dtype, shape, bytes]] of Object.entries(tensors)) {
    entries[name] = { dtype, shape, data_offsets: [end, (end += bytes.length)] };
  }
  const text = new TextEncoder().encode(JSON.stringify(entries));
  const blob = new Uint8Array(8 + text.length + end);
  new DataView(blob.buffer).setBigUint64(0, BigInt(text.length), true);
  blob.set(text, 8);
  let at = 8 + text.length;
  for (const [, , bytes] of Object.values(tensors)) {
    blob.set(bytes, at);
    at += bytes.length;
  }
  return blob;
}
const floats = (...values) => new Uint8Array(new Float32Array(values).buffer);
const header = (steps, more = {}) => ({ film: "f", view: "v", framed: ["a"], steps, variants: [], request: {}, ...more });
const frames = (steps, ...values) => packed(header(steps), { a: ["F32", [steps.length, 2], floats(...values)] });

test("further frames of one film are added in the order of their steps", () => {
  const film = newFilm();
  takeBlob(film, frames([0, 20], 1, 2, 5, 6));
  takeBlob(film, frames([10], 3, 4));
  assert.deepEqual(film.steps, [0, 10, 20]);
  assert.deepEqual(film.line("a", [1]), [2, 4, 6]);
});

test("the answer to another question replaces all frames", () => {
  const film = newFilm();
  takeBlob(film, frames([0, 10], 1, 2, 3, 4));
  takeBlob(film, packed(header([20], { request: { head: 1 } }), { a: ["F32", [1, 2], floats(7, 8)] }));
  assert.deepEqual(film.steps, [20]);
  assert.equal(film.picked.head, 1);
});

test("a part of an array is found by its leading indices", () => {
  const film = newFilm();
  const values = floats(...Array.from({ length: 2 * 3 * 5 }, (_, i) => i));
  takeBlob(film, packed(header([0]), { a: ["F32", [1, 2, 3, 5], values] }));
  assert.deepEqual([...film.part("a", [1, 2])], [25, 26, 27, 28, 29]);
  assert.equal(film.value("a", [1, 0]), 15);
});
