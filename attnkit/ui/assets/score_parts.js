// The scores in two parts, and what mask and softmax make of them.
// Arrays are those of attnkit/analysis/inspection/symmetry.py.

import { chosenHead, chosenLayer, cutText, hasHead, mapsOf, square } from "./direction.js";
import {
  bars, diverging, el, limitOf, number, panelGrid, panelTitle, scaleLegend, share, textWidth,
} from "./ink.js";
import { heatMap } from "./maps.js";
import { titled } from "./heads.js";
import { columnsChart } from "./charts.js";
import { say } from "./panels.js";

const LEAST_PART = 170, ROUNDING = 1e-5; // as in attnkit/analysis/inspection/symmetry.py

/** A share of a squared norm: 0% or 100% only if it differs from that by rounding, else with as many digits as it takes. */
function percentOf(part) {
  if (!Number.isFinite(part)) return "–";
  const edge = Math.min(Math.abs(part), Math.abs(1 - part));
  if (edge < ROUNDING) return part < 0.5 ? "0%" : "100%";
  return `${(100 * Math.max(0, part)).toFixed(edge >= 0.005 ? 0 : edge >= 5e-4 ? 1 : 3)}%`;
}

/** The symmetric and the antisymmetric part of an n × n matrix. */
export function partsOf(s, n, kept) {
  kept.even ??= new Float32Array(n * n);
  kept.odd ??= new Float32Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      const there = s[i * n + j], back = s[j * n + i];
      kept.even[i * n + j] = (there + back) / 2;
      kept.odd[i * n + j] = (there - back) / 2;
    }
  }
  return kept;
}

const PARTS = ["symmetric part", "antisymmetric part"];

export const parts = {
  name: "parts",
  title: titled("The scores in two parts"),
  hint: (film) => {
    const cut = cutText(film) ? `${cutText(film)} Shares and eigenvalues are those of all.` : "";
    return `S = Sₛ + Sₐ with Sₛ = (S + Sᵀ)/2 and Sₐ = (S − Sᵀ)/2, and the share of ‖S‖² in each. Below: the eigenvalues of Sₛ, largest first. With plain Q = K all are at least zero: then a score is at most the larger of the two scores of its tokens with themselves, which a self-mask hides.${cut}`;
  },
  height: 240,
  shown: square,
  build(film, body) {
    const { labels, full_labels: full, positions } = film.header, n = labels.length, gap = 22;
    const legend = scaleLegend(body);
    const grid = panelGrid(film, body, film.variants.length, LEAST_PART);
    const most = Math.floor((Math.min(grid.inner, 320) - gap) / 2);
    const cell = Math.max(1, Math.floor((most / n) * 4) / 4);
    const panels = mapsOf(film, grid.boxes, (box, variant, p) => {
      const row = el("div", "ak-two", box);
      const two = PARTS.map((name, part) => {
        if (part) el("span", "ak-sign", row, "+");
        const one = el("div", "", row);
        const heat = heatMap(film, one, {
          rows: labels, columns: labels, width: most, bare: true, cell, rowTokens: positions, columnTokens: positions,
          tell: (i, j, value) => `${name}\n${full[i]}  →  ${full[j]}: ${number(value, 3)}`,
        });
        return { heat, caption: el("div", "ak-share", one, "") };
      });
      const values = columnsChart(film, box, {
        n: film.shape(`${p}.eigenvalues`)[1], width: Math.floor(2 * cell * n + gap), height: 56, color: variant.color,
        tell: (k, value) => `eigenvalue ${k + 1} of Sₛ: ${number(value, 3)}`,
      });
      return { two, values, caption: el("div", "ak-share", box, ""), kept: {} };
    });
    return { legend, panels, n };
  },
  update(film, { legend, panels, n }) {
    const all = panels.flatMap((maps, p) => maps.map((_, m) => film.part(`${p}.scores`, [m])));
    const scale = diverging(limitOf(...all));
    legend.update(scale, "score");
    panels.forEach((maps, p) => maps.forEach((drawn, m) => {
      const { even, odd } = partsOf(film.part(`${p}.scores`, [m]), n, drawn.kept);
      const shares = film.part(`${p}.shares`, [m]), values = film.part(`${p}.eigenvalues`, [m]);
      [even, odd].forEach((part, k) => {
        drawn.two[k].heat.update(part, scale);
        say(drawn.two[k].caption, `${k ? "Sₐ" : "Sₛ"} ${percentOf(shares[k])}`);
      });
      drawn.values.update(values, Math.min(0, values[values.length - 1]), Math.max(0, values[0]));
      say(drawn.caption, eigenvalueText(film, p, m));
    }));
  },
  finding: (film) => film.variants.map((variant, p) => {
    if (!hasHead(film, p)) return `${variant.name}: ${variant.lacking}`;
    const [even, odd] = film.part(`${p}.shares`, [0]);
    return `${variant.name}: ${percentOf(even)} symmetric, ${percentOf(odd)} antisymmetric; ${eigenvalueText(film, p, 0)}.`;
  }).join(" "),
  table: (film) => {
    const { labels } = film.header, n = labels.length, rows = [];
    film.variants.forEach((variant, p) => {
      if (!hasHead(film, p)) return;
      for (let m = 0; m < film.header.notes[p].n_maps; m++) {
        const s = film.part(`${p}.scores`, [m]), { even, odd } = partsOf(s, n, {});
        for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) rows.push([variant.text, m + 1, labels[i], labels[j], s[i * n + j], even[i * n + j], odd[i * n + j]]);
      }
    });
    return { columns: ["variant", "map", "query", "key", "S", "Sₛ", "Sₐ"], rows };
  },
};

