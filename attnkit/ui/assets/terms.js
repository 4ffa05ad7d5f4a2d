// Meanings of terms on any page: each term is underlined where it first occurs, and pointing at it,
// or tapping it, anywhere shows what it means. Text is marked by the browser's highlights, so that
// no node of Streamlit or of another component is touched. This component is on every page, so it also
// keeps a press on a help icon from flipping the switch whose label the icon stands in.

import { mounted, once, onPrint, say, unpacked } from "./panels.js";
import { clamp } from "./ink.js";

const PAUSE = 500, HELP = "label [data-testid=stTooltipIcon]", PRESS = ["pointerdown", "mousedown", "click"];
const SKIPPED = "h1, a, button, summary, input, textarea, select, pre, svg, .katex, .ak-tip, [role=dialog], [data-testid=stTooltipContent]";

/** Data as in page.js. */
export function showTerms({ data: packed, parentElement }) {
  return mounted(parentElement, "ak-terms", (root) => begin(root, unpacked(packed).hints)).gone;
}

/** Pattern and meaning by spelling in lower case. */
export function lookupOf(hints) {
  const pairs = hints.flatMap(([forms, meaning]) => forms.split("; ").map((form) => [form, meaning])).sort(([a], [b]) => b.length - a.length);
  const escaped = pairs.map(([form]) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") + (/[a-z]_/.test(form) ? "" : "(?!=)")); // kv_rank=4
  const pattern = new RegExp(`(?<![\\p{L}\\d=+·_-])(?:${escaped.join("|")})(?![\\p{L}\\d_])(?! that\\b)`, "giu");
  return { pattern, meanings: new Map(pairs.map(([form, meaning]) => [form.toLowerCase(), meaning])) };
}

/** Terms in a text: [start, end, meaning]. */
export function termsIn(text, { pattern, meanings }) {
  return [...text.matchAll(pattern)].map((match) => [match.index, match.index + match[0].length, meanings.get(match[0].toLowerCase())]);
}

/** The place of a text below a point of the window. */
function caretAt(x, y) {
  if (document.caretPositionFromPoint) return document.caretPositionFromPoint(x, y);
  const range = document.caretRangeFromPoint?.(x, y);
  return range && { offsetNode: range.startContainer, offset: range.startOffset };
}

function begin(root, hints) {
  const lookup = lookupOf(hints), tip = once(root, "div", "ak-term-tip");
  const page = document.querySelector("[data-testid=stMain]") ?? document.body;
  tip.setAttribute("role", "status");
  let waiting = 0, frame = 0, terms = new WeakMap();

  const mark = () => {
    waiting = 0;
    terms = new WeakMap();
    const seen = new Set(), first = [];
    const walker = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (node.length < 3 || !parent || parent.closest(SKIPPED) || root.contains(node)) continue;
      const found = termsIn(node.data, lookup);
      if (!found.length || !parent.checkVisibility()) continue;
      terms.set(node, found);
      for (const [start, end, meaning] of found) {
        if (seen.has(meaning)) continue;
        seen.add(meaning);
        const range = new Range();
        range.setStart(node, start);
        range.setEnd(node, end);
        first.push(range);
      }
    }
    globalThis.CSS?.highlights?.set("ak-term", new Highlight(...first));
    root.dataset.terms = first.length;
  };

  /** The term below the pointer: its meaning and its box. */
  const termAt = (x, y) => {
    const caret = caretAt(x, y), node = caret?.offsetNode;
    for (const [start, end, meaning] of (node && terms.get(node)) ?? []) {
      if (end > node.length || caret.offset < start || caret.offset > end) continue;
      const range = new Range();
      range.setStart(node, start);
      range.setEnd(node, end);
      const box = [...range.getClientRects()].find(({ left, right, top, bottom }) => x >= left && x <= right && y >= top - 2 && y <= bottom + 2);
      if (box) return { meaning, box };
    }
    return null;
  };

  const hide = () => { tip.style.display = "none"; };
  const point = ({ clientX: x, clientY: y }) => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const term = termAt(x, y);
      if (!term) return hide();
      say(tip, term.meaning);
      tip.style.display = "block";
      const scale = tip.currentCSSZoom ?? 1, { offsetWidth: width, offsetHeight: height } = tip;
      const below = term.box.bottom / scale + 6, above = term.box.top / scale - height - 6;
      tip.style.left = `${clamp(term.box.left / scale, 8, Math.max(8, innerWidth / scale - width - 8))}px`;
      tip.style.top = `${below + height > innerHeight / scale && above > 0 ? above : below}px`;
    });
  };
  const ends = new AbortController(), listening = { signal: ends.signal, passive: true };
  page.addEventListener("pointermove", point, listening);
  page.addEventListener("click", point, listening);
  page.addEventListener("pointerleave", hide, listening);
  addEventListener("scroll", hide, { ...listening, capture: true });
  addEventListener("keydown", (event) => event.key === "Escape" && hide(), listening);
  const observer = new MutationObserver((changes) => {
    const outside = changes.filter(({ target }) => !root.contains(target));
    if (!outside.length) return;
    if (outside.every(({ type }) => type === "characterData")) { // a film plays: wait until it rests
      clearTimeout(waiting);
      waiting = 0;
    }
    waiting ||= setTimeout(mark, PAUSE);
  });
  const guarded = new WeakSet();
  document.addEventListener("pointerdown", ({ target }) => { // before the icon itself hears of it
    const icon = target.closest?.(HELP);
    if (!icon || guarded.has(icon)) return;
    guarded.add(icon);
    for (const type of PRESS) icon.addEventListener(type, (event) => event.stopPropagation(), listening);
  }, { ...listening, capture: true });
  observer.observe(page, { childList: true, characterData: true, subtree: true });
  page.addEventListener("toggle", () => { waiting ||= setTimeout(mark, PAUSE); }, { ...listening, capture: true });
  waiting = setTimeout(mark, PAUSE);
  const end = () => {
    observer.disconnect();
    ends.abort();
    clearTimeout(waiting);
    cancelAnimationFrame(frame);
    globalThis.CSS?.highlights?.delete("ak-term");
  };
  return { ends: [onPrint(hide), end] }; // onPrint, so that pages without figures are printed by the same rules
}
