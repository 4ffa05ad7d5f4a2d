// Choosing a task: a button that shows the one that is set up and opens a dialog of cards. Opening
// needs no answer from the server.
// data: {families: [{title, tasks: [{name, title, question, source, thumbnail}]}], current}

import { mounted, say, unpacked } from "./panels.js";
import { el } from "./ink.js";
import { tr } from "./language.js";

export default function showGallery({ data: packed, parentElement, setTriggerValue }) {
  const data = unpacked(packed), { state, gone } = mounted(parentElement, "ak-gallery", buildDialog);
  state.choose = (name) => setTriggerValue("chosen", name);
  const current = data.families.flatMap(({ tasks }) => tasks).find(({ name }) => name === data.current);
  if (current) fillCard(state.button, current);
  const wanted = JSON.stringify([data.families, data.current]);
  if (state.drawn !== wanted) buildCards(state, data);
  state.drawn = wanted;
  return gone;
}

function buildDialog(root) {
  const open = cardNode("ak-chosen-task", root), dialog = el("dialog", "ak-dialog", root);
  open.setAttribute("aria-haspopup", "dialog");
  el("span", "ak-open", open, tr("Change task"));
  dialog.setAttribute("aria-label", tr("Choose a task"));
  const head = el("div", "ak-dialog-head", dialog);
  el("b", "", head, tr("What should the models learn?"));
  const close = el("button", "ak-close", head, tr("Close")), cards = el("div", "ak-families", dialog);
  close.type = "button";
  close.onclick = () => dialog.close();
  dialog.onclick = ({ target }) => target === dialog && dialog.close();
  open.onclick = () => {
    dialog.showModal();
    cards.querySelector("[aria-current=true]")?.focus();
  };
  return { button: open, dialog, cards };
}

function buildCards({ cards, dialog, choose }, { families, current }) {
  const focused = cards.contains(document.activeElement) && document.activeElement.dataset.task;
  cards.replaceChildren();
  for (const { title, tasks } of families) {
    const family = el("section", "", cards);
    family.setAttribute("aria-label", title);
    el("div", "ak-family", family, title);
    const grid = el("div", "ak-tasks", family);
    for (const task of tasks) {
      const card = cardNode("ak-task", grid);
      fillCard(card, task);
      card.dataset.task = task.name;
      card.setAttribute("aria-current", String(task.name === current));
      if (task.source) el("span", "ak-source", card.querySelector(".ak-words"), tr("Source: {source}", { source: task.source }));
      card.onclick = () => {
        dialog.close();
        if (task.name !== current) choose(task.name);
      };
    }
  }
  if (focused) cards.querySelector(`[data-task="${focused}"]`)?.focus();
}

function cardNode(className, parent) {
  const card = el("button", className, parent);
  card.type = "button";
  card.innerHTML = '<span class="ak-picture"></span><span class="ak-words"><b></b><span class="ak-question"></span></span>';
  return card;
}

function fillCard(card, { title, question, thumbnail }) {
  const picture = card.querySelector(".ak-picture");
  if (picture.dataset.drawn !== thumbnail) picture.innerHTML = picture.dataset.drawn = thumbnail;
  say(card.querySelector("b"), title);
  say(card.querySelector(".ak-question"), question);
}
