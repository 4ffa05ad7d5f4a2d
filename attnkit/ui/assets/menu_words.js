// Words of the menu that saves a figure; the menu's own code comes with Plotly, in one language only.

import { tr } from "./language.js";

export const menuWords = () => ({
  // Translators: button of a menu
  save: tr("Save"),
  saveFigure: (title) => tr("Save: {title}", { title }),
  saveAs: (kind, title) => tr("Save as {kind}: {title}", { kind, title }),
});
