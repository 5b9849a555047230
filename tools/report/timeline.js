// The timeline of a run: what each thread or stream does when, and behind what it waits. Spans are
// [layer or -1, kind, begin, end] in microseconds (docs/report.md).
"use strict";

function lanesOf(timeline) {
  let end = 1e3 * timeline.ms;
  for (const { spans } of timeline.lanes) if (spans.length) end = Math.max(end, spans[spans.length - 1][3]);
  const lanes = timeline.lanes.map(({ name, spans }) => {
    const gaps = [];
    let at = 0, busy = 0;
    for (const [, , from, to] of spans) {
      if (from > at) gaps.push([at, from]);
      busy += to - from;
      at = to;
    }
    if (end > at) gaps.push([at, end]);
    return { name, spans, gaps, busy, behind: [-1, 0] };
  });
  // What another lane does in a lane's gaps; the layer with the most of that.
  for (const lane of lanes)
    for (const other of lanes) {
      const shared = new Map();
      let k = 0;
      for (const [from, to] of lane === other ? [] : lane.gaps) {
        while (k < other.spans.length && other.spans[k][3] <= from) ++k;
        for (let m = k; m < other.spans.length && other.spans[m][2] < to; ++m) {
          const [layer, , b, e] = other.spans[m];
          if (layer >= 0) shared.set(layer, (shared.get(layer) || 0) + Math.min(to, e) - Math.max(from, b));
        }
      }
      for (const one of shared) if (one[1] > lane.behind[1]) lane.behind = one;
    }
  let idle = 0, at = 0;  // of all lanes at once
  for (const [, , from, to] of lanes.flatMap((lane) => lane.spans).sort((a, b) => a[2] - b[2])) {
    idle += Math.max(0, from - at);
    at = Math.max(at, to);
  }
  return { lanes, end: end || 1, idle: idle + end - at };
}

