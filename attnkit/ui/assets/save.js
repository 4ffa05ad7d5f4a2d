// Taking a figure away: what stands in its box as SVG or PNG, and its numbers as CSV.
// Everything is drawn from the page as it is: texts where they stand, canvases as rectangles.

import { el, painted, set } from "./ink.js";

const INLINED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray",
  "opacity", "font-size", "font-weight", "font-style", "text-anchor"];

const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

/** A figure's box as the text of an SVG file, under a heading and a legend. */
function figureSvg({ body, heading, legend }) {
  const ink = getComputedStyle(body), paper = paperOf(body);
  const origin = body.getBoundingClientRect();
  const sheet = { left: origin.left - 12, top: origin.top - (legend ? 68 : 40), right: 0, bottom: 0, parts: [] };
  if (legend) drawAt(legend, { x: 12, y: 38 }, sheet);
  drawNode(body, sheet);
  const width = Math.ceil(Math.max(sheet.right - sheet.left + 12, 320));
  const height = Math.ceil(sheet.bottom - sheet.top + 12);
  const font = escaped(ink.fontFamily.replace(/"/g, "'"));
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
    `viewBox="0 0 ${width} ${height}" font-family="${font}, sans-serif">\n` +
    `<title>${escaped(heading)}</title>\n<desc>${escaped(body.getAttribute("aria-label") ?? "")}</desc>\n` +
    `<rect width="${width}" height="${height}" fill="${paper}"/>\n` +
    `<text x="12" y="24" font-size="15" font-weight="600" fill="${ink.color}">${escaped(heading)}</text>\n` +
    `${sheet.parts.join("\n")}\n</svg>\n`;
}

/** Draw what stands elsewhere in the page at a place of the sheet. */
function drawAt(element, { x, y }, sheet) {
  const box = element.getBoundingClientRect();
  const own = { left: box.left - x, top: box.top - y, right: 0, bottom: 0, parts: sheet.parts };
  drawNode(element, own);
  sheet.right = sheet.left + own.right - own.left;
}

export function paperOf(element) {
  for (let node = element; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if (!isClear(color)) return color;
  }
  return "#ffffff";
}

const isClear = (color) => color === "transparent" || /,\s*0\)$/.test(color);

function drawNode(node, sheet) {
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) drawText(child, sheet);
    if (child.nodeType !== Node.ELEMENT_NODE || child.matches("details, .ak-not-saved")) continue;
    const style = getComputedStyle(child);
    if (style.display === "none" || style.visibility === "hidden") continue;
    const faded = Number(style.opacity) < 1;
    if (faded) sheet.parts.push(`<g opacity="${style.opacity}">`);
    if (child.localName === "svg") drawSvg(child, sheet);
    else if (child.localName === "canvas") drawCanvas(child, sheet);
    else {
      drawBox(child, style, sheet);
      if (child.localName === "select") drawWords(child, child.selectedOptions[0]?.text ?? "", sheet);
      else if (child.localName !== "input") drawNode(child, sheet);
    }
    if (faded) sheet.parts.push("</g>");
  }
}

function reach(box, sheet) {
  sheet.right = Math.max(sheet.right, box.right);
  sheet.bottom = Math.max(sheet.bottom, box.bottom);
  return { x: round(box.left - sheet.left), y: round(box.top - sheet.top), width: round(box.width), height: round(box.height) };
}

export const round = (value) => Math.round(value * 100) / 100;

