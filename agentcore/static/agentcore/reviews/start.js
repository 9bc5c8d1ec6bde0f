/* Starts the reviewers' pages. Without scripts they work the same, by reload. */
(() => {
  "use strict";

  const { list, detail, bulk, keys, page } = window.agentcore;
  if (!page.root) {
    return;
  }
  if (page.root.dataset.reviews === "report") {
    keys.start();
    return;
  }
  const isList = page.root.dataset.reviews === "list";
  const shown = isList ? list.start() : detail.start();
  if (isList) {
    bulk.start();
  }
  keys.start();
  page.preventDoubleClicks();
  window.agentcore.connect({
    url: shown.address,
    onState: (state) => window.agentcore.showState(page.root.querySelector("[data-live]"), page.words, state),
    onFrame: shown.onFrame,
  });
})();
