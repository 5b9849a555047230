// Draws the page of `lenslet report` from the data in #data (docs/report.md). Data enters the page as text nodes and
// numbers only: names may be hostile.
"use strict";

const runs = JSON.parse(document.getElementById("data").textContent).runs;

// ---- elements ----

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "onclick" || name === "oninput" || name === "onchange") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}
const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// ---- words and numbers ----

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const ms = (value) => (!isNumber(value) ? "–" : value >= 100 ? value.toFixed(1) : value >= 10 ? value.toFixed(2) : value.toFixed(3));
const figure = (value) =>
  !isNumber(value) ? "–" : value === 0 ? "0" :
    Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
const percent = (value) => (!isNumber(value) ? "–" : (value >= 99.95 ? value.toFixed(0) : value.toFixed(1)) + " %");
// Of the limit's speed; over 100 % the limit was not one.
const ofLimit = (value) => (value > 100 ? "> 100 %" : percent(value));
const tiny = (value) => (isNumber(value) ? value.toExponential(1) : value === "infinite" ? value : "–");
const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const sum = (list, of) => list.reduce((total, item) => total + (of(item) || 0), 0);
function bytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]])
    if (value >= size) return `${figure(value / size)} ${unit}`;
  return `${figure(value)} bytes`;
}
// Stored files may have members of other types or none.
function guarded(draw, ...what) {
  try {
    return draw(...what);
  } catch (error) {
    return h("p", { class: "bad" }, `The data of this part is damaged: ${error.message}`);
  }
}
// Both ends of a long name; the whole is in the tooltip.
function short(text, most = 64) {
  const letters = Array.from(String(text).slice(0, 20000));
  const half = Math.floor((most - 1) / 2);
  return letters.length <= most ? letters.join("") : letters.slice(0, half).join("") + "…" + letters.slice(-half).join("");
}
// A sentence, whose `commands` are drawn as such.
const said = (text) => h("bdi", {}, short(text, 600).split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part)));
const named = (text, most) => h("bdi", { title: String(text).slice(0, 2000) }, short(text, most));
const inWords = (config) => String(config).split(/\s+/).map((part) => part.replace("=", " ").replace(/_/g, " ")).join(", ");

// ---- the data ----

const kindOf = (layer) => (layer.algorithm ? `${layer.op} ${layer.algorithm}` : layer.op);
// With lost() it is the time.
const withinLimit = (layer) => (isNumber(layer.floor_ms) ? Math.min(layer.floor_ms, layer.ms) : 0);
const lost = (layer) => (isNumber(layer.floor_ms) ? layer.ms - withinLimit(layer) : 0);
const errorShare = (layer) =>
  layer.error === "infinite" ? Infinity :
    isNumber(layer.error) && layer.tolerance > 0 ? layer.error / layer.tolerance : undefined;

// Adds what the sections below share.
function prepare(run) {
  const plan = run.inspect && run.inspect.plan;
  run.plan = plan && Array.isArray(plan.steps) && plan.steps.every((step) => step && Array.isArray(step.inputs) && Array.isArray(step.outputs)) &&
    Array.isArray(plan.placements) && plan.memory && isNumber(plan.memory.peak_bytes) ? plan : null;
  run.precision = typeof run.precision === "string" ? run.precision : "";
  run.layersMs = sum(run.layers, (layer) => layer.ms);
  run.run = run.run && isNumber(run.run.ms) ? run.run : null;
  run.ms = run.run ? run.run.ms : run.layersMs;
  run.batch = isNumber(run.batch) ? run.batch : 1;
  run.hasFloors = run.layers.some((layer) => isNumber(layer.floor_ms));
  run.floorMs = sum(run.layers, withinLimit);
  const steps = new Map();  // of a name, in order
  if (run.plan) run.plan.steps.forEach((step, i) => steps.set(step.name, [...(steps.get(step.name) || []), i]));
  const kinds = new Map();
  run.layers.forEach((layer, i) => {
    layer.index = i;
    layer.kind = kindOf(layer);
    const places = steps.get(layer.name);
    layer.stepIndex = places && places.length ? places.shift() : -1;
    layer.step = layer.stepIndex >= 0 ? run.plan.steps[layer.stepIndex] : null;
    const kind = kinds.get(layer.kind) || { name: layer.kind, layers: [], ms: 0, floorMs: 0 };
    kind.layers.push(layer);
    kind.ms += layer.ms;
    kind.floorMs += withinLimit(layer);
    kinds.set(layer.kind, kind);
  });
  run.layerOfStep = new Map(run.layers.map((layer) => [layer.stepIndex, layer]));
  run.kinds = [...kinds.values()].sort((a, b) => b.ms - a.ms);
  run.kinds.forEach((kind, i) => (kind.colour = `var(--k${Math.min(i, 8)})`));
  run.colour = new Map(run.kinds.map((kind) => [kind.name, kind.colour]));
  const judged = run.layers.filter((layer) => errorShare(layer) !== undefined);
  run.worst = judged.sort((a, b) => errorShare(b) - errorShare(a))[0];
  run.title = `${short(run.model, 48)}, ${run.device}, ${run.precision || "?"}`;
}
runs.forEach(prepare);

// ---- overview ----

const tile = (id, title, value, text, small) =>
  h("div", {}, h("dt", {}, title), h("dd", { id: `figure-${id}`, "data-value": value }, text, small ? h("small", {}, small) : null));

