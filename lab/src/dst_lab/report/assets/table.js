(function table() {
  const root = document.getElementById("table");
  const { runs, settings, metrics } = DATA;
  const plan = (i) => DATA.plans[runs.plan[i]];
  const setting = (i) => settings[runs.setting[i]];
  const note = (i) => DATA.notes[runs.id[i]] ?? null;
  const metric = (name, factor = 1) => (i) => (metrics[name] && metrics[name][i] !== null ? factor * metrics[name][i] : null);
  /* Those metrics that say most, of what these runs have; the others are inside each run. */
  const usual = ["validation_accuracy", "test_loss", "test_accuracy"].filter((name) => metrics[name]);
  const further = Object.keys(metrics).filter((name) => !usual.includes(name) && name !== "validation_loss" && /^(test|validation)_/.test(name) && !name.endsWith("_argmax"));
  const columnOf = (name) => { const { title, factor, unit } = DATA.cards[name]; return [`Last ${title}${unit ? `, ${unit}` : ""}`, metric(name, factor), "num less", factor === 100 ? 4 : 5]; };
  const COLUMNS = [
    ["Task", (i) => setting(i).task, "less"], ["Estimator", (i) => setting(i).estimator],
    ["τf", (i) => setting(i).taus[0], "num"], ["τb", (i) => setting(i).taus[1], "num"], ["lr", (i) => setting(i).config.lr ?? null, "num less"], ["Seed", (i) => runs.seed[i], "num"],
    ["Plan", plan, "less"], ["Status", (i) => runs.status[i], "less"], ["Lowest val. loss", (i) => runs.best[i], "num", 5],
    ...[...usual, ...further].slice(0, 3).map(columnOf), ["Note", note, "less"],
  ].filter(([title, value]) => (title === "Plan" ? DATA.plans.length > 1 : runs.id.some((_, i) => value(i) !== null)));
  const STEP = 50;
  const state = { words: "", task: "", estimator: "", claim: null, sort: null, down: false, limit: STEP, open: new Set() };
  const all = runs.id.map((_, i) => i);
  const text = all.map((i) => [runs.id[i], setting(i).task, setting(i).estimator, setting(i).words, plan(i), runs.status[i], note(i) || ""].join(" ").toLowerCase());
  let found = all;
  /* An example that finds something in this very store. */
  const tauOf = (i) => ["tau", "tau_f", "tau_b"].find((name) => typeof fieldOf(i, name) === "number");
  const tuned = all.find(tauOf);
  const example = tuned === undefined ? "" : `estimator=${fieldOf(tuned, "estimator")} ${tauOf(tuned)}<=${fieldOf(tuned, tauOf(tuned))} seed>=${runs.seed[tuned]}`;

  const body = make("tbody");
  const count = make("div", { class: "count", "aria-live": "polite" });
  const view = make("div", { class: "view" });
  const wrong = make("div", { class: "wrong", role: "status" });
  const more = make("button", { type: "button", onclick: () => { state.limit += 4 * STEP; draw(); } });
  const heads = COLUMNS.map(([title, , style], c) => make("th", { class: style || "", scope: "col", "aria-sort": "none" },
    make("button", { type: "button", onclick: () => { state.down = state.sort === c && !state.down; state.sort = c; search(); } }, title)));
  const words = make("input", { type: "search", id: "run-search", placeholder: example && `such as: ${example}`, autocomplete: "off", oninput: () => { state.words = words.value; search(); } });
  const chooser = (title, name, values) => make("label", {}, title, make("select", { id: `run-${name}`, onchange: (event) => { state[name] = event.target.value; search(); } },
    make("option", { value: "" }, "all"), ...[...new Set(values)].map((value) => make("option", { value }, value))));
  root.replaceChildren(
    make("div", { class: "controls" }, make("label", { class: "wide" }, "Search: words, and conditions as in dst show --where", words),
      chooser("Task", "task", settings.map((one) => one.task)), chooser("Estimator", "estimator", settings.map((one) => one.estimator))),
    wrong, count, view,
    make("div", { class: "frame" }, make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All runs" }, make("table", { class: "runs" }, make("thead", {}, make("tr", {}, make("th", {}, make("span", { class: "hidden" }, "Details")), ...heads)), body))),
    more);

  function search() {
    const asked = query(state.words);
    wrong.textContent = asked.wrong && `${asked.wrong[0].toUpperCase()}${asked.wrong.slice(1)}.`;
    found = asked.wrong ? [] : (state.claim ? state.claim.runs : all).filter((i) =>
      (!state.task || setting(i).task === state.task) && (!state.estimator || setting(i).estimator === state.estimator)
      && asked.words.every((word) => text[i].includes(word)) && asked.conditions.every((one) => holds(one, fieldOf(i, one.field))));
    if (state.sort !== null) {
      const value = COLUMNS[state.sort][1], sign = state.down ? -1 : 1;
      const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
      /* What has no value comes last, whichever way. */
      found = [...found].sort((i, j) => {
        const [a, b] = [value(i), value(j)];
        return a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b) || i - j;
      });
    }
    heads.forEach((head, c) => head.setAttribute("aria-sort", c !== state.sort ? "none" : state.down ? "descending" : "ascending"));
    state.limit = STEP;
    draw();
  }

  /* What was measured, to so many digits; what was given, as it is. */
  function show(value, count = 0) { return value === null || value === undefined ? "–" : typeof value !== "number" ? value : count ? digits(value, count) : String(value); }

  /* The address of what is shown: opened again, it shows the same. */
  function address() {
    const parts = new URLSearchParams();
    for (const [name, value] of Object.entries({ where: state.words.trim(), task: state.task, estimator: state.estimator, claim: state.claim ? String(state.claim.index) : "", sort: state.sort === null ? "" : `${state.down ? "-" : ""}${COLUMNS[state.sort][0]}` })) if (value) parts.set(name, value);
    return `#runs?${parts}`;
  }

  function restore() {
    if (!location.hash.startsWith("#runs?")) return;
    const parts = new URLSearchParams(location.hash.slice("#runs?".length));
    const sort = parts.get("sort") || "", title = sort.replace(/^-/, ""), column = COLUMNS.findIndex(([name]) => name === title);
    Object.assign(state, { words: parts.get("where") || "", sort: column < 0 ? null : column, down: sort.startsWith("-"), claim: null });
    words.value = state.words;
    for (const name of ["task", "estimator"]) {
      const select = root.querySelector(`#run-${name}`);
      select.value = parts.get(name) || "";
      state[name] = select.value;
    }
    const button = document.querySelector(`button[data-claim="${Number(parts.get("claim") ?? NaN)}"]`);
    if (button) state.claim = claimOf(button);
    search();
    document.getElementById("runs").scrollIntoView();
  }

  function claimOf(button) {
    const index = Number(button.dataset.claim), listed = new Set(DATA.claims[index]);
    return { index, label: button.dataset.label, runs: all.filter((i) => listed.has(i)) };
  }

  function row(i) {
    const open = state.open.has(i);
    const toggle = make("button", { type: "button", class: "open", "aria-expanded": open, "aria-label": `Details of run ${runs.id[i]}`, onclick: () => { open ? state.open.delete(i) : state.open.add(i); draw(); body.querySelector(`[data-run="${runs.id[i]}"] .open`).focus(); } }, open ? "−" : "+");
    const line = make("tr", { "data-run": runs.id[i] }, make("td", {}, toggle), ...COLUMNS.map(([title, value, style, count]) => make("td", { class: style || "" }, show(value(i), count), title === "Estimator" ? make("small", {}, setting(i).task) : null)));
    return open ? [line, detail(i)] : [line];
  }

  function detail(i) {
    const { config, command, taus } = setting(i);
    const { task, estimator } = config, { name, ...numbers } = estimator;
    const facts = { run: runs.id[i], status: runs.status[i], plan: plan(i), task, estimator: name, ...numbers, ...(taus[2] ? { schedule: taus[2] } : {}), ...flat(config), seed: runs.seed[i], ...(note(i) ? { note: note(i) } : {}) };
    const last = Object.entries(metrics).filter(([, values]) => values[i] !== null).map(([key, values]) => [`last ${key.replaceAll("_", " ")}`, show(values[i], 5)]);
    const list = [...Object.entries(facts), ...last].map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, typeof value === "string" ? value : written(value))));
    return make("tr", { class: "detail" }, make("td", { colspan: COLUMNS.length + 1 }, command ? make("code", {}, command.replace(/--seeds 0,/, `--seeds ${runs.seed[i]},`)) : null, make("dl", {}, ...list)));
  }

  function csvRows() {
    const own = settings.map((one) => flat(one.config));
    const fields = [...new Set(found.flatMap((i) => Object.keys(own[runs.setting[i]])))];
    const numbers = [...new Set(found.flatMap((i) => Object.keys(setting(i).config.estimator)))].filter((name) => name !== "name");
    const head = ["run", "task", "estimator", ...numbers, ...fields, "seed", "plan", "status", "lowest_validation_loss", ...Object.keys(metrics).map((name) => `last_${name}`), "note"];
    const cell = (value) => (value === null || value === undefined ? "" : Array.isArray(value) ? written(value) : value);
    return [head, ...found.map((i) => [runs.id[i], fieldOf(i, "task"), fieldOf(i, "estimator"), ...numbers.map((name) => cell(fieldOf(i, name))), ...fields.map((name) => cell(own[runs.setting[i]][name])), runs.seed[i], plan(i), runs.status[i], cell(runs.best[i]), ...Object.values(metrics).map((values) => cell(values[i])), cell(note(i))])];
  }

  function draw() {
    body.replaceChildren(...found.slice(0, state.limit).flatMap(row));
    const format = (value) => value.toLocaleString("en");
    count.replaceChildren(`${format(found.length)} of ${format(all.length)} runs`,
      state.claim ? make("button", { type: "button", onclick: () => { state.claim = null; search(); } }, `only those behind “${state.claim.label}” ×`) : "");
    view.replaceChildren(make("a", { href: address(), class: "address" }, "Link to this view"),
      make("button", { type: "button", class: "link", "aria-label": "Download these runs as CSV", onclick: () => saveCsv("runs", csvRows()) }, "Download CSV"));
    more.hidden = found.length <= state.limit;
    more.textContent = `Show more (${format(found.length - state.limit)} left)`;
  }

  for (const button of document.querySelectorAll("button[data-claim]")) {
    button.addEventListener("click", () => {
      state.claim = claimOf(button);
      search();
      document.getElementById("runs").scrollIntoView();
      words.focus({ preventScroll: true });
    });
  }
  addEventListener("hashchange", restore);
  search();
  restore();
})();
