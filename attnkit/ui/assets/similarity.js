// The Similarity page: how alike queries, keys and values are, in weights and in activations.
// Arrays are those of attnkit/inspection/similarity.py.

const similarityFigures = (() => {
// A pair has the colour of the sharing that ties it.
const PAIR_INK = { QK: { color: "#D55E00", dash: "solid" }, QV: { color: "#CC79A7", dash: "dash" }, KV: { color: "#009E73", dash: "dot" } };
// Open marks of three sizes, so that those in one place can all be seen.
const ROLE_INK = [
  { name: "queries", one: "query", shape: "circle", color: "#2E8BC0", scale: 1.5 },
  { name: "keys", one: "key", shape: "square", color: "#B8860B", scale: 1.05 },
  { name: "values", one: "value", shape: "triangle", color: "#8C6BB1", scale: 0.75 },
];
const RANDOM = "#8a8f98", TWIN = 0.999995;
const ABOVE = "more alike than random", WITHIN = "as alike as random", BELOW = "less alike than random";

const pairName = (pair) => `${pair[0]} and ${pair[1]}`;
const notesOf = (film, p) => film.header.notes[p];
const measureAt = (film, name) => film.header.measures.indexOf(name);
const alikeAt = (film, p, c, name, k) => film.value(`${p}.alike`, [c, measureAt(film, name)], k);
const randomAt = (film, p, c, name, k) => film.part(`${p}.random`, [c, measureAt(film, name)], k);
const two = (value) => (Number.isFinite(value) ? value.toFixed(2).replace(/^-(?=0\.00$)/, "").replace("-", "−") : "–");
const range = ([, low, high]) => `${two(low)} to ${two(high)}`;
const readsAll = (film, p) => Math.max(...notesOf(film, p).widths) >= film.header.d_model;
const whichHead = (film) => {
  const { places = [], variants, request } = film.header;
  const layer = places.length > 1 ? places[request.layer] : "";
  const head = Math.max(0, ...variants.map((v) => v.n_heads)) > 1 ? `head ${request.head + 1}` : "";
  return [layer, head].filter(Boolean).join(", ");
};
const titled = (words) => (film) => [words, whichHead(film)].filter(Boolean).join(" · ");
const lacks = ({ n_heads }) => `It has ${n_heads} head${n_heads > 1 ? "s" : ""} only.`;

/** Where a value lies beside what random matrices give: 1 above, −1 below, 0 within, NaN unknown. */
function beside(value, [, low, high]) {
  if (!Number.isFinite(value) || !Number.isFinite(low)) return NaN;
  return value > high ? 1 : value < low ? -1 : 0;
}
const SIDES = { 1: ABOVE, 0: WITHIN, "-1": BELOW };
const MARKS = { 1: " ▲", 0: "", "-1": " ▼" };

/** What a variant's pair has in common at the shown step: a verdict, and the numbers behind it. */
function saidOf(film, p, c) {
  const name = pairName(film.header.pairs[c]);
  const [cos, weights, activations] = ["cos_weights", "cka_weights", "cka_activations"].map((m) => alikeAt(film, p, c, m));
  const [cosRandom, ofWeights, ofActivations] = ["cos_weights", "cka_weights", "cka_activations"].map((m) => randomAt(film, p, c, m));
  const same = weights > TWIN && (Number.isNaN(cos) || cos > TWIN);
  if (same && Number.isNaN(activations)) return { name, verdict: "one matrix; no token has both.", numbers: "" };
  if (same && activations > TWIN) return { name, verdict: "one and the same.", numbers: "" };
  const sides = [beside(weights, ofWeights), beside(activations, ofActivations)];
  let verdict = `weights ${SIDES[sides[0]]}, activations ${SIDES[sides[1]]}.`;
  if (same) verdict = "one matrix, but different vectors: what acts on them after it differs.";
  else if (Number.isNaN(sides[1])) verdict = `weights ${SIDES[sides[0]]}; no token has both.`;
  else if (sides[0] === sides[1]) verdict = `${SIDES[sides[0]]}.`;
  const parts = [`weights ${two(weights)} (random ${range(ofWeights)})`];
  if (Number.isFinite(activations)) parts.push(`activations ${two(activations)} (random ${range(ofActivations)})`);
  if (Number.isFinite(cos)) parts.push(`cosine of weights ${two(cos)} (random ${range(cosRandom)})`);
  const numbers = parts.join(", ");
  return { name, verdict, numbers: `${numbers[0].toUpperCase()}${numbers.slice(1)}.` };
}

const verdicts = {
  name: "alike",
  title: titled("Which pairs are alike?"),
  hint: "1 is the same up to a turn, 0 has nothing in common (linear CKA). What counts is whether a pair lies outside of what random matrices of the same shape give on the same inputs.",
  height: 260,
  build(film, body) {
    const grid = panelGrid(film, body, film.variants.length, 250, 1 + 2 * film.header.pairs.length);
    return film.variants.map((variant, p) => {
      const box = grid.boxes[p];
      box.classList.add("ak-said-of");
      panelTitle(box, variant);
      if (!notesOf(film, p).has_head) {
        el("p", "", box, lacks(variant));
        return [];
      }
      return film.header.pairs.map((pair) => {
        const line = el("p", "", box);
        el("i", "ak-pair-mark", line, "■").style.color = PAIR_INK[pair].color;
        return {
          verdict: el("span", "ak-verdict", line, ""),
          numbers: el("p", "ak-quiet-text", box, ""),
        };
      });
    });
  },
  update(film, drawn) {
    drawn.forEach((pairs, p) => pairs.forEach((lines, c) => {
      const { name, verdict, numbers } = saidOf(film, p, c);
      say(lines.verdict, `${name}: ${verdict}`);
      say(lines.numbers, numbers);
    }));
  },
  finding: (film) => film.variants.map((variant, p) => {
    if (!notesOf(film, p).has_head) return `${variant.name}: ${lacks(variant)}`;
    return `${variant.name}: ${film.header.pairs.map((_, c) => {
      const { name, verdict, numbers } = saidOf(film, p, c);
      return `${name} ${verdict} ${numbers}`;
    }).join(" ")}`;
  }).join(" "),
  table: (film) => measureTable(film, film.header.measures, [film.at]),
};

/** Measures with their random ranges, at some frames. */
function measureTable(film, measures, frames) {
  const rows = [];
  for (const k of frames) {
    film.variants.forEach((variant, p) => film.header.pairs.forEach((pair, c) => measures.forEach((name) => {
      rows.push([film.steps[k], variant.text, pair, name, alikeAt(film, p, c, name, k), ...randomAt(film, p, c, name, k)]);
    })));
  }
  return { columns: ["step", "variant", "pair", "measure", "value", "random mean", "random low", "random high"], rows };
}

/** The lowest value of an axis that all panels of a measure share. */
function lowest(film, name) {
  let low = 0;
  film.variants.forEach((_, p) => film.header.pairs.forEach((_, c) => film.steps.forEach((_, k) => {
    low = Math.min(low, alikeAt(film, p, c, name, k) || 0, randomAt(film, p, c, name, k)[1] || 0);
  })));
  return low < -0.5 ? -1 : low < -0.25 ? -0.5 : low < 0 ? -0.25 : 0;
}

/** A figure of charts over training: per variant one for each measure, a line for each pair. */
function overTraining({ name, title, hint, measures, shown }) {
  const names = measures.map((measure) => measure.name);
  return {
    name, title, hint, shown,
    height: 470,
    shape: (film) => names.map((measure) => lowest(film, measure)),
    build(film, body) {
      const pairs = film.header.pairs.map((pair) => ({ ...PAIR_INK[pair], name: pairName(pair) }));
      lineLegend(body, [...pairs, { name: "random matrices, 95%", color: RANDOM, dash: "longdash" }]);
      const grid = panelGrid(film, body, film.variants.length, 250, 2 + measures.length);
      return film.variants.flatMap((variant, p) => {
        const box = grid.boxes[p];
        panelTitle(box, variant);
        if (!notesOf(film, p).has_head) {
          el("div", "ak-panel-note", box, lacks(variant));
          return [];
        }
        const charts = measures.map((measure) => {
          const lines = pairs.map((pair, c) => ({ ...pair, values: () => film.steps.map((_, k) => alikeAt(film, p, c, measure.name, k)) }));
          const c = [0, 1, 2].find((each) => !Number.isNaN(randomAt(film, p, each, measure.name)[0])) ?? 2;
          const of = (z) => film.steps.map((_, k) => randomAt(film, p, c, measure.name, k)[z]);
          const random = { name: "random", color: RANDOM, dash: "longdash", values: () => of(0), low: () => of(1), high: () => of(2) };
          return lineChart(film, box, {
            lines: [random, ...lines], low: lowest(film, measure.name), high: 1, label: measure.label, width: grid.inner, height: 165,
          });
        });
        const { widths, n_maps } = notesOf(film, p), remarks = [];
        if (widths[2] !== widths[1]) remarks.push("Values have another width than keys: grey is for Q and K.");
        if (n_maps > 1) remarks.push("The queries of its two maps are taken side by side, and so are the keys.");
        if (remarks.length) el("div", "ak-quiet-line", box, remarks.join(" "));
        return charts;
      });
    },
    update: (film, charts) => charts.forEach((chart) => chart.update()),
    finding: (film) => film.variants.map((variant, p) => {
      const parts = notesOf(film, p).has_head ? film.header.pairs.map((pair, c) => {
        const numbers = measures.map(({ name: measure, label }) => {
          const value = alikeAt(film, p, c, measure), random = randomAt(film, p, c, measure);
          return `${label} ${two(value)}${Number.isFinite(random[0]) ? ` (random ${range(random)})` : ""}`;
        });
        return `${pairName(pair)}: ${numbers.join(", ")}`;
      }) : [lacks(variant)];
      return `${variant.name}. ${parts.join("; ")}.`;
    }).join(" "),
    table: (film) => measureTable(film, names, film.steps.map((_, k) => k)),
  };
}

const weights = overTraining({
  name: "weights",
  title: titled("Weights: are the matrices alike?"),
  hint: (film) => {
    const all = film.variants.every((_, p) => readsAll(film, p)) ? " Here heads are as wide as the model, so each reads everything and the overlap is 1." : "";
    return "The matrices by themselves, whatever comes in. The cosine compares them number by number; the overlap asks how far both read the same " +
      `directions of the input. V has axes of its own, so its cosine says little.${all}`;
  },
  measures: [{ name: "cos_weights", label: "cosine" }, { name: "overlap", label: "overlap" }],
});

const activations = overTraining({
  name: "activations",
  title: titled("Activations: is what they make of tokens alike?"),
  hint: (film) => {
    const missing = film.header.square ? "" : " Here one side asks the other: no token has both a query and a key.";
    return "The vectors of the tokens that do come in. CKA asks whether both see the same tokens as alike; the cosine compares the two vectors of each token. " +
      `Random matrices on the same inputs share a lot already: the grey band.${missing}`;
  },
  measures: [{ name: "cka_activations", label: "CKA" }, { name: "cos_activations", label: "mean cosine" }],
});

/** Principal angles of each pair as dots, with what random matrices give behind. */
function anglesChart(film, parent, p, width) {
  const [n_pairs, n] = film.shape(`${p}.angles`), height = 190;
  const margin = { left: 40, right: 10, top: 22, bottom: 34 };
  const node = svg("svg", { width, height, class: "ak-chart", "aria-hidden": "true" }, parent);
  svg("text", { x: 2, y: 12, class: "ak-quiet" }, node).textContent = "degrees";
  const right = width - margin.right, bottom = height - margin.bottom;
  const x = (k) => margin.left + ((right - margin.left) * (k + 0.5)) / n;
  const y = (angle) => bottom - ((bottom - margin.top) * angle) / 90;
  const axis = svg("g", { class: "ak-axis" }, node);
  for (const angle of [0, 30, 60, 90]) {
    svg("path", { d: `M${margin.left} ${y(angle)}H${right}` }, axis);
    svg("text", { x: margin.left - 6, y: y(angle) + 4, "text-anchor": "end" }, axis).textContent = angle;
  }
  const every = Math.ceil((n * 24) / (right - margin.left));
  for (let k = 0; k < n; k += every) svg("text", { x: x(k), y: bottom + 16, "text-anchor": "middle" }, axis).textContent = k + 1;
  svg("text", { x: (margin.left + right) / 2, y: height - 3, "text-anchor": "middle", class: "ak-quiet" }, axis).textContent = "which angle, smallest first";
  const random = film.get(`${p}.random_angles`), c = [0, 1, 2].find((each) => Number.isFinite(random[each * n * 3])) ?? 0;
  const limits = (z) => Array.from({ length: n }, (_, k) => random[(c * n + k) * 3 + z]);
  const [low, high] = [limits(1), limits(2)], known = [...low.keys()].filter((k) => Number.isFinite(low[k]));
  const edge = (values, order) => order.map((k) => `${x(k).toFixed(1)} ${y(values[k]).toFixed(1)}`).join("L");
  if (known.length) svg("path", { d: `M${edge(high, known)}L${edge(low, known.toReversed())}Z`, fill: RANDOM, class: "ak-band", stroke: RANDOM, "stroke-width": 1.5, "stroke-opacity": 0.5 }, node);
  const shapes = ["circle", "square", "triangle"];
  const dots = Array.from({ length: n_pairs * n }, (_, at) => {
    const pair = film.header.pairs[Math.floor(at / n)];
    return svg("path", { d: SHAPES[shapes[Math.floor(at / n)]], fill: PAIR_INK[pair].color, class: "ak-angle" }, node);
  });
  const over = svg("rect", { x: margin.left, y: margin.top, width: right - margin.left, height: bottom - margin.top, class: "ak-over" }, node);
  over.onpointermove = (event) => {
    const box = over.getBoundingClientRect(), k = clamp(Math.floor(((event.clientX - box.left) / box.width) * n), 0, n - 1);
    const values = film.header.pairs.map((pair, of) => `${pairName(pair)}: ${number(film.value(`${p}.angles`, [of, k]), 1)}°`);
    film.tip.show([`angle ${k + 1} of ${n}`, ...values, `random: ${number(low[k], 0)}° to ${number(high[k], 0)}°`].join("\n"), event);
  };
  over.onpointerleave = () => film.tip.hide();
  return {
    update() {
      const angles = film.get(`${p}.angles`);
      dots.forEach((dot, at) => {
        show(dot, Number.isFinite(angles[at]));
        if (Number.isFinite(angles[at])) set(dot, "transform", `translate(${x(at % n).toFixed(1)} ${y(angles[at]).toFixed(1)}) scale(0.75)`);
      });
    },
  };
}

const angles = {
  name: "angles",
  title: titled("Which directions do both read?"),
  hint: "Each matrix reads some directions of the input. The principal angles between two such sets: 0° is a direction that both read, 90° one that the other does not see. The overlap above is their mean cos². Grey: random matrices.",
  height: 240,
  shown: (film) => film.variants.some((_, p) => !readsAll(film, p)),
  build(film, body) {
    const legend = el("div", "ak-film-legend", body);
    film.header.pairs.forEach((pair, c) => markLegend(legend, ["circle", "square", "triangle"][c], PAIR_INK[pair].color, pairName(pair)));
    const grid = panelGrid(film, body, film.variants.length, 250, 2);
    return film.variants.flatMap((variant, p) => {
      panelTitle(grid.boxes[p], variant);
      const note = !notesOf(film, p).has_head ? lacks(variant) : readsAll(film, p) ? "Its heads are as wide as the model: each reads everything." : "";
      if (note) el("div", "ak-panel-note", grid.boxes[p], note);
      return note ? [] : [anglesChart(film, grid.boxes[p], p, grid.inner)];
    });
  },
  update: (film, charts) => charts.forEach((chart) => chart.update()),
  finding: (film) => film.variants.map((variant, p) => {
    if (!notesOf(film, p).has_head) return `${variant.name}: ${lacks(variant)}`;
    const n = film.shape(`${p}.angles`)[1];
    return `${variant.name}: ${film.header.pairs.map((pair, c) => {
      const own = Array.from(film.part(`${p}.angles`, [c])).filter(Number.isFinite);
      return `${pairName(pair)} ${own.filter((angle) => angle < 30).length} of ${own.length || n} angles below 30°`;
    }).join(", ")}.`;
  }).join(" "),
  table: (film) => ({
    columns: ["step", "variant", "pair", "which", "degrees", "random mean", "random low", "random high"],
    rows: film.variants.flatMap((variant, p) => {
      const [, n] = film.shape(`${p}.angles`), random = film.get(`${p}.random_angles`);
      return film.header.pairs.flatMap((pair, c) => Array.from({ length: n }, (_, k) => [
        film.step, variant.text, pair, k + 1, film.value(`${p}.angles`, [c, k]), ...random.subarray((c * n + k) * 3, (c * n + k) * 3 + 3),
      ]));
    }),
  }),
};

function markLegend(parent, shape, color, text) {
  const item = el("span", "", parent);
  const sample = svg("svg", { viewBox: "-8 -8 16 16", width: 16, height: 16, "aria-hidden": "true" }, item);
  Object.assign(sample.style, { width: "16px", height: "16px" });
  const mark = svg("path", { d: SHAPES[shape], fill: color }, sample);
  el("span", "", item, text);
  return mark;
}

function openMark(mark, { color, scale }) {
  mark.classList.add("ak-open");
  mark.style.setProperty("--ak-ink", color);
  mark.setAttribute("transform", `scale(${scale})`);
}

/** Why a variant has no map; empty if it has one. */
const notMapped = (film, p) => (notesOf(film, p).has_head ? notesOf(film, p).refusal : lacks(film.variants[p]));

/** Roles that a token has in this layer and that are in the plane. */
function pointsOf(film, p) {
  const { tokens, asks, looked_at } = film.header, { widths } = notesOf(film, p);
  return tokens.flatMap((_, i) => ROLE_INK.map((ink, r) => ({ r, i }))
    .filter(({ r }) => (r ? looked_at[i] : asks[i]) && widths[r] === widths[1]));
}

/** Places of points in the plane of the newest frame, and how much of the spread it shows. */
function project(film, p, points, k, kept) {
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

const map = {
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
    const grid = panelGrid(film, body, film.variants.length, 250, 3);
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

const SHORT_NAMES = { cos_weights: "cosine", overlap: "overlap", cka_weights: "CKA", cos_activations: "cosine", cka_activations: "CKA" };

/** All heads of the newest frame: [variant, layer, head, [[value, side] per measure and pair]]. */
function headRows(film) {
  const { pairs, measures, places } = film.header;
  return film.variants.flatMap((variant, p) => places.flatMap((place, l) => Array.from({ length: variant.n_heads }, (_, head) => {
    const n_heads = film.shape(`${p}.table`)[1];
    const table = film.get(`${p}.table`), random = film.get(`${p}.table_random`);
    const cells = pairs.flatMap((_, c) => measures.map((_, m) => {
      const value = table[((l * n_heads + head) * pairs.length + c) * measures.length + m];
      const from = ((l * pairs.length + c) * measures.length + m) * 3;
      return [value, value > TWIN ? NaN : beside(value, random.subarray(from, from + 3))];
    }));
    return { variant, place, head, cells };
  })));
}

const heads = {
  name: "heads",
  title: (film) => `Every head at step ${number(film.steps.at(-1), 0)}`,
  hint: "▲ more alike than random matrices, ▼ less alike; 1 is the same. This table does not move with the slider.",
  height: 200,
  shape: (film) => film.variants.map(({ n_heads }) => n_heads),
  build(film, body) {
    const { pairs, measures } = film.header;
    const box = el("div", "ak-scroll", body); // with a stop for the keyboard: a table, not a picture
    Object.assign(box, { tabIndex: 0, role: "region", ariaLabel: "All heads" });
    const table = el("table", "ak-heads-table", box), top = el("thead", "", table);
    const [first, second, third] = [0, 1, 2].map(() => el("tr", "", top)), n_weights = measures.indexOf("cos_activations");
    for (const name of ["variant", "layer", "head"]) Object.assign(el("th", "", first, name), { rowSpan: 3, scope: "col" });
    for (const pair of pairs) {
      Object.assign(el("th", "ak-group", first, pairName(pair)), { colSpan: measures.length, scope: "colgroup" });
      Object.assign(el("th", "ak-group", second, "weights"), { colSpan: n_weights, scope: "colgroup" });
      Object.assign(el("th", "", second, "activations"), { colSpan: measures.length - n_weights, scope: "colgroup" });
      measures.forEach((name, m) => (el("th", m ? "" : "ak-group", third, SHORT_NAMES[name]).scope = "col"));
    }
    const rows = el("tbody", "", table);
    return headRows(film).map(({ variant, place, head, cells }) => {
      const row = el("tr", "", rows), name = el("th", "", row);
      name.scope = "row";
      el("i", "", name, "■").style.color = variant.color;
      el("span", "", name, ` ${variant.name}`);
      el("td", "", row, place.replace(/^Layer /, ""));
      el("td", "", row, `${head + 1}`);
      return cells.map((_, at) => el("td", at % measures.length ? "" : "ak-group", row, ""));
    });
  },
  update(film, drawn) {
    if (drawn.version === film.version) return;
    drawn.version = film.version;
    headRows(film).forEach(({ cells }, i) => cells.forEach(([value, side], at) => {
      say(drawn[i][at], `${two(value)}${MARKS[side] ?? ""}`);
      set(drawn[i][at], "data-side", Number.isNaN(side) ? "" : side);
    }));
  },
  finding(film) {
    const { pairs, measures } = film.header, rows = headRows(film);
    return pairs.map((pair, c) => {
      const sides = rows.map(({ cells }) => cells[c * measures.length + measures.indexOf("cka_weights")][1]).filter(Number.isFinite);
      const count = (side) => sides.filter((each) => each === side).length;
      return `${pairName(pair)}: of ${sides.length} heads with matrices of their own, ${count(1)} have weights more alike than random, ${count(-1)} less.`;
    }).join(" ");
  },
  table: (film) => ({
    columns: ["variant", "layer", "head", ...film.header.pairs.flatMap((pair) => film.header.measures.map((name) => `${pair} ${name}`))],
    rows: headRows(film).map(({ variant, place, head, cells }) => [variant.text, place, head + 1, ...cells.map(([value]) => value)]),
  }),
};

return [verdicts, weights, activations, angles, map, heads];
})();

export default function (component) {
  return filmPage(component, { figures: similarityFigures });
}