function headline(run) {
  const [kind] = run.kinds, [slowest, next] = [...run.layers].sort((a, b) => b.ms - a.ms);
  if (!kind || !(run.layersMs > 0)) return h("p", {}, run.layers.length ? "No layer was timed." : "There are no layers.");
  const line = (title, text) => typeof text === "string" && text !== "" ? h("p", {}, `${title}: `, said(text)) : null;
  return [
    run.estimated ? h("p", { class: "lead" }, "Nothing was measured: all times are estimates of the plan.") : null,
    typeof run.disturbed === "string" ? h("p", { class: "lead busy" }, said(run.disturbed)) : null,
    h("p", { class: "lead" }, h("strong", {}, "Slowest: "), opener(run, slowest, 56), ` (${short(slowest.kind, 40)}), ${ms(slowest.ms)} ms${slowest.band ? " alone" : ""}, ` +
      `${percent(100 * slowest.ms / run.layersMs)} of all layers` + (isNumber(slowest.floor_ms) ? `; the machine's limit is ${ms(slowest.floor_ms)} ms` : ""), next ? ["; next ", opener(run, next, 56), `, ${ms(next.ms)} ms`] : null, "."),
    line("Why so long", slowest.time_because), line("What to do", slowest.advice && `${run.disturbed ? "first measure again. " : ""}${slowest.advice}`),
    h("p", {}, `Of all layers' ${ms(run.layersMs)} ms `, named(kind.name), ` takes ${percent(100 * kind.ms / run.layersMs)}, in ` +
      `${kind.layers.length} of ${count(run.layers.length, "layer")}` + (run.hasFloors ? `. All layers together are ${ms(run.layersMs - run.floorMs)} ms above the machine's limits.` : "."))];
}

function overview(run) {
  const machine = run.machine || {};
  const memory = run.plan && run.plan.memory;
  const how = [run.device, run.precision, run.device === "cpu" ? isNumber(run.threads) && count(run.threads, "thread") : machine.gpu,
    `batch of ${run.batch}`, run.device === "cpu" ? machine.cpu : null, machine.instruction_set,
    machine.lenslet ? `lenslet ${machine.lenslet} ${machine.commit || ""}` : null];
  return h("section", { id: "overview" },
    h("h1", {}, named(run.model, 120)),
    h("p", { class: "muted" }, how.filter(Boolean).join(" · ")),
    headline(run),
    h("dl", { class: "tiles" },
      tile("time", run.run ? "time of a run" : run.estimated ? "estimated time" : "time of all layers", run.ms, `${ms(run.ms)} ms`,
        run.run ? `p10 ${ms(run.run.p10_ms)}, p90 ${ms(run.run.p90_ms)}, ${count(run.run.runs, "run")}`
          : run.estimated ? "sum of all layers" : "sum of their medians"),
      run.ms > 0 ? tile("images", "images per second", 1e3 * run.batch / run.ms, figure(1e3 * run.batch / run.ms)) : null,
      run.hasFloors ? tile("limit", "the machine's limit", run.floorMs, `${ms(run.floorMs)} ms`,
        `${percent(100 * run.floorMs / run.layersMs)} of the layers' ${ms(run.layersMs)} ms`) : null,
      memory ? tile("memory", "arena", memory.peak_bytes, bytes(memory.peak_bytes),
        `and ${bytes(memory.prepared_bytes)} of prepared weights`) : null,
      run.worst ? tile("error", "greatest error", run.worst.error, tiny(run.worst.error),
        [`${percent(100 * errorShare(run.worst))} of its tolerance: `, opener(run, run.worst, 28)]) : null,
      tile("layers", "layers", run.layers.length, String(run.layers.length),
        run.inspect && isNumber(run.inspect.parameters) ? `${figure(run.inspect.parameters / 1e6)} M parameters, ${figure(run.inspect.flops / 1e9)} GFLOP` : null)));
}

// ---- what to do ----

function advice(run) {
  if (!Array.isArray(run.advice)) return null;
  const list = run.advice.filter((one) => one && typeof one.text === "string");
  const about = (layers, one) => h("div", { class: "note" }, `${ms(one.ms)} ms in ${count(layers.length, "layer")}` +
    (one.lost_ms > 0 ? `, ${ms(one.lost_ms)} ms of it above the machine's limits: ` : ": "),
    layers.slice(0, 3).map((layer, i) => [i ? ", " : null, opener(run, layer, 56)]), layers.length > 3 ? " …" : null);
  return h("section", { id: "advice" }, h("h2", {}, "What to do"), list.length ? null : h("p", {}, "No rule knows."), h("ul", {}, list.map((one) => {
    const layers = (Array.isArray(one.layers) ? one.layers : []).map((i) => run.layers[i]).filter(Boolean);
    return h("li", {}, said(one.text), layers.length ? about(layers, one) : null);
  })));
}

// ---- one layer ----

const address = (run, layer) => `#run=${runs.indexOf(run)}&layer=${layer.index}`;
const opener = (run, layer, most) => h("a", { href: address(run, layer), onclick: (event) => {
  event.preventDefault();
  event.stopPropagation();
  openLayer(run, layer);
} }, named(layer.name, most));

const hit = (run, layer) => ({ class: "hit", tabindex: 0, onclick: () => openLayer(run, layer), "data-layer": layer.index });

function candidates(step) {
  const row = (one) => h("tr", {},
    h("td", {}, one.algorithm === step.algorithm ? h("strong", {}, `${one.algorithm} ✓`) : one.algorithm),
    one.refusal ? h("td", { colspan: 2 }, `refuses: ${one.refusal}`) : [
      h("td", { class: "n" }, `${ms(one.estimated_us / 1e3)} ms`,
        one.neighbours_us ? h("div", { class: "note" }, `+ ${ms(one.neighbours_us / 1e3)} conversions`) : null),
      h("td", {}, [one.config ? inWords(one.config) : null, one.workspace_bytes ? `workspace ${bytes(one.workspace_bytes)}` : null,
        `tolerance ${tiny(one.tolerance)}`].filter(Boolean).join("; "))]);
  return h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "algorithm"), h("th", { class: "n" }, "estimate"), h("th", {}, ""))),
    h("tbody", {}, step.candidates.map(row)));
}

