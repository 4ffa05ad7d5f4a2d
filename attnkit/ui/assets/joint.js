// The Similarity page: queries, keys and values of one example in one plane.

import PALETTE from "../../variants/palette.json" with { type: "json" };
import { alikeAt, markLegend, notesOf, pairName, TWIN } from "./pairs.js";
import { titled } from "./heads.js";
import { el, limitOf, number, panelGrid, panelTitle, set, svg } from "./ink.js";
import { scatter } from "./charts.js";

// Open marks of three sizes, so that those in one place can all be seen.
const ROLE_INK = [
  { name: "queries", one: "query", shape: "circle", color: PALETTE.roles.Q, scale: 1.5 },
  { name: "keys", one: "key", shape: "square", color: PALETTE.roles.K, scale: 1.05 },
  { name: "values", one: "value", shape: "triangle", color: PALETTE.roles.V, scale: 0.75 },
];

function openMark(mark, { color, scale }) {
  mark.classList.add("ak-open");
  mark.style.setProperty("--ak-ink", color);
  mark.setAttribute("transform", `scale(${scale})`);
}

/** Why a variant has no map; empty if it has one. */
const notMapped = (film, p) => (notesOf(film, p).has_head ? notesOf(film, p).refusal : film.variants[p].lacking);

/** Roles that a token has in this layer and that are in the plane. */
function pointsOf(film, p) {
  const { tokens, is_query, is_key } = film.header, { widths } = notesOf(film, p);
  return tokens.flatMap((_, i) => ROLE_INK.map((_, r) => ({ r, i }))
    .filter(({ r }) => (r ? is_key[i] : is_query[i]) && widths[r] === widths[1]));
}

/** Places of points in the plane of the newest frame, and how much of the spread it shows. */
export function project(film, p, points, k, kept) {
  const vectors = film.get(`${p}.vectors`, k), scale = film.get(`${p}.scale`, k)[0];
  const centre = film.get(`${p}.centre`), plane = film.get(`${p}.plane`), d = centre.length, n = film.header.tokens.length;
  let all = 0, seen = 0;
  const middle = new Float64Array(d);
  points.forEach(({ r, i }, at) => {
    const from = (r * n + i) * d;
    let x = 0, y = 0;
    for (let m = 0; m < d; m++) {
      const value = vectors[from + m] * scale;
      middle[m] += value / points.length;
      all += value * value;
      x += (value - centre[m]) * plane[2 * m];
      y += (value - centre[m]) * plane[2 * m + 1];
    }
    kept.x[at] = x;
    kept.y[at] = y;
  });
  for (let m = 0; m < d; m++) all -= points.length * middle[m] ** 2; // the spread about their own middle
  const [mx, my] = [kept.x, kept.y].map((values) => values.reduce((a, b) => a + b, 0) / (points.length || 1));
  points.forEach((_, at) => (seen += (kept.x[at] - mx) ** 2 + (kept.y[at] - my) ** 2));
  kept.share = all > 0 ? Math.min(1, seen / all) : NaN;
  return kept;
}

/** Where each point lies as seen from all frames: one scale for the whole training. */
function reachOf(film, p, points) {
  const kept = { x: new Float64Array(points.length), y: new Float64Array(points.length) };
  return Math.max(...film.steps.map((_, k) => {
    project(film, p, points, k, kept);
    return limitOf(kept.x, kept.y);
  }));
}

