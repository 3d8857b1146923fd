// Subgroups: their sizes, what sets them apart, and ellipses around them.
const RADIUS = Math.sqrt(-2 * Math.log(0.1)); // standard deviations around 90 % of a plane's rows
const ERRORS = "Standard errors are those of the whole fit, including its subgroups. The features listed set a subgroup apart at a false discovery rate of 5%.";
const NO_ERRORS = "They have no standard errors here: the same features define the subgroups, so errors that treat the subgroups as known would be too small. Use clvm fit --bootstrap 100 or subgroup_differences.";

// The two target dimensions that a view shows; null if it shows anything else.
function planeOf(view) {
  const dims = [view.xAxis, view.yAxis].map((axis) => axis.std?.set === "target" ? axis.std.k : -1);
  return report.subgroups && Math.min(...dims) >= 0 && dims[0] !== dims[1] ? dims : null;
}

// The box of a view, enlarged so that the ellipses are inside.
function withEllipses(view, box) {
  const dims = planeOf(view);
  if (!dims) return box;
  const { means, covariances } = report.subgroups, [i, j] = dims, reach = (c, k) => 1.05 * RADIUS * Math.sqrt(covariances[c][k][k]);
  return {
    x0: Math.min(box.x0, ...means.map((mean, c) => mean[i] - reach(c, i))), x1: Math.max(box.x1, ...means.map((mean, c) => mean[i] + reach(c, i))),
    y0: Math.min(box.y0, ...means.map((mean, c) => mean[j] - reach(c, j))), y1: Math.max(box.y1, ...means.map((mean, c) => mean[j] + reach(c, j))),
  };
}

// Ellipses of the components, while rows have the colours of their subgroups.
function drawEllipses(view) {
  const found = report.subgroups, dims = planeOf(view);
  if (!dims || colouring.column?.name !== found.column) return;
  const { context } = view;
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top, view.width - MARGIN.left - MARGIN.right, view.height - MARGIN.top - MARGIN.bottom);
  context.clip();
  context.lineWidth = 1.5;
  found.means.forEach((mean, c) => {
    const cov = found.covariances[c], [i, j] = dims;
    const a = Math.sqrt(cov[i][i]), b = cov[i][j] / a, d = Math.sqrt(Math.max(0, cov[j][j] - b * b)); // Cholesky
    context.strokeStyle = groupColour(c);
    context.beginPath();
    for (let k = 0; k <= 72; k++) {
      const u = RADIUS * Math.cos(k * Math.PI / 36), v = RADIUS * Math.sin(k * Math.PI / 36);
      context.lineTo(view.toX(mean[i] + a * u), view.toY(mean[j] + b * u + d * v));
    }
    context.stroke();
  });
  context.restore();
}

function drawSubgroups() {
  const root = document.getElementById("subgroups"), found = report.subgroups, parts = [];
  if (found) {
    const rows = found.table.map((line, c) => make("tr", {}, make("th", { scope: "row", text: `subgroup ${c + 1}` }),
      make("td", { class: "number", text: percent(line.share) }), make("td", { class: "number", text: line.rows.toLocaleString("en") }),
      make("td", { class: "number", text: line.certain.toLocaleString("en") }), make("td", { class: "wide", text: line.features })));
    const head = make("tr", {}, ...["", "share", "rows", "at least 90% certain", "differences from the average row"].map((text, k) =>
      make("th", { scope: "col", class: !k ? "" : k < 4 ? "number" : "wide", text })));
    parts.push(make("h2", { text: "Subgroups" }),
      make("div", { class: "scroll" }, make("table", { id: "subgroup-table" }, make("thead", {}, head), make("tbody", {}, ...rows))));
    if (found.stability) parts.push(make("p", { text: found.stability }));
    parts.push(make("p", { class: "small", text: `Each ellipse holds 90% of a fitted component. The differences are those of the fitted model, in its units. ${found.errors ? ERRORS : NO_ERRORS}` }));
  }
  if (report.annotation_notes.length) {
    parts.push(make("h2", { text: "What annotations explain" }), make("ul", {}, ...report.annotation_notes.map((text) =>
      make("li", { class: text.includes(": check ") ? "care" : "note", text }))));
  }
  root.replaceChildren(...parts);
  root.hidden = !parts.length;
}

function subgroupSizes() {
  const shares = report.subgroups.table.map((line) => percent(line.share));
  return `Subgroups: ${shares.length}, with ${shares.join(", ")} of the target's rows.`;
}