function againstEstimate(layer) {
  if (!(layer.estimated_ms > 0) || !(layer.ms > 0)) return null;
  const ratio = layer.ms / layer.estimated_ms;
  return `${ms(layer.estimated_ms)} ms; measured ${figure(Math.max(ratio, 1 / ratio))} times as ${ratio >= 1 ? "long" : "short"}`;
}

function details(run, layer) {
  const step = layer.step;
  const list = h("dl");
  const line = (title, ...text) => {
    if (text[0] !== null && text[0] !== undefined && text[0] !== "") list.append(h("dt", {}, title), h("dd", {}, ...text));
  };
  line("kind", h("span", { class: "swatch", style: `background:${run.colour.get(layer.kind)}` }), h("bdi", {}, short(layer.kind)));
  line("problem", layer.problem);
  line("algorithm", layer.algorithm);
  line("configuration", layer.config && inWords(layer.config));
  line("chosen because", layer.reason);
  if (layer.runner_up && isNumber(layer.runner_up_estimated_ms)) {
    const own = isNumber(layer.chosen_estimated_ms) ? layer.chosen_estimated_ms : layer.estimated_ms, more = layer.runner_up_estimated_ms - own;
    line("runner-up", `${layer.runner_up}, estimated ${ms(layer.runner_up_estimated_ms)} ms: ` +
      `${ms(Math.abs(more))} ms ${more >= 0 ? "more" : "less"} than ${layer.algorithm}, ${ms(own)} ms` +
      (own !== layer.estimated_ms ? " (both with the conversions beside them)" : ""));
  }
  line(run.estimated ? "estimate" : "time", `${ms(layer.ms)} ms, ${percent(100 * layer.ms / run.layersMs)} of all layers` +
    (isNumber(layer.p10_ms) ? `; p10 ${ms(layer.p10_ms)}, p90 ${ms(layer.p90_ms)}, ${count(layer.runs, "run")}` : ""));
  line("estimate", againstEstimate(layer));
  if (isNumber(layer.floor_ms))
    line("limit", `${ms(layer.floor_ms)} ms${layer.floor_by ? ` by ${layer.floor_by}` : ""}; the layer reaches ${ofLimit(layer.percent_of_floor)} of that speed` +
      (layer.above_100_because ? `: ${layer.above_100_because}` : ""));
  line("why so long", layer.time_because && said(layer.time_because));
  line("what to do", layer.advice && said(layer.advice));
  line("work", `${figure(layer.flops / 1e6)} MFLOP, ${figure(layer.gflops)} GFLOP/s`);
  line("bytes", `${bytes(layer.bytes)} in and out` + (layer.workspace_bytes ? `, workspace ${bytes(layer.workspace_bytes)}` : ""));
  const share = errorShare(layer);
  line("error", share !== undefined ? `${tiny(layer.error)}, ${percent(100 * share)} of the tolerance ${tiny(layer.tolerance)}: ${layer.verdict || "not judged"}`
    : layer.unchecked_because ? `not checked: ${layer.unchecked_because}` : null);
  line("in a band", layer.band && h("bdi", {}, short(layer.band, 300)));
  if (step) {
    const ports = (list) => list.filter((one) => one !== "").map((one) => h("div", {}, one));
    line("inputs", ports(step.inputs.map((name) => named(name))));
    line("outputs", ports(step.outputs.map((one) => [named(one.name), ` [${one.shape.join(",")}] ${one.layout}`])));
  }
  const safe = /^[\w .,:+>x\-]+$/.test(layer.problem || "");
  return [list,
    step && step.candidates ? [h("h3", {}, "Candidates, in the rule's order"), candidates(step)] : null,
    layer.op === "Conv" && safe ? [h("h3", {}, "Alone, by every algorithm"),
      h("pre", {}, `lenslet bench conv --device ${/^[\w:]+$/.test(run.device) ? run.device : "auto"} --all-algorithms --problem "${layer.problem}"`)] : null];
}

let opened = null;
function closeLayer() {
  if (!opened) return;
  opened.panel.remove();
  document.querySelectorAll("tr.chosen").forEach((row) => row.classList.remove("chosen"));
  const back = opened.back;
  opened = null;
  history.replaceState(null, "", "#");
  if (back && back.isConnected) back.focus({ preventScroll: true });
}
function markRow() {
  const row = opened && document.querySelector(`tr[data-layer="${opened.layer.index}"]`);
  if (row) row.classList.add("chosen");
}
function openLayer(run, layer) {
  const back = document.activeElement;
  closeLayer();
  const shut = h("button", { onclick: closeLayer, "aria-label": "close" }, "✕");
  const panel = h("aside", { id: "layer", "aria-label": "layer" },
    h("header", {}, h("h2", {}, named(layer.name, 160)), shut), guarded(details, run, layer));
  document.body.append(panel);
  opened = { panel, back, layer };
  markRow();
  history.replaceState(null, "", address(run, layer));
  shut.focus({ preventScroll: true });
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeLayer();
  if (event.key === "Enter" && event.target.classList.contains("hit")) event.target.dispatchEvent(new Event("click"));
});

// ---- table of layers ----

// Solid: the limit; pale: the time above it.
function timeBar(layer, most, colour) {
  const width = (value) => `width:${(100 * value / most).toFixed(2)}%;background:${colour}`;
  return h("div", { class: "bar" }, h("i", { style: width(layer.ms - lost(layer)) }), h("i", { class: "lost", style: width(lost(layer)) }));
}

