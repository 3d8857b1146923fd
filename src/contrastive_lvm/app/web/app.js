"use strict";
// The page of `clvm app`. The server holds the state; this draws it and sends what is clicked.
const byId = (id) => document.getElementById(id);
const here = location.pathname;
const drawn = new Map(); // articles of fits that have ended
let state = null;
let shown = null; // the name of the fit that is looked at
let busy = "";
let polling = null;
const since = new Map(); // when fits were first seen to run

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function plural(n, word) { return `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`; }
function few(names, most = 5) { return names.slice(0, most).join(", ") + (names.length > most ? ` and ${names.length - most} more` : ""); }

// --- talking to the server ---

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(`${here}${path}`, options);
  } catch {
    throw new Error("The program has ended; start clvm app again.");
  }
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function act(doing, work) {
  busy = doing;
  complain("");
  draw();
  try {
    state = (await work()) ?? state;
  } catch (error) {
    complain(error.message);
  }
  busy = "";
  draw();
  poll();
}

function complain(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
}

const send = (method, path, body) => ask(path, { method, body });

function change(...pairs) {
  const choices = { ...state.choices, ...Object.assign({}, ...pairs) };
  const reading = ["sheet", "decimal", "transpose", "skip_rows", "na", "layer"].some((name) => String(choices[name]) !== String(state.choices[name]));
  state.choices = choices;
  return act(reading ? "Reading again" : "", () => send("PUT", "/choices", JSON.stringify(choices)));
}

async function upload(files) {
  for (const file of files) {
    await act(`Reading ${file.name}`, () => send("PUT", `/files?name=${encodeURIComponent(file.name)}`, file));
  }
  if (state.fits.length && !shown) show(state.fits.at(-1).name);
}

function isUnfinished() {
  return state.fits.some((fit) => fit.status === "running" || fit.status === "waiting") || state.files.some((file) => !file.read);
}

function poll() {
  if (polling || !state || !isUnfinished()) return;
  polling = setTimeout(async () => {
    polling = null;
    try {
      const found = await ask("/state");
      if (!busy) state = found;
    } catch (error) {
      complain(error.message);
      return;
    }
    if (!busy) draw();
    poll();
  }, 500);
}

// --- drawing: each part anew, with the focus where it was ---

function draw() {
  if (!state) return;
  const focus = document.activeElement?.id;
  drawFiles();
  drawLayout();
  drawColumns();
  drawSides();
  drawReplicates();
  drawWhere();
  drawQuestions();
  drawRun();
  drawResults();
  if (focus && document.activeElement?.id !== focus) byId(focus)?.focus({ preventScroll: true });
}

const known = () => state.files.map((file) => file.read).filter((read) => read && !read.error);
const readable = () => state.files.length > 0 && known().length === state.files.length;

function drawFiles() {
  const n = state.files.length;
  byId("drop").classList.toggle("small", n > 0);
  byId("drop").hidden = n >= 2;
  byId("drop-text").textContent = busy ? `${busy} \u2026` : n ? "Are the background's rows in a second file? Drop it here." :
    "Drop a table here: one file with both groups, or one for the target and one for the background. Or a saved session.";
  byId("files").replaceChildren(...state.files.map((file, k) => {
    const role = n === 2 ? (k === 0 ? "Target: " : "Background: ") : "";
    return make("div", { class: "file" },
      make("strong", { text: role + file.name }),
      make("button", { type: "button", id: `remove-${k}`, text: "Remove", "aria-label": `Remove ${file.name}`, onclick: () => act("", () => send("DELETE", `/files/${encodeURIComponent(file.name)}`)) }),
      n === 2 && k === 0 ? make("button", { type: "button", id: "swap", text: "Swap target and background", onclick: () => act("", () => send("POST", "/swap")) }) : null,
      ...sentences(file.read));
  }));
  byId("reading").hidden = !n || state.files.some((file) => !file.read);
}

