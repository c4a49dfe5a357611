/*
 * The talk view: nothing but the race, in large type, driven by keys.
 *
 * A plain script that defines `window.SpecDemoTalk`; it is loaded after links.js, which keeps the view in the address.
 * It presses the page's own buttons.
 */
(function () {
  "use strict";

  const { ARROWS, make } = window.SpecDemoDom;
  const KEYS = [["R", "run"], ["S", "stop"], ["space", "pause"], ["← →", "a round"], ["X", "rejected"], ["T", "leave"]];
  const page = document.documentElement;

  const active = () => page.classList.contains("talk-view");
  const press = (id) => {
    const button = document.getElementById(id);
    if (button && !button.disabled) button.click();
  };
  const player = () => window.SpecDemoPlayer.mount(document.querySelector("#race .race-root"));

  /** Lists the keys in a corner. */
  function listKeys() {
    if (document.querySelector(".talk-keys")) return;
    const line = make("p", "talk-keys", document.body);
    for (const [key, what] of KEYS) line.append(make("kbd", "", null, key), ` ${what}`);
  }

  function show(shown) {
    page.classList.toggle("talk-view", shown);
    if (shown) listKeys();
    window.SpecDemoLinks.set("view", shown ? "talk" : "page");
  }

  function enter() {
    document.querySelector("#stage [role=tab]")?.click(); // the race is the first
    document.activeElement?.blur(); // the pressed button is hidden now, and must not receive the keys
    show(true);
    window.scrollTo(0, 0);
  }

  /** Whether a key has another meaning in the element where it was pressed. */
  function taken(event) {
    const { target } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return true;
    if (!(target instanceof Element)) return false;
    if (target.closest("input[type=checkbox]")) return event.key === " ";
    if (target.closest("input, textarea, select, [contenteditable]:not([contenteditable=false]), [role=listbox]")) return true;
    return event.key === " " && target.closest("button, summary, a[href]") !== null;
  }

  /** Does what a key means; false if it means nothing. @param {boolean} repeated whether the key is held down */
  function act(key, repeated) {
    if (ARROWS[key]) player().stepAny(ARROWS[key]);
    else if (repeated) return false;
    else if (key === " ") player().toggle();
    else if (key === "r") press("run");
    else if (key === "s") press("stop");
    else if (key === "x") document.querySelector("#race [data-role=show-rejected]").click();
    else if (key === "t" || key === "Escape") show(false);
    else return false;
    return true;
  }

  // While capturing, so before the page's own keys: in the talk view an arrow always steps by a round.
  document.addEventListener("keydown", (event) => {
    if (taken(event)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const acted = active() ? act(key, event.repeat) : key === "t" && !event.repeat && (enter(), true);
    if (!acted) return;
    event.preventDefault();
    event.stopPropagation();
  }, true);

  // At once, so that the page does not flash; the rest follows when the server has read the link.
  if (new URLSearchParams(location.search).get("view") === "talk") page.classList.add("talk-view");

  window.SpecDemoTalk = { enter };
})();