function sortable(columns, rows, draw) {
  let by = null, down = true;
  const body = h("tbody");
  const heads = columns.map((column) => h("th", { class: column.class }, column.key ? h("button", { onclick: () => {
    down = by === column ? !down : column.down !== false;
    by = column;
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[columns.indexOf(column)].setAttribute("aria-sort", down ? "descending" : "ascending");
    show();
  } }, column.title) : column.title));
  let wanted = () => true;
  const compare = (a, b) => {
    const x = by.key(a), y = by.key(b);
    if (typeof x === "string") return x < y ? -1 : x > y ? 1 : 0;
    return (isNumber(x) || x === Infinity ? x : -1) - (isNumber(y) || y === Infinity ? y : -1) || 0;
  };
  const elements = new Map(rows.map((row) => [row, draw(row)]));
  function show() {
    const shown = rows.filter((row) => wanted(row));
    if (by) shown.sort((a, b) => (down ? -1 : 1) * compare(a, b));
    body.replaceChildren(...shown.map((row) => elements.get(row)));
    return shown;
  }
  show();
  return { element: h("table", {}, h("thead", {}, h("tr", {}, heads)), body),
    filter: (condition) => { wanted = condition; return show(); } };
}

function layerTable(run) {
  const most = Math.max(...run.layers.map((layer) => layer.ms), 1e-9);
  const columns = [
    { title: "#", key: (layer) => layer.index, class: "n wide", down: false },
    { title: "layer", key: (layer) => layer.name, down: false },
    { title: "kind", key: (layer) => layer.kind, down: false, class: "wide" },
    { title: "output", class: "wide" },
    { title: "ms", key: (layer) => layer.ms, class: "n" },
    { title: "", class: "barcell" },
    { title: "%", key: (layer) => layer.ms, class: "n" },
    { title: "speed, % of limit", key: (layer) => layer.percent_of_floor, class: "n wide", down: false },
    { title: "bytes", key: (layer) => layer.bytes, class: "n wide" },
    { title: "of tolerance", key: errorShare, class: "n wide" }];
  const share = (value) => (value === undefined ? "" : isNumber(value) ? percent(value) : "infinite");
  const draw = (layer) => h("tr", { class: "layer", "data-layer": layer.index, "data-ms": layer.ms, onclick: () => openLayer(run, layer) },
    h("td", { class: "n wide" }, String(layer.index)),
    h("td", {}, opener(run, layer, 48)),
    h("td", { class: "wide line" }, h("span", { class: "swatch", style: `background:${run.colour.get(layer.kind)}` }), h("bdi", {}, short(layer.kind, 40))),
    h("td", { class: "wide" }, short(layer.shape || "", 30)),
    h("td", { class: "n" }, ms(layer.ms)),
    h("td", { class: "barcell" }, timeBar(layer, most, run.colour.get(layer.kind))),
    h("td", { class: "n" }, (100 * layer.ms / (run.layersMs || 1)).toFixed(1)),
    h("td", { class: "n wide" }, isNumber(layer.percent_of_floor) ? ofLimit(layer.percent_of_floor) : ""),
    h("td", { class: "n wide" }, bytes(layer.bytes)),
    h("td", { class: "n wide" + (errorShare(layer) > 1 ? " bad" : "") }, share(errorShare(layer) * 100 || undefined)));
  const table = sortable(columns, run.layers, draw);
  const found = h("span", { class: "note" });
  const filter = h("input", { type: "search", placeholder: "name or kind", "aria-label": "filter layers", oninput: () => {
    const text = filter.value.toLowerCase();
    const shown = table.filter((layer) => `${layer.name} ${layer.kind}`.toLowerCase().includes(text));
    found.textContent = text ? ` ${count(shown.length, "layer")}, ${ms(sum(shown, (layer) => layer.ms))} ms` : "";
  } });
  return h("section", {}, h("h2", {}, "Layers"),
    h("p", { class: "note" }, "In order of execution; a heading sorts. " + (run.hasFloors
      ? "The bar's solid part is the machine's limit, the least time that its arithmetic and memory allow (more than 100 %: Winograd computes less, caches hold data); the pale part is the time above it." : "")),
    h("p", { class: "filter" }, filter, found), h("div", { class: "tall", tabindex: 0 }, table.element));
}

// ---- time by kind, treemap ----

// Of a chart: half of a wide window (report.css), so that text keeps its size.
function chartSize() {
  const window = Math.min(document.documentElement.clientWidth, 1800);
  const width = Math.max(340, Math.min(window >= 1200 ? window / 2 - 60 : window - 28, 860));
  return [Math.round(width), Math.round(Math.max(320, .58 * width))];
}

function kindSection(run) {
  const part = (kind) => 100 * kind.ms / (run.layersMs || 1);
  return h("section", {}, h("h2", {}, "Time by kind"),
    h("div", { class: "stack" }, run.kinds.map((kind) => h("i", {
      style: `width:${part(kind)}%;background:${kind.colour}`, title: `${short(kind.name)}: ${ms(kind.ms)} ms, ${percent(part(kind))}` }))),
    h("table", {}, h("thead", {}, h("tr", {}, ["kind", "layers", "ms", "%", "% of limit"].map((title, i) => h("th", { class: i ? "n" : null }, title)))),
      h("tbody", {}, run.kinds.map((kind) => h("tr", { "data-kind-ms": kind.ms },
        h("td", {}, h("span", { class: "line" }, h("span", { class: "swatch", style: `background:${kind.colour}` }), named(kind.name, 26))),
        h("td", { class: "n" }, String(kind.layers.length)), h("td", { class: "n" }, ms(kind.ms)),
        h("td", { class: "n" }, part(kind).toFixed(1)),
        h("td", { class: "n" }, run.hasFloors && kind.ms > 0 ? (100 * kind.floorMs / kind.ms).toFixed(1) : ""))))));
}

