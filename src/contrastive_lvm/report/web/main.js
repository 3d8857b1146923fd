// Put the page together.
const byId = (id) => document.getElementById(id);

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = name === "dark" ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", `change to ${name === "dark" ? "light" : "dark"} colours`);
  colourBy(colouring.column, colouring.feature); // black and white change places
  drawShares();
  tell("theme");
}

function fillColours() {
  const usable = columns.filter((column) => column.kind !== "text");
  const box = byId("colour");
  box.append(make("option", { value: -1, text: "nothing" }), ...usable.map((column, k) => make("option", { value: k, text: column.name })));
  box.addEventListener("change", () => colourBy(usable[box.value] ?? null));
  on("colour", () => {
    box.querySelector(".feature")?.remove();
    if (colouring.feature >= 0) box.append(make("option", { value: "feature", class: "feature", text: colourName() }));
    box.value = colouring.feature >= 0 ? "feature" : usable.indexOf(colouring.column);
  });
  return usable.find((column) => column.kind === "group" && varies(column)) ?? usable.find((column) => column.sets) ?? null;
}

// Whether rows of the target differ in a column of groups.
function varies(column) {
  for (let i = 1; i < nTarget; i++) if (column.codes[i] !== column.codes[0]) return true;
  return false;
}

function find(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return select([]);
  const groups = columns.filter((c) => c.kind !== "number" && !c.sets)
    .map((c) => [c.codes, c.levels.map((level) => level.toLowerCase().includes(wanted))]);
  select(rowsWhere((i) => String(rowName(i)).toLowerCase().includes(wanted) || groups.some(([codes, hits]) => hits[codes[i]])));
}

function drawCount() {
  let target = 0;
  for (let i = 0; i < nTarget; i++) target += selection.chosen[i];
  const other = selection.count - target;
  byId("count").textContent = selection.count
    ? `${plural(target, "target row")} selected${other ? `, ${plural(other, "background row")}` : ""}` : "";
  byId("clear").disabled = !selection.count;
}

function start() {
  byId("title").textContent = report.title;
  byId("lead").textContent = lead();
  const spread = axes[axes.length - 1], target = axes.slice(0, nTargetDims), shared = axes.slice(nTargetDims, nTargetDims + nSharedDims);
  const overlay = byId("overlay");
  byId("overlay-label").hidden = !nBackground;
  const views = [];
  if (nTargetDims) views.push(view("target-view", "Target dimensions", target[0], target[1] ?? spread, (row) => isTarget(row) || overlay.checked));
  if (nSharedDims) views.push(view("shared-view", "Shared dimensions", shared[0], shared[1] ?? spread, () => true));
  for (const id of ["target-view", "shared-view"]) byId(id).hidden = !byId(id).childElementCount;
  if (views.length === 1) views[0].plot.parentElement.classList.add("alone");
  overlay.addEventListener("change", () => views[0].refresh());
  const first = fillColours();
  on("colour", drawLegend);
  on("selection", drawLegend);
  on("selection", drawCount);
  on("selection", drawDifferences);
  byId("clear").addEventListener("click", () => select([]));
  byId("find").addEventListener("input", (event) => find(event.target.value));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") select([]); });
  drawDifferences();
  drawLoadings();
  drawVerdict();
  drawSubgroups();
  drawDiagnostics();
  drawSettings();
  drawDownloads();
  colouring.column = first;
  setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  byId("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  let scheme = null; // paper is white; the plots must be drawn before the page is printed
  const print = (name) => {
    setTheme(name);
    views.forEach((each) => each.draw());
  };
  window.addEventListener("beforeprint", () => { scheme = document.documentElement.dataset.theme; print("light"); });
  window.addEventListener("afterprint", () => print(scheme ?? "light"));
  window.clvm = { views, selection, select, ready: true }; // for tests and the curious
}

start();
