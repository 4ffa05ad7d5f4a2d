// Maps of numbers: coloured cells with labels and marks, and a tooltip for the cell under the pointer.
// `host` is a film, or {tip, link} with `tip` from tipIn and `link` null.
//
//   tipIn(root)                        .show(text, event)  .say(text)  .hide()
//   heatMap(host, parent, options)     .update(values, scale, {row, column, answers, right})
//   strip(film, parent, options)       .update(values, scale)

import { clamp, el, paint, placeIn, set, show, svg, textWidth } from "./ink.js";
import { tr } from "./language.js";
import { once, say } from "./panels.js";

const ROW_LEAST = 16, FINE = 14, LETTERS = 11; // pixels; thick frames would hide cells below FINE

/** The one tooltip of a root: near the pointer, and never beyond the root's sides. */
export function tipIn(root) {
  const tip = once(root, "div", "ak-tip");
  const hide = () => show(tip, (tip.shown = false));
  root.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  return {
    hide,
    say: (text) => say(tip, text),
    show(text, event) {
      say(tip, text);
      tip.style.display = "block";
      const { x, y, width } = placeIn(root, event), high = tip.offsetHeight;
      tip.style.left = `${clamp(x + 14, 0, Math.max(0, width - tip.offsetWidth))}px`;
      tip.style.top = `${event.clientY - high * (tip.currentCSSZoom ?? 1) < 70 ? y + 20 : y - 14 - high}px`;
    },
  };
}

/** Pixels above a map that the names of its columns take: single letters stand upright. */
export const headOf = (columns) => (columns.every((text) => text.length === 1) ? 16 : Math.max(20, 10 + textWidth(columns)));

/**
 * A map of rows × columns: a canvas of one pixel per cell under an overlay of labels and marks.
 * Options: rows, columns (labels); width (room for all of it); rowTokens, columnTokens (positions
 * in the sequence, for linking); target, reverse (a column per row, −1: none); answers (pixels
 * of room at the right); tell(i, j, value) (words on hover); onCell(i, j), −1: beside it; bare (no labels); cell,
 * cellHeight (pixels, else by the width); left, top (pixels of labels, else by their texts);
 * letters (pixels of the smallest ones of columns: of narrower columns some have no name)
 */
export function heatMap(host, parent, given) {
  const { rows, columns, width, rowTokens = [], columnTokens = [], target = [], reverse = [], bare } = given;
  const left = bare ? 0 : given.left ?? 10 + textWidth(rows), top = bare ? 0 : given.top ?? headOf(columns);
  const right = given.answers ? 22 + given.answers : 0;
  const w = given.cell ?? clamp(Math.floor(((width - left - right) / columns.length) * 2) / 2, 9, 28);
  const h = given.cellHeight ?? (bare ? w : clamp(w, ROW_LEAST, 24));
  const [wide, high] = [columns.length * w, rows.length * h];
  const node = el("div", "ak-heat", parent), size = { width: left + wide + right, height: top + high + 2 };
  Object.assign(node.style, { width: `${size.width}px`, height: `${size.height}px` });
  const canvas = el("canvas", "", node);
  Object.assign(canvas, { width: columns.length, height: rows.length });
  canvas.style.cssText = `left:${left}px;top:${top}px;width:${wide}px;height:${high}px`;
  const over = svg("svg", { ...size, "aria-hidden": "true" }, node);
  over.classList.toggle("ak-fine", Math.min(w, h) < FINE);
  if (!bare) nameColumns(over, columns, { left, top, w, least: given.letters ?? 4 });
  const named = (i) => i % Math.ceil(LETTERS / h) === 0; // of rows that are lower than a line of text
  const rowLabels = bare ? [] : rows.map((text, i) => {
    const label = svg("text", { x: left - 6, y: top + (i + 0.5) * h + 4, "text-anchor": "end" }, over);
    label.textContent = named(i) ? text : "";
    return label;
  });
  const chosen = svg("g", {}, over);
  for (const name of ["ak-halo", "ak-row"]) svg("rect", { x: left - 1, y: -1, width: wide + 2, height: h + 2, class: name }, chosen);
  show(chosen, false);
  const cell = svg("g", {}, over);
  for (const name of ["ak-halo", "ak-row"]) svg("rect", { x: left - 1, y: -1, width: w + 2, height: h + 2, class: name }, cell);
  show(cell, false);
  const linked = svg("rect", { y: top, width: w, height: high, class: "ak-linked" }, over);
  show(linked, false);
  const answers = [];
  rows.forEach((_, i) => {
    const y = top + i * h;
    if (given.answers) answers.push(svg("text", { x: left + wide + 6, y: y + h / 2 + 4 }, over));
    // Marks stay at the edge of a cell, so that its colour is seen.
    if (target[i] >= 0) {
      const place = { x: left + target[i] * w + 1, y: y + 1, width: Math.max(2, w - 2), height: h - 2 };
      for (const name of ["ak-halo", "ak-target"]) svg("rect", { ...place, class: name }, over);
    }
    if (reverse[i] >= 0) {
      const place = { cx: left + (reverse[i] + 0.5) * w, cy: y + h / 2, r: Math.max(2, Math.min(w, h) / 2 - 3) };
      for (const name of ["ak-halo", "ak-reverse"]) svg("circle", { ...place, class: name }, over);
    }
  });
  const kept = { values: new Float32Array(rows.length * columns.length), row: -1, column: -1 };
  const place = (event) => {
    const { x, y } = placeIn(node, event), i = Math.floor((y - top) / h), j = Math.floor((x - left) / w);
    return [i in rows ? i : -1, j in columns ? j : -1];
  };
  const told = (i, j) => given.tell(i, j, kept.values[i * columns.length + j]);
  node.onpointermove = (event) => {
    const [i, j] = place(event);
    kept.at = i >= 0 && j >= 0 ? [i, j] : null;
    host.link?.point(j >= 0 ? columnTokens[j] : i >= 0 ? rowTokens[i] : undefined);
    if (kept.at) host.tip.show(told(i, j), event);
    else host.tip.hide();
  };
  node.onpointerleave = () => {
    kept.at = null;
    host.link?.point();
    host.tip.hide();
  };
  if (given.onCell) {
    node.classList.add("ak-pressable");
    node.onclick = (event) => {
      const [i, j] = place(event);
      if (i >= 0) given.onCell(i, j);
    };
  }
  host.link?.on(node, (token) => {
    const j = token === undefined ? -1 : columnTokens.indexOf(token);
    show(linked, j >= 0);
    if (j >= 0) set(linked, "x", left + j * w);
    rowLabels.forEach((label, i) => label.classList.toggle("ak-said-now", token !== undefined && rowTokens[i] === token));
  });
  return {
    node,
    over,
    middleOf: (i, j) => [left + (j + 0.5) * w, top + (i + 0.5) * h],
    update(values, scale, { row = -1, column = -1, answers: texts, right: rightNow } = {}) {
      kept.values = values;
      paint(canvas, values, scale);
      if (row !== kept.row || column !== kept.column) {
        Object.assign(kept, { row, column });
        show(cell, row >= 0 && column >= 0);
        set(cell, "transform", `translate(${column * w} ${top + row * h})`);
        show(chosen, row >= 0);
        set(chosen, "transform", `translate(0 ${top + row * h})`);
        rowLabels.forEach((label, i) => label.classList.toggle("ak-chosen-name", i === row));
      }
      answers.forEach((answer, i) => {
        const sign = rightNow[i] === null ? "" : rightNow[i] ? "✓" : "✗";
        say(answer, named(i) ? `${texts[i]} ${sign}`.trim() : "");
        set(answer, "class", sign ? (rightNow[i] ? "ak-right" : "ak-wrong") : "");
      });
      if (kept.at) host.tip.say(told(...kept.at));
    },
  };
}

