// Attention maps of a layer and head, and the small maps of all of them. Arrays and header:
// attnkit/analysis/inspection/lookup.py, attnkit/figures/sentence.py.

import {
  chosenPlace, columnsOf, firstOf, followedRow, lackingOf, mapOf, mostHeads, placeText, short,
  shownPlace,
} from "./followed.js";
import {
  clamp, el, paint, panelGrid, panelTitle, percent, scaleLegend, sequential, set, show,
  textWidth,
} from "./ink.js";
import { heatMap } from "./maps.js";
import { keyPicker, pressedCell } from "./attribution.js";
import { say } from "./panels.js";

/** Which token is followed, and which map is shown, with the way back to the mean. */
function mapControls(film, body) {
  const { header } = film;
  const line = el("div", "ak-controls", body), asked = header.askable.length > 0;
  const label = el("label", "ak-not-saved", line, "Follow ");
  show(label, film.served && asked); // only Python can follow another one
  const select = el("select", "", label);
  select.dataset.focus = "follow";
  select.setAttribute("aria-label", "Follow the token");
  header.askable.forEach(({ label: text, title }, i) => {
    const option = el("option", "", select, text);
    option.value = i;
    option.title = title;
  });
  select.onchange = () => film.pick({ query_index: Number(select.value) });
  const showKey = asked ? keyPicker(film, line) : () => {};
  const place = el("span", "", line, "");
  const unlock = el("button", "ak-not-saved", line, "Unlock: mean of all heads");
  unlock.type = "button";
  unlock.dataset.focus = "unlock";
  unlock.onclick = () => {
    film.own.mean = true;
    film.redraw();
  };
  return { line, select, showKey, place, unlock };
}

function updateControls(film, { select, showKey, place, unlock }) {
  showKey();
  if (select.value !== String(film.picked.query_index)) select.value = film.picked.query_index;
  const text = placeText(film, shownPlace(film));
  say(place, text ? `Shown: ${text}${film.own.preview ? ", as long as it is pointed at" : film.own.mean ? "" : " (locked)"}` : "");
  show(unlock, mostHeads(film) > 1 && !film.own.mean);
}

const LEAST_COLUMN = 9, MANY = 8; // so many layers have smaller small maps

/** The column of the token whose score is taken apart; −1 if none is. */
const layerColumn = ({ header, picked }) => header.layers[header.layer].column_positions.indexOf(picked.key_position);

export const mapsFigure = {
  name: "maps",
  title: "Attention maps",
  hint: (film) => {
    const layer = film.header.layers[shownPlace(film).layer];
    return [
      "Rows are queries, columns are keys; brighter is more attention.",
      film.served && film.header.askable.length ? "Press a cell to see why its score is as it is, and to follow the token of its row." : "",
      layer.target.some((column) => column >= 0) ? "Outlined: the entry that holds the right answer." : "",
      layer.reverse.some((column) => column >= 0) ? "Circle: the entry that points back." : "",
      layer.right.some((right) => right >= 0) ? "✓ and ✗: what is answered." : "",
      layer.cut,
    ].filter(Boolean).join(" ");
  },
  height: 340,
  shape: (film) => [shownPlace(film).layer, shownPlace(film).layer === film.header.layer],
  build(film, body) {
    const { header } = film, controls = mapControls(film, body);
    const { layer: l } = shownPlace(film), layer = header.layers[l], own = l === header.layer;
    const room = own ? textWidth(Object.values(header.texts).map(short)) : 0;
    const least = Math.min(film.width, 34 + textWidth(layer.rows) + layer.columns.length * LEAST_COLUMN + room);
    const grid = panelGrid(film, body, film.variants.length, Math.max(150, least), 3, 10);
    const tokens = columnsOf(layer);
    const panels = film.variants.map((variant, p) => {
      const box = grid.boxes[p], title = panelTitle(box, variant);
      const note = el("div", "ak-panel-note", box, "");
      if (!film.shape(`${p}.grid.${l}`)) return { title, note };
      const map = heatMap(film, el("div", "ak-scroll", box), {
        rows: layer.rows,
        columns: layer.columns,
        width: grid.inner,
        rowTokens: layer.row_positions,
        columnTokens: tokens,
        target: layer.target,
        reverse: layer.reverse,
        answers: room,
        tell: (i, j, weight) => `${layer.rows[i]} attends to ${layer.column_titles[j]}: ${percent(weight)}`,
        onCell: own && film.served && header.askable.length ? (i, j) => {
          const query_index = header.askable.findIndex(({ row }) => row === i);
          if (query_index >= 0) film.pick(pressedCell(film, query_index, layer.column_positions[j]));
        } : undefined,
      });
      return { title, note, map };
    });
    return { controls, panels, legend: scaleLegend(body), own, room };
  },
  update(film, { controls, panels, legend, own, room }) {
    const place = shownPlace(film), { header } = film, scale = sequential(1);
    updateControls(film, controls);
    legend.update(scale, "attention", ["0%", "100%"]);
    panels.forEach(({ title, note, map }, p) => {
      const lacking = lackingOf(film.variants[p], place);
      say(note, lacking);
      show(note, Boolean(lacking));
      if (!map) return;
      show(map.node, !lacking);
      if (lacking) return title.update("");
      const about = { row: own ? followedRow(film) : -1, column: own ? layerColumn(film) : -1 };
      if (own && room) {
        const right = film.get(`${p}.right`), given = film.get(`${p}.answers`);
        about.answers = Array.from(given, (answer) => (answer < 0 ? "" : short(header.texts[answer] ?? String(answer))));
        about.right = Array.from(right, (flag) => (flag === 255 ? null : flag === 1));
        const asked = about.right.filter((flag) => flag !== null).length;
        title.update(asked ? `${about.right.filter(Boolean).length} of ${asked} right` : "");
      } else title.update("");
      map.update(mapOf(film, p, place), scale, about);
    });
  },
  finding(film) {
    const place = shownPlace(film), layer = film.header.layers[place.layer];
    const parts = film.variants.map((variant, p) => {
      if (lackingOf(variant, place)) return `${variant.name}: ${lackingOf(variant, place)}`;
      const map = mapOf(film, p, place), m = layer.columns.length;
      const mean = (columns) => {
        const on = columns.map((column, i) => (column >= 0 ? map[i * m + column] : NaN)).filter((weight) => !Number.isNaN(weight));
        return on.length ? on.reduce((a, b) => a + b, 0) / on.length : NaN;
      };
      const right = mean(layer.target), reverse = mean(layer.reverse);
      if (Number.isNaN(right)) return `${variant.name}: ${layer.rows.length} rows.`;
      return `${variant.name}: on average ${percent(right)} of the attention on the right entries${Number.isNaN(reverse) ? "" : `, ${percent(reverse)} on those that point back`}.`;
    });
    return `Attention maps${film.moment && ` at ${film.moment}`}${placeText(film, place) && `, ${placeText(film, place)}`}. ${parts.join(" ")}`;
  },
  table(film) {
    const place = shownPlace(film), layer = film.header.layers[place.layer];
    const rows = film.variants.flatMap((variant, p) => {
      if (lackingOf(variant, place)) return [];
      const map = mapOf(film, p, place), m = layer.columns.length;
      return layer.rows.map((text, i) => [film.step, variant.name, text, ...map.slice(i * m, (i + 1) * m)]);
    });
    return { columns: ["step", "variant", "row", ...layer.column_titles], rows };
  },
};

