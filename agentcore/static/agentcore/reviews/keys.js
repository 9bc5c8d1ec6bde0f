/* Keys of one letter: j k Enter a r e i x b n s u ? Esc. No key decides by itself: `a` asks, Enter answers.
 *
 * They are silent while somebody types, and can be switched off (WCAG 2.1.4); this browser remembers that.
 */
(() => {
  "use strict";

  const OFF = "agentcore.keys.off";
  const { root, words, announce } = window.agentcore.page;
  const kind = root && root.dataset.reviews;
  const isList = kind === "list";

  function start() {
    const help = root.querySelector("[data-help]");
    const box = root.querySelector("[data-keys-on]");
    box.checked = !isOff();
    box.addEventListener("change", () => remember(!box.checked));
    root.querySelector("[data-close]").addEventListener("click", () => help.close());
    root.querySelectorAll("[data-show-help]").forEach((button) => {
      button.hidden = false;
      button.addEventListener("click", () => help.showModal());
    });
    document.addEventListener("keydown", onKey);
    root.addEventListener("focusout", (event) => event.target.matches("[data-decision=approve] button, [data-bulk-default]") && takeBack(event.target));
    followHash();

    function onKey(event) {
      if (event.defaultPrevented || event.isComposing || help.open) {
        return;
      }
      if (event.key === "Escape") {
        leave();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        send(event);
      } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !isTyping(event.target)) {
        press(event);
      }
    }

    function press(event) {
      const action = { list: inList, detail: onRequest }[kind]?.[event.key] || onReport[event.key];
      const isLetter = event.key !== "Enter";
      if (!action || (isLetter && isOff()) || (isLetter && event.repeat && !"jk".includes(event.key))) {
        return;
      }
      if (action(event) !== false) {
        event.preventDefault();
      }
    }

    const inList = {
      j: () => move(1),
      k: () => move(-1),
      Enter: (event) => (event.target.matches("[data-request]") ? open(event.target) : false),
      a: () => withRow(askToApprove),
      r: () => withRow((row) => open(row, "#key=r")),
      e: () => withRow((row) => open(row, "#key=e")),
      i: () => withRow((row) => open(row, "#key=i")),
      x: () => withRow(choose),
      b: () => goToBulk(),
      n: () => follow("a[rel=next]", words.last_page),
      "?": () => help.showModal(),
    };
    const onRequest = {
      j: () => follow("a[rel=next]", words.last),
      k: () => follow("a[rel=prev]", words.first),
      a: () => askOnPage(),
      r: () => focusOn("[data-decision=reject] textarea"),
      e: () => openPart("[data-edit]"),
      i: () => openPart("[data-respond]"),
      s: () => renew() || announce(words.unchanged),
      u: () => follow("[data-back]"),
      "?": () => help.showModal(),
    };
    const onReport = {
      u: () => follow("[data-back]"),
      "?": () => help.showModal(),
    };
    const early = window.agentcoreKeys ? window.agentcoreKeys() : [];
    early.forEach((key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })));
  }

  // In the list

  function rows() {
    return [...root.querySelectorAll("[data-queue] > [data-request]")];
  }

  function currentRow() {
    return document.activeElement.closest("[data-queue] > [data-request]");
  }

  function move(by) {
    const all = rows();
    const at = all.indexOf(currentRow());
    const next = all[at === -1 ? (by > 0 ? 0 : all.length - 1) : at + by];
    if (next) {
      next.focus();
      next.scrollIntoView({ block: "nearest" });
    } else {
      announce(by > 0 ? words.last : words.first);
    }
  }

  function withRow(action) {
    const row = currentRow();
    return row ? action(row) : move(1);
  }

  function open(row, hash = "") {
    window.location.assign(row.querySelector('[data-part="link"]').href + hash);
  }

  function choose(row) {
    const box = row.querySelector('[data-part="choose"]');
    if (box.disabled) {
      announce(words.cannot_decide);
      return;
    }
    box.checked = !box.checked;
    box.dispatchEvent(new Event("change", { bubbles: true }));
  }

  function askToApprove(row) {
    const button = row.querySelector("[data-decision=approve] button:not(:disabled)");
    if (button) {
      ask(button, row.querySelector('[data-part="confirm"]'), row.querySelector('[data-part="open-name"]').textContent);
    } else {
      announce(row.querySelector('[data-part="choose"]').disabled ? words.cannot_decide : row.querySelector('[data-part="why"]').textContent || words.open_first);
    }
  }

  function goToBulk() {
    const note = root.querySelector("[data-bulk] textarea");
    if (root.querySelector("[data-bulk] button:not(:disabled)")) {
      note.focus();
      note.scrollIntoView({ block: "nearest" });
    } else {
      announce(words.chosen_none);
    }
  }

  /* A note is first of all the reason of a rejection. It only asks: Enter, on the button, rejects. */
  function askToRejectAll(bulk) {
    const button = bulk.querySelector("[data-bulk-default]:not(:disabled)");
    if (button) {
      ask(button, bulk.querySelector('[data-part="confirm"]'), root.querySelectorAll("[data-queue] [data-part=choose]:checked").length);
    } else {
      announce(words.chosen_none);
    }
  }

  // On the page of one request

  function askOnPage() {
    const button = root.querySelector("[data-decision=approve] button:not(:disabled)");
    if (button) {
      ask(button, root.querySelector('[data-decision=approve] [data-part="confirm"]'), root.querySelector("h1").textContent);
    } else {
      announce(words.cannot_decide);
    }
  }

  function focusOn(selector) {
    const field = root.querySelector(selector);
    if (field && !field.disabled) {
      field.focus();
      field.scrollIntoView({ block: "center" });
    } else {
      announce(words.cannot_decide);
    }
  }

  function openPart(selector) {
    const part = root.querySelector(selector);
    if (part) {
      part.open = true;
      (part.querySelector("form :is(input, select, textarea):not([type=hidden])") || part.querySelector("summary")).focus();
    } else {
      announce(words.cannot_decide);
    }
  }

  function follow(selector, otherwise) {
    const link = root.querySelector(selector);
    if (link) {
      window.location.assign(link.href);
    } else if (otherwise) {
      announce(otherwise);
    }
  }

  /* The list sends here with a key. It names no element: a browser that went to one would take the focus away. */
  function followHash() {
    if (!isList && window.location.hash === "#key=r") {
      focusOn("[data-decision=reject] textarea");
    } else if (!isList && window.location.hash === "#key=e") {
      openPart("[data-edit]");
    } else if (kind === "detail" && window.location.hash === "#key=i") {
      openPart("[data-respond]");
    }
  }

  /* Once the request changed: load it as it is now, with what was written. */
  function renew() {
    const place = root.querySelector("[data-changed]:not([hidden])");
    if (place && place.matches("form")) {
      place.requestSubmit();
    } else if (place) {
      follow("[data-changed] a");
    }
    return place !== null;
  }

  // Both

  /* The first key puts the focus on the button and says so; only Enter, on the button, approves. */
  function ask(button, place, name) {
    const text = (button.dataset.confirm || words.confirm).replace("#", () => String(name).trim());
    button.focus();
    place.textContent = text;
    place.hidden = false;
    announce(text);
  }

  function takeBack(button) {
    const place = button.closest("li[data-request], [data-decision], [data-bulk]").querySelector('[data-part="confirm"]');
    const own = place || button.closest("li[data-request]")?.querySelector('[data-part="confirm"]');
    if (own) {
      own.hidden = true;
    }
  }

  function leave() {
    const row = currentRow();
    if (row) {
      row.focus();
    } else {
      document.activeElement.blur();
    }
  }

  function send(event) {
    const bulk = event.target.closest("[data-bulk]");
    if (bulk && event.target.matches("textarea")) {
      event.preventDefault();
      askToRejectAll(bulk);
      return;
    }
    const form = event.target.closest("[data-decision]");
    if (form && event.target.matches("textarea, input, select")) {
      event.preventDefault();
      if (!renew()) {
        form.requestSubmit();
      }
    }
  }

  function isTyping(element) {
    return element.matches("textarea, select, [contenteditable], input:not([type=checkbox])");
  }

  function isOff() {
    try {
      return window.localStorage.getItem(OFF) === "yes";
    } catch {
      return false;
    }
  }

  function remember(off) {
    try {
      window.localStorage.setItem(OFF, off ? "yes" : "no");
    } catch {
      // A browser may forbid to remember; then they are on again at the next page.
    }
  }

  window.agentcore.keys = { start };
})();
