import assert from "node:assert/strict";
import { test } from "node:test";

import { meantBy } from "../../attnkit/ui/assets/numbers.js";

test("a comma is a decimal point, and three digits after a point are thousands of a whole number", () => {
  for (const [text, isWhole, meant] of [
    ["0,1", false, "0.1"],
    [",", false, "."],
    ["1.000,5", false, "1000.5"],
    ["1,000.5", false, "1000.5"],
    ["1e-3", false, "1e-3"],
    ["1.000", true, "1000"],
    ["12,000", true, "12000"],
    ["1 000", true, "1000"],
    ["1’000’000", true, "1000000"],
    ["3,7", true, "3.7"],
    ["-5", true, "-5"],
  ])
    assert.equal(meantBy(text, isWhole), meant, text);
});
