// About the fit: the lead, diagnostics, shares of variance, the lower bound, settings.
function lead() {
  const f = report.facts;
  const sets = [["target", nTarget], ["background", nBackground]].filter(([name]) => f[name] && f[name].rows)
    .map(([name, shown]) => `${f[name].rows.toLocaleString("en")} ${name} rows${shown < f[name].rows ? ` (a random ${shown.toLocaleString("en")} of them are drawn)` : ""}`);
  return `${sets.join(" and ")}, ${plural(f.features, "feature")}; ${plural(f.n_target, "target dimension")} and ${plural(f.n_shared, "shared dimension")}.`;
}

// The answer of the test, and what it says about each dimension.
function drawVerdict() {
  const f = report.facts;
  const parts = [make("h2", { text: "Is it real?" }), make("p", { class: `answer ${report.level}`, text: f.verdict })];
  if (report.caution) parts.push(make("p", { id: "caution", text: report.caution }));
  const tested = f.pvalues.length > 0, count = Math.max(f.pvalues.length, f.dimensions.length);
  if (count) {
    const shares = f.variance.target.length === nTargetDims ? f.variance.target : [];
    const rows = Array.from({ length: count }, (_, k) => make("tr", {}, make("th", { scope: "row", text: `target ${k + 1}` }),
      ...tested ? [make("td", { class: "number", text: k in f.pvalues ? shortNumber(f.pvalues[k], 2) : "" }),
        make("td", { text: k in f.pvalues ? (k < f.n_supported ? "supported" : "not supported") : "not tested" })] : [],
      make("td", { class: "number share-of", text: k in shares ? percent(shares[k]) : "" }),
      make("td", { class: "leading", text: leading(f.dimensions[k]) })));
    const head = make("tr", {}, ...[["dimension", ""], ...tested ? [["p-value", "number"], ["at 5%", ""]] : [], ["share of variance", "number share-of"],
      ["largest loadings", "leading"]].map(([text, kind]) => make("th", { scope: "col", class: kind, text })));
    parts.push(make("div", { class: "scroll" }, make("table", { id: "verdict-table" }, make("thead", {}, head), make("tbody", {}, ...rows))));
  }
  if (report.subgroups) parts.push(make("p", { id: "subgroup-sizes", text: subgroupSizes() }));
  if (tested) {
    parts.push(make("p", { class: "small", text: `By ${f.method}. The p-value of a dimension is the probability of a contrast at least as large in data without it. Each dimension is tested given those before it. The test finds directions of its own, the clearest first, which need not be those of the model in the same order.` }));
  }
  if (report.stability) parts.push(make("p", { text: report.stability }));
  if (f.means) {
    const each = f.means.features.map((m) => `${m.feature} ${m.difference < 0 ? "" : "+"}${shortNumber(m.difference, 3)} \u00b1 ${shortNumber(m.standard_error, 2)}`);
    parts.push(make("p", { id: "means", text: each.length ? `${f.means.sentence} The clearest are ${each.join(", ")}.` : f.means.sentence }));
  }
  document.getElementById("verdict").replaceChildren(...parts);
}

// The features with the largest loadings, with the sign of each.
function leading(dimension) {
  const found = dimension?.features?.slice(0, 4) ?? [];
  return found.map((one) => `${one.feature}\u00a0${one.loading < 0 ? "\u2212" : "+"}`).join(", ");
}

function drawDiagnostics() {
  const list = (notes) => make("ul", {}, ...notes.map(({ level, text }) => make("li", { class: level, text })));
  const parts = [make("h2", { text: "Can the fit be trusted?" }), list(report.diagnostics)];
  if (report.background_notes.length) parts.push(make("h2", { text: "Is this background adequate?" }), list(report.background_notes));
  document.getElementById("diagnostics").replaceChildren(...parts);
}

function drawShares() {
  const { target, shared, noise } = report.facts.variance;
  const total = (list) => list.reduce((a, b) => a + b, 0);
  const parts = [
    ...target.map((share, k) => [target.length === nTargetDims ? `target ${k + 1}` : "target dimensions", share, groupColour(0)]),
    ["shared dimensions", total(shared), groupColour(1)], ["noise", noise, GREY],
  ];
  const strip = make("div", { class: "share", role: "img", "aria-label": parts.map(([name, share]) => `${name} ${percent(share)}`).join(", ") });
  const rows = parts.map(([name, share, colour]) => {
    const part = make("div", { title: `${name}: ${percent(share)}` }), key = make("span", { class: "key" });
    part.style.flexGrow = share;
    part.style.background = key.style.background = colour;
    strip.append(part);
    return make("tr", {}, make("td", {}, key, name), make("td", { class: "number", text: percent(share) }));
  });
  const trace = report.trace.length > 2 ? [make("h2", { text: "Lower bound after each iteration" }), tracePicture()] : [];
  document.getElementById("shares").replaceChildren(make("h2", { text: "Shares of the target's variance" }), strip,
    make("table", {}, make("tbody", {}, ...rows)), ...trace);
}

function percent(share) { return `${(100 * share).toFixed(1)}%`; }

function tracePicture() {
  const trace = report.trace, low = Math.min(...trace), range = Math.max(...trace) - low || 1;
  const xy = trace.map((v, i) => `${(4 + 592 * i / (trace.length - 1)).toFixed(1)},${(136 - 128 * (v - low) / range).toFixed(1)}`);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const set = (element, attributes) => Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  set(svg, { viewBox: "0 0 600 140", class: "trace", role: "img", preserveAspectRatio: "none",
    "aria-label": `The lower bound rises from ${shortNumber(trace[0])} to ${shortNumber(trace[trace.length - 1])}` });
  set(line, { points: xy.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" });
  svg.append(line);
  return make("div", {}, svg, make("p", { class: "small", text: `from ${shortNumber(trace[0])} to ${shortNumber(trace[trace.length - 1])}` }));
}

function drawSettings() {
  const rows = report.settings.map(([name, text]) => make("tr", {}, make("th", { scope: "row", text: name }), make("td", { text })));
  document.getElementById("settings").replaceChildren(make("h2", { text: "Data and settings" }), make("table", {}, make("tbody", {}, ...rows)));
}
