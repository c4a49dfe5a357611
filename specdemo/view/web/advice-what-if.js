/*
 * The sliders of an exported report: what other costs would give, predicted from the measured acceptance.
 * The formula is that of specdemo/theory.py, predicted_speedup without overhead.
 */
(function () {
  "use strict";

  const known = JSON.parse(document.getElementById("acceptance").textContent);
  const root = document.getElementById("what-if");

  /** Tokens of a round of γ drafted tokens. */
  function tokens(kept, gamma) {
    let total = 1;
    let reached = 1;
    for (const share of kept.slice(0, gamma)) total += reached *= share;
    return total;
  }

  function best(each, c, v) {
    const cost = each.model ? c : each.draft_cost;
    const found = each.kept.slice(0, 16).map((_, place) => {
      const gamma = place + 1;
      const emitted = each.drafting * tokens(each.kept, gamma) + (1 - each.drafting);
      return { method: each.method, gamma, speedup: emitted / (each.drafting * (gamma * cost + v) + (1 - each.drafting)) };
    });
    return found.reduce((a, b) => (b.speedup > a.speedup ? b : a));
  }

  function make(tag, parent, text) {
    const made = parent.appendChild(document.createElement(tag));
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function slider(text, min, max, step, value) {
    const label = make("label", root, text);
    const input = make("input", label);
    Object.assign(input, { type: "range", min, max, step, value });
    const shown = make("output", label);
    return { input, shown };
  }

  make("p", root, "Predicted, not measured: from the share of drafted tokens that was kept at each position.");
  const c = slider("a draft step costs, in target steps (c)", 0, 1, 0.01, 0.05);
  const v = slider("a verify costs, in target steps (v)", 1, 3, 0.01, 1.02);
  const list = make("ol", root);

  function update() {
    const [draft, verify] = [Number(c.input.value), Number(v.input.value)];
    c.shown.textContent = draft.toFixed(2);
    v.shown.textContent = verify.toFixed(2);
    list.replaceChildren();
    const found = known.map((each) => best(each, draft, verify)).sort((a, b) => b.speedup - a.speedup);
    for (const each of found) make("li", list, `${each.speedup.toFixed(2)}× ${each.method}, γ ${each.gamma}`);
  }

  for (const each of [c, v]) each.input.addEventListener("input", update);
  update();
})();