// Squarified: rows along the shorter side, each as long as its cells' shapes improve.
function squarify(items, x, y, width, height, place) {
  let rest = sum(items, (item) => item.size);
  const ratio = (row, side, area) => {
    const depth = area / side;
    return Math.max(...row.map((item) => Math.max(item.area / depth / depth, depth * depth / item.area)));
  };
  const scale = width * height / (rest || 1);
  items.forEach((item) => (item.area = item.size * scale));
  for (let i = 0; i < items.length;) {
    const side = Math.min(width, height), row = [items[i]];
    let area = items[i].area, next = i + 1;
    for (; next < items.length; ++next) {
      const grown = [...row, items[next]];
      if (ratio(grown, side, area + items[next].area) > ratio(row, side, area)) break;
      row.push(items[next]);
      area += items[next].area;
    }
    const depth = area / side;
    let along = 0;
    for (const item of row) {
      const length = item.area / depth;
      if (width >= height) place(item, x, y + along, depth, length);
      else place(item, x + along, y, length, depth);
      along += length;
    }
    if (width >= height) { x += depth; width -= depth; } else { y += depth; height -= depth; }
    i = next;
  }
}

function treemap(run) {
  const [width, height] = chartSize();
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "treemap of the time" });
  const kinds = run.kinds.filter((kind) => kind.ms > 0).map((kind) => ({ size: kind.ms, kind }));
  squarify(kinds, 0, 0, width, height, (item, x, y, w, d) => {
    const layers = item.kind.layers.filter((layer) => layer.ms > 0).sort((a, b) => b.ms - a.ms).map((layer) => ({ size: layer.ms, layer }));
    squarify(layers, x + 1, y + 1, Math.max(w - 2, .1), Math.max(d - 2, .1), (cell, left, top, wide, high) => {
      const letters = Math.floor((wide - 8) / 7);
      const { layer } = cell;
      svg.append(s("rect", { x: left, y: top, width: Math.max(wide - 1, .3), height: Math.max(high - 1, .3), fill: item.kind.colour, ...hit(run, layer) },
        s("title", {}, `${short(layer.name, 200)}\n${short(layer.kind)}, ${ms(layer.ms)} ms, ${percent(100 * layer.ms / run.layersMs)}`)));
      const label = (text, line) => svg.append(s("text", { x: left + 4, y: top + 15 + 14 * line, class: "on", "pointer-events": "none" }, text));
      if (letters >= 8 && high >= 20) label(`${ms(layer.ms)} ms`, 0);
      if (letters >= 12 && high >= 36) label(short(layer.name, letters), 1);
    });
  });
  return h("section", {}, h("h2", {}, "Where the time goes"),
    h("p", { class: "note" }, "A layer's area is its time, its colour its kind. Click one for its details."), svg);
}

// ---- roofline ----

function roofline(run) {
  const points = run.layers.filter((layer) => layer.flops > 0 && layer.bytes > 0 && layer.ms > 0)
    .map((layer) => ({ layer, x: layer.flops / layer.bytes, y: layer.flops / layer.ms / 1e6 }));
  const peak = run.peak || {};
  const ceilings = [["fma_gflops", "GFLOP/s"], ["bf16_gflops", "GFLOP/s in bf16"], ["int8_gops", "Gop/s in int8"]]
    .filter(([name]) => peak[name] > 0).map(([name, unit]) => ({ rate: peak[name], text: `${figure(peak[name])} ${unit}` }));
  const title = h("h2", {}, "Roofline");
  if (!points.length) return h("section", {}, title, h("p", { class: "note" }, "No layer here multiplies."));
  const [width, height] = chartSize(), left = 60, bottom = 44, top = 14, right = 16;
  const decade = (value, up) => (up ? Math.ceil : Math.floor)(Math.log10(value));
  const range = (values) => {
    const low = decade(Math.min(...values), false), high = decade(Math.max(...values), true);
    return [low, Math.max(high, low + 1)];
  };
  const [x0, x1] = range(points.map((point) => point.x));
  const [y0, y1] = range([...points.map((point) => point.y), ...ceilings.map((one) => 1.2 * one.rate)]);
  const px = (x) => left + (width - left - right) * (Math.log10(x) - x0) / (x1 - x0);
  const py = (y) => height - bottom - (height - top - bottom) * (Math.log10(y) - y0) / (y1 - y0);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline" });
  for (let e = x0; e <= x1; ++e)
    svg.append(s("line", { x1: px(10 ** e), x2: px(10 ** e), y1: top, y2: height - bottom, class: "axis" }),
      s("text", { x: px(10 ** e), y: height - bottom + 16, "text-anchor": "middle", class: "faint" }, String(Number((10 ** e).toPrecision(1)))));
  for (let e = y0; e <= y1; ++e)
    svg.append(s("line", { x1: left, x2: width - right, y1: py(10 ** e), y2: py(10 ** e), class: "axis" }),
      s("text", { x: left - 6, y: py(10 ** e) + 4, "text-anchor": "end", class: "faint" }, String(Number((10 ** e).toPrecision(1)))));
  svg.append(s("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle", class: "faint" }, "FLOP per byte"),
    s("text", { x: 14, y: height / 2, "text-anchor": "middle", class: "faint", transform: `rotate(-90 14 ${height / 2})` }, "GFLOP/s"));
  const rate = peak.copy_gb_per_s;
  const lowest = 10 ** x0, highest = 10 ** x1, floor = 10 ** y0;
  const line = (d, text, at) => {  // their labels lie above the circles
    svg.append(s("path", { d, class: "ceiling" }));
    labels.push(s("text", { class: "over", ...at }, text));
  };
  const labels = [];
  for (const ceiling of ceilings) {
    const ridge = rate > 0 ? Math.min(Math.max(ceiling.rate / rate, lowest), highest) : lowest;
    line(`M${px(ridge)} ${py(ceiling.rate)}H${width - right}`, ceiling.text, { x: width - right - 4, y: py(ceiling.rate) - 5, "text-anchor": "end" });
  }
  if (rate > 0) {
    const from = Math.max(lowest, floor / rate), most = ceilings.length ? Math.max(...ceilings.map((one) => one.rate)) : 10 ** y1;
    const to = Math.min(highest, most / rate);
    if (to > from)
      line(`M${px(from)} ${py(rate * from)}L${px(to)} ${py(rate * to)}`, `${figure(rate)} GB/s`, { x: px(from) + 16, y: py(rate * from) - 4 });
  }
  const most = Math.max(...points.map((point) => point.layer.ms));
  for (const { layer, x, y } of points.sort((a, b) => b.layer.ms - a.layer.ms))
    svg.append(s("circle", { cx: px(x).toFixed(1), cy: py(y).toFixed(1), r: (3 + 9 * Math.sqrt(layer.ms / most)).toFixed(1),
      fill: run.colour.get(layer.kind), "fill-opacity": .8, stroke: "var(--bg)", ...hit(run, layer) },
    s("title", {}, `${short(layer.name, 200)}\n${short(layer.kind)}: ${figure(x)} FLOP per byte, ${figure(y)} GFLOP/s, ${ms(layer.ms)} ms`)));
  svg.append(...labels);
  return h("section", {}, title, h("p", { class: "note" }, "A circle is a layer, its area the time, its colour the kind. Lines are the machine's limits" +
    (peak.how ? `: ${peak.how}, measured in the same run.` : ".")), svg);
}