function sentences(read) {
  if (!read) return [make("p", { class: "hint", text: "Reading \u2026" })];
  if (read.error) return [make("p", { class: "care", text: read.error })];
  const named = (kind) => read.columns.filter((column) => column.kind === kind).map((column) => column.name);
  const [notes, names] = [named("annotation"), named("identifier")];
  const said = [`${plural(read.rows, "row")}, ${plural(read.features, "feature")}, ${(100 * read.missing).toFixed(1)} % missing.`];
  if (notes.length) said.push(`Columns that describe the rows: ${few(notes)}.`);
  if (names.length) said.push(`Identifiers, which are left out: ${few(names)}.`);
  if (read.rewritten.length) said.push(`Read with ${read.rewritten.join(", ")}.`);
  if (read.censored.length) said.push(`Values below or above what can be measured are missing: ${few(read.censored)}.`);
  if (read.remarks.length) said.push(`Read ${read.remarks.join("; ")}.`);
  const parts = [make("p", { class: "hint", text: said.join(" ") })];
  if (read.transposed) parts.push(make("p", { class: "care", text: "The lines seem to be features and the columns rows." }),
    make("button", { type: "button", id: "turn", text: "Transpose the table", onclick: () => change({ transpose: !state.choices.transpose }) }));
  return parts;
}

function chooser(id, label, value, options, onchoose) {
  const box = make("select", { id, onchange: () => onchoose(box.value) }, ...options.map(([key, text]) => make("option", { value: key, text, selected: key === value })));
  return make("label", {}, label, box);
}

function entry(id, label, value, onchoose, properties = {}) {
  const box = make("input", { id, type: "text", value, autocomplete: "off", onchange: () => onchoose(box.value.trim()), ...properties });
  return make("label", {}, label, box);
}

function tick(id, label, value, onchoose) {
  const box = make("input", { id, type: "checkbox", checked: value, onchange: () => onchoose(box.checked) });
  return make("label", {}, box, label);
}

function drawLayout() {
  const { choices } = state;
  const sheets = known().flatMap((read) => read.sheets);
  byId("layout").replaceChildren(
    sheets.length > 1 ? chooser("sheet", "Sheet", choices.sheet, [["", "the first"], ...sheets.map((name) => [name, name])], (sheet) => change({ sheet })) : "",
    chooser("decimal", "Decimal mark", choices.decimal, [["", "found out"], ["point", "point"], ["comma", "comma"]], (decimal) => change({ decimal })),
    tick("transpose", "lines are features, columns are rows", choices.transpose, (transpose) => change({ transpose })),
    entry("na", "Also missing", (choices.na ?? []).join(" "), (text) => change({ na: text.split(/\s+/).filter(Boolean) }), { placeholder: "-999 none" }),
    state.files.some((file) => /\.h5ad$/i.test(file.name)) ? entry("layer", "Layer", choices.layer, (layer) => change({ layer }), { placeholder: "X" }) : "",
    entry("skip", "Lines to leave out", choices.skip_rows, (skip_rows) => change({ skip_rows }), { placeholder: "2 or 1-3" }));
}

// What a column is used as, and the choices that make it so.
function useOf(column) {
  const { drop, annotation, features, index } = state.choices;
  if (drop.includes(column.name)) return "none";
  if (index === column.name) return "name";
  if (annotation.includes(column.name)) return "annotation";
  return column.kind === "identifier" ? (features.length ? "feature" : "annotation") : column.kind;
}

function useAs(column, use) {
  const { choices } = state;
  const without = (list) => list.filter((name) => name !== column.name);
  const pairs = { drop: without(choices.drop), annotation: without(choices.annotation), index: choices.index === column.name ? "" : choices.index };
  if (use === "none") pairs.drop.push(column.name);
  if (use === "name") pairs.index = column.name;
  if (use === "annotation" && column.kind === "feature") pairs.annotation.push(column.name);
  if (column.kind === "identifier") { // all numbers are features then, but those that are kept out
    const others = known()[0].columns.filter((other) => other.kind === "identifier" && other.name !== column.name);
    if (use === "feature") {
      pairs.features = ["all"];
      if (!choices.features.length) pairs.annotation.push(...others.map((other) => other.name));
    } else if (choices.features.length && use === "annotation") pairs.annotation.push(column.name);
  }
  change(pairs);
}

