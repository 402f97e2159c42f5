(() => {
  const line = DATA.timeline;
  const canvas = $("timeline");
  const total = line.moment.length;
  // The chart shows what the allocator holds, so the line is what it can get.
  const capacity = Math.max(peakStatement.capacity - peakStatement.context, 0);
  const limit = peakStatement.context ? `capacity less context ${size(capacity)}` : `capacity ${size(capacity)}`;
  const peakSample = line.moment.indexOf(peakStatement.moment);
  const reservedSample = line.reserved.indexOf(Math.max(...line.reserved));
  const visible = DATA.groups.map(() => true);
  const margin = { left: 62, right: 12, top: 26, bottom: 40 };
  let byTime = false;
  let range = null; // the part of the axis that is shown, [from, to]
  let at = -1; // the sample under the pointer
  let geometry = null;

  const axis = () => (byTime ? line.time_us : line.moment);
  const full = () => [axis()[0], Math.max(axis()[total - 1], axis()[0] + 1)];
  const shownRange = () => range || full();

  /** Index of the last sample at or before a place on the axis. */
  function sampleAt(place) {
    const places = axis();
    let low = 0, high = total - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (places[middle] <= place) low = middle;
      else high = middle - 1;
    }
    return low;
  }
  /** A moment as a place on the axis. */
  function placeOf(moment) {
    if (!byTime) return moment;
    let low = 0, high = total - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (line.moment[middle] <= moment) low = middle;
      else high = middle - 1;
    }
    return line.time_us[low];
  }

  function niceStep(highest, wanted) {
    const unit = (UNITS.find(([, factor]) => highest >= factor) || ["B", 1])[1];
    const raw = highest / wanted / unit;
    const power = 2 ** Math.floor(Math.log2(raw));
    const step = raw >= 1 ? [1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64, 100, 128, 200, 256, 512].find((one) => one >= raw) || power * 2 : power * 2;
    return step * unit;
  }

  /** Sums from the bottom up at every sample, of the groups that are switched on. */
  let stacks = null;
  function stack() {
    let below = new Float64Array(total);
    stacks = line.groups.map((values, group) => {
      const upper = Float64Array.from(below);
      if (visible[group]) for (let i = 0; i < total; i++) upper[i] += values[i];
      const layer = [below, upper];
      below = upper;
      return layer;
    });
    stacks.top = below;
  }
  stack();
  const all = () => visible.every(Boolean);

  function draw() {
    const [pen, width, height] = context2d(canvas);
    const [from, to] = shownRange();
    const first = sampleAt(from), last = Math.min(total - 1, sampleAt(to) + 1);
    let highest = 0;
    for (let i = first; i <= last; i++) highest = Math.max(highest, all() ? line.reserved[i] : stacks.top[i], stacks.top[i]);
    const withCapacity = all() && capacity && capacity < 2.2 * highest;
    highest = Math.max(highest, withCapacity ? capacity : 0, 512) * (capacity && !withCapacity ? 1.13 : 1.04);
    const inner = { width: width - margin.left - margin.right, height: height - margin.top - margin.bottom };
    const x = (place) => margin.left + ((place - from) / (to - from)) * inner.width;
    const y = (bytes) => margin.top + inner.height * (1 - bytes / highest);
    geometry = { from, to, inner, x, y };
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";

    // steps: alternating bands with their names
    pen.save();
    pen.beginPath();
    pen.rect(margin.left, 0, inner.width, height);
    pen.clip();
    let labelEnd = -Infinity;
    DATA.bands.filter((band) => band.kind === "step").forEach((band, index) => {
      const left = x(placeOf(band.first)), right = x(placeOf(band.end));
      if (right < margin.left || left > width) return;
      if (index % 2 === 0) {
        pen.fillStyle = css("--band");
        pen.fillRect(left, margin.top - 20, right - left, inner.height + 20);
      }
      const text = pen.measureText(band.title).width, middle = (Math.max(left, margin.left) + Math.min(right, width - margin.right)) / 2;
      if (text + 10 < right - left && middle - text / 2 > labelEnd) {
        pen.fillStyle = css("--faint");
        pen.textAlign = "center";
        pen.fillText(band.title, middle, margin.top - 9);
        labelEnd = middle + text / 2 + 8;
      }
    });
    pen.restore();

    // grid
    pen.strokeStyle = css("--grid");
    pen.fillStyle = css("--faint");
    pen.textAlign = "right";
    pen.lineWidth = 1;
    const step = niceStep(highest, 5);
    for (let value = 0; value <= highest; value += step) {
      const level = Math.round(y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(margin.left, level);
      pen.lineTo(width - margin.right, level);
      pen.stroke();
      pen.fillText(size(value, step % UNITS.find(([, f]) => highest >= f || f === 1024)[1] ? 1 : 0), margin.left - 8, level + 4);
    }

    pen.save();
    pen.beginPath();
    pen.rect(margin.left, margin.top - 4, inner.width, inner.height + 4);
    pen.clip();
    const places = axis();
    // A value holds until the next event, so the outline goes in steps.
    const outline = (values, start) => {
      for (let i = start; i <= last; i++) {
        const left = x(places[i]), level = y(values[i]);
        if (i === start) pen.moveTo(left, level);
        else {
          pen.lineTo(left, y(values[i - 1]));
          pen.lineTo(left, level);
        }
      }
      pen.lineTo(Math.max(x(to), x(places[last])), y(values[last]));
    };
    const area = (lower, upper) => {
      pen.beginPath();
      outline(upper, first);
      const end = Math.max(x(to), x(places[last]));
      pen.lineTo(end, y(lower[last]));
      for (let i = last; i >= first; i--) {
        const left = x(places[i]);
        pen.lineTo(left, y(lower[i]));
        if (i > first) pen.lineTo(left, y(lower[i - 1]));
      }
      pen.closePath();
      pen.fill();
    };
    if (all()) {
      pen.fillStyle = hatchPattern(pen);
      area(stacks.top, line.reserved);
    }
    stacks.forEach(([lower, upper], group) => {
      if (!visible[group]) return;
      pen.fillStyle = css(groupVariable(group));
      area(lower, upper);
    });
    if (all()) {
      pen.strokeStyle = css("--soft");
      pen.lineWidth = 1.4;
      pen.beginPath();
      outline(line.reserved, first);
      pen.stroke();
    }
    pen.restore();

    // phases and annotations: a strip below the axis
    pen.save();
    pen.beginPath();
    pen.rect(margin.left, 0, inner.width, height);
    pen.clip();
    for (const band of DATA.bands) {
      if (band.kind === "step") continue;
      const left = x(placeOf(band.first)), right = Math.max(x(placeOf(band.end)), left + 1.5);
      if (right < margin.left || left > width) continue;
      const known = ["forward", "backward", "optimizer"].find((name) => band.title.toLowerCase().startsWith(name));
      pen.fillStyle = css(`--p-${known || "other"}`);
      pen.fillRect(left, height - margin.bottom + 4, right - left, 6);
      const text = pen.measureText(band.title).width;
      if (text + 8 < right - left) {
        pen.fillStyle = css("--faint");
        pen.textAlign = "left";
        pen.fillText(band.title, Math.max(left, margin.left), height - margin.bottom + 23);
      }
    }
    pen.restore();
    pen.fillStyle = css("--faint");
    pen.textAlign = "left";
    const tick = (place) => (byTime ? duration(Math.round(place)) : count(Math.round(place)));
    pen.fillText(tick(from), margin.left, height - 3);
    pen.textAlign = "right";
    pen.fillText(tick(to) + (byTime ? "" : " events"), width - margin.right, height - 3);

    if (withCapacity) {
      const level = Math.round(y(capacity)) + 0.5;
      pen.strokeStyle = pen.fillStyle = css("--bad");
      pen.lineWidth = 1.5;
      pen.setLineDash([6, 4]);
      pen.beginPath();
      pen.moveTo(margin.left, level);
      pen.lineTo(width - margin.right, level);
      pen.stroke();
      pen.setLineDash([]);
      pen.textAlign = "right";
      pen.fillText(limit, width - margin.right - 4, level - 5);
    }
    else if (capacity && all()) {
      pen.fillStyle = css("--bad");
      pen.textAlign = "right";
      pen.fillText(`↑ ${limit}, above this chart`, width - margin.right - 4, margin.top + 9);
    }
    mark(pen, peakSample, stacks.top, "peak", width);
    if (at >= 0) cursor(pen, height);
  }

  function mark(pen, sample, values, text, width) {
    const { from, to, x, y } = geometry;
    const place = axis()[sample];
    if (sample < 0 || place < from || place > to || !all()) return;
    const left = x(place), level = y(values[sample]);
    pen.beginPath();
    pen.arc(left, level, 4, 0, 7);
    pen.fillStyle = css("--card");
    pen.strokeStyle = css("--ink");
    pen.lineWidth = 1.6;
    pen.fill();
    pen.stroke();
    const label = `${text} ${size(peakStatement.allocated)}`;
    const space = pen.measureText(label).width + 12;
    pen.textAlign = left + space > width ? "right" : "left";
    pen.lineWidth = 3;
    pen.strokeStyle = css("--card");
    pen.fillStyle = css("--ink");
    const shift = pen.textAlign === "left" ? 8 : -8;
    pen.strokeText(label, left + shift, level + 4);
    pen.fillText(label, left + shift, level + 4);
  }

  function cursor(pen, height) {
    const left = Math.round(geometry.x(axis()[at])) + 0.5;
    pen.strokeStyle = css("--ink");
    pen.globalAlpha = 0.5;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(left, margin.top - 4);
    pen.lineTo(left, height - margin.bottom);
    pen.stroke();
    pen.globalAlpha = 1;
  }

  function bandsAt(moment) {
    return DATA.bands.filter((band) => band.first < moment && moment <= band.end).map((band) => band.title);
  }

  function describe(clientX, clientY) {
    const moment = line.moment[at];
    const order = DATA.groups.map((group, index) => index).filter((index) => line.groups[index][at] && visible[index]);
    order.sort((a, b) => line.groups[b][at] - line.groups[a][at]);
    const bands = bandsAt(moment);
    const event = line.action[at] ? `${line.action[at].replaceAll("_", " ")} ${size(line.size[at])}` : "before the first event";
    showTip(clientX, clientY,
      tipRow(make("b", {}, "allocated"), make("b", {}, size(line.allocated[at]))),
      ...order.slice(0, 9).map((index) => tipRow(DATA.groups[index].title, size(line.groups[index][at]), groupCss(index))),
      ...(line.pending[at] ? [tipRow("waiting for a stream", size(line.pending[at]))] : []),
      tipRow("stranded", size(line.reserved[at] - line.allocated[at] - line.pending[at])),
      tipRow(make("b", {}, "reserved"), make("b", {}, size(line.reserved[at]))),
      make("hr"),
      tipNote(`event ${count(moment)}${line.time_us.length ? ", " + duration(line.time_us[at]) : ""}${bands.length ? ", " + bands.join(", ") : ""}`),
      tipNote(event),
      ...(DATA.texts[line.where[at]] ? [tipNote(DATA.texts[line.where[at]])] : []));
  }

  function hover(event) {
    const box = canvas.getBoundingClientRect();
    const { from, to, inner } = geometry;
    const share = (event.clientX - box.left - margin.left) / inner.width;
    if (share < 0 || share > 1) return leave();
    at = sampleAt(from + share * (to - from));
    draw();
    describe(event.clientX, event.clientY);
  }
  function leave() {
    at = -1;
    hideTip();
    draw();
  }

  function zoom(factor, share = 0.5) {
    const [from, to] = shownRange(), [least, most] = full();
    const width = Math.min(Math.max((to - from) * factor, (most - least) / 5000, byTime ? 1 : 4), most - least);
    let start = from + (to - from) * share - width * share;
    start = Math.min(Math.max(start, least), most - width);
    range = width >= (most - least) * 0.999 ? null : [start, start + width];
    draw();
  }
  function pan(share) {
    if (!range) return;
    const [least, most] = full(), width = range[1] - range[0];
    const start = Math.min(Math.max(range[0] + share * width, least), most - width);
    range = [start, start + width];
    draw();
  }

  const pointers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture?.(event.pointerId);
    pointers.set(event.pointerId, event.clientX);
  });
  const up = (event) => pointers.delete(event.pointerId);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) return hover(event);
    const box = canvas.getBoundingClientRect();
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      pointers.set(event.pointerId, event.clientX);
      const [c, d] = [...pointers.values()];
      if (Math.abs(c - d) > 8) zoom(Math.abs(a - b) / Math.abs(c - d), ((c + d) / 2 - box.left - margin.left) / geometry.inner.width);
    } else {
      pan((before - event.clientX) / geometry.inner.width);
      pointers.set(event.pointerId, event.clientX);
      hover(event);
    }
  });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("wheel", (event) => {
    if (!event.deltaY && event.deltaX) return pan(event.deltaX / geometry.inner.width);
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left - margin.left) / geometry.inner.width);
    hover(event);
  }, { passive: false });
  canvas.addEventListener("dblclick", () => {
    range = null;
    draw();
  });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) {
      at = Math.min(Math.max((at < 0 ? peakSample : at) + move, 0), total - 1);
      draw();
      const box = canvas.getBoundingClientRect();
      describe(box.left + geometry.x(axis()[at]), box.top + box.height / 2);
      event.preventDefault();
    } else if (event.key === "+" || event.key === "=") zoom(0.7);
    else if (event.key === "-") zoom(1.4);
    else if (event.key === "Escape") leave();
  });

  const tools = $("timeline-tools");
  if (line.time_us.length) {
    toggles(tools, [[false, "by event"], [true, "by time"]], false, (choice) => {
      byTime = choice;
      range = null;
      draw();
    });
  }
  tools.append(
    make("button", { type: "button", title: "Zoom in", "aria-label": "Zoom in", onclick: () => zoom(0.5) }, "+"),
    make("button", { type: "button", title: "Zoom out", "aria-label": "Zoom out", onclick: () => zoom(2) }, "−"),
    make("button", { type: "button", onclick: () => {
      const [least, most] = full(), width = (most - least) / 12, place = axis()[peakSample];
      const start = Math.min(Math.max(place - width / 2, least), most - width);
      range = [start, start + width];
      draw();
    } }, "peak"),
    make("button", { type: "button", onclick: () => {
      range = null;
      draw();
    } }, "all"),
  );

  DATA.groups.forEach((group, index) => {
    if (!line.groups[index].some(Boolean)) return;
    $("legend").append(make("button", { type: "button", "aria-pressed": "true", title: "Show or hide", onclick: (event) => {
      visible[index] = !visible[index];
      event.currentTarget.setAttribute("aria-pressed", String(visible[index]));
      stack();
      draw();
    } }, dot(groupCss(index)), group.title));
  });
  $("legend").append(make("span", {}, dot("", true), "stranded, up to reserved"));
  $("timeline-sub").textContent = "Wheel or pinch to zoom, drag to move, double click for all.";
  canvas.setAttribute("aria-label", `Memory over ${count(DATA.events)} events: at most ${size(peakStatement.allocated)} allocated and ${size(line.reserved[reservedSample])} reserved.`);
  drawn(draw);
})();
