// A Plotly figure of panels that keeps its DOM node, zoom and hover while its data change.
// Out of sight it is not drawn anew: it catches up when it is scrolled to.
// data: {figure, legend: [{dash, text}], height, narrowest, alt}

export default function ({ data, parentElement }) {
  const root = once(parentElement, "div", "ak-figure");
  let state = states.get(root);
  if (!state) {
    state = { draws: 0 };
    states.set(root, state);
    state.legend = once(root, "div", "ak-legend");
    state.plot = once(root, "div", "ak-plot");
    state.endWidth = onWidth(root, () => whenPlotly(state, () => draw(root, state)));
    state.endSight = onSight(root, (visible) => {
      state.visible = visible;
      if (visible && state.late) whenPlotly(state, () => draw(root, state));
    });
  }
  state.data = data;
  root.classList.toggle("ak-faded", Boolean(data.faded));
  setLegend(state.legend, data.legend);
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", data.alt);
  state.plot.style.minHeight = `${rowsOf(root, data).rows * data.height}px`;
  if (state.visible || !state.draws) whenPlotly(state, () => draw(root, state));
  else state.late = true;
  return whenGone(root, () => {
    state.endWidth();
    state.endSight();
    clearInterval(state.waiting);
    if (window.Plotly) window.Plotly.purge(state.plot);
    states.delete(root);
  });
}

function whenPlotly(state, then) {
  if (window.Plotly) return then();
  clearInterval(state.waiting);
  state.waiting = setInterval(() => {
    if (!window.Plotly) return;
    clearInterval(state.waiting);
    then();
  }, 40);
}

function rowsOf(root, data) {
  const n = data.figure.layout.meta.panels;
  const columns = columnsFor(root.clientWidth || 1000, n, data.narrowest);
  return { columns, rows: Math.ceil(n / columns) };
}

function draw(root, state) {
  state.late = false;
  const { figure, height } = state.data;
  const { columns, rows } = rowsOf(root, state.data);
  const layout = arranged(root, figure.layout, columns, rows, height);
  window.Plotly.react(state.plot, figure.data, layout, {
    displaylogo: false,
    displayModeBar: false,
    doubleClick: "reset",
    responsive: false,
  }).then(() => {
    if (states.get(root) !== state) return;
    state.draws += 1;
    state.plot.dataset.draws = state.draws;
    state.plot.dataset.step = figure.layout.meta.step;
    if (state.draws === 1) followHover(state);
    if (state.hovered !== undefined) hoverAll(state, state.hovered);
  });
}

/** The layout with panels placed in rows, and ink taken from the page's theme. */
function arranged(root, given, columns, rows, height) {
  const ink = getComputedStyle(root);
  const text = ink.color;
  const paper = ink.getPropertyValue("--st-background-color").trim() || "#fff";
  const rule = ink.getPropertyValue("--st-border-color").trim() || "rgba(128,128,128,0.25)";
  const width = root.clientWidth || 1000;
  const margin = given.margin;
  const inner = width - margin.l - margin.r;
  const innerHeight = rows * height - margin.t - margin.b;
  const gapX = 20, gapY = 52;
  const cell = (inner - gapX * (columns - 1)) / columns;
  const cellHeight = (innerHeight - gapY * (rows - 1)) / rows;
  const layout = {
    ...given,
    width,
    height: rows * height,
    font: { color: text, size: 12, family: ink.fontFamily },
    hoverlabel: { font: { size: 12, color: paper }, bgcolor: text },
    annotations: given.annotations.map((a) => ({ ...a, font: { color: text, size: 14 } })),
  };
  for (let panel = 0; panel < given.meta.panels; panel++) {
    const suffix = panel === 0 ? "" : panel + 1;
    const column = panel % columns, row = Math.floor(panel / columns);
    const left = (column * (cell + gapX)) / inner;
    const top = 1 - (row * (cellHeight + gapY)) / innerHeight;
    const line = { gridcolor: rule, linecolor: rule, tickcolor: rule };
    layout["xaxis" + suffix] = {
      ...given["xaxis" + suffix], ...line,
      domain: [left, Math.min(1, left + cell / inner)],
    };
    layout["yaxis" + suffix] = {
      ...given["yaxis" + suffix], ...line,
      domain: [Math.max(0, top - cellHeight / innerHeight), top],
      showticklabels: column === 0,
    };
  }
  return layout;
}

/** Hovering one panel shows the same step in all, also after the data have changed. */
function followHover(state) {
  state.plot.on("plotly_hover", (event) => {
    if (!event.event) return;
    state.hovered = event.points[0].x;
    hoverAll(state, state.hovered);
  });
  state.plot.addEventListener("mouseleave", () => {
    state.hovered = undefined;
    window.Plotly.Fx.unhover(state.plot);
  });
}

function hoverAll(state, x) {
  const subplots = state.plot._fullLayout?._subplots?.cartesian;
  if (subplots) window.Plotly.Fx.hover(state.plot, { xval: x }, subplots);
}

function setLegend(element, entries) {
  const wanted = JSON.stringify(entries);
  if (element.dataset.entries === wanted) return;
  element.dataset.entries = wanted;
  element.replaceChildren(
    ...entries.map(({ dash, text }) => {
      const item = document.createElement("span");
      item.innerHTML = '<svg viewBox="0 0 30 8" aria-hidden="true"><path d="M1 4H29"/></svg>';
      item.querySelector("path").classList.add(`ak-dash-${dash}`);
      item.append(text);
      return item;
    }),
  );
}
