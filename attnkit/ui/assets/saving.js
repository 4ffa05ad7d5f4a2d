// What saves Plotly figures; it comes with Plotly, once per page, see load_plotly.

import { saveMenu } from "./save.js";

export default function loadSaving() {
  window.attnkitSave = saveMenu;
}