function drawColumns() {
  const columns = known()[0]?.columns ?? [];
  const lines = columns.map((column, k) => {
    const uses = column.kind === "annotation" ? [["annotation", "describes the row"], ["name", "names the row"], ["none", "leave out"]] :
      [["feature", "feature"], ["annotation", "describes the row"], ["name", "names the row"], ["none", "leave out"]];
    const box = make("select", { id: `use-${k}`, "aria-label": `Use of ${column.name}`, onchange: () => useAs(column, box.value) },
      ...uses.map(([key, text]) => make("option", { value: key, text, selected: key === useOf(column) })));
    const values = column.values ? few(column.values.map(([value]) => value), 3) : column.different ? `${plural(column.different, "value")}` : "numbers";
    return make("tr", {}, make("td", { class: "name", text: column.name }), make("td", {}, box), make("td", { text: values }), make("td", { class: "number", text: column.missing || "" }));
  });
  const head = make("tr", {}, ...["column", "used as", "values", "missing"].map((text) => make("th", { text })));
  const more = (known()[0]?.features ?? 0) + columns.filter((c) => c.kind !== "feature").length - columns.length;
  byId("columns").replaceChildren(lines.length ? make("div", { class: "columns", tabindex: 0, role: "region", "aria-label": "Columns" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines))) : "",
    more > 0 ? make("p", { class: "hint", text: `and ${plural(more, "more feature")}` }) : "");
}

const groups = () => (known()[0]?.columns ?? []).filter((column) => column.values && column.different > 1);

function drawSides() {
  byId("sets").hidden = !readable();
  if (!readable()) return;
  if (state.files.length === 2) {
    byId("sides").replaceChildren(make("p", { text: `The target is ${state.files[0].name}, the background is ${state.files[1].name}.` }));
    return;
  }
  const { by, target, background } = state.choices;
  const column = groups().find((own) => own.name === by);
  const options = [["", "choose a column"], ...groups().map((own) => [own.name, `${own.name} (${few(own.values.map(([value]) => value), 3)})`])];
  const parts = [make("p", { class: "line" }, chooser("by", "Which column names the set of each row? ", by, options, (name) => change({ by: name, target: [], background: [] })))];
  if (!groups().length) parts.push(make("p", { class: "care", text: "No column has groups of rows; drop a second file with the background's rows." }));
  if (column) {
    const side = (value) => target.includes(value) ? "target" : background.includes(value) || (target.length && !background.length) ? "background" : background.length ? "neither" : "";
    const lines = column.values.map(([value, n], k) => make("tr", {}, make("td", { text: value }), make("td", { class: "number", text: n.toLocaleString("en") }),
      ...["target", "background", "neither"].map((where) => {
        const box = make("input", { type: "radio", name: `side-${k}`, id: `side-${k}-${where}`, checked: side(value) === where, onchange: () => place(column, side, value, where) });
        return make("td", { class: "side" }, make("label", {}, box, make("span", { class: "unseen", text: `${value} is ${where}` })));
      })));
    const head = make("tr", {}, make("th", { text: by }), make("th", { class: "number", text: "rows" }), ...["target", "background", "neither"].map((text) => make("th", { class: "side", text })));
    parts.push(make("div", { class: "scroll sides" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines))));
    if (!target.length) parts.push(make("p", { class: "hint", text: "The target has the structure you are looking for; the background, such as controls, shows what varies without it." }));
  }
  byId("sides").replaceChildren(...parts);
}

// A first choice of a target makes all other values the background.
function place(column, side, chosen, where) {
  const now = new Map(column.values.map(([value]) => [value, side(value)]));
  if (where === "target" && !state.choices.target.length) for (const [value] of column.values) if (!now.get(value)) now.set(value, "background");
  now.set(chosen, where);
  const those = (name) => column.values.map(([value]) => value).filter((value) => now.get(value) === name);
  change({ target: those("target"), background: those("background") });
}

function drawReplicates() {
  if (!readable()) return;
  const [{ replicates: all, sign }] = known();
  const usable = all.filter(([name]) => name !== state.choices.by);
  const parts = usable.length ? [make("p", { class: "line" }, chooser("replicate", "Do several rows come from the same animal, donor or run? ", state.choices.replicates,
    [["", "no, all rows are independent"], ...usable.map(([name, n]) => [name, `yes: ${name} (${n} of them)`])], (replicates) => change({ replicates })))] : [];
  if (parts.length && sign && !state.choices.replicates) parts.push(make("p", { class: "care", text: `${sign}. Rows of one replicate are not independent; p-values that treat them as independent are too small.` }));
  byId("replicates").replaceChildren(...parts);
}

