// Traces what a box of the page shows, as the text of an SVG file: shapes and letters stand where
// the screen has them. Programs that read SVG differ, so the file has only what all of them know:
// shapes, texts, groups and clips; opaque colours with an opacity beside them; no style sheet.

import { painted, round } from "./ink.js";

/** Properties that children take from their parent, with the values that a file begins with. */
const INHERITED = {
  fill: "#000000", "fill-opacity": "1", "fill-rule": "nonzero", stroke: "none", "stroke-opacity": "1",
  "stroke-width": "1px", "stroke-dasharray": "none", "stroke-dashoffset": "0px", "stroke-linecap": "butt",
  "stroke-linejoin": "miter", "stroke-miterlimit": "4", "font-family": "", "font-size": "", "font-weight": "400",
  "font-style": "normal", "letter-spacing": "normal", "text-anchor": "start", "dominant-baseline": "auto",
};
const STYLED = new Set([...Object.keys(INHERITED), "style", "class", "opacity", "visibility", "display", "paint-order",
  "clip-path", "role", "tabindex", "pointer-events", "overflow"]);
const DRAWN = new Set(["path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text"]);
const LEFT_OUT = "details, .ak-not-saved, .ak-tip, title, desc, script, style";

export const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

const tag = (name, attributes, inside = "") => {
  const told = Object.entries(attributes).filter(([, value]) => value !== undefined && value !== "").map(([key, value]) => ` ${key}="${escaped(String(value))}"`);
  return `<${name}${told.join("")}${inside ? `>${inside}</${name}>` : "/>"}`;
};

/** The colour behind an element. */
export function paperOf(element) {
  for (let node = element; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if (inkOf(color)) return color;
  }
  return "#ffffff";
}

const bytes = new Map();
let pixel;

/** A colour of any notation as [red, green, blue, opacity]; null if it leaves no ink. */
function bytesOf(color) {
  if (!color || color === "none" || color === "transparent") return null;
  if (!bytes.has(color)) {
    const plain = color.match(/^rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)$/);
    pixel ??= Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = color;
    pixel.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = plain ? plain.slice(1).map((part) => Number(part ?? 1)) : pixel.getImageData(0, 0, 1, 1).data;
    bytes.set(color, [r, g, b, plain ? a : a / 255]);
  }
  return bytes.get(color)[3] ? bytes.get(color) : null;
}

const hex = (rgb) => `#${rgb.slice(0, 3).map((byte) => Math.round(byte).toString(16).padStart(2, "0")).join("")}`;

const gray = ([r, g, b]) => Array(3).fill(0.2126 * r + 0.7152 * g + 0.0722 * b);

