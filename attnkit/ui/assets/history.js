// One visit to a page is one entry in the browser's history; a lesson, opened in the Guide, is a page
// of its own. Streamlit adds an entry whenever the query changes, too, and the browser for a jump
// within the page; here both stay within the entry.

export function keepOneEntry({ history, location } = window) {
  if (Object.hasOwn(history, "pushState")) return; // this script has run before
  joinFirst(history, location);
  const push = history.pushState.bind(history);
  let before = null; // the address before the query changed, until the visitor does something
  const forget = () => (before = null);
  for (const action of ["click", "keydown", "input", "popstate"]) addEventListener(action, forget, true);
  history.pushState = (state, title, address) => {
    const { pathname, search } = new URL(address, location.href);
    const opensLesson = pathname.endsWith("/guide") && hasLesson(search) && !hasLesson(location.search);
    if (pathname === location.pathname && !opensLesson) {
      before ??= location.href;
      history.replaceState(state, title, address);
    } else {
      // The query of a page may come before its path: then the entry so far belongs to another page.
      if (before !== null && search === location.search) history.replaceState(history.state, "", before);
      forget();
      push(state, title, address);
    }
  };
  document.addEventListener("click", ({ target }) => {
    // A link to the page that is open changes nothing in Streamlit: the lesson would stay.
    const link = target.closest?.("[data-testid=stSidebarNavLink]");
    if (link && new URL(link.href).pathname === location.pathname) document.querySelector(".st-key-close_lesson button")?.click();
  });
  document.addEventListener("click", (event) => {
    const jump = event.target.closest?.("a[href^='#']");
    if (!jump || event.defaultPrevented) return;
    event.preventDefault();
    document.getElementById(jump.hash.slice(1))?.scrollIntoView();
  });
}

const hasLesson = (query) => new URLSearchParams(query).has("lesson");

/** Join the two entries of a link that was put right before this script had come. */
function joinFirst(history, location) {
  const opened = performance.getEntriesByType("navigation")[0]?.name, right = location.href;
  if (!opened || opened === right || new URL(opened).pathname !== location.pathname) return;
  const stay = (event) => {
    event.stopImmediatePropagation(); // Streamlit would open the wrong link again
    history.replaceState(history.state, "", right);
  };
  addEventListener("popstate", stay, { capture: true, once: true });
  history.back();
}
