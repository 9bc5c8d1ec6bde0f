/* Keeps the keys that are pressed before the other scripts are there: keys.js presses them again. */
(() => {
  "use strict";

  const kept = [];
  const isTyping = (element) => element.matches("textarea, select, [contenteditable], input:not([type=checkbox])");

  function keep(event) {
    // Letters only: no Enter, nothing that could decide.
    if (/^[a-z?]$/.test(event.key) && !event.ctrlKey && !event.metaKey && !event.altKey && !event.repeat && !isTyping(event.target)) {
      kept.push(event.key);
    }
  }

  document.addEventListener("keydown", keep);
  window.agentcoreKeys = () => {
    document.removeEventListener("keydown", keep);
    return kept;
  };
})();