function drawBox(element, style, sheet) {
  const box = element.getBoundingClientRect();
  const thick = parseFloat(style.borderTopWidth) || 0, edged = thick > 0 && style.borderTopStyle !== "none";
  if ((isClear(style.backgroundColor) && !edged) || !box.width) return;
  const { x, y, width, height } = reach(box, sheet);
  const fill = isClear(style.backgroundColor) ? "none" : style.backgroundColor;
  const edge = edged ? ` stroke="${style.borderTopColor}" stroke-width="${thick}"` : "";
  sheet.parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="${parseFloat(style.borderTopLeftRadius) || 0}" fill="${fill}"${edge}/>`);
}

/** Each line of a text where it stands; words tell where lines are broken. */
function drawText(node, sheet) {
  if (!node.data.trim()) return;
  const range = document.createRange(), lines = [];
  for (const word of node.data.matchAll(/\S+/g)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    for (const box of [...range.getClientRects()].slice(0, 1)) {
      const line = lines.at(-1);
      if (line && Math.abs(line.box.top - box.top) < 2) {
        line.text += ` ${word[0]}`;
        line.right = box.right;
      } else lines.push({ text: word[0], box, right: box.right });
    }
  }
  for (const { text, box, right } of lines) letters(node.parentElement, text, box, right, sheet);
}

function drawWords(element, text, sheet) {
  const box = element.getBoundingClientRect(), pad = parseFloat(getComputedStyle(element).paddingLeft) || 4;
  const line = new DOMRect(box.left + pad, box.top + (box.height - 18) / 2, box.width - 2 * pad, 18);
  letters(element, text, line, 0, sheet);
}

let measuring;

function letters(element, text, box, right, sheet) {
  const style = getComputedStyle(element);
  measuring ??= document.createElement("canvas").getContext("2d");
  measuring.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = measuring.measureText("x");
  const place = reach(box, sheet);
  const baseline = round(place.y + (place.height * up) / (up + down || 1));
  const fit = right > box.left ? ` textLength="${round(right - box.left)}" lengthAdjust="spacingAndGlyphs"` : "";
  sheet.right = Math.max(sheet.right, right);
  const slant = style.fontStyle === "normal" ? "" : ` font-style="${style.fontStyle}"`;
  sheet.parts.push(`<text x="${place.x}" y="${baseline}" font-size="${parseFloat(style.fontSize)}" ` +
    `font-weight="${style.fontWeight}"${slant} fill="${style.color}"${fit}>${escaped(text)}</text>`);
}

function drawSvg(picture, sheet) {
  const box = picture.getBoundingClientRect();
  if (!box.width) return;
  const { x, y, width, height } = reach(box, sheet);
  const copy = picture.cloneNode(true);
  const originals = [picture, ...picture.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((original, k) => {
    const style = getComputedStyle(original), own = copies[k];
    if (style.display === "none") return own.setAttribute("display", "none");
    for (const name of INLINED) {
      const value = style.getPropertyValue(name);
      if (value && !(name === "opacity" && value === "1")) own.setAttribute(name, value);
    }
    own.removeAttribute("style");
    own.removeAttribute("class");
  });
  copies.filter((own) => own !== copy && own.getAttribute("display") === "none").forEach((own) => own.remove());
  for (const [name, value] of Object.entries({ x, y, width, height, overflow: "visible" })) copy.setAttribute(name, value);
  copy.removeAttribute("aria-hidden");
  copy.removeAttribute("fill");
  sheet.parts.push(new XMLSerializer().serializeToString(copy));
}

/** Every run of equal pixels of a row as one rectangle. */
function drawCanvas(canvas, sheet) {
  const { x, y, width, height } = reach(canvas.getBoundingClientRect(), sheet);
  const kept = painted.get(canvas);
  if (!kept || !width) return;
  const { width: columns, height: rows, data } = kept.image;
  const across = width / columns, down = height / rows;
  const color = (k) => `#${[0, 1, 2].map((c) => data[k * 4 + c].toString(16).padStart(2, "0")).join("")}`;
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns;) {
      const from = j, fill = color(i * columns + j);
      while (j < columns && color(i * columns + j) === fill) j += 1;
      sheet.parts.push(`<rect x="${round(x + from * across)}" y="${round(y + i * down)}" ` +
        `width="${round((j - from) * across)}" height="${round(down)}" fill="${fill}" shape-rendering="crispEdges"/>`);
    }
  }
}

/** A table as comma-separated values; texts with commas, quotes or line breaks are quoted. */
export function csvOf({ columns, rows }) {
  const cell = (value) => {
    const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Draw an SVG file's text as a PNG of twice its size. */
function savePng(text, name) {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: image.width * 2, height: image.height * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(blob, name), "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

/** The menu of a figure. `what()` gives {body, heading, legend, name, table}; returns how to name it. */
export function saveMenu(parent, what) {
  const menu = el("details", "ak-save", parent);
  const summary = el("summary", "", menu, "Save");
  const list = el("div", "ak-save-list", menu);
  const kinds = {
    SVG: (figure) => download(new Blob([figureSvg(figure)], { type: "image/svg+xml" }), `${figure.name}.svg`),
    PNG: (figure) => savePng(figureSvg(figure), `${figure.name}.png`),
    CSV: ({ table, name }) => download(new Blob([csvOf(table())], { type: "text/csv" }), `${name}.csv`),
  };
  for (const [kind, save] of Object.entries(kinds)) {
    const button = el("button", "", list, kind);
    button.type = "button";
    button.onclick = () => {
      save(what());
      menu.open = false;
      summary.focus();
    };
  }
  menu.onkeydown = (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    summary.focus();
  };
  menu.onfocusout = (event) => {
    if (!menu.contains(event.relatedTarget)) menu.open = false;
  };
  return (title) => {
    set(summary, "aria-label", `Save: ${title}`);
    for (const button of list.children) set(button, "aria-label", `Save as ${button.textContent}: ${title}`);
  };
}