export const headGrid = {
  name: "heads",
  title: "Every layer and head",
  hint: "Point at a small map to see it above; press it to keep it. Rows are layers, columns are heads.",
  height: 220,
  shown: (film) => film.header.layers.length * mostHeads(film) > 1,
  build(film, body) {
    const { layers } = film.header, gap = 6;
    const grid = panelGrid(film, body, film.variants.length, Math.min(film.width, Math.max(175, mostHeads(film) * 46)));
    return film.variants.flatMap((variant, p) => {
      const box = grid.boxes[p];
      panelTitle(box, variant);
      if (variant.refusal) el("div", "ak-panel-note", box, variant.refusal);
      return layers.flatMap((layer, l) => {
        if (!film.shape(`${p}.grid.${l}`)) return [];
        if (layers.length > 1) el("div", "ak-quiet-line", box, layer.title);
        const line = el("div", "ak-head-row", el("div", "ak-scroll", box));
        const room = Math.floor((grid.inner - gap * mostHeads(film)) / mostHeads(film)) - 10;
        const cell = clamp(Math.floor(room / layer.columns.length), 1, Math.max(1, Math.floor((layers.length > MANY ? 48 : 110) / Math.max(layer.columns.length, layer.rows.length))));
        return Array.from({ length: variant.n_heads }, (_, head) => {
          const button = el("button", "ak-head", line);
          button.type = "button";
          button.dataset.focus = `${p}.${l}.${head}`;
          button.setAttribute("aria-label", `${variant.name}, ${placeText(film, { layer: l, head })}`);
          button.title = placeText(film, { layer: l, head });
          const canvas = el("canvas", "", button);
          Object.assign(canvas, { width: layer.columns.length, height: layer.rows.length });
          canvas.style.cssText = `width:${layer.columns.length * cell}px;height:${layer.rows.length * cell}px`;
          const preview = (on) => () => {
            film.own.preview = on ? { layer: l, head } : null;
            film.redraw();
          };
          button.onpointerenter = button.onfocus = preview(true);
          button.onpointerleave = button.onblur = preview(false);
          button.onclick = () => {
            film.own.mean = false;
            film.pick({ layer: l, head });
          };
          return { p, l, head, button, canvas };
        });
      });
    });
  },
  update(film, maps) {
    const chosen = chosenPlace(film), scale = film.own.bytes ??= sequential(255);
    for (const { p, l, head, button, canvas } of maps) {
      set(button, "aria-pressed", l === chosen.layer && head === chosen.head);
      paint(canvas, film.part(`${p}.grid.${l}`, [head]), scale);
    }
  },
  finding: (film) => `${film.header.masses ? "" : `At ${film.moment}: the head with the most attention on the right entries. `}${film.variants.map(({ name }, p) => `${name}: ${film.sentencesOf("heads")[p]}.`).join(" ")}`,
  table: (film) => ({
    columns: ["step", "variant", "layer", "head", ...(film.header.masses ?? ["mass_on_right", "mass_on_reversed"])],
    rows: film.variants.flatMap((variant, p) => film.header.layers.flatMap((_, l) => Array.from({ length: variant.n_heads }, (__, h) => [
      film.step, variant.name, l + firstOf(film), h + firstOf(film), ...film.part(`${p}.mass`, [l, h]),
    ]))),
  }),
};
