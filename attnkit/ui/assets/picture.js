// A Plotly figure that keeps its DOM node, zoom and hover while its data change, inked as the page.
// data: {figure, alt, narrower: [{most, figure}], picks}
// Where the page is at most `most` pixels wide, that figure is drawn instead; the last that fits.
// With `picks`, a mark that is pressed sends its `customdata` as the trigger `picked`.

import { once, onWidth, states, unpacked, whenGone, whenPlotly } from "./panels.js";

export default function showPicture({ data: packed, parentElement, setTriggerValue }) {
  const { figure, alt, narrower = [], picks } = unpacked(packed);
  const root = once(parentElement, "div", "ak-chart");
  let state = states.get(root);
  if (!state) {
    state = { draws: 0, plot: once(root, "div", "ak-plot") };
    states.set(root, state);
    state.endWidth = onWidth(root, () => whenPlotly(state, () => redraw(root, state)));
  }
  state.figureAt = (width) => narrower.filter(({ most }) => width <= most).at(-1)?.figure ?? figure;
  state.pick = picks ? (mark) => setTriggerValue("picked", mark) : null;
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", alt);
  root.classList.toggle("ak-picks", Boolean(picks));
  state.plot.style.minHeight = `${state.figureAt(root.clientWidth).layout.height ?? 300}px`;
  whenPlotly(state, () => redraw(root, state));
  return whenGone(root, () => {
    state.endWidth();
    clearInterval(state.waiting);
    if (window.Plotly) window.Plotly.purge(state.plot);
    states.delete(root);
  });
}

function redraw(root, state) {
  const figure = state.figureAt(root.clientWidth);
  const layout = inked(root, figure.layout);
  state.plot.style.minHeight = `${layout.height}px`;
  const options = { displaylogo: false, displayModeBar: false, responsive: false };
  window.Plotly.react(state.plot, figure.data, layout, options).then(() => {
    if (states.get(root) !== state) return;
    state.draws += 1;
    if (state.draws === 1) state.plot.on("plotly_click", ({ points }) => followPress(state, points));
    state.plot.dataset.draws = state.draws;
  });
}

function followPress(state, points) {
  const mark = points.find(({ customdata }) => customdata !== undefined && customdata !== null);
  if (mark && state.pick) state.pick(mark.customdata);
}

/** The layout as wide as the page allows, with letters and lines in the colours of its theme. */
function inked(root, given) {
  const ink = getComputedStyle(root);
  const paper = ink.getPropertyValue("--st-background-color").trim() || "#fff";
  const rule = ink.getPropertyValue("--st-border-color").trim() || "rgba(128,128,128,0.25)";
  const layout = {
    ...given,
    width: root.clientWidth || 700,
    height: given.height ?? 300,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...given.font, color: ink.color, family: ink.fontFamily },
    hoverlabel: { font: { color: paper }, bgcolor: ink.color },
  };
  for (const [name, axis] of Object.entries(given)) {
    if (/^[xy]axis\d*$/.test(name)) {
      layout[name] = { gridcolor: rule, linecolor: rule, tickcolor: rule, zerolinecolor: rule, ...axis };
    }
  }
  return layout;
}
