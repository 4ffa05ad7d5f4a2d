"""What browser tests ask of a page that shows a film."""

OWNER_SECRET = "correct horse"
"""What opens the owner's page of the server that browser tests share."""

LONG = 60_000
"""Milliseconds; a shared machine may be slow, and waiting ends with the condition."""

COUNT_REPLACED = """() => {
  window.replaced = 0;
  new MutationObserver((changes) => {
    for (const change of changes) {
      window.replaced += change.addedNodes.length + change.removedNodes.length;
    }
  }).observe(document.querySelector('.ak-film'), {childList: true, subtree: true});
}"""
"""Counts in `window.replaced` the nodes that come or go."""

WIDER = """() => [...document.querySelectorAll('body *')]
  .filter((node) => node.getBoundingClientRect().right > window.innerWidth + 1)
  .filter((node) => !node.closest('.ak-tip, .ak-scroll'))
  .map((node) => node.tagName + '.' + node.className).slice(0, 5)"""
"""What is cut at the right edge, of what does not scroll by itself."""
