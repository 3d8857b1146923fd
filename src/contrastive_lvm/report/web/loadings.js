// Loadings of one dimension, ranked, with a search.
const loadings = unpack(report.loadings);
const rankingWeights = unpack(report.ranking_weights).values;  // 1, unless loadings are on a log scale
const loadingErrors = report.loading_errors ? unpack(report.loading_errors).values : null;
const nLoadings = loadings.shape[0];
const hasErrors = (k) => loadingErrors !== null && k < nTargetDims;
const nFeatures = report.features.length;
const carriedAt = new Int32Array(nFeatures).fill(-1);
values.features.forEach((feature, j) => { carriedAt[feature] = j; });
const table = { dimension: 0, search: "", most: SHOWN };

function rankedFeatures() {
  const from = table.dimension * nFeatures, wanted = table.search.trim().toLowerCase();
  const found = [];
  for (let j = 0; j < nFeatures; j++) {
    if (!wanted || report.features[j].toLowerCase().includes(wanted)) found.push(j);
  }
  const size = (j) => rankingWeights[j] * Math.abs(loadings.values[from + j]);
  return found.sort((a, b) => size(b) - size(a));
}

function drawLoadingRows() {
  const from = table.dimension * nFeatures, ranked = rankedFeatures(), shown = ranked.slice(0, table.most);
  let largest = 1e-30;
  for (let j = 0; j < nFeatures; j++) largest = Math.max(largest, Math.abs(loadings.values[from + j]));
  const rows = shown.map((j) => {
    const loading = loadings.values[from + j], error = loadingErrors ? loadingErrors[from + j] : NaN;
    const dropped = report.selected && !report.selected[j] && table.dimension < nTargetDims;
    return make("tr", {}, make("td", { class: "name" }, featureButton(report.features[j], carriedAt[j])),
      make("td", { class: "number", text: dropped ? "dropped" : shortNumber(loading) }),
      make("td", { class: "number", text: dropped || !isFinite(error) ? "" : `\u00b1 ${shortNumber(error, 2)}` }),
      bar(dropped ? 0 : loading, dropped ? NaN : error, 1.08 * largest));
  });
  document.getElementById("loading-rows").replaceChildren(...rows);
  const more = document.getElementById("loading-more");
  more.hidden = shown.length >= ranked.length;
  document.getElementById("loading-count").textContent = `${shown.length.toLocaleString("en")} of ${plural(ranked.length, "feature")}`;
}

function drawLoadings() {
  const choices = Array.from({ length: nLoadings }, (_, k) => make("option", { value: k, text: axes[k].label }));
  const dimension = make("select", { id: "dimension", onchange: () => { table.dimension = Number(dimension.value); table.most = SHOWN; drawLoadingRows(); } }, ...choices);
  const search = make("input", { type: "search", id: "search", placeholder: "part of a name", autocomplete: "off",
    oninput: () => { table.search = search.value; table.most = SHOWN; drawLoadingRows(); } });
  const more = make("button", { type: "button", id: "loading-more", text: "Show more", onclick: () => { table.most += 50; drawLoadingRows(); } });
  const head = make("tr", {}, make("th", { scope: "col", text: "feature" }), make("th", { class: "number", scope: "col", text: "loading" }),
    make("th", { class: "number", scope: "col", text: loadingErrors ? "std. error" : "" }), make("th"));
  const what = report.facts.estimator === "ContrastiveLVM" ? "What one unit of this dimension adds to each feature"
    : "Half of the change from -1 to 1 along this dimension, for each feature";
  const scaled = report.facts.scale === "none" ? "." : ", in scaled units.";
  document.getElementById("loadings").replaceChildren(make("h2", { text: "Loadings" }),
    make("div", { class: "controls" }, make("label", {}, "Dimension ", dimension), make("label", {}, "Search ", search)),
    make("div", { class: "scroll" }, make("table", { id: "loadings-table" }, make("thead", {}, head), make("tbody", { id: "loading-rows" }))),
    make("p", {}, make("span", { id: "loading-count", class: "small", role: "status" }), " ", more),
    make("p", { class: "small", text: `${what}${scaled}${loadingErrors ? " Standard errors of the target loadings come from resampled rows or from posterior draws; whiskers show two standard errors." : ""}` }));
  drawLoadingRows();
}
