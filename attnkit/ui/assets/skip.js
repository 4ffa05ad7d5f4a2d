// A link that is the first stop of the Tab key and leads past the sidebar.
// data: {label}

import { once, states, whenGone } from "./panels.js";

export default function showSkipLink({ data, parentElement }) {
  const root = once(parentElement, "div", "ak-skip-owner");
  if (!states.has(root)) {
    const link = document.createElement("a");
    Object.assign(link, { className: "ak-skip", href: "#", textContent: data.label });
    link.onclick = (event) => {
      event.preventDefault();
      document.querySelector("[data-testid=stMain]")?.focus();
    };
    document.body.prepend(link); // beside Streamlit's own nodes, not among them
    states.set(root, link);
  }
  return whenGone(root, () => {
    states.get(root)?.remove();
    states.delete(root);
  });
}
