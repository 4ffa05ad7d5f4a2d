// Films: the blob that the server sends, and the frames that a page reads from it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { newFilm, readTensors, takeBlob } from "../../attnkit/ui/assets/film.js";

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

test("numbers of every type are those that were written, wherever they begin", () => {
  const bytes = (array) => new Uint8Array(array.buffer);
  const halves = [[0x3800, 0.5], [0xc000, -2], [0x0001, 2 ** -24], [0x03ff, 1023 * 2 ** -24], [0x7bff, 65504], [0x7c00, Infinity], [0xfc00, -Infinity], [0x7e00, NaN], [0x8000, -0]];
  const given = {
    odd: ["U8", [3], new Uint8Array([1, 2, 3]), [1, 2, 3]],
    half: ["F16", [3, 3], bytes(new Uint16Array(halves.map(([bits]) => bits))), halves.map(([, value]) => value)],
    single: ["F32", [2], floats(0.5, -Infinity), [0.5, -Infinity]],
    double: ["F64", [1], bytes(new Float64Array([0.1])), [0.1]],
    small: ["I8", [1], bytes(new Int8Array([-3])), [-3]],
    short: ["I16", [1], bytes(new Int16Array([-300])), [-300]],
    whole: ["I32", [1], bytes(new Int32Array([-70000])), [-70000]],
    long: ["I64", [2], bytes(new BigInt64Array([2n ** 40n, -1n])), [2 ** 40, -1]],
  };
  const { header: about, arrays } = readTensors(packed({ view: "é" }, given));
  assert.deepEqual(about, { view: "é" });
  for (const [name, [, shape, , values]] of Object.entries(given)) {
    assert.deepEqual(arrays[name].shape, shape);
    assert.deepEqual([...arrays[name].data].map(Number), values, name);
  }
});

test("a blob within a larger buffer is read from its own beginning", () => {
  const blob = frames([0], 1, 2), around = new Uint8Array(blob.length + 11);
  around.set(blob, 5);
  assert.deepEqual([...readTensors(around.subarray(5, 5 + blob.length)).arrays.a.data], [1, 2]);
});
