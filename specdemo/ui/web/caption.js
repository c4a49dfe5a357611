/*
 * The stage's caption, which says what was asked, and the list of this visit's runs.
 *
 * A plain script that defines `window.SpecDemoCaption` and `window.SpecDemoHistory`; it is loaded after links.js.
 * Prompts are untrusted: they only ever become text nodes.
 */
(function () {
  "use strict";

  const { make, setText, setHidden, mounting } = window.SpecDemoDom;
  const CHANGED = "The settings were changed since this run.";

  /** What was asked, above the lanes. */
  class Caption {
    constructor(root) {
      this.line = make("div", "race-question", null, null, { "data-role": "question" });
      this.prompt = make("q", "", this.line, null, { dir: "auto" });
      this.facts = make("p", "", this.line);
      this.changed = make("p", "race-changed", this.line, CHANGED, { role: "status", "data-role": "changed" });
      this.lanes = root.querySelector(".race-lanes");
      this.lanes.before(this.line);
      this.asked = null;
      this.run = null;
      document.addEventListener("specdemo-link", () => this.compare());
      this.update(null);
    }

    /** @param {?{run: string, question: ?{prompt: string, facts: string[]}, replay: ?object}} value of the view */
    update(value) {
      const { question } = value || {};
      setHidden(this.line, !question || value.replay);
      if (!question) return;
      setText(this.prompt, question.prompt.trim());
      setText(this.facts, question.facts.join(" · "));
      if (value.run === this.run) return;
      // Where servers reported their rounds in the end, the run goes on under another name.
      if (value.replaces !== this.run || !this.run) this.asked = window.SpecDemoLinks.race();
      this.run = value.run;
      this.compare();
    }

    /** Whether the panel still says what was asked. */
    compare() {
      setHidden(this.changed, this.asked === null || this.asked === window.SpecDemoLinks.race());
    }
  }

  /** Shows the runs of this visit. @param {(number: number) => void} choose */
  function show(root, runs, choose) {
    root.hidden = !runs?.length;
    if (root.hidden) return;
    const list = make("ol");
    for (const { number, current, prompt, lanes, figure, text, doubt, trend } of runs) {
      const button = make("button", "", make("li", "", list), null, { type: "button", "aria-current": String(current) });
      make("strong", "", button, figure || "–", { "data-trend": trend, ...(doubt ? { "data-doubt": "yes" } : {}) });
      make("span", "", button, (prompt || "").trim().replace(/\s+/g, " "), { dir: "auto" });
      make("small", "", button, [lanes.join(" · "), text, doubt && "in doubt"].filter(Boolean).join("; "));
      button.addEventListener("click", () => choose(number));
    }
    root.replaceChildren(make("h3", "", null, "Runs of this visit"), list);
  }

  window.SpecDemoCaption = { mount: mounting(Caption) };
  window.SpecDemoHistory = { show };
})();
