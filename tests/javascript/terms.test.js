// Terms in the text of a page.
import assert from "node:assert/strict";
import { test } from "node:test";
import { lookupOf, termsIn } from "../../attnkit/ui/assets/terms.js";

const LOOKUP = lookupOf([["numbers kept per token", "cache"], ["Q=K=V", "five"], ["Q=K", "five"], ["seeds", "seed"], ["seed", "seed"], ["kv_rank", "narrow"]]);
const found = (text) => termsIn(text, LOOKUP).map(([start, end, meaning]) => [text.slice(start, end), meaning]);

test("a term is found in any case, and the longest spelling wins", () => {
  assert.deepEqual(found("Seeds, a seed; Q=K=V beside Q=K."), [["Seeds", "seed"], ["seed", "seed"], ["Q=K=V", "five"], ["Q=K", "five"]]);
});

test("a part of another word or of a longer text form is no term", () => {
  assert.deepEqual(found("seedling, unseeded, K=Q=K, Q=KV"), []);
});

test("a word of a text form is known beside its value", () => {
  assert.deepEqual(found("QKV kv_rank=m/4, not my_kv_rank"), [["kv_rank", "narrow"]]);
});

test("a term of several words is one", () => {
  assert.deepEqual(found("16 numbers kept per token (KV cache)"), [["numbers kept per token", "cache"]]);
});
