// Taking a figure away: what its box shows as SVG or PNG, and its numbers as CSV.

import { el, round, set } from "./ink.js";
import { menuWords } from "./menu_words.js";
import { escaped, paperOf, traced } from "./trace.js";

const EDGE = 12, LINE = 20, SHEET_LEAST = 320;

/** A figure's box as the text of an SVG file, under a heading and a legend. */
function figureSvg({ body, heading, legend }) {
  const { color, fontFamily } = getComputedStyle(body);
  const blocks = [legend, body].filter(Boolean).map((element) => traced(element)).filter(({ parts }) => parts.length);
  const wide = Math.max(SHEET_LEAST, ...blocks.map(({ left, right }) => right - left));
  const lines = inLines(heading, wide, fontFamily), parts = [];
  lines.forEach((line, k) => parts.push(`<text x="${EDGE}" y="${EDGE + 14 + k * LINE}" font-size="15" font-weight="600" fill="${color}">${escaped(line)}</text>`));
  let y = EDGE + lines.length * LINE + 4;
  for (const block of blocks) {
    parts.push(`<g transform="translate(${round(EDGE - block.left)} ${round(y - block.top)})">\n${block.parts.join("\n")}\n</g>`);
    y += block.bottom - block.top + 8;
  }
  const width = Math.ceil(wide + 2 * EDGE), height = Math.ceil(y - 8 + EDGE);
  return `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="${width}" height="${height}" ` +
    `viewBox="0 0 ${width} ${height}" font-family="${escaped(fontFamily.replace(/"/g, "'"))}, sans-serif">\n` +
    `<title>${escaped(heading)}</title>\n<desc>${escaped(body.getAttribute("aria-label") ?? "")}</desc>\n` +
    `<rect width="${width}" height="${height}" fill="${paperOf(body)}"/>\n${parts.join("\n")}\n</svg>\n`;
}

/** A heading in lines that are at most so wide. */
function inLines(text, width, family) {
  const ruler = document.createElement("canvas").getContext("2d"), lines = [];
  ruler.font = `600 15px ${family}`;
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && ruler.measureText(longer).width > width) lines.push(word);
    else lines.splice(-1, 1, longer);
  }
  return lines;
}

const NUMBER_TEXT = /^([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf)$/i;
const FORMULA_START = /^(?=[\t\r\n])|(^|(?<=[;\t\r\n]))(?= *[=+\-@\uff1d\uff0b\uff0d\uff20])/g;

/** A text that spreadsheets show instead of computing it, as in attnkit/foundation/tables.py. */
export const withoutFormula = (text) => (NUMBER_TEXT.test(text) ? text : text.replace(FORMULA_START, "'"));

/** A table as comma-separated values; texts with commas, quotes or line breaks are quoted, and none is a formula. */
export function csvOf({ columns, rows }) {
  const cell = (value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "";
    const text = typeof value === "string" ? withoutFormula(value) : String(value);
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
async function savePng(text, name) {
  const image = new Image();
  const lettered = text.replace("<title>", `<style>${await fontsOf(text)}</style><title>`);
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(lettered)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: image.width * 2, height: image.height * 2 });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => download(blob, name), "image/png");
}

/** The page's own fonts that a drawing names, as a style sheet that needs no other file. */
async function fontsOf(text) {
  const rules = [...document.styleSheets].flatMap((sheet) => {
    try {
      return [...sheet.cssRules].filter((rule) => rule instanceof CSSFontFaceRule);
    } catch {
      return []; // of another host
    }
  });
  const loaded = new Set([...document.fonts].filter(({ status }) => status === "loaded").map((face) => faceOf(face.family, face.style)));
  const used = rules.filter(({ style }) => {
    const family = style.getPropertyValue("font-family").replace(/["']/g, "");
    return text.includes(family) && loaded.has(faceOf(family, style.getPropertyValue("font-style") || "normal"));
  });
  const faces = await Promise.all(used.map(async (rule) => {
    const [, address] = rule.cssText.match(/url\("?([^")]+)"?\)/) ?? [];
    if (!address) return "";
    const file = await (await fetch(new URL(address, rule.parentStyleSheet.href ?? document.baseURI))).blob();
    const url = await new Promise((done) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.readAsDataURL(file);
    });
    return rule.cssText.replace(/url\("?[^")]+"?\)/, `url(${url})`);
  }));
  return escaped(faces.join(""));
}

const faceOf = (family, style) => `${family.replace(/["']/g, "")} ${style}`;

/** The menu of a figure. `what()` gives {body, heading, legend, name, table}; returns how to name it. */
export function saveMenu(parent, what, words = menuWords()) {
  const menu = el("details", "ak-save", parent);
  const summary = el("summary", "", menu, words.save);
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
    set(summary, "aria-label", words.saveFigure(title));
    for (const button of list.children) set(button, "aria-label", words.saveAs(button.textContent, title));
  };
}
