// Clicks through a page of `lenslet report`, and returns what differs from its data. Reads figures back from the text, without
// the page's own code.
(() => {
  const wrong = [], say = (what) => wrong.length < 20 && wrong.push(what);
  const data = JSON.parse(document.getElementById("data").textContent).runs;
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const click = (element) => element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
  const UNITS = { bytes: 1, KB: 1e3, MB: 1e6, GB: 1e9 };
  const number = (text) => Number(/[\d.,]+(e[+-]\d+)?/.exec(text)[0].replace(/,(?=\d{3})/g, "").replace(/[.,]$/, ""));
  const near = (text, value, share, least) => Math.abs(number(text) - value) <= Math.max(share * Math.abs(value), least);
  const amount = (text, value) => {
    const [, figure, unit] = /([\d.,]+) (bytes|KB|MB|GB)/.exec(text);
    return near(figure, value / UNITS[unit], 0.006, 0.51 / 1e3);
  };
  const milliseconds = (text, value) => near(text, value, 0.0005, 0.00051);
  const percents = (text, value) => near(text, value, 0, value >= 99.95 ? 0.51 : 0.051);
  const check = (good, what, text) => good || say(`${what}: shows "${text}"`);
  const plain = (text) => text.replace(/`/g, "");  // commands are elements
  const sum = (list, member) => list.reduce((total, one) => total + (one[member] || 0), 0);

  function details(layer, run, from) {
    const panels = all("#layer");
    if (panels.length !== 1) return say(`${from}: ${panels.length} panels`);
    const at = `${from}, ${String(layer.name).slice(0, 80)}`;
    const shown = panels[0].querySelector("h2 bdi").title;
    check(shown === String(layer.name).slice(0, 2000), at, shown);
    const rows = new Map(all("dl > dt", panels[0]).map((title) => [title.textContent, title.nextElementSibling.textContent]));
    const row = (title, wanted, good) => {
      if (!wanted) return;
      const text = rows.get(title);
      check(text !== undefined && good(text), `${at}, ${title}`, text);
    };
    const is = (text) => (shown) => shown === text;
    const says = (text) => (shown) => shown === plain(text);
    row("problem", layer.problem, is(layer.problem));
    row("algorithm", layer.algorithm, is(layer.algorithm));
    row("chosen because", layer.reason, is(layer.reason));
    row("why so long", layer.time_because, says(layer.time_because));
    row("runner-up", layer.runner_up && layer.chosen_estimated_ms !== undefined, (text) => milliseconds(text.split("estimated")[1], layer.runner_up_estimated_ms) &&
      milliseconds(text.split(":")[1], Math.abs(layer.runner_up_estimated_ms - layer.chosen_estimated_ms)) && milliseconds(text.split("than")[1].split(",").pop(), layer.chosen_estimated_ms));
    row("time", true, (text) => milliseconds(text, layer.ms) && percents(text.slice(text.indexOf("ms,") + 3), 100 * layer.ms / sum(run.layers, "ms")));
    row("estimate", layer.estimated_ms > 0 && layer.ms > 0, (text) => milliseconds(text, layer.estimated_ms));
    row("what to do", layer.advice, says(layer.advice));
    row("limit", layer.floor_ms !== undefined, (text) => milliseconds(text, layer.floor_ms) && percents(text.split("reaches")[1], Math.min(layer.percent_of_floor, 100)));
    row("work", layer.gflops !== undefined, (text) => near(text, layer.flops / 1e6, 0.006, 0.51) && near(text.split("MFLOP,")[1], layer.gflops, 0.006, 1e-9));
    row("bytes", true, (text) => amount(text, layer.bytes) && (!layer.workspace_bytes || amount(text.split("workspace")[1], layer.workspace_bytes)));
    row("error", typeof layer.error === "number" && layer.tolerance > 0, (text) =>
      near(text, layer.error, 0.051, 0) && near(text.split("tolerance ")[1], layer.tolerance, 0.051, 0) && text.endsWith(layer.verdict));
    row("error", layer.unchecked_because, (text) => text.endsWith(layer.unchecked_because));
    const step = run.inspect && run.inspect.plan.steps.find((one) => one.name === layer.name && one.algorithm === layer.algorithm);
    const text = panels[0].textContent;
    for (const one of (step && step.candidates) || [])
      check(text.includes(one.algorithm) && text.includes(one.refusal || ""), `${at}, candidate ${one.algorithm}`, "");
    check(!/undefined|NaN|\[object/.test(text), at, text.slice(0, 400));
  }

  function visit(run) {
    const figure = (id, value, share = 1e-9) => {
      const tile = document.getElementById(`figure-${id}`);
      if (!tile) return say(`no figure ${id}`);
      check(Math.abs(Number(tile.dataset.value) - value) <= share * Math.abs(value), `figure ${id}`, tile.dataset.value);
      return tile.firstChild.textContent;
    };
    const whole = run.run ? run.run.ms : sum(run.layers, "ms"), batch = run.batch || 1;
    check(milliseconds(figure("time", whole), whole), "time of a run", whole);
    if (whole > 0) check(near(figure("images", 1e3 * batch / whole), 1e3 * batch / whole, 0.006, 0.51), "images per second", "");
    if (run.layers.some((layer) => layer.floor_ms !== undefined)) {
      const limit = run.layers.reduce((total, layer) => total + Math.min(layer.floor_ms, layer.ms), 0);
      check(milliseconds(figure("limit", limit), limit), "limit", "");
      const above = /layers together are ([\d.]+) ms above/.exec(document.getElementById("overview").textContent);
      check(above && milliseconds(above[1], sum(run.layers, "ms") - limit), "above the limit", above);
    }
    const lead = document.getElementById("overview").textContent;
    check(!run.disturbed || lead.includes(run.disturbed), "disturbed", lead);
    const [slowest] = [...run.layers].sort((a, b) => b.ms - a.ms);
    check(!slowest.ms || (lead.includes("Slowest: ") && (!slowest.time_because || lead.includes(`Why so long: ${slowest.time_because}`))), "slowest", lead);
    if (run.inspect) check(amount(figure("memory", run.inspect.plan.memory.peak_bytes), run.inspect.plan.memory.peak_bytes), "memory", "");

    const todo = all("#advice li");
    check(todo.length === run.advice.length && todo.every((item, i) => item.firstChild.textContent === plain(run.advice[i].text)), "what to do", todo.length);

    // The table: as the data, then by each heading, then filtered.
    const rows = () => all("tr.layer").map((row) => run.layers[Number(row.dataset.layer)]);
    check(rows().length === run.layers.length, "rows", rows().length);
    all("tr.layer").forEach((row) => check(Number(row.dataset.ms) === run.layers[Number(row.dataset.layer)].ms, "data-ms", row.dataset.ms));
    const share = (layer) => (layer.error === "infinite" ? Infinity : layer.tolerance > 0 && layer.error >= 0 ? layer.error / layer.tolerance : -1);
    const keys = { ms: (layer) => layer.ms, "%": (layer) => layer.ms, bytes: (layer) => layer.bytes, "of tolerance": share,
      "speed, % of limit": (layer) => layer.percent_of_floor ?? -1, "#": (layer) => run.layers.indexOf(layer), layer: (layer) => layer.name };
    for (const head of all("th button", document.querySelector("tr.layer").closest("table"))) {
      for (let time = 0; time < 2; ++time) {
        click(head);
        const key = keys[head.textContent], down = head.parentElement.getAttribute("aria-sort") === "descending";
        const got = rows().map(key || ((layer) => `${layer.op} ${layer.algorithm}`.trim()));
        check(got.length === run.layers.length && got.every((value, i) => !i || (down ? got[i - 1] >= value : got[i - 1] <= value)), `sorted by ${head.textContent}`, got.slice(0, 5));
      }
    }
    const filter = document.querySelector("input[type=search]");
    const type = (text) => { filter.value = text; filter.dispatchEvent(new Event("input")); };
    const wanted = run.layers[run.layers.length >> 1].name.slice(0, 40).toLowerCase();
    type(wanted);
    const left = rows(), matching = run.layers.filter((layer) => `${layer.name} ${layer.op} ${layer.algorithm}`.toLowerCase().includes(wanted));
    check(left.length === matching.length, `filter "${wanted}"`, left.length);
    check(milliseconds(filter.nextElementSibling.textContent.split(",").pop(), sum(matching, "ms")), "sum of the filter", filter.nextElementSibling.textContent);
    type("no layer is called so");
    check(rows().length === 0, "filter without matches", rows().length);
    type("");
    check(rows().length === run.layers.length, "filter removed", rows().length);

    for (const row of all("tr.layer a")) {
      click(row);
      details(run.layers[Number(row.closest("tr").dataset.layer)], run, "table");
    }
    const drawings = { treemap: run.layers.filter((layer) => layer.ms > 0).length };
    for (const drawing of all("svg[role=img]")) {
      const name = drawing.getAttribute("aria-label"), hits = all(".hit", drawing);
      for (const hit of hits) {
        click(hit);
        details(run.layers[hit.span ? hit.span[0] : Number(hit.dataset.layer)], run, name);  // span: of the timeline
      }
      if (name.startsWith("treemap")) check(hits.length === drawings.treemap, "layers in the treemap", hits.length);
      if (name === "graph") check(hits.length === run.layers.length, "layers in the graph", hits.length);
      if (name === "roofline") check(hits.length === run.layers.filter((layer) => layer.flops > 0 && layer.bytes > 0 && layer.ms > 0).length, "roofline", hits.length);
    }
    if (run.inspect) check(all("svg[aria-label=graph]").length === 1 && all("svg[aria-label=arena] rect").length === run.inspect.plan.placements.length, "graph and arena", "");
    document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
    check(all("#layer").length === 0, "Escape", "a panel");
    check(all(".bad").filter((part) => part.tagName === "P").length === 0, "parts", "damaged");
  }

  const tabs = all("nav button");
  data.forEach((run, i) => {
    if (tabs.length) click(tabs[i]);
    dispatchEvent(new Event("beforeprint"));  // draws all
    visit(run);
  });
  return wrong;
})()
