// What no reader would accept of a page's layout, as a list of sentences; empty where all is well.
// tests/layout_search.py evaluates this function in a real page, which is scrolled to its top.

export function layoutFaults({ measuresInView }) {
  const faults = [], NEAR = 1.5;
  const main = document.querySelector("[data-testid=stMain]");
  const describe = (node) => {
    const keyed = node.closest("[class*=st-key-]")?.className.match(/st-key-([\w-]+)/)?.[1];
    const text = (node.textContent || node.getAttribute("aria-label") || "").trim().slice(0, 40);
    return `${keyed ? `${keyed}: ` : ""}${node.localName} “${text}”`;
  };
  // The ancestors of a node, up to the part of the page that scrolls as a whole.
  const around = (node) => {
    const found = [];
    for (let at = node.parentElement; at && at !== main && !at.matches("[data-testid=stSidebarContent]"); at = at.parentElement) found.push(at);
    return found;
  };
  const styles = new Map();
  const styleOf = (node) => styles.get(node) ?? styles.set(node, getComputedStyle(node)).get(node);
  const scrolls = (node, way) => /auto|scroll/.test(styleOf(node)[`overflow${way}`]);
  // What only screen readers get, and what is shown only on demand, is not seen.
  const hidden = (node) => [node, ...around(node)].some((at) => {
    const style = styleOf(at);
    return style.clipPath.startsWith("inset(50%") || style.clip === "rect(0px, 0px, 0px, 0px)" ||
      (style.overflow === "hidden" && (at.clientWidth <= 1 || at.clientHeight <= 1) && at.childElementCount + at.textContent.length > 0 && styleOf(at).display !== "inline");
  });
  const shown = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !hidden(node) &&
    !node.closest("[data-testid=stSidebar][data-collapsed=true], .ak-tip, .ak-term-tip, .katex, [data-testid=stIconMaterial], [data-testid=stTooltipHoverTarget] svg");
  // A box as far as its ancestors let it be seen, or null.
  const visibleBox = (box, node) => {
    let { left, top, right, bottom } = box;
    for (const at of [node, ...around(node)]) {
      const style = styleOf(at);
      if (style.overflowX !== "visible" || style.overflowY !== "visible") {
        if (at.namespaceURI.endsWith("svg")) continue;
        const clip = at.getBoundingClientRect();
        if (style.overflowX !== "visible") [left, right] = [Math.max(left, clip.left), Math.min(right, clip.right)];
        if (style.overflowY !== "visible") [top, bottom] = [Math.max(top, clip.top), Math.min(bottom, clip.bottom)];
      }
      if (style.position === "fixed") break;
    }
    return right - left > 1 && bottom - top > 1 ? { left, top, right, bottom } : null;
  };
  const floats = (node) => node.closest("[data-testid=stSidebar]") ?? [node, ...around(node)].find((at) => ["fixed", "sticky"].includes(styleOf(at).position) || at.localName === "dialog" || at.matches("[data-testid=stSidebar], [data-testid=stHeader], [data-testid=stPopoverBody]")) ?? null;

  // Texts, with the boxes of their lines.
  const texts = [], walker = document.createTreeWalker(document.querySelector("[data-testid=stApp]") ?? document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("style, script, title, desc, select, noscript, [data-testid=stDataFrame]") || !shown(parent)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter(({ width, height }) => width > 0.5 && height > 0.5);
    if (!boxes.length) continue;
    const inSvg = Boolean(parent.closest("svg"));
    texts.push({ node, parent: parent.closest("text") ?? parent, inSvg, boxes: inSvg ? [parent.closest("text")?.getBoundingClientRect() ?? boxes[0]] : boxes });
  }

  // 1. A few letters a line.
  for (const { node, parent, boxes, inSvg } of texts) {
    const letters = node.data.trim().length, lines = new Set(boxes.map(({ top }) => Math.round(top / 4))).size;
    if (!inSvg && lines >= 3 && letters / lines < 6) faults.push(`${Math.round(letters / lines)} letters a line: ${describe(parent)}`);
  }

  // 2. Text over text.
  const areas = texts.flatMap(({ parent, boxes, inSvg }) => boxes.map((box) => ({ parent, inSvg, floating: floats(parent), at: visibleBox(box, parent) }))).filter(({ at }) => at);
  areas.sort((a, b) => a.at.top - b.at.top);
  areas.forEach((one, i) => {
    for (const other of areas.slice(i + 1)) {
      if (other.at.top > one.at.bottom) break;
      if (one.parent === other.parent || one.floating !== other.floating) continue;
      if (one.parent.contains(other.parent) || other.parent.contains(one.parent)) continue;
      const turned = [one, other].every(({ parent }) => parent.getAttribute("transform")?.includes("rotate"));
      // Turned texts are compared in the frame of the first one, where both lie straight.
      const [a, b] = turned ? [one, other].map(({ parent }) => {
        const { x, y, width, height } = parent.getBBox();
        const at = new DOMPoint(x, y).matrixTransform(one.parent.getScreenCTM().inverse().multiply(parent.getScreenCTM()));
        return { left: at.x, top: at.y, right: at.x + width, bottom: at.y + height };
      }) : [one.at, other.at];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      // The box of a line is higher than its letters, and that of a turned line wider.
      const drawn = one.inSvg && other.inSvg, high = Math.min(a.bottom - a.top, b.bottom - b.top);
      const zoom = one.parent.currentCSSZoom ?? 1;
      if (down / zoom > Math.max(5, drawn ? 0.35 * high : 0) && across > (drawn ? 5 : 3)) faults.push(`text over text: ${describe(one.parent)} and ${describe(other.parent)}`);
    }
  });

  // 3. A control beyond the window, or under the bar that is fixed at its end.
  for (const node of document.querySelectorAll("button, a[href], input, select, textarea, summary, [role=button], [role=tab], [role=radio], [role=combobox]")) {
    if (!shown(node) || around(node).some((at) => scrolls(at, "X") || at.matches("[data-testid=stDataFrame]"))) continue;
    const box = node.getBoundingClientRect();
    if (box.width < 1 || box.height < 1) continue;
    if (box.right > innerWidth + NEAR || box.left < -NEAR) faults.push(`a control beyond the window: ${describe(node)}`);
    else if (!visibleBox(box, node)) faults.push(`a control that cannot be seen: ${describe(node)}`);
  }

  // 4. The page scrolls sideways.
  for (const node of [document.documentElement, main]) {
    if (node.scrollWidth > node.clientWidth + NEAR) {
      const widest = [...main.querySelectorAll("*")].filter((at) => at.getBoundingClientRect().right > innerWidth + NEAR && !around(at).some((up) => styleOf(up).overflowX !== "visible" && up !== main)).at(-1);
      faults.push(`the page scrolls sideways: ${widest ? describe(widest) : node.localName}`);
    }
  }

  // 5. Text that is cut without an ellipsis, or that leaves the window.
  for (const { parent, boxes } of texts) {
    if ([parent, ...around(parent)].some((at) => styleOf(at).textOverflow === "ellipsis" || styleOf(at).webkitLineClamp !== "none")) continue;
    for (const box of boxes) {
      if (floats(parent)?.matches("[data-testid=stSidebar]") || around(parent).some((at) => scrolls(at, "X"))) continue;
      if (box.right > innerWidth + NEAR || box.left < -NEAR) {
        faults.push(`text beyond the window: ${describe(parent)}`);
        break;
      }
      const clip = [parent, ...around(parent)].find((at) => {
        const style = styleOf(at);
        if (at.namespaceURI.endsWith("svg")) return false;
        const edge = at.getBoundingClientRect();
        const sideways = /hidden|clip/.test(style.overflowX) && (box.right > edge.right + 2 || box.left < edge.left - 2);
        const down = /hidden|clip/.test(style.overflowY) && (box.bottom > edge.bottom + 4 || box.top < edge.top - 4);
        return sideways || down;
      });
      if (clip && !around(parent).some((at) => scrolls(at, "Y"))) {
        faults.push(`text is cut: ${describe(parent)}`);
        break;
      }
    }
  }

  // 6. The measures of all variants are in one view.
  if (measuresInView) {
    const parts = document.querySelectorAll(".ak-board-head, .ak-board-chart, .ak-board-map");
    const outside = [...parts].filter((node) => {
      const box = node.getBoundingClientRect();
      return box.bottom > innerHeight + NEAR || box.right > innerWidth + NEAR || box.left < 0;
    });
    if (!parts.length) faults.push("there is no board");
    if (outside.length) faults.push(`a measure out of view, down to ${Math.round(Math.max(...outside.map((node) => node.getBoundingClientRect().bottom)))} px: ${describe(outside.at(-1))}`);
  }

  // 7. The buttons that are fixed at the end of a phone's window take one row.
  const buttons = [...document.querySelectorAll(":is(.st-key-train, .st-key-pause, .st-key-step, .st-key-stop, .st-key-reset, .st-key-new_seeds) button")].filter((node) => shown(node) && node.clientWidth > 1);
  const middles = buttons.map((node) => node.getBoundingClientRect()).map(({ top, bottom }) => (top + bottom) / 2);
  const fixed = buttons.some((node) => around(node).some((at) => styleOf(at).position === "fixed"));
  if (fixed && Math.max(...middles) - Math.min(...middles) > 20) faults.push("the buttons of the Lab stand in two rows");
  return [...new Set(faults)];
}