function drawWhere() {
  if (!readable()) return;
  const { where, by } = state.choices;
  byId("where").replaceChildren(...groups().filter((column) => column.name !== by && column.kind !== "feature" && column.different <= 12).map((column, k) => make("fieldset", {},
    make("legend", { text: column.name }),
    make("div", { class: "choice" }, ...column.values.map(([value, n], i) => {
      const text = `${column.name}=${value}`;
      return tick(`where-${k}-${i}`, `${value} (${n.toLocaleString("en")})`, where.includes(text), (on) => change({ where: on ? [...where, text] : where.filter((own) => own !== text) }));
    })))));
}

function question(name, title, value, options, onchoose) {
  return make("fieldset", {}, make("legend", { text: title }), make("div", { class: "choice" }, ...options.map(([key, text]) => {
    const box = make("input", { type: "radio", name, id: `${name}-${key}`, checked: key === value, onchange: () => onchoose(key) });
    return make("label", {}, box, text);
  })));
}

function drawQuestions() {
  byId("questions").hidden = !readable();
  if (!readable()) return;
  const { choices } = state;
  const yesNo = (name, no, yes) => [[false, no], [true, yes]].map(([value, text]) => [String(value), text]);
  const ask2 = (name, title, no, yes) => question(name, title, String(choices[name]), yesNo(name, no, yes), (key) => change({ [name]: key === "true" }));
  byId("answers").replaceChildren(
    question("values", "What are the values?", choices.values, [["measurements", "measurements"], ["counts", "counts, such as reads or spikes"], ["binary", "zeros and ones"]], (values) => change({ values }, values === "measurements" ? {} : { scale: "none", robust: false })),
    choices.values === "measurements" ? ask2("robust", "Might some rows or values be wrong?", "no", "yes, outliers should count less") : "",
    ask2("sparse", "Are you looking for the few features that matter?", "no, all features may matter", "yes, prefer few features (slower)"));
  byId("settings").replaceChildren(
    chooser("n-target", "Dimensions of the target", choices.n_target, [...new Set(["auto", 1, 2, 3, 4, 5, 6, 8, 10, Number(choices.n_target) || 2])].map((n) => [String(n), n === "auto" ? "as many as the test supports" : String(n)]), (n_target) => change({ n_target })),
    chooser("n-shared", "Shared dimensions", choices.n_shared, ["auto", 0, 1, 2, 3, 5, 8, 10, 15, 20, 30].map((n) => [String(n), n === "auto" ? "found out" : String(n)]), (n_shared) => change({ n_shared })),
    choices.values === "measurements" ? chooser("scale", "Units of the features", choices.scale, [["none", "alike; leave them"], ["standard", "different; scale them"], ["robust", "different, with outliers; scale them robustly"]], (scale) => change({ scale })) : "",
    tick("subgroups", "look for subgroups of the target's rows", choices.subgroups, (subgroups) => change({ subgroups })),
    tick("errors", "standard errors of loadings, even if they take long", choices.errors, (errors) => change({ errors })));
}

function drawRun() {
  const { choices } = state;
  const chosen = state.files.length === 2 || choices.target.length > 0;
  byId("run").disabled = !readable() || !chosen || Boolean(busy);
  byId("why").textContent = chosen ? "" : "First say which rows are the target.";
  byId("command").textContent = state.command ?? "";
}

async function run(...pairs) {
  if (pairs.length) await change(...pairs);
  await act("", () => send("POST", "/fits"));
  show(state.fits.at(-1)?.name);
  byId("results").scrollIntoView({ behavior: "smooth" });
}

// --- results ---

function show(name) {
  shown = name ?? null;
  draw();
}