// ---- the graph ----

const precisions = { float: "var(--k0)", bf16: "var(--k5)", fp16: "var(--k6)", tf32: "var(--k4)", int8: "var(--k2)", moves: "var(--k8)" };
function precisionOf(run, step) {
  if (/^int8|^q(linear)?_/.test(step.algorithm || "") || /^Quantized|^QLinear|Integer$/.test(step.op)) return "int8";
  if (/^(LayoutConvert|Cast|Quantize|Dequantize|Relabel|Reshape|Transpose|Concat|Slice|Split|Pad|Flatten)/.test(step.op)) return "moves";
  const found = /bf16|fp16|tf32/.exec(`${step.algorithm || ""} ${step.config || ""}`);
  if (found) return found[0];
  return run.device !== "cpu" && precisions[run.precision] ? run.precision : "float";
}

function graph(run) {
  const title = h("h2", {}, "Graph after passes");
  if (!run.plan) return h("section", {}, title, absent());
  const steps = run.plan.steps, wide = 122, high = 52, gapX = 30, gapY = 34;
  const producer = new Map(), column = [], row = [], taken = new Set(), edges = [];
  steps.forEach((step, i) => {
    const from = [...new Set(step.inputs.map((name) => producer.get(name)).filter((one) => one !== undefined))];
    if (step.no_op) {  // an alias: edges pass through
      step.outputs.forEach((output) => from.length && producer.set(output.name, from[0]));
      return;
    }
    column[i] = from.length ? 1 + Math.max(...from.map((one) => column[one])) : 0;
    const near = from.length ? row[from.reduce((a, b) => (column[b] > column[a] ? b : a))] : 0;
    for (let d = 0; row[i] === undefined; ++d)
      if (!taken.has(`${column[i]},${near + d}`)) row[i] = near + d;
    taken.add(`${column[i]},${row[i]}`);
    edges.push(...from.map((one) => [one, i]));
    step.outputs.forEach((output) => producer.set(output.name, i));
  });
  const arc = Math.min(60, 16 + 4 * Math.max(0, ...edges.map(([a, b]) => column[b] - column[a])));
  const x = (i) => 10 + column[i] * (wide + gapX), y = (i) => arc + 12 + row[i] * (high + gapY);
  const drawn = steps.map((_, i) => i).filter((i) => column[i] !== undefined);
  const width = Math.max(...drawn.map(x), 0) + wide + 10, height = Math.max(...drawn.map(y), 0) + high + 16;
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "graph" });
  for (const band of run.plan.bands || []) {
    const inside = drawn.filter((i) => i >= band.first_step && i <= band.last_step);
    if (!inside.length) continue;
    const l = Math.min(...inside.map(x)) - 7, t = Math.min(...inside.map(y)) - 8;
    svg.append(s("rect", { x: l, y: t, width: Math.max(...inside.map(x)) + wide + 7 - l, height: Math.max(...inside.map(y)) + high + 8 - t, rx: 8, class: "band" },
      s("title", {}, `run together: ${short(band.reason, 300)}`)));
  }
  for (const [a, b] of edges) {
    const ax = x(a) + wide, ay = y(a) + high / 2, bx = x(b), by = y(b) + high / 2;
    const over = row[a] === row[b] && column[b] - column[a] > 1;  // above the steps between
    const up = Math.min(arc, 12 + 4 * (column[b] - column[a]));
    svg.append(s("path", { class: "edge", d: over
      ? `M${ax - 14} ${y(a)}C${ax} ${y(a) - up} ${bx} ${y(b) - up} ${bx + 14} ${y(b)}`
      : `M${ax} ${ay}C${ax + gapX / 2} ${ay} ${bx - gapX / 2} ${by} ${bx} ${by}` }));
  }
  const most = Math.max(...run.layers.map((layer) => layer.ms), 1e-9), used = new Set();
  for (const i of drawn) {
    const step = steps[i], layer = run.layerOfStep.get(i), precision = precisionOf(run, step);
    used.add(precision);
    const layout = step.outputs.length ? step.outputs[0].layout : "";
    const joined = [step.attributes && step.attributes.activation, step.attributes && step.attributes.residual ? "add" : null]
      .filter((one) => typeof one === "string" && one !== "none");
    svg.append(s("rect", { x: x(i), y: y(i), width: wide, height: high, rx: 5, fill: precisions[precision],
      "stroke-width": layout === "nchw" || layout === "" ? 0 : 2, stroke: "var(--fg)", ...(layer ? hit(run, layer) : {}) },
    s("title", {}, `${short(step.name, 200)}\n${step.outputs.map((one) => `[${one.shape.join(",")}] ${one.layout}`).join(", ")}` +
      (layer ? `\n${ms(layer.ms)} ms` : ""))));
    const label = (text, line) => svg.append(s("text", { x: x(i) + 6, y: y(i) + 14 + 13 * line, class: "on", "pointer-events": "none" }, text));
    label(short([step.op, ...joined].join(" + "), 17), 0);
    label(short(step.algorithm || layout, 17), 1);
    if (layer) {
      label(`${ms(layer.ms)} ms`, 2);
      svg.append(s("rect", { x: x(i), y: y(i) + high + 2, width: wide * layer.ms / most, height: 4, fill: "var(--bad)" }));
    }
  }
  return h("section", {}, title,
    h("p", { class: "note" }, "Steps from left to right by their longest path. A frame says that the output is not nchw, " +
      "a dashed box that steps run together in bands, a bar below how much time a step takes beside the slowest."),
    h("div", { class: "legend" }, [...used].map((name) => h("span", {}, h("span", { class: "swatch", style: `background:${precisions[name]}` }),
      name === "moves" ? "moves or converts" : name))),
    h("div", { class: "scroll", tabindex: 0 }, svg));
}

