// One diagram outside of a card.
// data: {diagram}

import { once } from "./panels.js";

export default function showDiagram({ data, parentElement }) {
  const root = once(parentElement, "div", "ak-alone");
  if (root.dataset.drawn !== data.diagram) {
    root.dataset.drawn = data.diagram;
    root.innerHTML = data.diagram;
  }
}
