/* Rows of the list that the script makes, from the blank one that the server sends along. */
(() => {
  "use strict";

  const UNITS = [["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60]];
  const { words, showStatus, statusText, disable } = window.agentcore.page;
  const text = window.agentcore.text;

  function make(blank, approval) {
    const row = document.importNode(blank.content, true).firstElementChild;
    const part = (name) => row.querySelector(`[data-part="${name}"]`);
    const isCut = (approval.cut || []).length > 0;
    const shown = isCut ? { values: [], left: 0, isWhole: false } : text.inShort(approval.arguments);
    const preview = approval.preview || "";
    row.dataset.request = approval.id;
    row.dataset.version = approval.version;
    row.dataset.new = "";
    name(row, part, approval);
    text.show(part("agent"), approval.agent, words);
    text.show(part("requester"), approval.requested_by || words.nobody, words);
    part("outcome").hidden = approval.kind !== "outcome";
    const late = approval.kind === "outcome" ? approval.late_result : null;
    const isLateCut = (approval.cut || []).includes("late_result");
    part("late").hidden = late === null || late === undefined;
    text.show(part("late-text"), isLateCut ? words.too_long_here : text.short(text.textOf(late)), words);
    part("hides").hidden = !text.hides([approval.tool, preview, approval.arguments, late]);
    part("unroutable").hidden = !approval.is_unroutable;
    part("summary").hidden = !isCut;
    part("summary").textContent = isCut ? words.too_long : "";
    part("more").hidden = !shown.left;
    part("more").textContent = words.more.replace("#", shown.left);
    showVotes(row, approval.votes);
    part("preview").hidden = !preview;
    text.show(part("preview"), text.cut(preview, text.MAX_PREVIEW), words);
    part("arguments").hidden = shown.values.length === 0;
    part("arguments").replaceChildren(...shown.values.map((value) => text.makeValue(value, words)));
    setTime(part("requested"), approval.requested_at);
    part("expiry").hidden = !approval.expires_at;
    setTime(part("expires"), approval.expires_at);
    row.querySelectorAll("a").forEach((link) => link.setAttribute("href", addressOf(link.getAttribute("href"), approval.id)));
    row.querySelectorAll("form").forEach((form) => fill(form, approval));
    if (approval.kind === "outcome" || !shown.isWhole || text.lengthOf(preview) > text.MAX_PREVIEW) {
      part("why").hidden = false;
      part("why").textContent = approval.kind === "outcome" ? words.own_page : words.too_long_to_decide;
      row.querySelectorAll("form").forEach((form) => form.remove());
    }
    return row;
  }

  function showVotes(row, { needed, approve }) {
    const part = (name) => row.querySelector(`[data-part="${name}"]`);
    part("votes").hidden = needed < 2;
    part("votes-text").textContent = words.votes_given.replace("#", approve).replace("@", needed);
    if (part("vote")) {
      part("vote").hidden = needed < 2;
      part("vote").textContent = ` ${words.vote.replace("#", approve + 1).replace("@", needed)}`;
    }
  }

  function name(row, part, approval) {
    part("title").id = `request-${Number(approval.id)}`;
    row.setAttribute("aria-labelledby", part("title").id);
    row.querySelectorAll("button").forEach((button) => button.setAttribute("aria-describedby", part("title").id));
    text.show(part("tool"), approval.tool, words);
    const label = `${text.plain(approval.tool)} ${approval.id}`;
    part("open-name").textContent = label;
    const box = part("choose");
    box.value = `${Number(approval.id)}:${Number(approval.version)}`;
    box.setAttribute("aria-label", `${box.getAttribute("aria-label").replace(/\s+0$/, "").trim()} ${label}`);
  }

  function fill(form, approval) {
    form.setAttribute("action", addressOf(form.getAttribute("action"), approval.id));
    form.querySelector("[name=version]").value = approval.version;
  }

  /* The blank row's addresses are those of request 0. */
  function addressOf(address, id) {
    const at = address.lastIndexOf("/0/");
    return `${address.slice(0, at)}/${Number(id)}/${address.slice(at + 3)}`;
  }

  function setTime(time, moment) {
    if (moment) {
      time.dateTime = moment;
      time.title = new Date(moment).toLocaleString();
      showAge(time);
    }
  }

  function showAge(time) {
    const seconds = (new Date(time.dateTime) - Date.now()) / 1000;
    const found = UNITS.find(([, size]) => Math.abs(seconds) >= size);
    if (found) {
      const format = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "always" });
      time.textContent = format.format(Math.round(seconds / found[1]), found[0]);
    } else if (!Number.isNaN(seconds)) {
      time.textContent = words.now;
    }
  }

  function markDecided(row, status, by) {
    row.dataset.decided = status;
    showStatus(row.querySelector('[data-part="status"]'), status, statusText(status, by));
    ["expiry", "why", "votes"].forEach((name) => (row.querySelector(`[data-part="${name}"]`).hidden = true));
    dropChoice(row);
    row.querySelectorAll("form").forEach((form) => {
      disable(form);
      form.hidden = true;
    });
  }

  function block(row, told) {
    const obstacle = row.querySelector('[data-part="obstacle"]');
    obstacle.textContent = told;
    obstacle.hidden = false;
    row.querySelector('[data-part="why"]').hidden = true;
    dropChoice(row);
    row.querySelectorAll("form").forEach(disable);
  }

  function dropChoice(row) {
    const box = row.querySelector('[data-part="choose"]');
    box.disabled = true;
    if (box.checked) {
      box.checked = false;
      box.dispatchEvent(new Event("change", { bubbles: true }));
    }
  }

  window.agentcore.row = { make, markDecided, block, showVotes, showAge };
})();
