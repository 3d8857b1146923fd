// Downloads, made in the page.
function save(name, parts, type) {
  const link = make("a", { download: name, href: URL.createObjectURL(new Blob(parts, { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Spreadsheets run text that begins like a formula; an apostrophe before it makes it text. Numbers stay.
function harmless(text) {
  return /^[=+\-@\t\r\n]/.test(text) && !/^[+-]?\d+(\.\d*)?(e[+-]?\d+)?$/i.test(text) ? `'${text}` : text;
}
function quoted(text) {
  const safe = harmless(text);
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
function exact(x) { return Number.isFinite(x) ? String(Number(x.toPrecision(7))) : ""; }

function csv(head, lines) { return [`${head.map(quoted).join(",")}\r\n`, ...lines.map((line) => `${line.join(",")}\r\n`)]; }

function annotationsOf(row) {
  return columns.filter((c) => !c.sets).map((c) => c.kind === "number" ? exact(c.values[row]) : quoted(annotation(c, row) ?? ""));
}

// Latents with standard deviations and annotations, one line per row.
function latentLines(prefix, wanted) {
  const own = axes.filter((axis) => axis.column?.startsWith(prefix));
  const head = ["row", "set", ...own.flatMap((axis) => [axis.column, `${axis.column}_std`]), ...columns.filter((c) => !c.sets).map((c) => c.name)];
  const lines = [];
  for (let i = 0; i < nRows; i++) {
    if (!wanted(i)) continue;
    const numbers = own.flatMap((axis) => [exact(axis.values[i]), exact(stdOf(axis, i))]);
    lines.push([quoted(String(rowName(i))), isTarget(i) ? "target" : "background", ...numbers, ...annotationsOf(i)]);
  }
  return csv(head, lines);
}

function loadingLines() {
  const dims = Array.from({ length: nLoadings }, (_, k) => k);
  const head = ["feature", ...dims.flatMap((k) => [axes[k].column, ...(hasErrors(k) ? [`${axes[k].column}_error`] : [])])];
  const lines = report.features.map((name, j) => [quoted(name), ...dims.flatMap((k) => {
    const at = k * nFeatures + j;
    return [exact(loadings.values[at]), ...(hasErrors(k) ? [exact(loadingErrors[at])] : [])];
  })]);
  return csv(head, lines);
}

function differenceLines() {
  const lines = differences().map((f) => [quoted(f.name), exact(f.selected.mean), exact(f.rest.mean), f.selected.n, f.rest.n, exact(f.size), exact(f.error)]);
  return csv(["feature", "mean of selected", "mean of rest", "selected observed", "rest observed", "standardized difference", "standard error"], lines);
}

function drawDownloads() {
  const all = [
    ["Target latents", "target_latents.csv", () => latentLines("target", isTarget)],
    ["Shared latents", "shared_latents.csv", () => latentLines("shared", () => true), !nSharedDims],
    ["Loadings", "loadings.csv", loadingLines],
    ["Selected rows", "selected_rows.csv", () => latentLines("", (i) => selection.chosen[i]), null],
    ["Differences", "differences.csv", differenceLines, null],
  ];
  const buttons = all.map(([text, name, lines, absent]) => make("button", {
    type: "button", id: `save-${name.split(".")[0].replace("_", "-")}`, disabled: absent === true || absent === null,
    class: absent === null ? "of-selection" : "", text: `${text} (CSV)`, onclick: () => save(name, lines(), "text/csv") }));
  const facts = { ...report.facts, settings: Object.fromEntries(report.settings), diagnostics: report.diagnostics };
  buttons.push(make("button", { type: "button", id: "save-summary", text: "Summary (JSON)",
    onclick: () => save("summary.json", [JSON.stringify(facts, null, 1)], "application/json") }));
  on("selection", () => document.querySelectorAll(".of-selection").forEach((button) => { button.disabled = !selection.count; }));
  document.getElementById("downloads").replaceChildren(make("h2", { text: "Download" }), make("div", { class: "controls" }, ...buttons),
    make("p", { class: "small", text: "This page is self-contained: it loads nothing from the network and sends nothing." }));
}
