/* Selecting many: all on this page, and how many are selected. Without it the boxes and buttons work the same. */
(() => {
  "use strict";

  const { root, words } = window.agentcore.page;

  function start() {
    const queue = root.querySelector("[data-queue]");
    const all = root.querySelector("[data-all]");
    const boxes = () => [...queue.querySelectorAll('[data-part="choose"]:not(:disabled)')];
    const chosenText = root.querySelector("[data-chosen]");

    all.addEventListener("change", () => {
      boxes().forEach((box) => (box.checked = all.checked));
      tell();
    });
    queue.addEventListener("change", tell);
    new MutationObserver(tell).observe(queue, { childList: true });
    // A browser keeps what was checked when a page is loaded again.
    tell();

    function tell() {
      const chosen = boxes().filter((box) => box.checked).length;
      all.checked = chosen > 0 && chosen === boxes().length;
      all.indeterminate = chosen > 0 && !all.checked;
      chosenText.textContent = { 0: "", 1: words.chosen_one }[chosen] ?? words.chosen_many.replace("#", chosen);
      chosenText.hidden = chosen === 0;
      root.querySelector("[data-choose-all]").hidden = boxes().length === 0;
      root.querySelector("[data-bulk-place]").toggleAttribute("data-sticks", chosen > 0);
      root.querySelectorAll("[data-bulk] button").forEach((button) => (button.disabled = chosen === 0));
      queue.querySelectorAll("[data-request]").forEach((row) => {
        row.toggleAttribute("data-chosen-row", row.querySelector('[data-part="choose"]').checked);
      });
    }
  }

  window.agentcore.bulk = { start };
})();
