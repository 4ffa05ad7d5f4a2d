// What figures are drawn with. Every primitive makes its nodes once, under a parent, and
// returns {node, update(…)}, which changes attributes and texts only: nothing is ever replaced.
//
//   el(tag, class, parent, text)  svg(tag, attributes, parent)  say(node, text)
//   number(x, digits)             "−0.52"; "–" if it is none      share(x)   two decimals or more
//   sequential(high = 1), diverging(limit), limitOf(...arrays)   scales: {low, high, css(value)}
//   scaleLegend(parent)                              .update(scale, "what it measures", words of both ends)
//   panelGrid(film, parent, n, least)                n boxes side by side, wrapping
//   panelTitle(parent, variant)                      .update(summary)
//   bars(film, parent, options)                      .update(values, {low, high, texts})
// Maps stand in maps.js, the frame of charts in chart.js, charts and scatters of films in charts.js.

import PALETTE from "../../variants/palette.json" with { type: "json" };
import { columnsFor, say, setTextForm } from "./panels.js";

let ruler;

/** Pixels that the longest of some texts takes in a figure, as bold as it may get. */
export function textWidth(texts) {
  if (!ruler) {
    ruler = document.createElement("canvas").getContext("2d");
    ruler.font = `700 12px ${getComputedStyle(document.querySelector(".ak-film, .ak-board") ?? document.body).fontFamily}`;
  }
  return Math.ceil(texts.reduce((most, text) => Math.max(most, ruler.measureText(text).width), 0));
}

/** An HTML element with a class and a text that `say` can change. */
export function el(tag, className, parent, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) say(element, text);
  parent?.append(element);
  return element;
}

export function svg(tag, attributes, parent) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  parent?.appendChild(element);
  return element;
}

/** Set an attribute only if it differs. */
export function set(element, name, value) {
  const text = String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

export function show(element, visible) {
  const value = visible ? "" : "none";
  if (element.style.display !== value) element.style.display = value;
}

/** A number as one reads it: a true minus, "–" for none. */
export function number(value, digits = 2) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 10 ** -(digits + 2))) return value.toExponential(1).replace(/-/g, "−");
  const text = size.toFixed(size < 10 ** -digits && size > 0 ? digits + 2 : size >= 1000 ? 0 : digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };
const PLURALS = new Intl.PluralRules("en", { type: "ordinal" });

/** 1st, 2nd, 3rd, 4th, … */
export const ordinal = (n) => `${n}${ENDINGS[PLURALS.select(n)]}`;

/** A share as a whole percentage, which is 100% only for a share of 1; as in attnkit/training/summary.py. */
export const percent = (part) => (!Number.isFinite(part) ? "–" : part >= 1 ? "100%" : `${Math.round(Math.min(Math.max(part, 0), 0.99) * 100)}%`);

const decimals = (value, n) => value.toFixed(n).replace(/^-(?=.*[1-9])/, "−").replace("-", "");

/** A number with two decimals, with more where it would read as 0.00; as in attnkit/training/summary.py. */
export function share(value) {
  const size = Math.abs(value);
  if (size >= 1000) return number(value);
  return Number.isFinite(value) ? decimals(value, size >= 0.005 || size < 1e-6 ? 2 : size >= 1e-4 ? 4 : 6) : "–";
}

/** Where a pointer is in an element, and the element's width, in the element's own pixels: it may be zoomed. */
export function placeIn(element, event) {
  const box = element.getBoundingClientRect(), zoom = element.currentCSSZoom ?? 1;
  return { x: (event.clientX - box.left) / zoom, y: (event.clientY - box.top) / zoom, width: box.width / zoom };
}

/** A length in a drawing, as short as it may be. */
export const round = (value) => Math.round(value * 100) / 100;

export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** 256 colours, as bytes, through the given ones. */
function ramp(hexes) {
  const stops = hexes.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const bytes = new Uint8Array(256 * 3);
  for (let level = 0; level < 256; level++) {
    const place = (level / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) {
      bytes[level * 3 + c] = Math.round(stops[low][c] + (stops[low + 1][c] - stops[low][c]) * (place - low));
    }
  }
  return bytes;
}

const VIRIDIS = ramp(PALETTE.viridis), BLUE_RED = ramp(PALETTE.blue_red);
const LACKING = [140, 140, 140];

function scaleOf(low, high, bytes) {
  const factor = high > low ? 255 / (high - low) : 0;
  const level = (value) => clamp(Math.round((value - low) * factor), 0, 255) * 3;
  const rgb = (value) => {
    const at = level(value);
    return Number.isNaN(value) ? LACKING : [bytes[at], bytes[at + 1], bytes[at + 2]];
  };
  return { low, high, bytes, level, rgb, css: (value) => `rgb(${rgb(value)})` };
}

/** Viridis from 0 to `high`. */
export const sequential = (high = 1) => scaleOf(0, high, VIRIDIS);

/** Blue below 0, red above, the same range on both sides. */
export const diverging = (limit) => scaleOf(-(limit || 1), limit || 1, BLUE_RED);

/** The largest absolute value, for `diverging`. */
export function limitOf(...arrays) {
  let limit = 0;
  for (const array of arrays) for (const value of array) if (Math.abs(value) > limit && Number.isFinite(value)) limit = Math.abs(value);
  return limit;
}

