// Texts in English, where no script has translations.
import assert from "node:assert/strict";
import { test } from "node:test";
import { tr, trN } from "../../attnkit/ui/assets/language.js";

test("a message without a translation is shown as it is, with its values", () => {
  assert.equal(tr("Save"), "Save");
  assert.equal(tr("Save as {kind}: {title}", { kind: "SVG", title: "{kind} $& a" }), "Save as SVG: {kind} $& a");
  assert.equal(tr("at most {most:,} bytes", { most: 1234567 }), "at most 1,234,567 bytes");
});

test("a number decides the form", () => {
  assert.deepEqual([0, 1, 2].map((n) => trN("{n} step", "{n} steps", n)), ["0 steps", "1 step", "2 steps"]);
  assert.equal(trN("{n} step of {what}", "{n} steps of {what}", 2, { what: "x" }), "2 steps of x");
});
