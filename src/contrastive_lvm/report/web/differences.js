// Which features differ between the selected rows and the rest of their set.
const SHOWN = 15;

// Count, mean and variance of every feature whose values the page has, over some rows.
function moments(rows, wanted) {
  const d = values.shape[1], count = new Float64Array(d), sum = new Float64Array(d), square = new Float64Array(d);
  for (let i = rows[0]; i < rows[1]; i++) {
    if (!wanted(i)) continue;
    for (let j = 0, at = i * d; j < d; j++, at++) {
      const code = values.values[at];
      if (code === MISSING) continue;
      count[j]++;
      sum[j] += code;
      square[j] += code * code;
    }
  }
  return { count, sum, square };
}

function featureMoments(all, j) {
  const n = all.count[j], mean = all.sum[j] / n;
  const variance = n > 1 ? Math.max(0, (all.square[j] - n * mean * mean) / (n - 1)) : NaN;
  return { n, mean: values.low[j] + values.step[j] * mean, variance: variance * values.step[j] ** 2 };
}

// The difference of means in pooled standard deviations, and its standard error.
function effect(a, b) {
  if (!a.n || b.n < 2) return null;
  const pooled = a.n > 1 ? ((a.n - 1) * a.variance + (b.n - 1) * b.variance) / (a.n + b.n - 2) : b.variance;
  if (!(pooled > 0)) return null;
  const std = Math.sqrt(pooled);
  const own = a.n > 1 ? a.variance : b.variance;
  return { size: (a.mean - b.mean) / std, error: Math.sqrt(own / a.n + b.variance / b.n) / std };
}

function differences() {
  const rows = selectedSet(), chosen = selection.chosen;
  const selected = moments(rows, (i) => chosen[i]), rest = moments(rows, (i) => !chosen[i]);
  const found = [];
  for (let j = 0; j < values.shape[1]; j++) {
    const a = featureMoments(selected, j), b = featureMoments(rest, j), e = effect(a, b);
    if (e) found.push({ j, name: report.features[values.features[j]], selected: a, rest: b, ...e });
  }
  return found.sort((p, q) => Math.abs(q.size) - Math.abs(p.size));
}

// Rows of the target if any of them is selected, else those of the background.
function selectedSet() {
  for (let i = 0; i < nTarget; i++) if (selection.chosen[i]) return [0, nTarget];
  return [nTarget, nRows];
}

// A bar from zero with a whisker, as an entry of a table.
function bar(value, error, largest) {
  const place = (x) => 50 + 50 * Math.max(-1, Math.min(1, x / largest));
  const fill = make("i", { class: value < 0 ? "down" : "" }), zero = make("u");
  fill.style.left = `${Math.min(50, place(value))}%`;
  fill.style.width = `${Math.abs(place(value) - 50)}%`;
  zero.style.left = "50%";
  const parts = [fill, zero];
  if (isFinite(error)) {
    const whisker = make("b");
    whisker.style.left = `${place(value - 2 * error)}%`;
    whisker.style.width = `${place(value + 2 * error) - place(value - 2 * error)}%`;
    parts.push(whisker);
  }
  return make("td", { class: "bar" }, make("div", { "aria-hidden": "true" }, ...parts));
}

function featureButton(name, j) {
  if (j < 0) return document.createTextNode(name);
  return make("button", { type: "button", class: "link", text: name, title: "Colour the rows by this feature", onclick: () => colourBy(null, j) });
}

// Who the selected rows are: their names if they are few, and how many there are of each group.
function whoIsSelected(set) {
  const rows = rowsWhere((i) => i >= set[0] && i < set[1] && selection.chosen[i]), lines = [];
  if (rows.length <= 12) lines.push(`Rows: ${rows.map(rowName).join(", ")}.`);
  for (const column of columns.filter((c) => c.kind === "group" && !c.sets)) {
    const chosen = column.levels.map(() => 0), all = column.levels.map(() => 0);
    for (let i = set[0]; i < set[1]; i++) if (column.codes[i] >= 0) all[column.codes[i]]++;
    for (const row of rows) if (column.codes[row] >= 0) chosen[column.codes[row]]++;
    const met = chosen.map((n, code) => [n, code]).filter(([n]) => n).sort((p, q) => q[0] - p[0]);
    const named = met.slice(0, 6).map(([n, code]) => `${column.levels[code]} ${n} of ${all[code]}`);
    const total = all.filter((n) => n).length;
    if (met.length) lines.push(`${column.name}: ${named.join(", ")}${met.length > 6 ? `, and ${met.length - 6} more` : ""}${total > 6 ? ` (${met.length} of ${total} values)` : ""}.`);
  }
  return lines;
}

function drawDifferences() {
  const root = document.getElementById("differences");
  const heading = make("h2", { text: "How the selected rows differ" });
  if (!selection.count) {
    root.replaceChildren(heading, make("p", { class: "small", text: "Select rows above to see which features set them apart from the others." }));
    return;
  }
  const set = selectedSet(), all = differences(), found = all.slice(0, SHOWN);
  let n = 0;
  for (let i = set[0]; i < set[1]; i++) n += selection.chosen[i];
  const name = set[0] === 0 ? "target" : "background";
  const carried = values.shape[1] < report.features.length
    ? ` Of ${report.features.length.toLocaleString("en")} features, the page holds the values of the ${values.shape[1]} with the largest target loadings.` : "";
  const largest = Math.max(...found.map((f) => Math.abs(f.size) + 2 * f.error), 1e-9);
  const rows = found.map((f) => make("tr", {}, make("td", { class: "name" }, featureButton(f.name, f.j)),
    make("td", { class: "number", text: shortNumber(f.selected.mean) }), make("td", { class: "number", text: shortNumber(f.rest.mean) }),
    make("td", { class: "number", text: `${f.size.toFixed(2)} \u00b1 ${f.error.toFixed(2)}` }), bar(f.size, f.error, largest)));
  const head = make("tr", {}, ...["feature", "selected", "rest", "difference (std)", ""].map((text, k) =>
    make("th", { class: k && k < 4 ? "number" : "", scope: "col", text })));
  root.replaceChildren(heading,
    make("div", { id: "selected-who" }, ...whoIsSelected(set).map((text) => make("p", { class: "small", text }))),
    make("p", { text: `${plural(n, "row")} of the ${name} compared with the other ${(set[1] - set[0] - n).toLocaleString("en")}, by the means of their observed values.` }),
    found.length ? make("div", { class: "scroll" }, make("table", { id: "differences-table" }, make("thead", {}, head), make("tbody", {}, ...rows)))
      : make("p", { text: "Too few values are observed to compare any feature." }),
    make("p", { class: "small", text: `Differences are in pooled standard deviations; whiskers show two standard errors. Rows that were selected by their latents differ by construction in the features of those dimensions, so this table is a description, not a test.${carried}` }));
}