function eigenvalueText(film, p, m) {
  const values = film.part(`${p}.eigenvalues`, [m]);
  if (!Number.isFinite(values[0])) return "no eigenvalues: the run diverged";
  const limit = ROUNDING * Math.max(Math.abs(values[0]), Math.abs(values[values.length - 1]));
  const below = values.reduce((count, value) => count + (value < -limit), 0);
  if (!below) return "no eigenvalue below zero";
  const part = film.part(`${p}.negative`, [m])[0];
  return `${below} of ${values.length} eigenvalues below zero, ${percentOf(part)} of ‖Sₛ‖²`;
}

const STAGES = ["S", "after the mask", "after the softmax"];

export const stages = {
  name: "stages",
  title: titled("What mask and softmax make of it"),
  hint: (film) => {
    const masks = [film.header.causal && "the causal mask hides later tokens, one direction of every pair", film.header.notes.some((note) => note.self_mask) && "the self-mask hides the diagonal"].filter(Boolean);
    const maskText = masks.length ? `Here ${masks.join(", and ")}; what is hidden counts as 0. ` : "Here nothing is masked. ";
    return `Asymmetry a of S, of S behind its mask, and of the attention pattern, ${film.header.n_examples > 1 ? `mean over ${film.header.n_examples} examples` : "on this sentence"}. ${maskText}The softmax divides each row by its own sum, so even symmetric scores end in a pattern that is not quite symmetric.`;
  },
  height: 90,
  shown: square,
  build(film, body) {
    const grid = panelGrid(film, body, film.variants.length, 84 + textWidth(STAGES));
    return film.variants.map((variant, p) => {
      panelTitle(grid.boxes[p], variant);
      return bars(film, grid.boxes[p], { labels: STAGES, width: Math.min(grid.inner, 340), color: variant.color });
    });
  },
  update: (film, drawn) => drawn.forEach((one, p) => {
    const own = film.part(`${p}.stages`, [chosenLayer(film), chosenHead(film)]);
    one.update(own, { low: 0, high: 1, texts: Array.from(own, share) });
  }),
  finding: (film) => film.variants.map((variant, p) => {
    const own = film.part(`${p}.stages`, [chosenLayer(film), chosenHead(film)]);
    return `${variant.name}: asymmetry ${STAGES.map((text, k) => `${share(own[k])} ${k ? text : "of S"}`).join(", ")}.`;
  }).join(" "),
  table: (film) => ({
    columns: ["step", "variant", ...STAGES],
    rows: film.steps.flatMap((step, k) => film.variants.map((variant, p) => [step, variant.text, ...film.part(`${p}.stages`, [chosenLayer(film), chosenHead(film)], k)])),
  }),
};
