/*
 * The talk view: nothing but the race, in large type, and keys for whoever stands at the front.
 *
 * A plain script that defines `window.SpecDemoTalk`; it is loaded after links.js, which keeps the view in the
 * address, and drives the page by its own buttons.
 */
(function () {
  "use strict";

  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  const LINE = [["R", "run"], ["S", "stop"], ["space", "pause"], ["← →", "a round"], ["X", "rejected"], ["T", "leave"]];
  const page = document.documentElement;

  const active = () => page.classList.contains("talk-view");
  const press = (id) => {
    const button = document.getElementById(id);
    if (button && !button.disabled) button.click();
  };
  const player = () => window.SpecDemoPlayer.mount(document.querySelector("#race .race-root"));

  /** The keys, said once in a corner. */
  function sayKeys() {
    if (document.querySelector(".talk-keys")) return;
    const line = Object.assign(document.createElement("p"), { className: "talk-keys" });
    for (const [key, what] of LINE) {
      line.append(Object.assign(document.createElement("kbd"), { textContent: key }), ` ${what}`);
    }
    document.body.append(line);
  }

  function show(shown) {
    page.classList.toggle("talk-view", shown);
    if (shown) sayKeys();
    window.SpecDemoLinks.set("view", shown ? "talk" : "page");
  }

  function enter() {
    document.querySelector("#stage [role=tab]")?.click(); // the race is the first
    document.activeElement?.blur(); // what was pressed is hidden now, and must not take the keys
    show(true);
    window.scrollTo(0, 0);
  }

  /** Whether a key means something else where it was pressed. */
  function taken(event) {
    const { target } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return true;
    if (!(target instanceof Element)) return false;
    if (target.closest("input[type=checkbox]")) return event.key === " ";
    if (target.closest("input, textarea, select, [contenteditable]:not([contenteditable=false]), [role=listbox]")) return true;
    return event.key === " " && target.closest("button, summary, a[href]") !== null;
  }

  /** What a key does; false if nothing. */
  function act(key, again) {
    if (STEPS[key]) player().stepAny(STEPS[key]);
    else if (again) return false; // held down
    else if (key === " ") player().toggle();
    else if (key === "r") press("run");
    else if (key === "s") press("stop");
    else if (key === "x") document.querySelector("#race [data-role=show-rejected]").click();
    else if (key === "t" || key === "Escape") show(false);
    else return false;
    return true;
  }

  // Before the page's own keys: on a stage an arrow is always a round.
  document.addEventListener("keydown", (event) => {
    if (taken(event)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const acted = active() ? act(key, event.repeat) : key === "t" && !event.repeat && (enter(), true);
    if (!acted) return;
    event.preventDefault();
    event.stopPropagation();
  }, true);

  // At once, so that the page does not flash; the rest follows when the link was read.
  if (new URLSearchParams(location.search).get("view") === "talk") page.classList.add("talk-view");

  window.SpecDemoTalk = { enter, leave: () => show(false), active };
})();
