/* Text that models, tools and users wrote: it reaches the page by textContent only, what hides in it is marked, and
 * in a list it is short. The same rules as agentcore/approvals/visible.py and agentcore/reviews/reading.py have.
 */
(() => {
  "use strict";

  const MAX_VALUES = 6;
  const MAX_VALUE = 80;
  const MAX_NAME = 40;
  const MAX_PREVIEW = 200;
  const LINE_END = "⏎";
  // Blank to the eye, though letters and symbols by category.
  const BLANK = "\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5";
  const HIDDEN = new RegExp(`[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Co}\\p{Cs}\\p{Cn}\\p{Zs}${BLANK}]`, "u");
  const PICTURE = /^[\p{So}\p{Sk}]$/u;
  const PLAIN = new Set(["\n", "\t", " ", "\ufe0f"]);
  const JOINER = "\u200d";
  const SELECTOR = "\ufe0f";

  function isHidden(characters, at) {
    const character = characters[at];
    if (PLAIN.has(character)) {
      return false;
    }
    return character === JOINER ? !joinsPictures(characters, at) : HIDDEN.test(character);
  }

  function joinsPictures(characters, at) {
    const before = characters[at - 1] === SELECTOR ? characters[at - 2] : characters[at - 1];
    return PICTURE.test(before || "") && PICTURE.test(characters[at + 1] || "");
  }

  function hasHidden(text) {
    const characters = [...text];
    return characters.some((_, at) => isHidden(characters, at));
  }

  /* Fill an element with a text, a <mark> in place of each character that does not show. */
  function show(element, text, words) {
    const characters = [...text];
    const parts = [];
    let plain = "";
    characters.forEach((character, at) => {
      if (isHidden(characters, at)) {
        parts.push(plain, mark(character, words));
        plain = "";
      } else {
        plain += character;
      }
    });
    element.replaceChildren(...parts, plain);
  }

  /* The same as text alone, for attributes. */
  function plain(text) {
    const characters = [...text];
    return characters.map((character, at) => (isHidden(characters, at) ? `⟨${codeOf(character)}⟩` : character)).join("");
  }

  function mark(character, words) {
    const made = document.createElement("mark");
    made.className = "hidden-character";
    made.title = words.hidden.replace("#", () => codeOf(character));
    made.textContent = `⟨${codeOf(character)}⟩`;
    return made;
  }

  function codeOf(character) {
    return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  }

  /* What the list shows of arguments, and whether that is all of them. */
  function inShort(given) {
    const isObject = given !== null && typeof given === "object" && !Array.isArray(given);
    const pairs = isObject ? Object.entries(given) : [["", given]];
    const values = pairs.slice(0, MAX_VALUES).map(([name, value]) => ({ name, text: textOf(value) }));
    const left = Math.max(0, pairs.length - MAX_VALUES);
    const fits = values.every(({ name, text }) => lengthOf(name) <= MAX_NAME && !isAltered(text));
    return { values, left, isWhole: fits && left === 0 };
  }

  /* Text as it is, the rest as JSON; no text looks like another value's JSON. */
  function textOf(value) {
    return typeof value === "string" && value.trim() && !readsAsJson(value) ? value : JSON.stringify(value);
  }

  function readsAsJson(text) {
    try {
      JSON.parse(text);
      return true;
    } catch {
      return false;
    }
  }

  function isAltered(text) {
    return lengthOf(text) > MAX_VALUE || text.includes("\n");
  }

  /* One line of it, a line end shown as a sign. */
  function short(text) {
    return cut(text, MAX_VALUE).replaceAll("\n", LINE_END);
  }

  function hides(value) {
    if (typeof value === "string") {
      return hasHidden(value);
    }
    return value !== null && typeof value === "object" && Object.entries(value).some(([name, item]) => hasHidden(name) || hides(item));
  }

  function makeValue({ name, text }, words) {
    const pair = document.createElement("div");
    const [term, description] = [document.createElement("dt"), document.createElement("dd")];
    show(term, cut(name, MAX_NAME), words);
    show(description, short(text), words);
    if (isAltered(text)) {
      const told = document.createElement("small");
      told.textContent = words.characters.replace("#", lengthOf(text));
      description.append(" ", told);
    }
    pair.append(term, description);
    return pair;
  }

  /* In characters, as the server counts: a picture is one, not two. */
  function lengthOf(text) {
    return [...text].length;
  }

  function cut(text, length) {
    return lengthOf(text) <= length ? text : `${[...text].slice(0, length - 1).join("")}…`;
  }

  window.agentcore.text = { show, plain, hides, inShort, textOf, short, makeValue, lengthOf, cut, MAX_PREVIEW };
})();