function timelineChart(run, lanes, end) {
  const window = Math.min(document.documentElement.clientWidth, 1800);
  const width = Math.round(Math.max(340, window - 2 * Math.min(40, Math.max(12, .03 * window)) - 8));
  const left = 78, right = 10, top = 8, high = lanes.length > 16 ? 12 : 26, step = high + (lanes.length > 16 ? 3 : 8);
  const bottom = top + step * lanes.length, bands = new Map();
  for (const { spans } of lanes)
    for (const [layer, kind, b, e] of spans) {
      if (kind !== "band" || layer < 0) continue;
      const name = String(run.layers[layer].band), [from, to] = bands.get(name) || [b, e];
      bands.set(name, [Math.min(from, b), Math.max(to, e)]);
    }
  const svg = s("svg", { viewBox: `0 0 ${width} ${bottom + 26}`, tabindex: 0, role: "img",
    "aria-label": "timeline; plus and minus zoom, arrows move", style: "touch-action:pan-y" });
  let from = 0, to = end;
  const px = (us) => left + (width - left - right) * (us - from) / (to - from);
  const clipped = (b, e) => [Math.max(px(b), left), Math.min(px(e), width - right)];
  function bar(span, x, wide, y) {
    const of = run.layers[span[0]];
    const rect = s("rect", { x: x.toFixed(2), y, width: wide.toFixed(2), height: high, fill: of ? run.colour.get(of.kind) : "var(--k8)", class: of ? "hit" : null });
    rect.span = span;
    const letters = Math.floor((wide - 6) / 7);
    return of && letters >= 8 && high > 20 ? [rect, s("text", { x: x + 4, y: y + 17, class: "on", "pointer-events": "none" }, short(of.name, letters))] : [rect];
  }
  // Only for the bar below the pointer: there may be thousands.
  svg.addEventListener("pointerover", ({ target }) => {
    if (!target.span || target.firstChild) return;
    const [layer, kind, b, e] = target.span, of = run.layers[layer];
    const how = { piece: "a part, beside other threads", band: "rows, in a band", step: "alone" }[kind] || "";
    target.append(s("title", {}, `${of ? `${short(of.name, 200)}\n${short(of.kind)}` : "outside the layers"}, ${how}\n${ms((e - b) / 1e3)} ms, from ${ms(b / 1e3)} ms on`));
  });
  svg.addEventListener("click", ({ target }) => { if (target.span && run.layers[target.span[0]]) openLayer(run, run.layers[target.span[0]]); });
  function show() {
    const parts = [];
    const ticks = width < 520 ? 2 : 4;
    for (let i = 0; i <= ticks; ++i) {
      const x = left + (width - left - right) * i / ticks;
      parts.push(s("line", { x1: x, x2: x, y1: top, y2: bottom, class: "axis" }), s("text", { x, y: bottom + 18, class: "faint",
        "text-anchor": i === 0 ? "start" : i < ticks ? "middle" : "end" }, `${ms((from + (to - from) * i / ticks) / 1e3)}${i < ticks ? "" : " ms"}`));
    }
    for (const [name, span] of bands) {
      const [x0, x1] = clipped(...span);
      if (x1 > x0) parts.push(s("rect", { x: x0, y: top - 5, width: x1 - x0, height: bottom - top + 2, class: "band" }, s("title", {}, `band: ${short(name, 300)}`)));
    }
    lanes.forEach((lane, i) => {
      const y = top + step * i;
      parts.push(s("text", { x: 2, y: y + high / 2 + 4 }, short(lane.name, 11)));
      let drawn = left;  // spans of under a pixel hide behind the one before
      for (const span of lane.spans) {
        const [x0, x1] = clipped(span[2], span[3]), x = Math.max(x0, drawn);
        if (x1 < x0 || (x1 < x + 1 && x0 < drawn + 1)) continue;
        drawn = Math.max(x1, x + 1);
        parts.push(...bar(span, x, drawn - x, y));
      }
    });
    svg.replaceChildren(...parts);
  }
  function view(begin, length) {
    const kept = Math.min(Math.max(length, end / 1e5), end);
    from = Math.min(Math.max(begin, 0), end - kept);
    to = from + kept;
    show();
  }
  const zoom = (factor, at = .5) => view(from + at * (to - from) * (1 - factor), factor * (to - from));
  const move = (part) => view(from + part * (to - from), to - from);
  const place = (event) => {
    const box = svg.getBoundingClientRect(), scale = box.width / width;
    return ((event.clientX - box.left) / scale - left) / (width - left - right);
  };
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;  // the page scrolls
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : .8, Math.min(Math.max(place(event), 0), 1));
  }, { passive: false });
  svg.addEventListener("keydown", (event) => {
    const does = { "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), ArrowLeft: () => move(-.2), ArrowRight: () => move(.2), 0: () => view(0, end) }[event.key];
    if (!does || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    does();
  });
  let held = null;
  svg.addEventListener("pointerdown", (event) => { held = { x: place(event), from, id: event.pointerId, moved: false }; });
  svg.addEventListener("pointermove", (event) => {
    if (!held || !event.buttons) return;
    const by = held.x - place(event);
    if (!held.moved && Math.abs(by) * width < 5) return;
    if (!held.moved) svg.setPointerCapture(held.id);  // and no click follows on what lies there
    held.moved = true;
    view(held.from + by * (to - from), to - from);
  });
  svg.addEventListener("pointerup", () => { held = null; });
  show();
  const button = (text, label, onclick) => h("button", { onclick, "aria-label": label }, text);
  return [h("p", { class: "filter" }, button("+", "zoom in", () => zoom(.5)), " ", button("−", "zoom out", () => zoom(2)), " ",
    button("whole run", "whole run", () => view(0, end))), svg];
}

function timeline(run) {
  const title = h("h2", {}, "Timeline of one run"), taken = run.timeline;
  if (!taken || !Array.isArray(taken.lanes) || !taken.lanes.length)
    return h("section", {}, title, h("p", { class: "note" }, "Not in this file: measured before lenslet took timelines, or shapes depend on computed values on a GPU."));
  const { lanes, end, idle } = lanesOf(taken);
  const share = (us) => percent(100 * us / end);
  const most = lanes.filter((lane) => lane.name !== "prefetch").sort((a, b) => a.busy - b.busy)[0];
  const behind = (lane) => (lane.behind[1] > 0 ? opener(run, run.layers[lane.behind[0]], 48) : null);
  const sentence = [h("strong", {}, named(most.name, 24)), ` waits ${share(end - most.busy)} of the run`,
    idle > (end - most.busy) / 2 && idle > 0 ? `, most of it while no lane was at work (${ms(idle / 1e3)} ms): the machine had other work, or threads woke late`
      : most.behind[1] > 0 ? [", longest behind ", behind(most), ` (${ms(most.behind[1] / 1e3)} ms)`] : null, "."];
  const row = (lane, i) => h("tr", {}, h("td", { class: "line" }, named(lane.name, 24)),
    h("td", { class: "n", id: `figure-lane-${i}`, "data-value": lane.busy / 1e3 }, ms(lane.busy / 1e3)), h("td", { class: "n wide" }, share(lane.busy)),
    h("td", { class: "n" }, ms((end - lane.busy) / 1e3)), h("td", { class: "n wide" }, ms(lane.gaps.reduce((most, [b, e]) => Math.max(most, e - b), 0) / 1e3)),
    h("td", {}, behind(lane), lane.behind[1] > 0 ? ` ${ms(lane.behind[1] / 1e3)} ms` : null));
  return h("section", { id: "timeline" }, title, h("p", { class: "lead" }, sentence),
    h("p", { class: "note" }, `The run of median time, ${ms(taken.ms)} ms with its time stamps. ` +
      (taken.ms > 1.05 * taken.undisturbed_ms ? `Without them runs took ${ms(taken.undisturbed_ms)} ms. ` : "") +
      (run.device === "cpu" ? "Where a row is empty the thread waits; a dashed box is a band. " : "A step lasts from the end of the one before. ") +
      "Colours are kinds. A click opens the layer; +, − and arrows zoom and move, as do Ctrl with the wheel and dragging."),
    timelineChart(run, lanes, end),
    h("table", {}, h("thead", {}, h("tr", {}, [["", ""], ["busy, ms", "n"], ["busy, %", "n wide"], ["waits, ms", "n"], ["longest wait", "n wide"], ["most behind", ""]]
      .map(([text, kind]) => h("th", { class: kind }, text)))), h("tbody", {}, lanes.map(row))));
}
