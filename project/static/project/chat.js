/* Shows a conversation as it happens. Without it the page works by plain forms and reload.
 *
 * Every event is applied to what is there already, found by its turn, call or step: what the server rendered and what
 * the socket replays may overlap, and nothing appears twice. Text reaches the page by textContent only.
 */
(() => {
  "use strict";

  const MAX_SHOWN = 2000;
  const ENDED = new Set(["completed", "failed", "cancelled", "interrupted"]);

  const root = document.querySelector("[data-chat]");
  if (!root) {
    return;
  }
  const words = JSON.parse(root.dataset.words);
  const log = root.querySelector("[data-log]");
  const composer = root.querySelector("[data-composer]");
  const cancelForm = root.querySelector("[data-cancel]");
  const text = composer.querySelector("textarea");
  const token = composer.querySelector("[name=csrfmiddlewaretoken]").value;

  let session = root.dataset.session;
  let sequence = Number(root.dataset.after);
  let key = newKey();
  let isSending = false;

  composer.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  cancelForm.addEventListener("submit", (event) => {
    event.preventDefault();
    cancel();
  });
  // A new text is a new message; the same one sent again after a failure keeps its key.
  text.addEventListener("input", () => (key = newKey()));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      composer.requestSubmit();
    }
  });

  scrollDown();
  if (session) {
    connect();
  }

  /* Sending */

  async function send() {
    const asking = askingTurn();
    if (isSending || (isActive() && !asking) || !text.value.trim()) {
      return;
    }
    const written = text.value;
    isSending = true;
    showControls();
    try {
      if (!session) {
        await begin();
      }
      const path = asking ? `turns/${asking.dataset.turn}/resume/` : `sessions/${encodeURIComponent(session)}/turns/`;
      const turn = await post(path, { message: written }, { "Idempotency-Key": key });
      findTurn(turn.execution_id, written);
      // What was typed meanwhile stays.
      text.value = text.value === written ? "" : text.value;
      key = newKey();
      showError("");
      scrollDown();
    } catch (error) {
      showError(error.message);
    } finally {
      isSending = false;
      showControls();
    }
  }

  async function begin() {
    const agent = composer.querySelector("[name=agent]").value;
    const title = titleOf(text.value);
    const made = await post("sessions/", { agent, title });
    session = made.session_id;
    const address = `?session=${encodeURIComponent(session)}`;
    window.history.pushState(null, "", address);
    root.querySelector("[data-title]").textContent = title;
    root.querySelector("[data-agent-name]").textContent = agent;
    root.querySelector("[data-agent-choice]").remove();
    root.querySelectorAll("[name=session]").forEach((field) => (field.value = session));
    addToList(address, title, agent);
    connect();
  }

  async function cancel() {
    try {
      await post(`sessions/${encodeURIComponent(session)}/cancel/`, {});
      showError("");
    } catch (error) {
      showError(error.message);
    }
  }

  async function post(path, body, headers = {}) {
    let response;
    try {
      response = await fetch(root.dataset.api + path, {
        method: "POST",
        credentials: "same-origin",
        headers: { "Content-Type": "application/json", "X-CSRFToken": token, ...headers },
        body: JSON.stringify(body),
      });
    } catch {
      throw new Error("The server does not answer. Try again.");
    }
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) {
      throw new Error(answer.message || `The server answered ${response.status}.`);
    }
    return answer;
  }

  function newKey() {
    if (window.crypto.randomUUID) {
      return window.crypto.randomUUID();
    }
    return [...window.crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  function titleOf(message) {
    const line = message.trim().replace(/\s+/g, " ");
    return line.length <= 60 ? line : `${line.slice(0, 59)}…`;
  }

  /* Receiving */

  function connect() {
    const live = root.querySelector("[data-live]");
    live.hidden = false;
    window.agentcore.connect({
      url: () => `${root.dataset.socket}${encodeURIComponent(session)}/?after=${sequence}`,
      onState: (state) => window.agentcore.showState(live, words, state),
      onFrame: (frame) => {
        if (frame.kind === "event" && frame.sequence > sequence) {
          sequence = frame.sequence;
          apply(frame);
        } else if (frame.kind === "token") {
          write(frame);
        }
      },
    });
  }

  function apply(event) {
    const show = SHOWS[event.type];
    if (!event.execution_id || !show) {
      return;
    }
    const wasDown = isDown();
    show(findTurn(event.execution_id), event.data || {});
    showControls();
    if (wasDown) {
      scrollDown();
    }
  }

  const SHOWS = {
    "turn.input": (turn, data) => (partOf(turn, "message").textContent = (data.message || {}).content || ""),
    "agent.state.changed": (turn, data) => showState(turn, data.new),
    message: (turn, data) => say(turn, data.step, (data.message || {}).content),
    "agent.step.failed": (turn, data) => cutText(turn, data.step),
    "agent.rag.executed": (turn, data) => cite(turn, data.results || []),
    "agent.input.requested": (turn, data) => sayOnce(turn, "question", data.call_id, data.question),
    "agent.input.received": (turn, data) => sayOnce(turn, "answer", data.call_id, data.answer),
    "tool.approval.requested": (turn, data) => showCall(turn, data, { status: "waiting", arguments: data.arguments, review: data.approval_id }),
    "tool.approval.changed": (turn, data) => showCall(turn, data, { status: "waiting", arguments: data.arguments, note: `changed by ${data.by}` }),
    "tool.approval.granted": (turn, data) => showCall(turn, data, { status: data.verdict === "respond" ? "completed" : "approved", note: decided(data), review: null }),
    "tool.approval.denied": (turn, data) => showCall(turn, data, { status: "rejected", note: decided(data), review: null }),
    "tool.approval.expired": (turn, data) => showCall(turn, data, { status: "expired", review: null }),
    "tool.approval.cancelled": (turn, data) => showCall(turn, data, { status: "cancelled", review: null }),
    "tool.execution.started": (turn, data) => showCall(turn, data, { status: "executing", arguments: data.arguments }),
    "tool.execution.completed": (turn, data) => showCall(turn, data, { status: "completed", outcome: data.result, seconds: data.duration }),
    "tool.execution.failed": (turn, data) => showCall(turn, data, { status: isNotRun(data) ? "cancelled" : "failed", outcome: (data.error || {}).message, seconds: data.duration }),
    "tool.execution.unknown": (turn, data) => showCall(turn, data, { status: "unknown", outcome: (data.error || {}).message }),
    "turn.completed": (turn, data) => answer(turn, data.response),
    "turn.failed": (turn, data) => showState(turn, "failed", (data.error || {}).message),
    "turn.cancelled": (turn) => showState(turn, "cancelled"),
    "turn.interrupted": (turn) => showState(turn, "interrupted"),
  };

  function decided(data) {
    const said = `${words.verdict[data.verdict] || data.verdict} ${data.by}`;
    return data.reason ? `${said}: ${data.reason}` : said;
  }

  function isNotRun(data) {
    return Boolean(data.error && data.error.details && data.error.details.begun === false);
  }

  /* Showing */

  function findTurn(executionId, message) {
    const known = [...log.querySelectorAll("[data-turn]")].find((turn) => turn.dataset.turn === executionId);
    if (known) {
      return known;
    }
    const turn = copyOf("[data-blank-turn]");
    turn.dataset.turn = executionId;
    partOf(turn, "message").textContent = message || "";
    root.querySelectorAll("[data-welcome]").forEach((welcome) => welcome.remove());
    log.append(turn);
    return turn;
  }

  function showState(turn, state, detail) {
    const word = words.turn[state] ?? state;
    const part = partOf(turn, "state");
    turn.dataset.state = state;
    part.textContent = detail ? `${word}: ${detail}` : word;
    part.hidden = !word;
  }

  /* A model's text on its way: shown as it comes, void at a higher attempt, and replaced by the message. What is
   * read aloud is the message alone. */
  function write(frame) {
    const turn = [...log.querySelectorAll("[data-turn]")].find((one) => one.dataset.turn === frame.execution_id);
    if (!turn || ENDED.has(turn.dataset.state)) {
      return;
    }
    const wasDown = isDown();
    const bubble = liveText(turn, frame.step);
    const attempt = Number(bubble.dataset.attempt);
    if (frame.attempt < attempt || (frame.attempt === attempt && frame.offset < Number(bubble.dataset.end))) {
      return;
    }
    const begun = frame.attempt > attempt ? "" : bubble.textContent;
    const end = frame.attempt > attempt ? 0 : Number(bubble.dataset.end);
    bubble.textContent = begun + (frame.offset > end ? "… " : "") + frame.text;
    bubble.dataset.attempt = frame.attempt;
    bubble.dataset.end = frame.offset + [...frame.text].length;
    if (wasDown) {
      scrollDown();
    }
  }

  function liveText(turn, step) {
    const known = writtenIn(turn, step);
    if (known) {
      return known;
    }
    const bubble = element("p", "");
    bubble.className = "bubble plain";
    bubble.setAttribute("aria-hidden", "true");
    Object.assign(bubble.dataset, { writing: step, attempt: 0, end: 0 });
    partOf(turn, "parts").append(bubble);
    return bubble;
  }

  function writtenIn(turn, step) {
    return [...turn.querySelectorAll("[data-writing]")].find((one) => one.dataset.writing === String(step));
  }

  function cutText(turn, step) {
    const bubble = writtenIn(turn, step);
    if (bubble) {
      bubble.removeAttribute("aria-hidden");
      delete bubble.dataset.writing;
      bubble.classList.add("bubble--cut");
      bubble.append(" ", element("small", `(${words.text.cut})`));
    }
  }

  function sayOnce(turn, kind, callId, said) {
    const parts = partOf(turn, "parts");
    if ([...parts.children].some((part) => part.dataset[kind] === callId)) {
      return;
    }
    const bubble = element("p", typeof said === "string" ? said : "…");
    bubble.className = kind === "answer" ? "bubble bubble--user plain" : "bubble plain";
    bubble.dataset[kind] = callId;
    parts.append(bubble);
  }

  function cite(turn, results) {
    const cited = results.map((one) => `${[one.title, one.heading].filter(Boolean).join(" › ")} (${one.source})`);
    const items = [...new Set(cited)].map((text) => element("li", text));
    items.forEach((item) => item.classList.add("plain"));
    partOf(turn, "sources").replaceChildren(...items);
    partOf(turn, "citations").hidden = items.length === 0;
  }

  function say(turn, step, said) {
    const parts = partOf(turn, "parts");
    writtenIn(turn, step)?.remove();
    if (!said || [...parts.children].some((part) => part.dataset.step === String(step))) {
      return;
    }
    const bubble = document.createElement("p");
    bubble.className = "bubble plain";
    bubble.dataset.step = step;
    bubble.textContent = said;
    parts.append(bubble);
  }

  function answer(turn, response) {
    showState(turn, "completed");
    const last = partOf(turn, "parts").lastElementChild;
    if (response && (!last || last.textContent !== response)) {
      say(turn, 0, response);
    }
  }

  function showCall(turn, data, { status, arguments: given, note, outcome, review, seconds }) {
    if ([...turn.querySelectorAll("[data-question]")].some((one) => one.dataset.question === data.call_id)) {
      // The question and its answer stand there already.
      return;
    }
    const call = findCall(turn, data);
    call.dataset.status = status;
    const took = typeof seconds === "number" && seconds >= 0.1 ? ` in ${seconds.toFixed(1)} s` : "";
    partOf(call, "status").textContent = (words.call[status] || status) + took;
    fill(partOf(call, "arguments"), given);
    fill(partOf(call, "note"), note);
    fill(partOf(call, "outcome"), outcome);
    if (review !== undefined) {
      showReview(partOf(call, "review"), review);
    }
  }

  function findCall(turn, data) {
    const known = [...turn.querySelectorAll("[data-call]")].find((call) => call.dataset.call === data.call_id);
    if (known) {
      return known;
    }
    const call = copyOf("[data-blank-call]");
    call.dataset.call = data.call_id;
    partOf(call, "tool").textContent = data.tool;
    partOf(turn, "parts").append(call);
    return call;
  }

  function showReview(part, approvalId) {
    const address = root.dataset.review;
    part.hidden = !address || !approvalId;
    if (!part.hidden) {
      part.querySelector("a").href = address.replace("/0/", `/${Number(approvalId)}/`);
    }
  }

  function fill(part, value) {
    if (value === undefined || value === null || value === "") {
      return;
    }
    const shown = textOf(value);
    part.textContent = shown.length <= MAX_SHOWN ? shown : `${shown.slice(0, MAX_SHOWN)}…`;
    part.hidden = false;
  }

  function textOf(value) {
    const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
    const pairs = isObject ? Object.entries(value).map(([name, item]) => `${name}: ${JSON.stringify(item)}`) : [];
    return pairs.join(", ") || (typeof value === "string" ? value : JSON.stringify(value));
  }

  function addToList(address, title, agent) {
    const link = document.createElement("a");
    link.href = address;
    link.setAttribute("aria-current", "page");
    link.append(element("span", title), element("small", agent));
    const item = document.createElement("li");
    item.append(link);
    root.querySelector("[data-sessions]").prepend(item);
  }

  function element(name, content) {
    const made = document.createElement(name);
    made.textContent = content;
    return made;
  }

  function copyOf(selector) {
    return document.importNode(root.querySelector(selector).content, true).firstElementChild;
  }

  function partOf(whole, name) {
    return whole.querySelector(`[data-part="${name}"]`);
  }

  function isActive() {
    return [...log.querySelectorAll("[data-turn]")].some((turn) => !ENDED.has(turn.dataset.state));
  }

  function askingTurn() {
    return [...log.querySelectorAll("[data-turn]")].find((turn) => turn.dataset.state === "waiting_for_input");
  }

  function showControls() {
    const active = isActive();
    const asking = askingTurn();
    composer.querySelector("[data-send]").disabled = (active && !asking) || isSending;
    text.placeholder = asking ? words.text.answer : words.text.write;
    cancelForm.hidden = !active;
  }

  function showError(message) {
    const place = root.querySelector("[data-error]");
    place.textContent = message;
    place.hidden = !message;
  }

  function isDown() {
    return log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  }

  function scrollDown() {
    log.scrollTop = log.scrollHeight;
  }
})();