function drawResults() {
  const { fits } = state;
  byId("results").hidden = !fits.length;
  byId("save").hidden = !state.files.length;
  byId("save").href = `${here}/session.zip`;
  if (!fits.some((fit) => fit.name === shown)) shown = fits.at(-1)?.name ?? null;
  byId("tabs").replaceChildren(...(fits.length > 1 ? fits : []).map((fit) => make("button", { type: "button", id: `tab-${fit.name}`, "aria-pressed": String(fit.name === shown), text: title(fit), onclick: () => show(fit.name) })));
  const fit = fits.find((own) => own.name === shown);
  if (!fit) return byId("shown").replaceChildren();
  const key = `${fit.name} ${fit.status}`;
  if (fit.status === "running" || fit.status === "waiting") return drawProgress(fit);
  if (!drawn.has(key)) drawn.set(key, fit.status === "done" ? result(fit) : failure(fit));
  if (byId("shown").firstChild !== drawn.get(key)) byId("shown").replaceChildren(drawn.get(key));
  drawCompare();
}

function title(fit) {
  const { choices } = fit;
  const parts = [choices.values !== "measurements" ? choices.values : "", choices.robust ? "robust" : "", choices.sparse ? "few features" : "", choices.scale !== "none" ? "scaled" : "", choices.subgroups ? "subgroups" : "", `${choices.n_target} dim.`];
  const ended = { waiting: " \u2026", running: " \u2026", failed: " (failed)", cancelled: " (cancelled)", done: "" };
  return `Fit ${fit.name.slice(3)}: ${parts.filter(Boolean).join(", ")}${ended[fit.status]}`;
}

function drawProgress(fit) {
  if (!since.has(fit.name)) since.set(fit.name, Date.now());
  const seconds = Math.round((Date.now() - since.get(fit.name)) / 1000);
  const last = fit.status === "waiting" ? "Waiting for other fits to end \u2026" : fit.said.at(-1) ?? "Starting \u2026";
  byId("shown").replaceChildren(make("article", { class: "panel", id: "progress" },
    make("progress", { "aria-label": "The fit is running" }),
    make("p", { text: `${last} (${seconds} s)` }),
    make("div", {}, make("button", { type: "button", id: "cancel", text: "Cancel", onclick: () => act("", () => send("DELETE", `/fits/${fit.name}`)) }))));
}

function failure(fit) {
  const text = fit.status === "cancelled" ? "This fit was cancelled." : fit.error;
  return make("article", { class: "panel" }, make("p", { class: "answer care", id: "failure", text }), make("p", { class: "hint", text: "Nothing else is lost: change something above and try again." }),
    make("div", {}, remover(fit)));
}

function remover(fit) {
  return make("button", { type: "button", text: "Remove this fit", onclick: () => act("", () => send("DELETE", `/fits/${fit.name}`)) });
}

function result(fit) {
  const article = make("article", {}, make("p", { text: "Loading \u2026" }));
  ask(`/fits/${fit.name}.json`).then((facts) => {
    fit.facts = facts;
    article.replaceChildren(verdict(fit, facts), features(facts), report(fit), downloads(fit));
  }).catch((error) => complain(error.message));
  return article;
}

function verdict(fit, facts) {
  const supported = facts.n_supported ?? facts.n_target;
  const level = facts.pvalue === null ? "" : supported >= facts.n_target && facts.pvalue <= 0.05 ? "good" : "care";
  const notes = [...facts.warnings, facts.hint].filter(Boolean).map((text) => advice(fit, text));
  const shares = ["target", "shared"].map((name) => `${name} ${(100 * facts.variance[name].reduce((a, b) => a + b, 0)).toFixed(1)} %`);
  const lines = [
    `${facts.target.rows.toLocaleString("en")} rows of the target${facts.background ? `, ${facts.background.rows.toLocaleString("en")} of the background` : ""}, ${plural(facts.features, "feature")}.`,
    `Shares of the target's variance: ${shares.join(", ")}, noise ${(100 * facts.variance.noise).toFixed(1)} %.`,
    facts.outliers.count ? `${plural(facts.outliers.count, "outlier")} among the rows of the target, the strongest in ${few(facts.outliers.rows.map((row) => row.row))}.` : "No outliers among the rows of the target.",
  ];
  if (facts.subgroups) lines.push(facts.subgroups.length === 1 ? "No subgroups: the rows of the target are one cloud." : `${facts.subgroups.length} subgroups, with ${facts.subgroups.map((s) => `${Math.round(100 * s)} %`).join(", ")} of the target's rows.`);
  const { choices } = fit;
  const next = [
    supported && supported !== facts.n_target ? [`${plural(supported, "supported dimension")}`, { n_target: String(supported) }] : null,
    choices.n_target === "auto" ? null : ["One more dimension", { n_target: String(Math.min(10, Number(choices.n_target) + 1)) }],
    choices.robust || choices.values !== "measurements" ? null : ["Robust to outliers", { robust: true }],
    choices.sparse ? null : ["Fewer features", { sparse: true }],
    choices.subgroups ? null : ["Look for subgroups", { subgroups: true }],
  ].filter(Boolean);
  return make("section", { class: "panel", "aria-label": "Verdict" },
    make("p", { class: `answer ${level}`, id: "answer", text: facts.verdict }),
    ...lines.map((text) => make("p", { text })),
    notes.length ? make("ul", {}, ...notes) : "",
    make("div", { class: "controls" }, make("strong", { text: "Refine:" }), ...next.map(([text, pairs]) => make("button", { type: "button", text, onclick: () => run(fit.choices, pairs) })), remover(fit)));
}

