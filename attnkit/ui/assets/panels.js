// Shared by all live components: how many panels stand in a row, and where state is kept.

/** What the server has packed, as bytes of JSON. */
export function unpacked(data) {
  return data && data.byteLength !== undefined ? JSON.parse(new TextDecoder().decode(data)) : data;
}

/** Columns for n panels of at least `narrowest` pixels, in balanced rows. */
export function columnsFor(width, n, narrowest) {
  const fitting = Math.max(1, Math.min(n, Math.floor(width / narrowest)));
  return Math.ceil(n / Math.ceil(n / fitting));
}

/** Create `tag` with a class under `parent` once, and find it again later. */
export function once(parent, tag, className) {
  let element = parent.querySelector(`:scope > .${className}`);
  if (!element) {
    element = document.createElement(tag);
    element.className = className;
    parent.appendChild(element);
  }
  return element;
}

const said = new WeakMap();

/**
 * Change the text that an element begins with, without replacing its text node. What a translator
 * has put in the place of that node stays until the text is another one.
 */
export function say(element, text) {
  const node = element.firstChild, before = said.get(element);
  said.set(element, text);
  if (!node) element.append(text);
  else if (node.nodeType !== 3) before === text || node.replaceWith(text);
  else if (node.data !== text) node.data = text;
}

/** Set a text form that may also be broken after its equals signs. */
export function setTextForm(element, text) {
  const parts = text.split(/(?<=\S{4}=)/);
  element.replaceChildren(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
}

/** Call `draw` when the width of `element` changes, on paper too; returns the way to end that. */
export function onWidth(element, draw) {
  let known = element.clientWidth;
  const redraw = () => {
    known = element.clientWidth;
    draw();
  };
  const observer = new ResizeObserver(() => element.clientWidth && element.clientWidth !== known && redraw());
  observer.observe(element);
  const endPrint = onPrint(() => element.clientWidth && redraw());
  return () => {
    observer.disconnect();
    endPrint();
  };
}

/** Tell `seen(visible)` when the element comes near the screen or leaves it; on paper all are seen. */
export function onSight(element, seen) {
  let visible = false;
  const observer = new IntersectionObserver((entries) => seen((visible = entries.at(-1).isIntersecting)), {
    rootMargin: "150px",
  });
  observer.observe(element);
  const endPrint = onPrint(() => seen(isPrinting() || visible));
  return () => {
    observer.disconnect();
    endPrint();
  };
}

const PAPER = { width: 980, height: 780 }, TALL = 1150; // as in print.css

/** Whether the page is drawn for paper, by the rules of print.css. */
export const isPrinting = () => document.documentElement.classList.contains("ak-print");

/** The size of the window, or of what takes its place on paper. */
export const windowSize = () => (isPrinting() ? PAPER : { width: innerWidth, height: innerHeight });

/** Call `draw` when the page turns into what is printed, and when it turns back. */
export function onPrint(draw) {
  const turn = ({ type }) => {
    if (window !== window.top) return; // a frame is printed as its page shows it
    if (!isPrinting()) document.documentElement.classList.toggle("ak-print-dark", isDark());
    document.documentElement.classList.toggle("ak-print", type === "beforeprint");
    draw();
    fitToPaper();
  };
  addEventListener("beforeprint", turn);
  addEventListener("afterprint", turn);
  return () => {
    removeEventListener("beforeprint", turn);
    removeEventListener("afterprint", turn);
  };
}

/** Whether Streamlit shows its dark theme; its tables are pictures, which print.css turns over. */
const isDark = () => getComputedStyle(document.querySelector("[data-testid=stApp]") ?? document.body).colorScheme === "dark";

/** Make what is wider than the paper smaller, and tell print.css how high every figure is. */
function fitToPaper() {
  const page = document.querySelector("[data-testid=stMain]") ?? document.body;
  for (const node of page.querySelectorAll(".ak-board-grid, .ak-scroll, .ak-book, .ak-heads, .ak-atlas-panel, .stDataFrame, .ak-ways")) {
    node.style.zoom = "";
    const room = node.parentElement.clientWidth, wide = Math.max(node.scrollWidth, node.firstElementChild?.offsetWidth ?? 0);
    if (isPrinting() && room && wide > room + 1) node.style.zoom = room / wide;
  }
  for (const node of page.querySelectorAll(".ak-board, .ak-figure, .ak-film-figure, .ak-chart, .ak-atlas")) {
    const high = isPrinting() ? Math.max(1, node.offsetHeight) : "";
    node.style.setProperty("--ak-high", high);
    node.classList.toggle("ak-tall", high > TALL);
  }
}

/**
 * A cleanup for `end`. Streamlit also calls the cleanup of a draw that was
 * overtaken by the next one before it had returned, so it counts only once `root` is out of the page.
 */
function whenGone(root, end) {
  return () => setTimeout(() => root.isConnected || end());
}

/** Call `then` once plotly.js is in the page; `state.waiting` is the timer until then. */
export function whenPlotly(state, then) {
  if (window.Plotly) return then();
  clearInterval(state.waiting);
  state.waiting = setInterval(() => {
    if (!window.Plotly) return;
    clearInterval(state.waiting);
    then();
  }, 40);
}

const states = new WeakMap();

/**
 * The root of a component and its state, which `build(root)` makes at the first draw; `gone` is the
 * cleanup that the component returns, which calls the functions in `state.ends`.
 */
export function mounted(parent, className, build) {
  let root = once(parent, "div", className);
  if (root.attnkitEnd && !states.has(root)) root = renewed(root);
  if (!states.has(root)) states.set(root, build(root));
  const state = states.get(root);
  root.attnkitEnd = () => states.delete(root) && (state.ends ?? []).forEach((end) => end());
  return { root, state, gone: whenGone(root, root.attnkitEnd) };
}

/** A new root in the place of one that the same script in another language has made. */
function renewed(old) {
  const root = document.createElement("div");
  root.className = old.className.split(" ")[0];
  old.replaceWith(root);
  old.attnkitEnd();
  return root;
}

/** Whether the state is still that of a root in the page. */
export const isMounted = (root, state) => states.get(root) === state;
