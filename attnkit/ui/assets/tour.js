// A tour of the page: a button that begins it, then a card that points at one thing after another.
// Everything on the page can be used meanwhile, and Escape leaves the tour.
// data: {stops: [{targets: CSS selector, title, text}], requests: times it was to begin by itself}

import { once, say, states, unpacked, whenGone } from "./panels.js";
import { clamp, el, show } from "./ink.js";

const AWAY = 10, CHECKS = 250;

export default function showTour({ data: packed, parentElement }) {
  const data = unpacked(packed), root = once(parentElement, "div", "ak-tour");
  let state = states.get(root);
  if (!state) {
    state = build(root, data.stops);
    states.set(root, state);
  }
  if (data.requests > (globalThis.attnkitTours ?? 0)) state.go(0);
  globalThis.attnkitTours = data.requests; // this script may be loaded again
  return whenGone(root, () => {
    state.leave();
    states.delete(root);
  });
}

function button(parent, text, press) {
  const node = el("button", "", parent, text);
  node.type = "button";
  node.onclick = press;
  return node;
}

function build(root, stops) {
  const open = button(root, "Take the tour", () => go(0));
  const frame = el("div", "ak-tour-frame", root), card = el("div", "ak-tour-card", root);
  card.setAttribute("role", "dialog");
  card.setAttribute("aria-label", "Tour of the Lab");
  const head = el("div", "ak-tour-head", card), title = el("b", "", head, ""), place = el("span", "", head, "");
  const text = el("p", "", card, ""), row = el("div", "ak-tour-row", card);
  const leave = () => {
    const inside = card.contains(document.activeElement);
    clearInterval(state.checking);
    state.checking = 0;
    for (const node of [frame, card]) show(node, false);
    if (inside) open.focus();
  };
  const quit = button(row, "Leave", leave), back = button(row, "Back", () => go(state.at - 1));
  const next = button(row, "Next", () => (state.at + 1 < stops.length ? go(state.at + 1) : leave()));
  const state = { at: 0, checking: 0, leave, go };
  quit.className = "ak-tour-leave";
  next.className = "ak-tour-next";
  root.addEventListener("keydown", (event) => event.key === "Escape" && leave());
  leave();

  /** Put the frame around the targets, and the card where it hides none of them. */
  function arrange() {
    const boxes = [...document.querySelectorAll(stops[state.at].targets)].map((node) => node.getBoundingClientRect()).filter(({ width }) => width);
    const scale = card.currentCSSZoom ?? 1, [wide, high] = [innerWidth / scale, innerHeight / scale];
    show(frame, boxes.length > 0);
    const edge = (side, pick) => pick(...boxes.map((box) => box[side] / scale));
    const around = boxes.length
      ? { left: edge("left", Math.min) - 4, top: edge("top", Math.min) - 4, right: edge("right", Math.max) + 4, bottom: edge("bottom", Math.max) + 4 }
      : { left: wide / 2, top: 60, right: wide / 2, bottom: 60 };
    Object.assign(frame.style, { left: `${around.left}px`, top: `${around.top}px`, width: `${around.right - around.left}px`, height: `${around.bottom - around.top}px` });
    const { offsetWidth: width, offsetHeight: height } = card;
    const below = around.bottom + AWAY, above = around.top - AWAY - height;
    const top = below + height < high ? below : above > 0 ? above : high - height - AWAY;
    Object.assign(card.style, { left: `${clamp((around.left + around.right - width) / 2, AWAY, Math.max(AWAY, wide - width - AWAY))}px`, top: `${Math.max(AWAY, top)}px` });
  }

  function go(at) {
    state.at = at;
    say(title, stops[at].title);
    say(place, `${at + 1} of ${stops.length}`);
    say(text, stops[at].text);
    say(next, at + 1 < stops.length ? "Next" : "Done");
    back.disabled = at === 0;
    for (const node of [frame, card]) show(node, true);
    document.querySelector(stops[at].targets)?.scrollIntoView({ block: "nearest" });
    arrange();
    state.checking ||= setInterval(arrange, CHECKS); // the page moves as it is drawn and scrolled
    next.focus({ preventScroll: true });
  }
  return state;
}