/** {color, opacity} of a colour, or null if it leaves no ink; `faded` for one that is drawn in grey. */
function inkOf(color, faded) {
  if (color.startsWith("url(")) return { color: color.replace(/"/g, "").replace(/^url\([^#]*/, "url("), opacity: 1 };
  const found = bytesOf(color);
  return found && { color: hex(faded ? gray(found) : found), opacity: found[3] };
}

const paintedWith = (name, ink) => ({ [name]: ink.color, [`${name}-opacity`]: ink.opacity < 1 ? round(ink.opacity) : undefined });

/**
 * Trace elements and all that they contain. Returns {parts, left, top, right, bottom}: markup in
 * pixels of the window, and the box around what was drawn. Boxes that scroll are drawn from their
 * beginning; whole, if nothing of `root` stands beside them.
 */
export function traced(root) {
  const sheet = { root, parts: [], late: [], left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  const scrolled = [root, ...root.querySelectorAll("*")].filter((node) => node.scrollLeft || node.scrollTop)
    .map((node) => [node, node.scrollLeft, node.scrollTop]);
  for (const [node] of scrolled) node.scrollTo({ left: 0, top: 0, behavior: "instant" });
  traceChildren(root, sheet, { faded: /grayscale/.test(getComputedStyle(root.parentElement).filter) });
  for (const [node, left, top] of scrolled) node.scrollTo({ left, top, behavior: "instant" });
  sheet.parts.push(...sheet.late);
  return sheet;
}

function reach({ left, top, right, bottom }, sheet, clip) {
  sheet.left = Math.min(sheet.left, left);
  sheet.top = Math.min(sheet.top, top);
  sheet.right = Math.max(sheet.right, clip ? Math.min(right, clip.right) : right);
  sheet.bottom = Math.max(sheet.bottom, clip ? Math.min(bottom, clip.bottom) : bottom);
}

/** Trace the children of an element. `given`: what holds below it, {clip, faded}. */
function traceChildren(parent, sheet, given) {
  for (const child of parent.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) traceText(child, sheet, given);
    if (child.nodeType !== Node.ELEMENT_NODE || child.matches(LEFT_OUT)) continue;
    const style = getComputedStyle(child);
    if (style.display === "none" || style.opacity === "0") continue;
    const raised = style.position !== "static" && Number(style.zIndex) > 0; // above what comes after it
    const own = { ...sheet, parts: [] };
    traceElement(child, style, own, { ...given, faded: given.faded || /grayscale/.test(style.filter) });
    for (const side of ["left", "top", "right", "bottom"]) sheet[side] = own[side];
    if (!own.parts.length) continue;
    const inside = style.opacity === "1" ? own.parts : [tag("g", { opacity: style.opacity }, own.parts.join("\n"))];
    (raised ? sheet.late : sheet.parts).push(...inside);
  }
}

function traceElement(element, style, sheet, given) {
  const seen = style.visibility === "visible";
  if (element.localName === "svg") return traceSvg(element, style, sheet, given);
  if (element.localName === "canvas" && seen) traceCanvas(element, sheet, given);
  if (seen) traceBox(element, style, sheet, given);
  if (element.localName === "select") return seen && traceChoice(element, style, sheet, given);
  if (["input", "canvas"].includes(element.localName)) return;
  const box = element.getBoundingClientRect(), clip = clipOf(element, style, box, sheet);
  if (!clip) return traceChildren(element, sheet, given);
  const own = { ...sheet, parts: [] };
  traceChildren(element, own, { ...given, clip: clip && intersection(clip, given.clip) });
  for (const side of ["left", "top", "right", "bottom"]) sheet[side] = own[side];
  sheet.parts.push(clipped(clip, own.parts.join("\n")));
}

/** The box that an element shows of larger contents, or null if it shows them all. */
function clipOf(element, style, box, sheet) {
  const larger = element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1;
  if (!larger || style.overflowX === "visible" || style.display === "inline") return null;
  const scrolls = ["auto", "scroll"].includes(style.overflowX), around = sheet.root.getBoundingClientRect();
  return scrolls && box.width > around.width - 40 ? null : box;
}

const intersection = (a, b) => (b ? { left: Math.max(a.left, b.left), top: Math.max(a.top, b.top), right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom) } : a);

let n_clips = 0;

function clipped({ left, top, right, bottom }, inside) {
  if (!inside) return "";
  const id = `attnkit-clip-${(n_clips += 1)}`;
  const box = { x: round(left), y: round(top), width: round(right - left), height: round(bottom - top) };
  return `${tag("clipPath", { id }, tag("rect", box))}${tag("g", { "clip-path": `url(#${id})` }, inside)}`;
}

/** Background, shadows without blur, the border of each side, and the outline of an element. */
function traceBox(element, style, sheet, { clip, faded }) {
  const box = element.getBoundingClientRect(), zoom = element.currentCSSZoom ?? 1;
  if (!box.width || !box.height) return;
  const parts = [], px = (value) => (parseFloat(value) || 0) * zoom, radius = px(style.borderTopLeftRadius);
  const frame = (out, attributes) => parts.push(tag("rect", { x: round(box.left - out), y: round(box.top - out), width: round(box.width + 2 * out),
    height: round(box.height + 2 * out), rx: radius + out > 0 && radius ? round(radius + out) : undefined, ...attributes }));
  const line = (out, width, ink) => frame(out, { fill: "none", ...paintedWith("stroke", ink), "stroke-width": round(width) });
  const shadows = style.boxShadow === "none" ? [] : style.boxShadow.split(/,(?![^(]*\))/);
  const rings = shadows.map((text) => {
    const [color, numbers] = [text.replace(/-?[\d.]+px|inset/g, "").trim(), text.match(/-?[\d.]+px/g).map(px)];
    return { ink: inkOf(color, faded), inset: text.includes("inset"), blurred: numbers.slice(0, 3).some(Boolean), wide: numbers[3] };
  }).filter(({ ink, blurred, wide }) => ink && !blurred && wide > 0);
  for (const { ink, wide } of rings.filter(({ inset }) => !inset)) line(wide / 2, wide, ink);
  const ground = inkOf(style.backgroundColor, faded);
  if (ground) frame(0, paintedWith("fill", ground));
  for (const { ink, wide } of rings.filter(({ inset }) => inset).reverse()) line(-wide / 2, wide, ink);
  const sides = ["Top", "Right", "Bottom", "Left"].map((side) => {
    const kind = style[`border${side}Style`], wide = kind === "none" || kind === "hidden" ? 0 : px(style[`border${side}Width`]);
    return { side, kind, wide, ink: wide ? inkOf(style[`border${side}Color`], faded) : null };
  });
  const alike = sides.every((one) => one.ink && ["kind", "wide"].every((key) => one[key] === sides[0][key]) && one.ink.color === sides[0].ink.color);
  const dashes = ({ kind, wide }) => ({ dashed: `${round(3 * wide)} ${round(2 * wide)}`, dotted: `${round(wide)} ${round(wide)}` })[kind];
  if (alike) frame(-sides[0].wide / 2, { fill: "none", ...paintedWith("stroke", sides[0].ink), "stroke-width": round(sides[0].wide), "stroke-dasharray": dashes(sides[0]) });
  else {
    for (const one of sides.filter(({ ink }) => ink)) {
      const half = one.wide / 2, upright = one.side === "Left" || one.side === "Right";
      const x = round(one.side === "Right" ? box.right - half : box.left + half), y = round(one.side === "Bottom" ? box.bottom - half : box.top + half);
      const d = upright ? `M${x} ${round(box.top)}V${round(box.bottom)}` : `M${round(box.left)} ${y}H${round(box.right)}`;
      parts.push(tag("path", { d, fill: "none", ...paintedWith("stroke", one.ink), "stroke-width": round(one.wide), "stroke-dasharray": dashes(one) }));
    }
  }
  const around = style.outlineStyle !== "none" && style.outlineStyle !== "auto" && px(style.outlineWidth);
  const ink = around ? inkOf(style.outlineColor, faded) : null;
  if (ink) line(px(style.outlineOffset) + around / 2, around, ink);
  if (!parts.length) return;
  reach(box, sheet, clip);
  sheet.parts.push(...parts);
}

/** The lines of a text where they stand: letters with one upper edge are one line. */
function traceText(node, sheet, given) {
  const parent = node.parentElement, style = getComputedStyle(parent);
  if (!node.data.trim() || style.visibility !== "visible") return;
  const range = document.createRange(), lines = [];
  const room = roomOf(parent), dots = room === Infinity ? 0 : widthOf("…", style, parent);
  range.selectNodeContents(node);
  const boxes = [...range.getClientRects()].filter(({ width }) => width > 0);
  if (boxes.length === 1 && boxes[0].right <= room + 1) {
    lines.push({ text: node.data.trim().replace(/\s+/g, " "), left: boxes[0].left, right: boxes[0].right, top: boxes[0].top, height: boxes[0].height });
  } else {
    const cut = Math.max(0, ...boxes.map(({ right }) => right)) > room + 1;
    for (let k = 0; k < node.length;) {
      const long = node.data.codePointAt(k) > 0xffff ? 2 : 1;
      range.setStart(node, k);
      range.setEnd(node, k + long);
      const box = range.getBoundingClientRect(), letter = node.data.slice(k, k + long), line = lines.at(-1);
      k += long;
      if (!box.width) continue;
      if (cut && box.right > room - dots) {
        if (line && !line.text.endsWith("…")) Object.assign(line, { text: `${line.text}…`, right: line.right + dots });
        break;
      }
      if (line && Math.abs(line.top - box.top) < 2 && box.left > line.right - 2) Object.assign(line, { text: line.text + letter, right: box.right });
      else lines.push({ text: letter, left: box.left, right: box.right, top: box.top, height: box.height });
    }
  }
  for (const line of lines) traceLine(parent, style, line, sheet, given);
}

/** How far to the right letters may stand before they are replaced by three dots. */
function roomOf(element) {
  for (let node = element; node && getComputedStyle(node).display.startsWith("inline"); node = node.parentElement) element = node.parentElement;
  const style = element ? getComputedStyle(element) : {};
  if (style.textOverflow !== "ellipsis" || style.overflowX === "visible" || element.scrollWidth <= element.clientWidth) return Infinity;
  return element.getBoundingClientRect().right - parseFloat(style.paddingRight) - parseFloat(style.borderRightWidth);
}

let measuring;

function measuringAs(style, element) {
  measuring ??= document.createElement("canvas").getContext("2d");
  measuring.font = `${style.fontStyle} ${style.fontWeight} ${parseFloat(style.fontSize) * (element.currentCSSZoom ?? 1)}px ${style.fontFamily}`;
  return measuring;
}

const widthOf = (text, style, element) => measuringAs(style, element).measureText(text).width;

function traceLine(element, style, { text, left, right, top, height }, sheet, { clip, faded }) {
  const words = { uppercase: text.toUpperCase(), lowercase: text.toLowerCase() }[style.textTransform] ?? text, ink = inkOf(style.color, faded);
  if (!words.trim() || !ink || (clip && (left > clip.right || right < clip.left || top > clip.bottom || top + height < clip.top))) return;
  const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = measuringAs(style, element).measureText("x");
  const spaces = words.length - words.trimEnd().length, end = spaces ? right - widthOf(words.slice(-spaces), style, element) : right;
  reach({ left, top, right: end, bottom: top + height }, sheet, clip);
  sheet.parts.push(tag("text", {
    x: round(left), y: round(top + (height * up) / (up + down || 1)), ...paintedWith("fill", ink), ...fontOf(style, element.currentCSSZoom ?? 1),
    "text-decoration": decorationOf(element), textLength: round(end - left), lengthAdjust: "spacingAndGlyphs", style: keptSpaces(words.trim()),
  }, escaped(words.trim())));
}

const keptSpaces = (text) => (/\s\s/.test(text) ? "white-space: pre" : undefined);

const familyOf = (style) => style.fontFamily.replace(/"/g, "'");

const fontOf = (style, zoom) => ({
  "font-family": familyOf(style), "font-size": round(parseFloat(style.fontSize) * zoom),
  "font-weight": style.fontWeight === "400" ? undefined : style.fontWeight, "font-style": style.fontStyle === "normal" ? undefined : style.fontStyle,
});

/** The line below or through a text, which the element or one around it draws. */
function decorationOf(element) {
  for (let node = element; node; node = node.parentElement) {
    const style = getComputedStyle(node);
    if (style.textDecorationLine !== "none") return style.textDecorationLine;
    if (!style.display.startsWith("inline")) return undefined;
  }
}

function traceChoice(element, style, sheet, given) {
  const box = element.getBoundingClientRect(), text = element.selectedOptions[0]?.text ?? "", zoom = element.currentCSSZoom ?? 1;
  const left = box.left + parseFloat(style.paddingLeft) * zoom, height = parseFloat(style.fontSize) * 1.3 * zoom;
  const right = Math.min(left + widthOf(text, style, element), box.right - 4);
  traceLine(element, style, { text, left, right, top: box.top + (box.height - height) / 2, height }, sheet, given);
}

/** A drawing within the page: its shapes, each with the look that style sheets give it. */
function traceSvg(picture, style, sheet, given) {
  const box = picture.getBoundingClientRect(), matrix = picture.getScreenCTM();
  if (!box.width || !box.height || !matrix) return;
  const open = style.overflowX === "visible";
  const seen = { faded: given.faded, clip: open ? given.clip : intersection(box, given.clip), sheet };
  const fonts = { ...fontOf(style, 1), "font-size": style.fontSize };
  const inside = [...picture.children].map((child) => traceShape(child, { ...INHERITED, ...fonts }, seen)).join("");
  if (!inside) return;
  const { a, b, c, d, e, f } = matrix;
  const placed = tag("g", { ...fonts, transform: `matrix(${[a, b, c, d, e, f].map((value) => Math.round(value * 1e4) / 1e4).join(" ")})` }, inside);
  sheet.parts.push(open ? placed : clipped(box, placed));
}

function traceShape(node, above, seen) {
  if (node.matches(LEFT_OUT)) return "";
  if (node.localName === "defs" || node.localName === "clipPath") return new XMLSerializer().serializeToString(node);
  const style = getComputedStyle(node);
  if (style.display === "none" || style.opacity === "0") return "";
  const attributes = {}, below = { ...above };
  for (const { name, value } of node.attributes) {
    if (!STYLED.has(name) && !/^(data-|aria-|xmlns|on)/.test(name)) attributes[name] = value;
  }
  if (!attributes.transform && style.transform !== "none") attributes.transform = style.transform;
  if (style.opacity !== "1") attributes.opacity = style.opacity;
  if (style.clipPath !== "none") attributes["clip-path"] = `url(#${style.clipPath.match(/#([^"')]+)/)?.[1]})`;
  const inks = { fill: inkOf(style.fill, seen.faded), stroke: parseFloat(style.strokeWidth) ? inkOf(style.stroke, seen.faded) : null };
  for (const name of Object.keys(INHERITED)) {
    const [, what, rest] = name.match(/^(fill|stroke)(-opacity)?$/) ?? [];
    const value = rest ? String(round(Number(style.getPropertyValue(name)) * (inks[what]?.opacity ?? 1))) : what ? inks[what]?.color ?? "none" : style.getPropertyValue(name).replace(/"/g, "'");
    if (value !== above[name]) attributes[name] = below[name] = value;
  }
  if (!DRAWN.has(node.localName) && node.localName !== "tspan") {
    if (node.localName === "image" && style.imageRendering === "pixelated") attributes["image-rendering"] = "optimizeSpeed";
    const inside = [...node.children].map((child) => traceShape(child, below, seen)).join("");
    return inside || node.localName === "image" ? tag(node.localName, attributes, inside) : "";
  }
  const inked = Object.entries(inks).some(([name, ink]) => ink && Number(style.getPropertyValue(`${name}-opacity`)));
  if (!inked || style.visibility !== "visible" || (node.localName === "path" && !node.getAttribute("d"))) return "";
  reach(node.getBoundingClientRect(), seen.sheet, seen.clip);
  let inside = "";
  if (node.localName === "text" || node.localName === "tspan") {
    if (!node.textContent.trim()) return "";
    inside = [...node.childNodes].map((child) => (child.nodeType === Node.TEXT_NODE ? escaped(child.data) : traceShape(child, below, seen))).join("");
    if (style.textDecorationLine !== "none") attributes["text-decoration"] = style.textDecorationLine;
    if (!node.children.length) Object.assign(attributes, { textLength: round(node.getComputedTextLength()), lengthAdjust: "spacingAndGlyphs" });
    if (keptSpaces(node.textContent)) attributes.style = keptSpaces(node.textContent);
  }
  if (!inks.stroke || !style.paintOrder.startsWith("stroke")) return tag(node.localName, attributes, inside);
  // Not every program knows an order of painting: the edge is a shape of its own, below the other.
  return tag(node.localName, attributes, inside) + tag(node.localName, { ...attributes, stroke: "none" }, inside);
}

/** Every run of equal pixels of a row as one rectangle; what is no map of numbers, as a picture. */
function traceCanvas(canvas, sheet, { clip, faded }) {
  const whole = canvas.getBoundingClientRect(), kept = painted.get(canvas);
  if (!whole.width) return;
  reach(whole, sheet, clip);
  const edge = canvas.clientLeft, box = { left: whole.left + edge, top: whole.top + edge, width: whole.width - 2 * edge, height: whole.height - 2 * edge };
  if (!kept) {
    sheet.parts.push(tag("image", { x: round(box.left), y: round(box.top), width: round(box.width), height: round(box.height), href: canvas.toDataURL() }));
    return;
  }
  const { width: columns, height: rows, data } = kept.image;
  const across = box.width / columns, down = box.height / rows;
  const color = (k) => hex(faded ? gray(data.subarray(k * 4)) : [...data.subarray(k * 4, k * 4 + 3)]);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns;) {
      const from = j, fill = color(i * columns + j);
      while (j < columns && color(i * columns + j) === fill) j += 1;
      sheet.parts.push(`<rect x="${round(box.left + from * across)}" y="${round(box.top + i * down)}" ` +
        `width="${round((j - from) * across)}" height="${round(down)}" fill="${fill}" shape-rendering="crispEdges"/>`);
    }
  }
}
