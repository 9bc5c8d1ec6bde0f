/* The page of one request: says when it changed, who else looks at it, and what comes of it after the decision. */
(() => {
  "use strict";

  const { root, words, fresh, deciders, statusText, showStatus, disable } = window.agentcore.page;

  function start() {
    const id = Number(root.dataset.request);
    const isPending = root.dataset.status === "pending";

    function onFrame(frame) {
      if (frame.kind === "snapshot") {
        onSnapshot();
      } else if (frame.kind === "approval" && frame.approval.id === id) {
        onApproval(frame.approval);
      } else if (frame.kind === "looking" && frame.id === id) {
        showOthers(frame.names);
      } else if (frame.kind === "outcome" && frame.id === id) {
        renewAftermath();
      }
    }

    function onApproval(approval) {
      if (!isPending) {
        return;
      }
      if (approval.status !== "pending") {
        tell(words.settled.replace("#", () => statusText(approval.status, deciders(approval))));
        root.querySelector("[data-actions]").hidden = true;
        showStatus(root.querySelector("[data-status-badge]"), approval.status, "");
      } else if (approval.version !== Number(root.dataset.version)) {
        tell(words.changed);
      } else if (deciders(approval).length > Number(root.dataset.votes)) {
        tell(words.voted);
      }
    }

    async function onSnapshot() {
      if (!isPending) {
        renewAftermath();
        return;
      }
      const page = await fresh(root.dataset.here);
      if (page && ["status", "version", "votes"].some((name) => page.dataset[name] !== root.dataset[name])) {
        tell(words.changed);
      }
    }

    function tell(text) {
      root.querySelector("[data-changed-text]").textContent = window.agentcore.text.plain(text);
      root.querySelector("[data-changed]").hidden = false;
      // The fields stay: somebody may be writing. What they wrote goes along to the page as it is now.
      root.querySelectorAll("[data-actions] button").forEach((button) => (button.disabled = true));
    }

    root.querySelector("[data-changed]").addEventListener("formdata", ({ formData }) => {
      written().forEach(([name, value]) => formData.has(name) || formData.append(name, value));
    });

    /* What somebody wrote in the forms, each name once: that of the form they are in comes first. */
    function written() {
      const current = document.activeElement.closest("[data-decision]");
      const forms = [...new Set([current, ...root.querySelectorAll("[data-decision]")])].filter(Boolean);
      const fields = forms.flatMap((form) => [...form.elements]).filter((field) => field.name && field.type !== "checkbox");
      const seen = fields.filter((field) => ["version", "seen"].includes(field.name));
      const isEdited = fields.some((field) => field.name.startsWith("arguments.") && isChanged(field));
      const typed = fields.filter((field) => (field.name.startsWith("arguments.") ? isEdited && !field.disabled : isChanged(field)));
      return [...seen, ...typed.filter((field) => field.type !== "hidden")].map((field) => [field.name, field.value]);
    }

    function isChanged(field) {
      const first = field.tagName === "SELECT" ? [...field.options].find((option) => option.defaultSelected)?.value : field.defaultValue;
      return field.value.replaceAll("\r\n", "\n") !== (first ?? "").replaceAll("\r\n", "\n");
    }

    /* The server writes it, masked and escaped; here it is only put in its place. */
    async function renewAftermath() {
      const page = await fresh(root.dataset.here);
      const [place, renewed] = [root, page].map((one) => one && one.querySelector("[data-aftermath-place]"));
      if (renewed && renewed.innerHTML !== place.innerHTML) {
        place.replaceChildren(...[...renewed.childNodes].map((node) => document.importNode(node, true)));
      }
    }

    function showOthers(names) {
      const place = root.querySelector("[data-looking]");
      const shown = names.map(window.agentcore.text.plain);
      const list = shown.length > 1 ? `${shown.slice(0, -1).join(", ")} ${words.and} ${shown.at(-1)}` : shown[0];
      place.hidden = names.length === 0;
      place.textContent = names.length ? (names.length > 1 ? words.looking_many : words.looking_one).replace("#", () => list) : "";
    }

    return { address: () => `${root.dataset.socket}?viewing=${id}`, onFrame };
  }

  window.agentcore.detail = { start };
})();