const absent = () => h("p", { class: "note" }, "Not in this file: “lenslet report” has it, “lenslet layers --json” has not.");

// ---- the arena ----

function arena(run) {
  const title = h("h2", {}, "Memory over a run");
  if (!run.plan) return h("section", {}, title, absent());
  const { placements, memory, steps } = run.plan, [width, height] = chartSize(), left = 62, bottom = 40, top = 20;
  const most = Math.max(memory.peak_bytes, ...placements.map((one) => one.offset + one.bytes), 1);
  const px = (step) => left + (width - left - 8) * step / Math.max(steps.length, 1);
  const py = (at) => height - bottom - (height - top - bottom) * at / most;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "arena" });
  for (let i = 0; i <= 4; ++i)
    svg.append(s("line", { x1: left, x2: width - 8, y1: py(most * i / 4), y2: py(most * i / 4), class: "axis" }),
      s("text", { x: left - 6, y: py(most * i / 4) + 4, "text-anchor": "end", class: "faint" }, bytes(most * i / 4)),
      s("text", { x: px(steps.length * i / 4), y: height - bottom + 16, "text-anchor": ["start", "middle", "middle", "middle", "end"][i], class: "faint" },
        String(Math.round(steps.length * i / 4))));
  svg.append(s("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle", class: "faint" }, "step"));
  placements.forEach((one) => {
    const layer = run.layerOfStep.get(one.first_step);
    svg.append(s("rect", { x: px(one.first_step), y: py(one.offset + one.bytes), width: Math.max(px(one.last_step + 1) - px(one.first_step), 1),
      height: Math.max(py(one.offset) - py(one.offset + one.bytes), .5), fill: layer ? run.colour.get(layer.kind) : "var(--k8)", stroke: "var(--bg)", ...(layer ? hit(run, layer) : {}) },
    s("title", {}, `${short(one.value, 200)}\n${bytes(one.bytes)} at ${bytes(one.offset)}, steps ${one.first_step} to ${one.last_step}`)));
  });
  svg.append(s("line", { x1: left, x2: width - 8, y1: py(memory.lower_bound_bytes), y2: py(memory.lower_bound_bytes), class: "ceiling", "stroke-dasharray": "6 4" }));
  const above = memory.lower_bound_bytes > 0 ? 100 * (memory.peak_bytes / memory.lower_bound_bytes - 1) : 0;
  return h("section", {}, title, h("p", { class: "note" }, `A box is a value: how long it lives, where it lies, and as its colour the kind of layer that makes it. The arena has ${bytes(memory.peak_bytes)}, ` +
    `${percent(above)} above the lower bound (dashed); without reuse values would take ${bytes(memory.activation_sum_bytes)}. Workspaces (at most ${bytes(memory.workspace_bytes)}) are not drawn.`), svg);
}

// ---- runs side by side ----

// Layers of the same name, the k-th with the k-th.
function pairs(a, b) {
  const of = new Map();
  b.layers.forEach((layer) => of.set(layer.name, [...(of.get(layer.name) || []), layer]));
  return a.layers.flatMap((layer) => { const found = of.get(layer.name); return found && found.length ? [{ a: layer, b: found.shift() }] : []; });
}