/** A bar of the scale's colours with its numbers. */
export function scaleLegend(parent) {
  const node = el("div", "ak-scale", parent);
  const what = el("span", "", node, "");
  const numbers = [el("span", "", node, "")];
  const canvas = el("canvas", "", node);
  Object.assign(canvas, { width: 64, height: 1 });
  canvas.style.cssText = "width: 128px; height: 10px";
  numbers.push(el("span", "", node, ""));
  const values = new Float32Array(64);
  return {
    node,
    update(scale, text = "", ends = [number(scale.low), number(scale.high)]) {
      say(what, text);
      numbers.forEach((node, place) => say(node, ends[place]));
      for (let i = 0; i < 64; i++) values[i] = scale.low + ((scale.high - scale.low) * i) / 63;
      paint(canvas, values, scale);
    },
  };
}

export const painted = new WeakMap(); // canvas → its pixels, for SVG

/** Colour a canvas of one pixel per value. */
export function paint(canvas, values, scale) {
  let kept = painted.get(canvas);
  if (!kept) {
    kept = { context: canvas.getContext("2d"), image: new ImageData(canvas.width, canvas.height) };
    painted.set(canvas, kept);
  }
  const pixels = kept.image.data, { bytes, level } = scale;
  for (let k = 0; k < values.length; k++) {
    const lacking = Number.isNaN(values[k]), at = lacking ? 0 : level(values[k]);
    pixels[k * 4] = lacking ? LACKING[0] : bytes[at];
    pixels[k * 4 + 1] = lacking ? LACKING[1] : bytes[at + 1];
    pixels[k * 4 + 2] = lacking ? LACKING[2] : bytes[at + 2];
    pixels[k * 4 + 3] = 255;
  }
  kept.context.putImageData(kept.image, 0, 0);
}

/**
 * `n` boxes of at least `least` pixels side by side, in balanced rows; `.inner` is their width.
 * With `parts`, boxes have so many children each, and those of boxes in a row begin at one height.
 */
export function panelGrid(film, parent, n, least, parts = 0, gap = 16) {
  const width = parent.clientWidth || film.width, columns = columnsFor(width + gap, n, least + gap);
  const inner = Math.floor((width - gap * (columns - 1)) / columns);
  const node = el("div", "ak-panels", parent);
  node.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  node.style.columnGap = `${gap}px`;
  const boxes = Array.from({ length: n }, () => el("div", "ak-panel", node));
  for (const box of parts ? boxes : []) Object.assign(box.style, { display: "grid", gridTemplateColumns: "minmax(0, 1fr)", gridRow: `span ${parts}`, gridTemplateRows: "subgrid", rowGap: 0 });
  return { node, boxes, columns, inner };
}

/** The colour and the name of a variant, and a few words about it at the shown step. */
export function panelTitle(parent, { name, text, color }) {
  const node = el("div", "ak-panel-title", parent);
  el("i", "", node, "■").style.color = color;
  setTextForm(el("b", "", node), name);
  node.title = text ?? name;
  const summary = el("span", "", node, "");
  return { node, update: (words) => say(summary, words) };
}

/**
 * Named bars with their values. Options: labels, width, tokens (positions, for linking), marks (a
 * class per row: "ak-bar-target", "ak-bar-reverse", …), color, rowHeight (18), left, room (pixels
 * of labels and of values)
 */
export function bars(film, parent, { labels, width, tokens = [], marks = [], color, rowHeight = 18, ...given }) {
  const left = given.left ?? 8 + textWidth(labels), room = given.room ?? 52;
  const long = Math.max(24, width - left - room);
  const size = { width: left + long + room, height: labels.length * rowHeight };
  const node = svg("svg", { ...size, class: "ak-bars", "aria-hidden": "true" }, parent);
  const drawn = labels.map((text, i) => {
    const group = svg("g", { class: `ak-bar-row ${marks[i] ?? ""}` }, node), y = i * rowHeight;
    svg("rect", { x: 0, y, width: size.width, height: rowHeight, class: "ak-bar-behind" }, group);
    const label = svg("text", { x: left - 6, y: y + rowHeight / 2 + 4, "text-anchor": "end" }, group);
    label.textContent = text;
    const bar = svg("rect", { y: y + 3, height: rowHeight - 6, class: "ak-bar-ink" }, group);
    if (color) bar.style.fill = color;
    const value = svg("text", { y: y + rowHeight / 2 + 4, x: size.width - 4, "text-anchor": "end" }, group);
    if (tokens.length) {
      group.onpointerenter = () => film.link.point(tokens[i]);
      group.onpointerleave = () => film.link.point();
    }
    return { group, label, bar, value };
  });
  film.link.on(node, (token) => {
    drawn.forEach(({ group }, i) => group.classList.toggle("ak-linked-row", token !== undefined && tokens[i] === token));
  });
  return {
    node,
    update(values, { low = 0, high = 1, texts, labels: names } = {}) {
      const at = (value) => left + (long * (clamp(value, low, high) - low)) / (high - low || 1);
      drawn.forEach((row, i) => {
        const value = Number.isFinite(values[i]) ? values[i] : 0, zero = at(clamp(0, low, high));
        set(row.bar, "x", Math.min(zero, at(value)).toFixed(1));
        set(row.bar, "width", Math.abs(at(value) - zero).toFixed(1));
        say(row.value, texts ? texts[i] : number(values[i]));
        if (names) say(row.label, names[i]);
      });
    },
  };
}