const REMEDIES = [
  [/--scale standard/, "Scale the features", { scale: "standard" }],
  [/--likelihood negative_binomial/, "Treat them as counts", { values: "counts", scale: "none" }],
  [/--likelihood student_t/, "Let outliers count less", { robust: true }],
  [/--bootstrap/, "Compute standard errors", { errors: true }],
  [/--replicates/, "", null],
];

// A piece of advice; what it says about options of the command is a button here.
function advice(fit, text) {
  const found = REMEDIES.find(([pattern]) => pattern.test(text));
  const at = text.search(/[:;,] [^:;,]*--/);
  const said = found && at > 0 ? `${text.slice(0, at)}.` : text;
  return make("li", { text: `${said} ` }, found && found[2] ? make("button", { type: "button", text: found[1], onclick: () => run(fit.choices, found[2]) }) : "");
}

function number(x) { return Math.abs(x) >= 1e4 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(Number(x.toPrecision(3))); }

function features(facts) {
  const tables = facts.dimensions.map((dimension) => make("div", {},
    make("h3", { text: `Target ${dimension.dimension}${dimension.share === null ? "" : `, ${(100 * dimension.share).toFixed(1)} % of the variance`}` }),
    make("table", {}, make("thead", {}, make("tr", {}, make("th", { text: "feature" }), make("th", { class: "number", text: "loading" }), make("th", { class: "number", text: "standard error" }))),
      make("tbody", {}, ...dimension.features.map((own) => make("tr", {}, make("td", { class: "name", text: own.feature }), make("td", { class: "number", text: number(own.loading) }),
        make("td", { class: "number", text: own.standard_error === null ? "unknown" : `\u00b1 ${number(own.standard_error)}` })))))));
  const chosen = facts.selected_features ? [make("p", { text: `${plural(facts.selected_features.length, "feature")} selected: ${few(facts.selected_features, 20)}.` })] : [];
  return make("section", { class: "panel", "aria-label": "Features" }, make("h2", { text: "Leading features" }), ...chosen, make("div", { class: "dimensions" }, ...tables));
}

function report(fit) {
  return make("section", { "aria-label": "Report" }, make("iframe", { title: `Report of ${title(fit)}`, src: `${here}/fits/${fit.name}.html` }),
    make("p", { class: "hint" }, make("a", { href: `${here}/fits/${fit.name}.html`, target: "_blank", rel: "noopener", text: "Open the report on a separate page" })));
}

function downloads(fit) {
  const link = (file, text) => make("a", { class: "button", href: `${here}/${file}`, download: "", text });
  const own = `fits/${fit.name}`;
  return make("section", { class: "panel", "aria-label": "Download" }, make("h2", { text: "Download" }),
    make("div", { class: "controls" }, link(`${own}.html?save`, "Report (HTML)"), link(`${own}.json?save`, "Summary (JSON)"), link(`${own}.clvm`, "Model file"), link(`${own}.py`, "Python code"), link("commands.sh", "Commands of all fits"), link("session.zip", "Session")),
    make("div", { class: "controls" }, link(`${own}/tables.xlsx`, "Tables (Excel)"), ...["latents", "shared", "loadings", "variance"].map((name) => link(`${own}/${name}.svg`, `Figure: ${name} (SVG)`))),
    make("details", {}, make("summary", { text: "The same without this page" }), make("p", { text: "In a terminal:" }), make("pre", { text: fit.command }), make("p", { text: "In Python:" }), make("pre", { text: fit.code })));
}

