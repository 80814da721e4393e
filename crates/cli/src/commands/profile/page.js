"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { cols, rows } = data.machine;
  const passes = [...data.prediction.prefill, data.prediction.token];
  const canvas = document.getElementById("time");
  const ctx = canvas.getContext("2d");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // What colour a launch has.
  const family = (kernel) => {
    if (kernel.startsWith("gemm")) return "--gemm";
    if (kernel.startsWith("gemv")) return "--gemv";
    if (kernel.includes("attention")) return "--attention";
    if (kernel.includes("norm")) return "--norm";
    if (kernel === "rope") return "--rope";
    return "--elementwise";
  };

  // A share of 1 as a colour: blue-green to yellow, in both themes.
  const stops = [[38, 70, 140], [30, 120, 150], [32, 160, 130], [120, 195, 80], [245, 205, 50]];
  const heat = (share) => {
    const x = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
    const i = Math.min(Math.floor(x), stops.length - 2);
    const mix = stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * (x - i)));
    return `rgb(${mix.join(" ")})`;
  };

  const time = (ns) => {
    const digits = (v) => (v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2));
    if (ns >= 1e9) return digits(ns / 1e9) + " s";
    if (ns >= 1e6) return digits(ns / 1e6) + " ms";
    if (ns >= 1e3) return digits(ns / 1e3) + " µs";
    return Math.round(ns) + " ns";
  };
  const rate = (bytes, ns) => (ns > 0 ? (bytes / ns).toFixed(1) + " GB/s" : "–");

  // A pass as rows of spans.
  const build = (pass) => {
    const lanes = { host: [], calls: [], launches: [] };
    for (const step of pass.steps) {
      const from = step.start_ns, to = from + step.ns;
      if (step.kind === "host") {
        const name = step.layer === null ? step.name : `${step.name} L${step.layer}`;
        lanes.host.push({ from, to, name, colour: "--host", step });
        continue;
      }
      const program = pass.programs[step.program];
      lanes.calls.push({ from, to, name: step.set, colour: "--call", step, program });
      let at = from + step.call_ns + step.write_ns + program.dispatch_ns;
      for (const launch of program.launches) {
        if (launch.load_ns > 0) lanes.launches.push({ from: at, to: at + launch.load_ns, name: "load " + launch.name, colour: "--overhead" });
        at += launch.load_ns;
        lanes.launches.push({ from: at, to: at + launch.ns, name: launch.name, colour: family(launch.kernel), launch, program, step });
        at += launch.ns;
      }
    }
    return { pass, lanes, end: pass.totals.total_ns };
  };
  const built = passes.map(build);
  let current = built[0];
  let view = [0, current.end];
  let chosen = null;

  // Heights: axis, three lanes, a line for every core.
  const LANE = 24, AXIS = 20, GAP = 6, LEFT = 64, LINE = Math.max(2, Math.min(5, Math.floor(170 / (cols * rows))));
  const lanes = ["host", "calls", "launches"];
  const heatTop = AXIS + lanes.length * (LANE + GAP) + GAP;
  const height = heatTop + cols * rows * LINE + cols + 8;

  const x = (ns, width) => LEFT + ((ns - view[0]) / (view[1] - view[0])) * (width - LEFT);
  const ns = (px, width) => view[0] + ((px - LEFT) / (width - LEFT)) * (view[1] - view[0]);

  const draw = () => {
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    canvas.style.height = height + "px";
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    ctx.font = "12px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    axis(width);
    lanes.forEach((lane, i) => {
      const y = AXIS + i * (LANE + GAP);
      label(lane, y + LANE / 2);
      for (const span of current.lanes[lane]) rect(span, y, width);
    });
    heatmap(width);
  };

  const label = (text, y) => {
    ctx.fillStyle = css("--soft");
    ctx.textAlign = "left";
    ctx.fillText(text, 0, y);
  };

  const axis = (width) => {
    const span = view[1] - view[0];
    const raw = span / Math.max(2, Math.floor((width - LEFT) / 110));
    const base = 10 ** Math.floor(Math.log10(raw));
    const tick = [1, 2, 5, 10].map((m) => m * base).find((t) => t >= raw);
    ctx.fillStyle = css("--soft");
    ctx.strokeStyle = css("--line");
    ctx.textAlign = "center";
    for (let t = Math.ceil(view[0] / tick) * tick; t <= view[1]; t += tick) {
      const at = x(t, width);
      ctx.beginPath();
      ctx.moveTo(at, AXIS - 4);
      ctx.lineTo(at, height);
      ctx.stroke();
      if (at > LEFT + 20 && at < width - 20) ctx.fillText(time(t), at, 8);
    }
  };

  const rect = (span, y, width) => {
    if (span.to < view[0] || span.from > view[1]) return;
    const from = Math.max(LEFT, x(span.from, width)), to = Math.min(width, x(span.to, width));
    ctx.fillStyle = css(span.colour);
    ctx.fillRect(from, y, Math.max(0.6, to - from - (to - from > 4 ? 1 : 0)), LANE);
    if (chosen === span) {
      ctx.strokeStyle = css("--ink");
      ctx.lineWidth = 2;
      ctx.strokeRect(from + 1, y + 1, Math.max(1, to - from - 2), LANE - 2);
      ctx.lineWidth = 1;
    }
    const text = to - from > 30 ? fitted(span.name, to - from - 10) : "";
    if (text) {
      ctx.fillStyle = span.colour === "--overhead" ? css("--ink") : "#fff";
      ctx.textAlign = "left";
      ctx.fillText(text, from + 5, y + LANE / 2 + 1);
    }
  };

  // As much of a name as there is room for.
  const fitted = (name, room) => {
    if (ctx.measureText(name).width <= room) return name;
    let n = name.length - 1;
    while (n > 2 && ctx.measureText(name.slice(0, n) + "…").width > room) n--;
    return n > 2 ? name.slice(0, n) + "…" : "";
  };

  const heatmap = (width) => {
    const full = cols * rows * LINE + cols;
    ctx.fillStyle = css("--cold");
    for (let col = 0; col < cols; col++) {
      const y = heatTop + col * (rows * LINE + 1);
      ctx.fillRect(LEFT, y, width - LEFT, rows * LINE);
    }
    label("columns", heatTop + full / 2 - 8);
    label(`0 to ${cols - 1}`, heatTop + full / 2 + 8);
    for (const span of current.lanes.launches) {
      if (!span.launch || span.to < view[0] || span.from > view[1]) continue;
      const from = Math.max(LEFT, x(span.from, width)), to = Math.min(width, x(span.to, width));
      for (const core of span.launch.cores) {
        ctx.fillStyle = heat(core.busy);
        const y = heatTop + core.col * (rows * LINE + 1) + core.row * LINE;
        ctx.fillRect(from, y, Math.max(0.6, to - from), LINE);
      }
    }
  };

  // The array beside the timeline.
  const array = document.getElementById("array");
  array.style.gridTemplateColumns = `repeat(${cols}, minmax(0, 1fr))`;
  const cells = new Map();
  const cell = (text, kind) => {
    const div = document.createElement("div");
    div.className = "core " + kind;
    div.textContent = text;
    array.append(div);
    return div;
  };
  for (let row = rows - 1; row >= 0; row--) {
    for (let col = 0; col < cols; col++) cells.set(`${col},${row}`, cell("", ""));
  }
  for (let col = 0; col < cols; col++) cell("L2", "edge");
  for (let col = 0; col < cols; col++) cell("shim " + col, "edge");

  const paint = (cores) => {
    for (const div of cells.values()) {
      div.className = "core";
      div.style.background = "";
      div.textContent = "·";
    }
    for (const core of cores) {
      const div = cells.get(`${core.col},${core.row}`);
      if (!div) continue;
      div.className = core.busy > 0.7 ? "core hot bright" : "core hot";
      div.style.background = heat(core.busy);
      div.textContent = core.busy >= 0.0095 ? Math.round(100 * core.busy) : "<1";
    }
  };

  const show = (name, facts, cores) => {
    document.getElementById("name").textContent = name;
    const list = document.getElementById("facts");
    list.replaceChildren();
    for (const [key, value] of facts) {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = key;
      dd.textContent = value;
      list.append(dt, dd);
    }
    paint(cores);
  };

  // Without a choice: the mean of the whole pass.
  const overview = () => {
    const busy = new Map();
    for (const span of current.lanes.launches) {
      for (const core of span.launch ? span.launch.cores : []) {
        const key = `${core.col},${core.row}`;
        const known = busy.get(key) || { col: core.col, row: core.row, busy: 0 };
        known.busy += (core.busy * span.launch.ns) / current.end;
        busy.set(key, known);
      }
    }
    const t = current.pass.totals;
    show("The whole pass, on average", [
      ["time", time(t.total_ns)],
      ["NPU run", time(t.run_ns)],
      ["dispatches", t.n_calls],
      ["read from DDR", (t.ddr_read_bytes / 1e9).toFixed(2) + " GB"],
      ["while it runs", rate(t.ddr_read_bytes, t.run_ns)],
      ["cores busy", (100 * t.core_utilization).toFixed(1) + " %"],
    ], busy.values());
  };

  const tell = (span) => {
    if (!span) return overview();
    const duration = ["time", time(span.to - span.from)];
    if (span.launch) {
      const l = span.launch;
      return show(`${span.step.set}: ${l.name}`, [
        duration,
        ["kernel", l.kernel],
        ["shape", l.shape],
        ["tiling", l.tiling.replaceAll(",", ", ")],
        ["bound by", `${l.bottleneck.resource}, ${Math.round(100 * l.bottleneck.utilization)} %`],
        ["DDR read", rate(l.ddr_read_bytes, l.ns)],
        ["DDR written", rate(l.ddr_write_bytes, l.ns)],
        ["cores", `${l.cores.length} of ${cols * rows}, busy ${(100 * l.utilization).toFixed(0)} % of the array`],
      ], l.cores);
    }
    if (span.program) {
      const s = span.step;
      return show(s.set, [
        duration,
        ["program", span.program.name],
        ["launches", span.program.launches.length],
        ["call on the host", time(s.call_ns)],
        ["BO write", `${time(s.write_ns)}, ${(s.written_bytes / 1e6).toFixed(2)} MB`],
        ["NPU run", time(s.run_ns)],
        ["BO read", `${time(s.read_ns)}, ${(s.read_bytes / 1e6).toFixed(2)} MB`],
      ], []);
    }
    const bytes = span.step ? [["operands", (span.step.bytes / 1e6).toFixed(2) + " MB"]] : [];
    show(span.name, [duration, ...bytes], []);
  };

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const px = event.clientX - box.left, py = event.clientY - box.top;
    const t = ns(px, box.width);
    const i = Math.floor((py - AXIS) / (LANE + GAP));
    const lane = py >= heatTop ? "launches" : lanes[i];
    if (!lane || px < LEFT) return null;
    const slack = ((view[1] - view[0]) / (box.width - LEFT)) * 1.5;
    return current.lanes[lane].find((s) => t >= s.from && t < s.to)
      || current.lanes[lane].find((s) => t >= s.from - slack && t < s.to + slack) || null;
  };

  const clamp = (from, to) => {
    const span = Math.min(Math.max(to - from, 2000), current.end);
    const start = Math.min(Math.max(from, 0), current.end - span);
    view = [start, start + span];
    draw();
  };
  const zoom = (factor, t) => clamp(t - (t - view[0]) * factor, t + (view[1] - t) * factor);

  let drag = null;
  canvas.addEventListener("pointerdown", (e) => {
    drag = { px: e.clientX, view: [...view] };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointermove", (e) => {
    if (drag) {
      const per = (drag.view[1] - drag.view[0]) / (canvas.clientWidth - LEFT);
      const by = (drag.px - e.clientX) * per;
      return clamp(drag.view[0] + by, drag.view[1] + by);
    }
    const span = at(e);
    if (span !== chosen) {
      chosen = span;
      tell(span);
      draw();
    }
  });
  canvas.addEventListener("pointerleave", () => { chosen = null; tell(null); draw(); });
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    zoom(e.deltaY > 0 ? 1.25 : 0.8, ns(e.clientX - canvas.getBoundingClientRect().left, canvas.clientWidth));
  }, { passive: false });

  // What the colours mean.
  const shares = [0, 0.25, 0.5, 0.75, 1].map(heat);
  document.getElementById("scale").style.background = `linear-gradient(90deg, ${shares.join(", ")})`;
  const used = new Set(built.flatMap((b) => Object.values(b.lanes).flat().map((span) => span.colour)));
  const meanings = [["--gemm", "GEMM"], ["--gemv", "GEMV"], ["--attention", "attention"], ["--norm", "norm"],
    ["--rope", "RoPE"], ["--elementwise", "element-wise"], ["--overhead", "loading cores"], ["--call", "call"], ["--host", "host"]];
  for (const [colour, text] of meanings.filter(([colour]) => used.has(colour))) {
    const item = document.createElement("span"), mark = document.createElement("i");
    mark.style.background = `var(${colour})`;
    item.append(mark, text);
    document.getElementById("families").append(item);
  }

  // Buttons: the passes, then the view.
  const tools = document.getElementById("tools");
  const button = (text, click) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", click);
    tools.append(made);
    return made;
  };
  const tabs = built.map((b, i) => {
    const prompt = built.length > 2 ? `prompt, chunk ${i + 1}` : "prompt";
    return button(i + 1 < built.length ? prompt : "token", () => choose(i));
  });
  const choose = (i) => {
    current = built[i];
    chosen = null;
    tabs.forEach((tab, k) => tab.setAttribute("aria-pressed", String(k === i)));
    clamp(0, current.end);
    tell(null);
  };
  const middle = () => (view[0] + view[1]) / 2;
  button("+", () => zoom(0.5, middle())).title = "closer";
  button("−", () => zoom(2, middle())).title = "further away";
  button("all", () => clamp(0, current.end));
  button("one block", () => {
    const calls = current.lanes.calls.filter((c) => c.step.layer !== null);
    const layer = calls[Math.floor(calls.length / 2)]?.step.layer;
    const mine = calls.filter((c) => c.step.layer === layer);
    if (mine.length) clamp(mine[0].from, mine[mine.length - 1].to);
  });

  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  choose(0);
})();
