// Pages that the browser translates. A translator puts a <font> in the place of each text node, but
// React keeps the text nodes: what it writes into them later is not seen, so that old sentences
// stay on screen, and removing one of them ends the whole page with an error. Here such a text node
// takes its place again when it is written to, and is removed together with its <font>. What has
// become English in this way is noticed by the translator, which translates it anew.

const fontOf = new WeakMap(); // text node → the <font> in its place
const textsOf = new WeakMap(); // that <font> → its text nodes
const isText = (node) => node?.nodeType === 3;
const isFont = (node) => node?.nodeName === "FONT";
let observer, isTranslated = false;

export function keepTranslationsCurrent() {
  if (Object.hasOwn(Text.prototype, "nodeValue")) return; // this script has run before
  observer = new MutationObserver(noteFonts);
  observer.observe(document.body, { childList: true, subtree: true });
  for (const name of ["data", "nodeValue", "textContent"]) writeInPlace(name);
  changeInPlace();
}

/** Remember which text nodes have been replaced by which <font>. */
function noteFonts(changes) {
  const fresh = new Set(changes.flatMap(({ addedNodes }) => [...addedNodes].filter(isFont)));
  if (!fresh.size) return;
  isTranslated = true;
  changes.forEach(({ target, addedNodes, removedNodes, previousSibling, nextSibling }, i) => {
    for (const node of removedNodes) {
      const gone = isText(node) ? [node] : (textsOf.get(node) ?? []);
      if (!gone.length || node.isConnected) continue;
      const near = [...addedNodes, previousSibling, nextSibling, ...(changes[i + 1]?.addedNodes ?? [])];
      const fonts = near.filter((one) => fresh.has(one) && one.parentNode === target);
      const font = fonts.find((one) => !textsOf.has(one)) ?? fonts[0];
      if (!font) continue;
      for (const text of gone) fontOf.set(text, font);
      textsOf.set(font, [...(textsOf.get(font) ?? []), ...gone]);
    }
  });
}

/** The <font> in the place of a text node, if it has one. */
function placeOf(node) {
  if (!isText(node) || node.isConnected) return undefined;
  noteFonts(observer.takeRecords());
  const font = fontOf.get(node);
  return font?.isConnected ? font : undefined;
}

/** Put the text nodes of the whole block around a <font> back: a translation mixes the words of all. */
function restoreBlock(font) {
  let block = font.parentElement;
  while (block.parentElement && getComputedStyle(block).display.startsWith("inline")) block = block.parentElement;
  for (const one of block.querySelectorAll("font")) if (textsOf.has(one)) one.replaceWith(...forgetFont(one));
}

/** Forget a <font>, and return the text nodes whose place it has. */
function forgetFont(font) {
  const nodes = textsOf.get(font);
  for (const text of nodes) fontOf.delete(text);
  textsOf.delete(font);
  return nodes;
}

/** Remove what stands in the place of a text node that goes away or elsewhere. */
function clearPlace(text, font) {
  const others = forgetFont(font).filter((node) => node !== text);
  font.replaceWith(...others);
}

/** Let a text node that is written to take its place again. */
function writeInPlace(name) {
  const owner = name === "data" ? CharacterData.prototype : Node.prototype;
  const { get, set } = Object.getOwnPropertyDescriptor(owner, name);
  Object.defineProperty(Text.prototype, name, {
    configurable: true,
    enumerable: true,
    get,
    set(value) {
      const font = placeOf(this);
      if (font) restoreBlock(font);
      set.call(this, value);
    },
  });
}

/** Let nodes be added and removed beside text nodes that a translator has replaced or moved. */
function changeInPlace() {
  const { appendChild, insertBefore, removeChild } = Node.prototype;
  const settle = (node) => {
    const font = placeOf(node);
    if (font) clearPlace(node, font);
  };
  const childOf = (parent, node) => {
    let child = placeOf(node) ?? node;
    if (!isTranslated) return node;
    while (child && child.parentNode !== parent) child = child.parentNode;
    return child;
  };
  Node.prototype.appendChild = function (node) {
    settle(node);
    return appendChild.call(this, node);
  };
  Node.prototype.insertBefore = function (node, next) {
    settle(node);
    return insertBefore.call(this, node, next && next.parentNode !== this ? childOf(this, next) : next);
  };
  Node.prototype.removeChild = function (node) {
    if (node && node.parentNode !== this) settle(node);
    if (!isTranslated || node?.parentNode === this) return removeChild.call(this, node);
    if (node.isConnected) node.remove();
    return node;
  };
}