function comparison(first, second) {
  const shared = pairs(first, second);
  const beyond = (value, of) => !(of.p10_ms <= value && value <= of.p90_ms);
  const apart = ({ a, b }) => Math.abs(b.ms - a.ms) > .05 * a.ms && (beyond(a.ms, b) || beyond(b.ms, a));
  const faster = shared.filter((pair) => apart(pair) && pair.b.ms < pair.a.ms), slower = shared.filter((pair) => apart(pair) && pair.b.ms > pair.a.ms);
  const lessExact = shared.filter(({ a, b }) => (b.error === "infinite" && a.error !== "infinite") || (isNumber(a.error) && b.error > 2 * a.error));
  const most = Math.max(...shared.map(({ a, b }) => Math.abs(b.ms - a.ms)), 1e-9);
  const columns = [{ title: "layer", key: (pair) => pair.a.name, down: false }, { title: "first", key: (pair) => pair.a.ms, class: "n" },
    { title: "second", key: (pair) => pair.b.ms, class: "n" }, { title: "± ms", key: (pair) => pair.b.ms - pair.a.ms, class: "n", down: false },
    { title: "", class: "barcell wide" }, { title: "algorithms", class: "wide" }, { title: "errors", class: "n wide", key: (pair) => pair.b.error }];
  const draw = (pair) => {
    const { a, b } = pair, d = b.ms - a.ms;
    return h("tr", { "data-difference": d }, h("td", {}, opener(second, b, 48)), h("td", { class: "n" }, ms(a.ms)), h("td", { class: "n" }, ms(b.ms)),
      h("td", { class: "n " + (apart(pair) ? (d < 0 ? "good" : "bad") : "muted") }, `${d < 0 ? "−" : "+"}${ms(Math.abs(d))}`),
      h("td", { class: "barcell wide" }, h("div", { class: "bar" }, h("i", { style: `width:${50 - (d < 0 ? -50 * d / most : 0)}%` }),
        h("i", { style: `width:${50 * Math.abs(d) / most}%;background:var(--${d < 0 ? "good" : "bad"})` }))),
      h("td", { class: "wide" }, a.kind === b.kind ? short(a.kind, 40) : `${short(a.kind, 30)} → ${short(b.kind, 30)}`),
      h("td", { class: "n wide" }, a.error === undefined && b.error === undefined ? "" : `${tiny(a.error)} → ${tiny(b.error)}`));
  };
  shared.sort((x, y) => Math.abs(y.b.ms - y.a.ms) - Math.abs(x.b.ms - x.a.ms));
  const ratio = first.ms / second.ms;
  return h("div", {},
    h("p", { class: "lead" }, `The second is ${figure(Math.max(ratio, 1 / ratio))} times as ${ratio >= 1 ? "fast" : "slow"} as the first` +
      (shared.length ? `: of ${count(shared.length, "layer")} with the same name ${faster.length} got faster, ${slower.length} slower, ${lessExact.length} less exact ` +
        "(over 5 % and beyond the spread of times; over twice the error)." : "; no layers have the same names.")),
    shared.length ? h("div", { class: "tall", tabindex: 0 }, sortable(columns, shared, draw).element) : null);
}

function compareSection() {
  const pick = (id, chosen) => h("select", { id, "aria-label": id, onchange: () => show() },
    runs.map((run, i) => h("option", { value: i, selected: i === chosen }, `${i + 1}: ${run.title}`)));
  const a = pick("first", 0), b = pick("second", 1), place = h("div");
  const show = () => place.replaceChildren(guarded(comparison, runs[Number(a.value)], runs[Number(b.value)]));
  show();
  const row = (run, i) => h("tr", {}, h("td", { class: "n" }, String(i + 1)), h("td", {}, named(run.model, 48)), h("td", {}, `${run.device} ${run.precision || ""}`),
    h("td", { class: "n wide" }, figure(run.threads)), h("td", { class: "n" }, ms(run.ms)), h("td", { class: "n wide" }, figure(1e3 * run.batch / run.ms)),
    h("td", { class: "n wide" }, run.hasFloors ? ms(run.floorMs) : ""), h("td", { class: "n wide" }, run.plan ? bytes(run.plan.memory.peak_bytes) : ""),
    h("td", { class: "n wide" }, run.worst ? tiny(run.worst.error) : ""));
  const titles = [["", "n"], ["model", ""], ["device", ""], ["threads", "n wide"], ["ms", "n"], ["images/s", "n wide"], ["limit, ms", "n wide"], ["arena", "n wide"], ["error", "n wide"]];
  return h("section", { id: "compare" }, h("h1", {}, `${runs.length} runs side by side`),
    h("table", {}, h("thead", {}, h("tr", {}, titles.map(([title, kind]) => h("th", { class: kind }, title)))), h("tbody", {}, runs.map(row))),
    h("h2", {}, "What changed"), h("p", { class: "filter" }, a, " → ", b), place);
}

// ---- the page ----

const body = h("div");
let waiting = [];  // parts that are not drawn yet
const tabs = runs.map((run, i) => h("button", { onclick: () => showRun(i) }, h("bdi", {}, `${i + 1}: ${run.title}`)));
function showRun(i) {
  closeLayer();
  const run = runs[i];
  tabs.forEach((tab, j) => tab.setAttribute("aria-pressed", j === i));
  const part = (draw) => guarded(draw, run) || "";
  body.replaceChildren(part(overview), part(advice), h("div", { class: "pair" }, part(kindSection), part(treemap)));
  waiting = [() => part(layerTable), () => part(timeline), () => h("div", { class: "pair" }, part(roofline), part(arena)), () => part(graph)];
  if (document.readyState === "complete") setTimeout(drawNext);
}

// Parts below the first screen follow one by one, so that it does not wait for them.
function drawNext() {
  if (waiting.length) body.append(waiting.shift()());
  markRow();
  if (waiting.length) setTimeout(drawNext);
  else performance.mark("drawn");
}
addEventListener("load", () => setTimeout(drawNext));
addEventListener("beforeprint", () => { while (waiting.length) drawNext(); });

// "#run=1&layer=3": also what a link to a layer has.
function follow() {
  const at = new URLSearchParams(location.hash.slice(1)), i = Number(at.get("run")) || 0;
  if (runs[i]) showRun(i);
  const layer = runs[i] && at.has("layer") ? runs[i].layers[Number(at.get("layer"))] : null;
  if (layer) openLayer(runs[i], layer);
}
document.title = runs.length === 1 ? `${short(runs[0].model, 60)}: lenslet report` : `${runs.length} runs: lenslet report`;
document.body.append(h("main", {}, runs.length > 1 ? [guarded(compareSection), h("h2", {}, "One run"), h("nav", {}, tabs)] : null,
  runs.length ? body : h("p", {}, "There are no runs in this report.")));
addEventListener("hashchange", follow);
follow();