// --- two fits side by side ---

let pair = ["", ""];

function drawCompare() {
  const done = state.fits.filter((fit) => fit.status === "done");
  const key = done.map((fit) => fit.name).join();
  if (byId("compare").dataset.fits === key) return;
  byId("compare").dataset.fits = key;
  if (done.length < 2) return byId("compare").replaceChildren();
  pair = done.slice(-2).map((fit) => fit.name);
  const table = make("div", { id: "side-by-side" });
  const options = done.map((fit) => [fit.name, title(fit)]);
  const choose = (side) => chooser(`compare-${side}`, side ? "with" : "Compare", pair[side], options, (name) => { pair[side] = name; });
  byId("compare").replaceChildren(make("section", { class: "panel", "aria-label": "Compare two fits" }, make("h2", { text: "Compare two fits" }),
    make("div", { class: "controls" }, choose(0), choose(1), make("button", { type: "button", id: "compare-run", text: "Compare", onclick: () => compare(table) })), table));
}

async function compare(place) {
  place.replaceChildren(make("p", { text: "Comparing \u2026" }));
  try {
    const [one, two] = await Promise.all(pair.map((name) => ask(`/fits/${name}.json`)));
    const found = await ask(`/compare?first=${pair[0]}&second=${pair[1]}`);
    const percent = (values) => `${(100 * values.reduce((a, b) => a + b, 0)).toFixed(1)} %`;
    const leaders = (facts) => [...new Set(facts.dimensions.flatMap((dimension) => dimension.features.map((own) => own.feature)))];
    const both = leaders(one).filter((name) => leaders(two).includes(name));
    const lines = [["verdict", (f) => f.verdict], ["p-value", (f) => f.pvalue === null ? "not tested" : number(f.pvalue)], ["model", (f) => `${f.size}, ${f.likelihood}`],
      ["units", (f) => f.scale === "none" ? "as in the file" : f.scale], ["target's share of variance", (f) => percent(f.variance.target)], ["shared", (f) => percent(f.variance.shared)],
      ["outliers", (f) => f.outliers.count], ["leading features", (f) => few(leaders(f), 8)]];
    const agreed = found.angles ? `The target dimensions of the two fits are ${found.angles.map((a) => `${a.toFixed(0)}\u00b0`).join(", ")} apart (0\u00b0 is the same, 90\u00b0 unrelated).` : `The target dimensions cannot be compared: ${found.why ?? found.error}.`;
    place.replaceChildren(make("p", { id: "agreement", text: agreed }), make("p", { text: both.length ? `Leading in both: ${few(both, 12)}.` : "No leading feature in common." }),
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", { text: "" }), ...pair.map((name) => make("th", { text: `Fit ${name.slice(3)}` })))),
        make("tbody", {}, ...lines.map(([name, of]) => make("tr", {}, make("th", { text: name }), make("td", { text: of(one) }), make("td", { text: of(two) })))))));
  } catch (error) {
    place.replaceChildren(make("p", { class: "care", text: error.message }));
  }
}

// --- begin ---

function takeTheme() {
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", takeTheme);
takeTheme();
byId("choose").addEventListener("change", async () => {
  const files = [...byId("choose").files];
  byId("choose").value = "";
  await upload(files);
});
for (const kind of ["dragover", "dragenter"]) addEventListener(kind, (event) => { event.preventDefault(); byId("drop").classList.add("over"); });
addEventListener("dragleave", () => byId("drop").classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  byId("drop").classList.remove("over");
  upload([...event.dataTransfer.files]);
});
byId("run").addEventListener("click", () => run());
addEventListener("pagehide", () => fetch(`${here}/closed`, { method: "POST", keepalive: true }));
addEventListener("pageshow", () => act("", () => ask("/state")));
