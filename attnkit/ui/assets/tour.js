// A tour of the page: a button that begins it, then a card that points at one thing after another.
// Everything on the page can be used meanwhile, and Escape leaves the tour.
// data: {stops: [{targets: CSS selector, title, text}], requests: times it was to begin by itself}

import { mounted, say, unpacked } from "./panels.js";
import { clamp, el, show } from "./ink.js";
import { tr } from "./language.js";

const AWAY = 10, CHECKS = 250, WIDEST = 380;
const HEAD = "[data-testid=stLayoutWrapper]:has(> .st-key-bar)";

export default function showTour({ data: packed, parentElement }) {
  const data = unpacked(packed), { state, gone } = mounted(parentElement, "ak-tour", (root) => build(root, data.stops));
  if (data.requests > (globalThis.attnkitTours ?? 0)) state.go(0);
  globalThis.attnkitTours = data.requests; // this script may be loaded again
  return gone;
}

function button(parent, text, press) {
  const node = el("button", "", parent, text);
  node.type = "button";
  node.onclick = press;
  return node;
}

function build(root, stops) {
  const open = button(root, tr("Take the tour"), () => go(0));
  const frame = el("div", "ak-tour-frame", root), card = el("div", "ak-tour-card", root);
  for (const node of [frame, card]) node.popover = "manual"; // above everything, the sidebar included
  card.setAttribute("role", "dialog");
  card.setAttribute("aria-label", tr("Tour of the Lab"));
  const head = el("div", "ak-tour-head", card), title = el("b", "", head, ""), place = el("span", "", head, "");
  const text = el("p", "", card, ""), row = el("div", "ak-tour-row", card);
  const leave = () => {
    const inside = card.contains(document.activeElement);
    clearInterval(state.checking);
    state.checking = 0;
    for (const node of [frame, card]) node.hidePopover();
    if (inside) open.focus();
  };
  const quit = button(row, tr("Leave"), leave), back = button(row, tr("Back"), () => go(state.at - 1));
  const next = button(row, tr("Next"), () => (state.at + 1 < stops.length ? go(state.at + 1) : leave()));
  const state = { at: 0, checking: 0, go, ends: [leave] };
  quit.className = "ak-tour-leave";
  next.className = "ak-tour-next";
  root.addEventListener("keydown", (event) => event.key === "Escape" && leave());

  /** The box around what is seen of the targets, in the card's own pixels; undefined if there are none. */
  function boxOf(nodes, zoom) {
    const boxes = nodes.map((node) => node.getBoundingClientRect()).filter(({ width }) => width);
    const edge = (side, pick, most) => clamp(pick(...boxes.map((box) => box[side])) / zoom, 0, most / zoom);
    return boxes.length ? {
      left: edge("left", Math.min, innerWidth) - 4, right: edge("right", Math.max, innerWidth) + 4,
      top: edge("top", Math.min, innerHeight) - 4, bottom: edge("bottom", Math.max, innerHeight) + 4,
    } : undefined;
  }

  /** Put the frame around the targets, and the card where it hides none of them; return whether it hides none. */
  function arrange() {
    const zoom = card.currentCSSZoom ?? 1, [wide, high] = [innerWidth / zoom, innerHeight / zoom];
    Object.assign(card.style, { width: `${Math.min(WIDEST, wide - 2 * AWAY)}px`, maxHeight: `${high - 2 * AWAY}px` });
    const { offsetWidth: width, offsetHeight: height } = card, lowest = high - height - AWAY, last = wide - width - AWAY;
    const box = boxOf(targets(), zoom), around = box ?? { left: wide / 2, right: wide / 2, top: 60, bottom: 60 };
    show(frame, Boolean(box));
    Object.assign(frame.style, { left: `${around.left}px`, top: `${around.top}px`, width: `${around.right - around.left}px`, height: `${around.bottom - around.top}px` });
    const left = clamp((around.left + around.right - width) / 2, AWAY, last), top = clamp(around.top, AWAY, lowest);
    const places = [[left, around.bottom + AWAY], [left, around.top - AWAY - height], [around.right + AWAY, top], [around.left - AWAY - width, top]];
    const free = places.find(([x, y]) => x >= AWAY && x <= last && y >= AWAY && y <= lowest);
    const [x, y] = free ?? [left, lowest];
    Object.assign(card.style, { left: `${x}px`, top: `${y}px` });
    return Boolean(free);
  }

  const targets = () => [...document.querySelectorAll(stops[state.at].targets)];

  /** Scroll to the targets, so that they are seen beside the card, and close a sidebar that lies over them. */
  function bring() {
    const [first] = targets(), main = first?.closest("[data-testid=stMain]");
    if (!main) return;
    first.scrollIntoView({ block: "nearest", inline: "nearest" });
    const box = first.getBoundingClientRect(), head = document.querySelector(HEAD);
    const least = !head || head.contains(first) || getComputedStyle(head).position !== "sticky" ? 0 : head.getBoundingClientRect().bottom;
    if (!arrange() || box.top < least) main.scrollBy({ top: box.top - least - AWAY, behavior: "instant" });
    const over = document.elementsFromPoint(box.left + Math.min(box.width, innerWidth) / 2, first.getBoundingClientRect().top + 4);
    if (over.some((node) => node.closest("[data-testid=stSidebar]"))) document.querySelector("[data-testid=stSidebarCollapseButton] button")?.click();
  }

  function go(at) {
    state.at = at;
    say(title, stops[at].title);
    say(place, tr("{at} of {n}", { at: at + 1, n: stops.length }));
    say(text, stops[at].text);
    say(next, at + 1 < stops.length ? tr("Next") : tr("Done"));
    back.disabled = at === 0;
    for (const node of [frame, card]) node.showPopover();
    bring();
    arrange();
    state.checking ||= setInterval(arrange, CHECKS); // the page moves as it is drawn and scrolled
    next.focus({ preventScroll: true });
  }
  return state;
}
