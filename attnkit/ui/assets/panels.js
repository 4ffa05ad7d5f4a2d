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

/** Call `draw` when the width of `element` changes; returns the way to end that. */
export function onWidth(element, draw) {
  let known = element.clientWidth;
  const observer = new ResizeObserver(() => {
    if (element.clientWidth && element.clientWidth !== known) {
      known = element.clientWidth;
      draw();
    }
  });
  observer.observe(element);
  return () => observer.disconnect();
}

/** Tell `seen(visible)` when the element comes near the screen or leaves it. */
export function onSight(element, seen) {
  const observer = new IntersectionObserver((entries) => seen(entries.at(-1).isIntersecting), {
    rootMargin: "150px",
  });
  observer.observe(element);
  return () => observer.disconnect();
}

/**
 * The cleanup that a component returns. Streamlit also calls the cleanup of a draw that was
 * overtaken by the next one before it had returned, so it counts only once `root` is out of the page.
 */
export function whenGone(root, end) {
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

export const states = new WeakMap();
