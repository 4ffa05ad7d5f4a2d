// Draws the board as soon as its code is in the page, see load_board; then with the newest data.

import MESSAGES from "./messages.json" with { type: "json" };

const newest = (window.attnkitNewest ??= new WeakMap()); // of all languages

export default function showLate(component) {
  const { parentElement } = component;
  let end;
  newest.set(parentElement, component);
  const draw = () => {
    if (newest.get(parentElement) !== component) return;
    const showBoard = window.attnkitBoards?.[MESSAGES.language];
    if (showBoard) end = showBoard(component);
    else setTimeout(draw, 20);
  };
  draw();
  return () => {
    if (!parentElement.isConnected) newest.delete(parentElement);
    end?.();
  };
}
