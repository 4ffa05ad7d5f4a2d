// Numbers in words, colour scales, and layout: all that figures compute without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import PALETTE from "../../attnkit/variants/palette.json" with { type: "json" };
import { ticks } from "../../attnkit/ui/assets/charts.js";
import { diverging, limitOf, number, ordinal, paint, sequential, share } from "../../attnkit/ui/assets/ink.js";
import { columnsFor } from "../../attnkit/ui/assets/panels.js";
import { csvOf, withoutFormula } from "../../attnkit/ui/assets/save.js";

const hex = (css) => `#${css.match(/\d+/g).map((n) => Number(n).toString(16).padStart(2, "0")).join("")}`;

test("numbers have a true minus, and a dash where there is none", () => {
  const given = [0.5, -0.52, -0.001, 0, 1234.5, 2.5e6, NaN, undefined, Infinity, -Infinity];
  assert.deepEqual(given.map((value) => number(value)), ["0.50", "−0.52", "−0.0010", "0.00", "1235", "2.5e+6", "–", "–", "∞", "−∞"]);
});

test("a share has two decimals, more where it would read as zero, and no minus before zero", () => {
  assert.deepEqual([1, 0.005, 0.0027, -0.001, 4e-5, 1e-8, -1e-8, 0, -0.25, NaN].map(share),
    ["1.00", "0.01", "0.0027", "−0.0010", "0.000040", "0.00", "0.00", "0.00", "−0.25", "–"]);
});

test("ordinals follow English", () => {
  assert.deepEqual([1, 2, 3, 4, 11, 12, 13, 21, 22, 103, 111].map(ordinal),
    ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "103rd", "111th"]);
});

test("scales end in the palette's colours and keep beyond their ends", () => {
  const { viridis, blue_red: blueRed } = PALETTE, weights = sequential(0.5), scores = diverging(2);
  assert.deepEqual([0, 0.5, 9].map((v) => hex(weights.css(v))), [viridis[0], viridis.at(-1), viridis.at(-1)]);
  assert.deepEqual([-2, -9, 2].map((v) => hex(scores.css(v))), [blueRed[0], blueRed[0], blueRed.at(-1)]);
  assert.equal(scores.css(NaN), "rgb(140,140,140)");
});

test("the pixels of a map have the colours of its scale, and grey where there is no number", () => {
  globalThis.ImageData ??= class {
    constructor(width, height) { this.data = new Uint8ClampedArray(4 * width * height); }
  };
  let drawn;
  const scale = sequential(1), values = [0, 1, NaN];
  paint({ width: 3, height: 1, getContext: () => ({ putImageData: ({ data }) => { drawn = [...data]; } }) }, values, scale);
  assert.deepEqual(drawn, values.flatMap((value) => [...scale.css(value).match(/\d+/g).map(Number), 255]));
});

test("a scale of zeros has a middle", () => {
  const low = Number.parseInt(hex(diverging(limitOf([0, 0], [])).css(0)).slice(1, 3), 16);
  assert.ok(low > 240, "the colour of 0 is nearly white");
});

test("limits leave out what is no number", () => {
  assert.equal(limitOf([1, -3, NaN], [-Infinity, 2]), 3);
});

test("ticks are round, inside of the axis, and about as many as asked for", () => {
  assert.deepEqual(ticks(0, 1, 4), [0, 0.25, 0.5, 0.75, 1]);
  assert.deepEqual(ticks(-0.31, 0.29, 3), [-0.2, 0, 0.2]);
  assert.deepEqual(ticks(0, 1200, 4), [0, 500, 1000]);
  assert.deepEqual(ticks(5, 5, 4), [5]);
});

test("panels stand in balanced rows", () => {
  assert.deepEqual([1000, 530, 349, 10].map((width) => columnsFor(width, 5, 175)), [5, 3, 1, 1]);
  assert.equal(columnsFor(720, 4, 175), 4);
  assert.equal(columnsFor(560, 4, 175), 2, "two rows of two, not three and one");
});

test("tables are quoted as spreadsheets expect", () => {
  const csv = csvOf({ columns: ["a,b", "c"], rows: [['say "x"', NaN], ["two\nlines", 0.5]] });
  assert.equal(csv, '"a,b",c\r\n"say ""x""",\r\n"two\nlines",0.5\r\n');
});

test("texts of a table are never formulas, and numbers stay numbers", () => {
  const csv = csvOf({ columns: ["=a", "b"], rows: [["=HYPERLINK(1)", -0.5], ["-0.5", Infinity]] });
  assert.equal(csv, "'=a,b\r\n'=HYPERLINK(1),-0.5\r\n-0.5,Infinity\r\n");
  assert.deepEqual(["@x", "\t=1", "a; =b", " +1", "Q=K", "-3.5e-05", "-x"].map(withoutFormula),
    ["'@x", "'\t'=1", "a;' =b", "' +1", "Q=K", "-3.5e-05", "'-x"]);
});
