/* A WebSocket that stays: it connects again by itself, waiting longer each time.
 *
 *   agentcore.connect({ url: () => "/ws/…", onFrame: (frame) => …, onState: (state) => … })
 *
 * `url` is asked before each connection, so that it can tell what was seen last. States: "connecting", "live",
 * "lost" (it tries again), "closed" (the server said no), "logged_out" (it said no to who is not logged in).
 * Returns { close }.
 */
(() => {
  "use strict";

  const FIRST_PAUSE = 500;
  const LONGEST_PAUSE = 30000;
  const NOT_LOGGED_IN = 4401;
  // Not logged in, not allowed, no such thing, bad question: asking again would give the same answer.
  const FINAL_CODES = new Set([4400, NOT_LOGGED_IN, 4403, 4404]);

  function connect({ url, onFrame, onState }) {
    let socket = null;
    let timer = null;
    let failures = 0;
    let closed = false;

    function open() {
      onState(failures ? "lost" : "connecting");
      socket = new WebSocket(absolute(url()));
      socket.addEventListener("message", (message) => {
        failures = 0;
        onState("live");
        onFrame(JSON.parse(message.data));
      });
      socket.addEventListener("close", (event) => {
        if (closed || FINAL_CODES.has(event.code)) {
          closed = true;
          onState(event.code === NOT_LOGGED_IN ? "logged_out" : "closed");
          return;
        }
        onState("lost");
        timer = setTimeout(open, pause());
        failures += 1;
      });
    }

    function pause() {
      const longest = Math.min(FIRST_PAUSE * 2 ** failures, LONGEST_PAUSE);
      // Not all pages at once, when a server comes back.
      return longest / 2 + (Math.random() * longest) / 2;
    }

    function retryNow() {
      if (!closed && timer !== null && socket.readyState === WebSocket.CLOSED) {
        clearTimeout(timer);
        timer = null;
        failures = Math.min(failures, 1);
        open();
      }
    }

    window.addEventListener("online", retryNow);
    document.addEventListener("visibilitychange", () => document.hidden || retryNow());
    open();

    return {
      close() {
        closed = true;
        clearTimeout(timer);
        socket.close();
      },
    };
  }

  function absolute(path) {
    const found = new URL(path, window.location.href);
    found.protocol = found.protocol.replace("http", "ws");
    return found.href;
  }

  /* Show a connection's state in the element that templates/agentcore/reviews/live.html makes. */
  function showState(element, words, state) {
    if (!element || element.dataset.shown === state) {
      return;
    }
    element.dataset.shown = state;
    element.dataset.live = { live: "on", lost: "lost" }[state] || "off";
    const word = { live: words.live, closed: words.closed, lost: words.lost || words.connecting }[state] || words.connecting;
    const text = element.querySelector("[data-live-text]");
    if (state === "logged_out") {
      text.replaceChildren(`${words.logged_out} `, logInLink(words, element.dataset.next));
    } else {
      text.textContent = word;
    }
  }

  /* Leads to the log-in page, and from there back to this one. */
  function logInLink(words, next) {
    const address = new URL(words.log_in_page, window.location.href);
    address.searchParams.set("next", next || window.location.pathname + window.location.search);
    const link = document.createElement("a");
    link.href = address.href;
    link.textContent = words.log_in;
    return link;
  }

  window.agentcore = { connect, showState };
})();
