// One visit to a page is one entry in the browser's history. Streamlit adds an entry whenever the
// query changes, too; here a change of the query alone changes the entry that is there.

export function keepOneEntry({ history, location } = window) {
  if (Object.hasOwn(history, "pushState")) return;
  const push = history.pushState.bind(history);
  history.pushState = (state, title, address) => {
    const isSamePage = new URL(address, location.href).pathname === location.pathname;
    if (isSamePage) history.replaceState(state, title, address);
    else push(state, title, address);
  };
}
