/* The list: new requests come in, decided ones are marked. Nothing moves under the pointer: new requests are added at
 * the end, or held back while somebody is about to click.
 */
(() => {
  "use strict";

  const { root, words, fresh, deciders, announce } = window.agentcore.page;
  const rows = window.agentcore.row;

  function start() {
    const queue = root.querySelector("[data-queue]");
    const newestFirst = root.dataset.newestFirst === "yes";
    const grows = root.dataset.grows === "yes";
    const settled = new Set();
    const arrived = new Set();
    const held = [];
    let tally = Number(root.dataset.pending);
    let fitting = Number(root.dataset.fitting);
    let newest = Number(root.dataset.newest);

    queue.addEventListener("pointerleave", release);
    queue.addEventListener("focusout", release);
    setInterval(() => queue.querySelectorAll("time[datetime]").forEach(rows.showAge), 30000);

    function onFrame(frame) {
      if (frame.kind === "snapshot") {
        onSnapshot(frame);
      } else if (frame.kind === "approval") {
        onApproval(frame.approval);
      }
    }

    function onSnapshot(snapshot) {
      if (snapshot.pending !== tally || (snapshot.newest || 0) > newest) {
        catchUp();
      }
    }

    function onApproval(approval) {
      const row = find(approval.id);
      if (approval.status !== "pending") {
        settle(row, approval);
      } else if (row && approval.version !== Number(row.dataset.version)) {
        rows.block(row, words.changed);
        catchUp();
      } else if (row && deciders(approval).includes(root.dataset.me)) {
        rows.block(row, words.you_voted);
        catchUp();
      } else if (row) {
        rows.showVotes(row, approval.votes);
      } else if (isNew(approval)) {
        arrive(approval);
      }
    }

    /* One that waits on another page of the list is told too, when somebody votes on it. */
    function isNew(approval) {
      return approval.version === 1 && deciders(approval).length === 0 && !settled.has(approval.id) && !arrived.has(approval.id);
    }

    function arrive(approval) {
      arrived.add(approval.id);
      newest = Math.max(newest, approval.id);
      showTally(tally + 1);
      if (isAskedFor(approval)) {
        showFitting(fitting + 1);
        announce(words.arrived.replace("#", () => window.agentcore.text.plain(approval.tool)));
        insert(rows.make(root.querySelector("[data-blank]"), approval));
      }
    }

    /* Say whether a request is one that the filter of this page asks for. */
    function isAskedFor(approval) {
      const { filterTool, filterAgent, filterAge, filterWhose, me } = root.dataset;
      const age = (Date.now() - new Date(approval.requested_at)) / 1000;
      return (
        (!filterTool || filterTool === approval.tool) &&
        (!filterAgent || filterAgent === approval.agent) &&
        (!Number(filterAge) || age >= Number(filterAge)) &&
        (filterWhose !== "own" || approval.requested_by === me)
      );
    }

    function settle(row, approval) {
      if (!settled.has(approval.id)) {
        settled.add(approval.id);
        showTally(tally - 1);
        showFitting(fitting - (isAskedFor(approval) ? 1 : 0));
      }
      if (row) {
        rows.markDecided(row, approval.status, deciders(approval));
      }
    }

    function showTally(pending) {
      tally = Math.max(0, pending);
      const text = { 0: words.none, 1: words.one }[tally] || words.many.replace("#", tally);
      root.querySelector("[data-tally]").textContent = text;
    }

    /* How many fit the filter, where there is one. */
    function showFitting(count) {
      fitting = Math.max(0, count);
      const place = root.querySelector("[data-fits]");
      if (place) {
        place.textContent = fitting === 1 ? words.fits_one : words.fits_many.replace("#", fitting);
      }
    }

    function insert(row) {
      const isHeld = grows && newestFirst && queue.matches(":hover, :focus-within");
      root.querySelector("[data-arrived]").hidden = grows && !isHeld;
      if (isHeld) {
        held.push(row);
      } else if (grows) {
        queue[newestFirst ? "prepend" : "append"](row);
        root.querySelector("[data-empty]").hidden = true;
        root.querySelector("[data-bulk-place]").hidden = false;
      }
    }

    function release() {
      // After the event: by then the focus is where it goes.
      setTimeout(() => queue.matches(":hover, :focus-within") || held.splice(0).forEach(insert));
    }

    /* Ask the server for this page again: the socket tells what happens, not what happened before. */
    async function catchUp() {
      const page = await fresh();
      if (!page) {
        root.querySelector("[data-arrived]").hidden = false;
        return;
      }
      const present = [...page.querySelectorAll("[data-queue] > [data-request]")];
      const missing = present.filter((row) => !find(row.dataset.request)).map((row) => document.importNode(row, true));
      (newestFirst ? missing.reverse() : missing).forEach(insert);
      const ids = new Set(present.map((row) => row.dataset.request));
      [...queue.children].filter((row) => !ids.has(row.dataset.request)).forEach(markOver);
      newest = Math.max(newest, Number(page.dataset.newest));
      showTally(Number(page.dataset.pending));
      showFitting(Number(page.dataset.fitting));
    }

    function markOver(row) {
      const id = Number(row.dataset.request);
      if (grows && !settled.has(id)) {
        settled.add(id);
        rows.block(row, words.over);
      }
    }

    function find(id) {
      const isSame = (row) => Number(row.dataset.request) === Number(id);
      return [...queue.children].find(isSame) || held.find(isSame);
    }

    return { address: () => root.dataset.socket, onFrame };
  }

  window.agentcore.list = { start };
})();