export const jointFigure = {
  name: "map",
  title: titled("Queries, keys and values of one example"),
  hint: (film) => {
    const { tokens, n_tokens } = film.header;
    const cut = tokens.length < n_tokens ? ` ${tokens.length} of ${n_tokens} tokens are shown.` : "";
    return "One plane per variant, the one in which the vectors of the newest step spread most; earlier steps are seen in it, too. A line leads from a query to the key that holds its answer. " +
      `What is tied lies in one place. Where V has a matrix of its own, its axes are its own: only how values lie among themselves means something.${cut}`;
  },
  height: 330,
  build(film, body) {
    const legend = el("div", "ak-film-legend", body);
    for (const { name, ...ink } of ROLE_INK) openMark(markLegend(legend, ink.shape, ink.color, name), ink);
    const grid = panelGrid(film, body, film.variants.length, 170, 3);
    return film.variants.map((variant, p) => {
      const box = grid.boxes[p], title = panelTitle(box, variant), { widths } = notesOf(film, p);
      if (notMapped(film, p)) {
        el("div", "ak-panel-note", box, notMapped(film, p));
        return null;
      }
      const points = pointsOf(film, p), size = Math.min(grid.inner, 360), { full_labels, tokens, target } = film.header;
      const chart = scatter(film, box, {
        width: grid.inner, height: size,
        points: points.map(({ r, i }) => ({ ...ROLE_INK[r], token: tokens[i], title: `${full_labels[i]}: ${ROLE_INK[r].one}` })),
      });
      chart.node.querySelectorAll(".ak-point path").forEach((mark, at) => openMark(mark, ROLE_INK[points[at].r]));
      const lines = svg("g", {});
      chart.node.insertBefore(lines, chart.node.querySelector(".ak-point"));
      const at = (role, i) => points.findIndex((point) => point.r === role && point.i === i);
      const answers = target.flatMap((j, i) => (j >= 0 && at(0, i) >= 0 && at(1, j) >= 0 ? [[at(0, i), at(1, j)]] : []));
      const paths = answers.map(() => svg("path", { class: "ak-answer-line" }, lines));
      if (widths[2] !== widths[1]) el("div", "ak-quiet-line", box, `Its values have ${widths[2]} numbers, its keys ${widths[1]}: values are left out.`);
      const kept = { x: new Float64Array(points.length), y: new Float64Array(points.length), share: NaN };
      return { p, title, points, chart, answers, paths, kept, width: grid.inner, height: size, limit: {} };
    });
  },
  update(film, drawn) {
    for (const one of drawn.filter(Boolean)) {
      const { p, title, points, chart, kept, limit, width, height } = one;
      if (limit.version !== film.version) Object.assign(limit, { version: film.version, value: reachOf(film, p, points) });
      project(film, p, points, film.at, kept);
      chart.update(kept.x, kept.y, limit.value);
      const factor = (Math.min(width, height) / 2 - 16) / (limit.value || 1);
      const spot = (at) => `${(width / 2 + kept.x[at] * factor).toFixed(1)} ${(height / 2 - kept.y[at] * factor).toFixed(1)}`;
      one.answers.forEach(([query, key], k) => set(one.paths[k], "d", `M${spot(query)}L${spot(key)}`));
      title.update(`${number(100 * kept.share, 0)}% of the spread`);
    }
  },
  finding: (film) => film.variants.map((variant, p) => {
    if (notMapped(film, p)) return `${variant.name}: ${notMapped(film, p)}`;
    const points = pointsOf(film, p), kept = project(film, p, points, film.at, { x: [], y: [] });
    const tied = film.header.pairs.filter((_, c) => notesOf(film, p).tied[c] && alikeAt(film, p, c, "cos_activations") > TWIN).map(pairName);
    return `${variant.name}: the plane shows ${number(100 * kept.share, 0)}% of the spread of ${points.length} vectors${tied.length ? `; ${tied.join(", ")} coincide` : ""}.`;
  }).join(" "),
  table: (film) => ({
    columns: ["step", "variant", "token", "role", "x", "y"],
    rows: film.variants.flatMap((variant, p) => {
      if (notMapped(film, p)) return [];
      const points = pointsOf(film, p), kept = project(film, p, points, film.at, { x: [], y: [] });
      return points.map(({ r, i }, at) => [film.step, variant.text, film.header.full_labels[i], ROLE_INK[r].one, kept.x[at], kept.y[at]]);
    }),
  }),
};
