// Choosing a task: a button that shows the one that is set up and opens a dialog of cards. Opening
// needs no answer from the server.
// data: {families: [{title, tasks: [{name, title, question, source, thumbnail}]}], current}

import { once, say, states, unpacked, whenGone } from "./panels.js";

export default function showGallery({ data: packed, parentElement, setTriggerValue }) {
  const data = unpacked(packed);
  const root = once(parentElement, "div", "ak-gallery");
  let state = states.get(root);
  if (!state) {
    state = {};
    states.set(root, state);
    buildDialog(root, state);
  }
  state.choose = (name) => setTriggerValue("chosen", name);
  const all = data.families.flatMap((family) => family.tasks);
  const current = all.find((task) => task.name === data.current);
  if (current) fillCard(state.button, current);
  const wanted = JSON.stringify([data.families, data.current]);
  if (state.drawn !== wanted) {
    state.drawn = wanted;
    buildCards(state, data);
  }
  return whenGone(root, () => states.delete(root));
}

function buildDialog(root, state) {
  state.button = cardNode("ak-chosen-task");
  state.button.setAttribute("aria-haspopup", "dialog");
  const more = document.createElement("span");
  more.className = "ak-open";
  more.textContent = "Change task";
  state.button.append(more);
  state.dialog = document.createElement("dialog");
  state.dialog.className = "ak-dialog";
  state.dialog.setAttribute("aria-label", "Choose a task");
  const head = document.createElement("div");
  head.className = "ak-dialog-head";
  head.innerHTML = "<b>What should the models learn?</b>";
  const close = document.createElement("button");
  close.type = "button";
  close.className = "ak-close";
  close.textContent = "Close";
  close.onclick = () => state.dialog.close();
  head.append(close);
  state.cards = document.createElement("div");
  state.cards.className = "ak-families";
  state.dialog.append(head, state.cards);
  state.dialog.onclick = (event) => {
    if (event.target === state.dialog) state.dialog.close();
  };
  state.button.onclick = () => {
    state.dialog.showModal();
    state.cards.querySelector("[aria-current=true]")?.focus();
  };
  root.append(state.button, state.dialog);
}

function buildCards(state, data) {
  const focused = state.cards.contains(document.activeElement) && document.activeElement.dataset.task;
  state.cards.replaceChildren(...data.families.map(({ title, tasks }) => {
    const family = document.createElement("section");
    family.setAttribute("aria-label", title);
    const heading = document.createElement("div");
    heading.className = "ak-family";
    heading.textContent = title;
    const grid = document.createElement("div");
    grid.className = "ak-tasks";
    grid.append(...tasks.map((task) => {
      const card = cardNode("ak-task");
      fillCard(card, task);
      card.dataset.task = task.name;
      card.setAttribute("aria-current", String(task.name === data.current));
      if (task.source) {
        const source = document.createElement("span");
        source.className = "ak-source";
        source.textContent = `Source: ${task.source}`;
        card.querySelector(".ak-words").append(source);
      }
      card.onclick = () => {
        state.dialog?.close();
        if (task.name !== data.current || !state.dialog) state.choose(task.name);
      };
      return card;
    }));
    family.append(heading, grid);
    return family;
  }));
  if (focused) state.cards.querySelector(`[data-task="${focused}"]`)?.focus();
}

function cardNode(className) {
  const card = document.createElement("button");
  card.type = "button";
  card.className = className;
  card.innerHTML = '<span class="ak-picture"></span><span class="ak-words"><b></b><span class="ak-question"></span></span>';
  return card;
}

function fillCard(card, { title, question, thumbnail }) {
  const picture = card.querySelector(".ak-picture");
  if (picture.dataset.drawn !== thumbnail) {
    picture.dataset.drawn = thumbnail;
    picture.innerHTML = thumbnail;
  }
  say(card.querySelector("b"), title);
  say(card.querySelector(".ak-question"), question);
}
