// A picture (picture.js, whose default export is called showPicture here) under a menu to save it.
// data: as of picture.js, and {title, name, table: {columns, rows}}; without `table` a file of
// comma-separated values holds every mark.

import { once, states, unpacked } from "./panels.js";
import { saveMenu } from "./save.js";
import showPicture from "./picture.js";

export default function showSaved(component) {
  const { parentElement } = component, data = unpacked(component.data);
  const above = once(parentElement, "div", "ak-saved");
  const gone = showPicture(component);
  let state = states.get(above);
  if (!state) {
    state = {};
    states.set(above, state);
    state.named = saveMenu(above, () => {
      const body = parentElement.querySelector(":scope > .ak-chart");
      for (const map of body.querySelectorAll("image")) map.setAttribute("image-rendering", "pixelated");
      return {
        body,
        heading: state.data.title,
        name: state.data.name,
        table: () => state.data.table ?? marksOf(state.data.figure.data),
      };
    });
  }
  state.data = data;
  state.named(data.title);
  return gone;
}

/** Every mark of a figure, with what it says when it is pointed at. */
function marksOf(traces) {
  const rows = traces.flatMap(({ type, name, x, y, z, hovertext }) =>
    type === "heatmap"
      ? z.flatMap((line, i) => line.map((value, j) => [`${y[i]}, ${x[j]}`, x[j], y[i], value]))
      : x.map((_, k) => [(hovertext?.[k] ?? name ?? "").replaceAll("<br>", ", "), x[k], y[k], ""]));
  return { columns: ["what", "x", "y", "z"], rows };
}
