/*
 * Links to the page in its present state: writes the controls' values into the address bar, copies the address, and
 * shows which parts of a link could not be used.
 *
 * A plain script that defines `window.SpecDemoLinks`. `SpecDemoLinkTable`, defined before it, holds the fields and
 * rules by which the server reads links. The contents of a link are untrusted: they only ever become text nodes.
 *
 * @typedef {{name: string, kind: string, default: *, choices: string[]}} Field
 * @typedef {{field: string, text: string, negated: boolean, defaults: Object<string, *>}} Rule
 */
(function () {
  "use strict";

  const { make } = window.SpecDemoDom;
  const { fields, rules, former, longest } = window.SpecDemoLinkTable;
  const NAMES = new Set([...fields.map((field) => field.name), ...former]);
  const SHORT = /^lane2\./; // parameters of lane 2 are written without the lane
  const SPACE = "https://huggingface.co";
  /** Milliseconds without a change before the address is written; browsers refuse to have it written too often. */
  const PAUSE = 300;
  /** What the page calls the texts that may be too long. */
  const LONG = { prompt: "prompt", "sweep.own": "list of prompts of the sweep", "batch.own": "list of prompts of the batch" };
  const THEME = "__theme";

  /** The values of the page's controls, in the order of the fields; null until the link was read. */
  let held = null;
  /** The values that no control holds, by name: the tab, the view, the recording. */
  const extra = {};
  let timer = 0;
  let started = false;
  /** The button that starts a run and was pressed before the link was read. */
  let early = null;
  /** Places of fields that a person is changing, and the values they gave to others, before the link was read. */
  const touched = new Set();
  const own = new Map();

  // ---- the query -----------------------------------------------------------------------------------------------

  /** A value as text, before it is escaped; null for a field that was emptied. */
  function encode(field, value) {
    if (field.kind === "text") return (value || "").replace(/\p{Surrogate}/gu, "\uFFFD");
    if (value === null || value === undefined) return null;
    if (field.kind === "switch") return value ? "1" : "0";
    if (field.kind === "several") return field.choices.filter((name) => value.includes(name)).join(",");
    return field.kind === "choice" ? String(value) : String(Number(Number(value).toFixed(4)));
  }

  /** The default of a field, which may depend on the texts of other fields. */
  function defaultOf(field, texts) {
    let found = field.default;
    for (const rule of rules) {
      if (field.name in rule.defaults && (texts[rule.field] === rule.text) !== rule.negated) found = rule.defaults[field.name];
    }
    return found;
  }

  /** The query for values by name, and the names of the texts that it leaves out as too long. */
  function toQuery(values) {
    const texts = Object.fromEntries(fields.map((field) => [field.name, encode(field, values[field.name])]));
    const parts = new Map();
    for (const field of fields) {
      const usual = defaultOf(field, texts);
      if (texts[field.name] === null || (usual !== null && texts[field.name] === encode(field, usual))) continue;
      parts.set(field.name, encodeURIComponent(texts[field.name]));
    }
    const left = [];
    const length = () => [...parts].reduce((sum, [name, text]) => sum + name.length + text.length + 2, 0);
    while (length() > longest) {
      const long = fields.filter((field) => field.kind === "text" && parts.has(field.name))
        .reduce((a, b) => (parts.get(b.name).length > parts.get(a.name).length ? b : a)).name;
      parts.delete(long);
      left.push(long);
    }
    return { query: [...parts].map(([name, text]) => `${name}=${text}`).join("&"), left };
  }

  function now() {
    const values = Object.fromEntries(fields.map((field, i) => [field.name, held[i]]));
    return toQuery({ ...values, ...extra });
  }

  /** The part of the query that a race depends on; null before the link was read. */
  function race() {
    if (!held) return null;
    return toQuery(Object.fromEntries(fields.map((field, i) => [field.name, ofRace(field.name) ? held[i] : field.default]))).query;
  }

  const ofRace = (name) => /^(lane\d\.)?[a-z-]+$/.test(name) && !(name in extra);

  const nameOf = (part) => {
    try {
      return decodeURIComponent(part.split("=")[0].replace(/\+/g, " "));
    } catch {
      return part; // not escaped in a valid way, so not by this page
    }
  };

  /** The parts of the present address that belong to others, unchanged. */
  function others() {
    return location.search.slice(1).split("&").filter((part) => {
      const name = nameOf(part);
      return part && !NAMES.has(name) && !NAMES.has(name.replace(SHORT, "")) && !NAMES.has(name.replace(SHORT, "lane1."));
    });
  }

  const joined = (...parts) => parts.filter(Boolean).join("&");
  const search = (query) => (query ? "?" + query : "");

  // ---- the address ---------------------------------------------------------------------------------------------

  function write() {
    clearTimeout(timer);
    timer = 0;
    if (!held) return;
    const { query } = now(); // what it leaves out is said when a person copies it
    const written = search(joined(...others(), query));
    if (written === location.search) return;
    history.replaceState(history.state, "", location.pathname + written + location.hash);
    if (window.parent !== window) {
      const outer = others().filter((part) => !nameOf(part).startsWith("__")); // those are private to the Space's frame
      window.parent.postMessage({ queryString: search(joined(...outer, query)) }, SPACE);
    }
  }

  /** The controls changed. @param {Array} values in the order of the fields */
  function changed(values) {
    if (!started) { // the link has not been read yet
      for (const place of touched) own.set(place, values[place]);
      touched.clear();
      return;
    }
    held = values;
    document.dispatchEvent(new Event("specdemo-link"));
    timer ||= setTimeout(write, PAUSE); // not put off by further changes, which may come without end
  }

  // Which control a person, not the link, is changing before the link was read.
  for (const kind of ["input", "change", "click"]) {
    document.addEventListener(kind, (event) => {
      if (started || !event.isTrusted) return;
      const place = fields.findIndex((field) => field.element && event.target.closest?.(`#${field.element}`));
      if (place >= 0) touched.add(place);
    }, true);
  }

  /** Updates of all controls, in the order of the fields: what a person changed meanwhile, nothing for the others. */
  function mine() {
    const update = (place) => ({ __type__: "update", ...(own.has(place) ? { value: own.get(place) } : {}) });
    return fields.filter((field) => field.element).map((_, place) => update(place));
  }

  /** A value that no control holds changed. */
  function set(name, value) {
    extra[name] = value;
    if (started) changed(held);
  }

  // ---- notices -------------------------------------------------------------------------------------------------

  /** Shows sentences above the page's lower edge, until they are closed or a run begins. */
  function notify(lines) {
    document.querySelector(".link-notices")?.remove();
    if (!lines.length) return;
    const box = make("div", "link-notices", document.body, null, { role: "status" });
    for (const line of lines) make("p", "", box, line);
    const close = make("button", "", box, "×", { type: "button", "aria-label": "Close" });
    close.addEventListener("click", () => box.remove());
  }

  /** Puts the sentences under Run, where they cover nothing that a run shows. */
  function putAside() {
    const box = document.querySelector(".link-notices");
    if (box) document.getElementById("run-dock").append(box);
  }

  // ---- copying -------------------------------------------------------------------------------------------------

  /** The address for others: without what a Space added for this visitor, such as the key to a private Space. */
  function address() {
    const theme = others().filter((part) => nameOf(part) === THEME);
    return location.origin + location.pathname + search(joined(...theme, now().query));
  }

  /** Copies by selecting the text: on pages that are not served over https, browsers offer no clipboard. */
  function copySelected(text) {
    const field = make("textarea", "link-field", document.body, text, { readonly: "" });
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }

  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copySelected(text);
    }
  }

  /** Copies the link, and says so on the button for a moment. */
  async function copy() {
    if (!held) return;
    write();
    const { left } = now();
    const text = address();
    const button = document.getElementById("copy-link");
    const lines = left.map((name) => `The ${LONG[name] || name} is too long for a link, so the link leaves it out.`);
    if (await copied(text)) {
      button.dataset.said = button.dataset.said || button.textContent;
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = button.dataset.said; }, 1600);
    } else {
      lines.unshift(`This browser does not let a page copy. The link: ${text}`);
    }
    notify(lines);
  }

  // ---- from the server -----------------------------------------------------------------------------------------

  /**
   * The link was read, and the controls hold what it says.
   * @param {{page: Object<string, *>, notices: string[]}} said  @param {Array} values in the order of the fields
   */
  function ready(said, values) {
    started = true;
    Object.assign(extra, { ...said.page, ...extra }); // what a person changed meanwhile is newer
    notify(said.notices);
    changed(values);
    window.SpecDemoPanel.dim();
    if (extra.view === "talk") window.SpecDemoTalk.enter();
    early?.removeAttribute("aria-busy");
    early?.click();
    if (said.page.recording && extra.recording === said.page.recording) openRecording(said.page); // unless Run was pressed first
  }

  /** Opens the link's recording. In the talk view it waits for the speaker. */
  function openRecording(page) {
    const player = window.SpecDemoPlayer.mount(document.querySelector("#race .race-root"));
    player.opening = { speed: page.speed, waits: page.view === "talk" };
    document.getElementById(`recording-${page.recording}`).click();
  }

  /** The server has decided whether the run starts at once. @param {{start: boolean, notices: string[]}} said */
  function told(said) {
    if (!said.page.autorun) return;
    notify(said.notices);
    // Unless a person was quicker.
    if (said.start && extra.autorun) document.querySelector(`#run-row .on-${document.documentElement.dataset.tab}`).click();
  }

  // A press of Run or of a recording changes what a link would show.
  document.addEventListener("click", (event) => {
    const pressed = event.target.closest?.("#run-row .start, #gallery > button");
    if (!pressed) return;
    if (event.isTrusted) set("autorun", false); // pressed by a person, so the page is no longer what the link began
    set("recording", Number(/^recording-(\d+)$/.exec(pressed.id)?.[1] || 0));
    if (!pressed.matches(".start")) return;
    putAside();
    if (started) return;
    // The controls do not say yet what is to run, so the press waits for that.
    event.stopImmediatePropagation();
    early = pressed;
    early.setAttribute("aria-busy", "true");
  }, true);

  /** Whether the controls have the values of the link. */
  const wasRead = () => started;

  window.SpecDemoLinks = { toQuery, race, changed, mine, set, ready, wasRead, told, copy, address };
})();