/** The names of columns, turned; of columns narrower than the smallest letters only some, and always “rest”. */
function nameColumns(over, columns, { left, top, w, least }) {
  const letters = clamp(w + 1, least, 12), single = columns.every((text) => text.length === 1);
  const every = single ? 1 : Math.ceil(letters / (w + 1)), rest = every > 1 ? columns.findLastIndex((text) => text === tr("rest") || text === "rest") : -1;
  columns.forEach((text, j) => {
    if (j !== rest && (j % every || (rest >= 0 && rest - j < every))) return;
    const x = left + (j + 0.5) * w + (single ? 0 : letters / 3), y = top - 5;
    const name = svg("text", { x, y, ...(single ? { "text-anchor": "middle" } : { transform: `rotate(-90 ${x} ${y})` }) }, over);
    name.style.fontSize = `${letters}px`;
    name.textContent = text;
  });
}

/**
 * Tell what is pointed at in a drawing of `n` values side by side; returns what tells it anew.
 * Options: n, tell(k), tokens (positions, for linking, if the values are tokens')
 */
export function pointedIn(film, drawing, { n, tell, tokens }) {
  let at;
  drawing.onpointermove = (event) => {
    const box = drawing.getBoundingClientRect();
    at = clamp(Math.floor(((event.clientX - box.left) / box.width) * n), 0, n - 1);
    if (tokens) film.link.point(tokens[at]);
    film.tip.show(tell(at), event);
  };
  drawing.onpointerleave = () => {
    at = undefined;
    if (tokens) film.link.point();
    film.tip.hide();
  };
  return () => at === undefined || film.tip.say(tell(at));
}

/**
 * A vector as a row of coloured cells. Options: n, width, height (14), tell(k, value), tokens
 * (positions, for linking, if the cells are tokens)
 */
export function strip(film, parent, { n, width, height = 14, tell, tokens }) {
  const node = el("div", "ak-strip", parent);
  const canvas = el("canvas", "", node);
  Object.assign(canvas, { width: n, height: 1 });
  canvas.style.cssText = `width:${width}px;height:${height}px`;
  const kept = { values: new Float32Array(n) };
  const tellAnew = pointedIn(film, canvas, { n, tell: (k) => tell(k, kept.values[k]), tokens });
  return {
    node,
    update(values, scale) {
      kept.values = values;
      paint(canvas, values, scale);
      tellAnew();
    },
  };
}
