/* What the list and the page of one request have in common. */
(() => {
  "use strict";

  const DECIDING = new Set(["approve", "reject", "respond"]);
  const root = document.querySelector("[data-reviews]");
  const words = root ? JSON.parse(root.dataset.words) : {};

  /* Ask the server for a page again; null when it does not answer. */
  async function fresh(address = window.location.href) {
    try {
      const response = await fetch(address, { credentials: "same-origin" });
      const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
      return response.ok ? parsed.querySelector("[data-reviews]") : null;
    } catch {
      return null;
    }
  }

  function deciders(approval) {
    return (approval.decisions || []).filter((one) => DECIDING.has(one.verdict) && one.by).map((one) => one.by);
  }

  function statusText(status, by) {
    const word = words[status] || status;
    return by.length ? words.by.replace("#", word).replace("@", () => by.join(", ")) : word;
  }

  function showStatus(badge, status, text) {
    badge.className = `badge badge--${status}`;
    badge.textContent = window.agentcore.text.plain(text || words[status] || status);
  }

  function disable(part) {
    part.querySelectorAll("button, textarea, input, select").forEach((control) => (control.disabled = true));
  }

  function announce(text) {
    const place = root.querySelector("[data-announce]");
    // The same text twice is read twice only if it was gone in between.
    place.textContent = "";
    setTimeout(() => (place.textContent = text));
  }

  function preventDoubleClicks() {
    root.addEventListener("submit", (event) => {
      const sent = event.target.closest("[data-actions], li[data-request], [data-bulk]");
      if (!sent || event.defaultPrevented) {
        return;
      }
      if (sent.dataset.sent !== undefined) {
        event.preventDefault();
        return;
      }
      sent.dataset.sent = "";
      setTimeout(() => delete sent.dataset.sent, 5000);
    });
    window.addEventListener("pageshow", (event) => event.persisted && window.location.reload());
  }

  window.agentcore.page = { root, words, fresh, deciders, statusText, showStatus, disable, announce, preventDoubleClicks };
})();
