// The width of the sidebar at a first visit.

const NAME = "sidebarWidth"; // where Streamlit keeps the width that a visitor has chosen

/**
 * Give the sidebar the width that the dashboard asks for, unless the visitor has chosen one.
 * Streamlit takes its own default where it draws the sidebar before the page's settings have come;
 * a double press of the sidebar's edge sets the wanted width.
 */
export function settleSidebar() {
  let chosen = null;
  try {
    chosen = localStorage.getItem(NAME);
  } catch { /* A frame of another site may keep nothing. */ }
  if (chosen !== null) return;
  const edge = document.querySelector("[data-testid=stSidebarResizeHandle]");
  edge?.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
}
