const peakStatement = DATA.statements[0];
const top_ = DATA.statements.reduce((best, one) => (one.reserved > best.reserved ? one : best));

$("title").textContent = DATA.title;
$("about").textContent = [
  DATA.source === "snapshot" ? "PyTorch memory snapshot" : DATA.command || "recording",
  DATA.framework || (DATA.torch && `torch ${DATA.torch}`), DATA.device, DATA.alloc_conf, `${count(DATA.events)} events`,
].filter(Boolean).join(" · ");
for (const note of DATA.notes) $("notes").append(make("p", {}, note[0].toUpperCase() + note.slice(1) + "."));
$("footer").textContent = `Made by peakmem ${DATA.peakmem}. Sizes are binary: 1 GiB = 2^30 bytes. This file needs no network and sends nothing.`;

function bigNumber(bytes, what) {
  const [number, unit] = sizeParts(bytes);
  return make("div", {}, make("div", { class: "big", "data-bytes": bytes }, number, make("small", {}, unit)), make("div", { class: "what" }, what));
}

function gauge() {
  const capacity = top_.capacity;
  const whole = Math.max(capacity, top_.used);
  const parts = [
    top_.context && ["context", top_.context, "var(--faint)", false],
    ["active", top_.active, "var(--accent)", false],
    ["stranded", top_.stranded, "", true],
    capacity > top_.used && ["left of the capacity", capacity - top_.used, "transparent", false],
  ].filter(Boolean);
  const bar = make("div", { class: "bar" }, ...parts.map(([, bytes, color, hatch]) =>
    make("i", { class: hatch ? "hatch" : "", style: { width: (100 * bytes) / whole + "%", background: hatch ? undefined : color } })));
  const keys = make("div", { class: "keys" }, ...parts.map(([title, bytes, color, hatch]) =>
    make("span", {}, color === "transparent" ? "" : dot(color, hatch), `${title} ${size(bytes)}`)));
  const title = capacity
    ? top_.used > capacity ? `${size(top_.used - capacity)} more than the capacity of ${size(capacity)}` : `of ${size(capacity)} capacity, at the peak of reserved`
    : "reserved at its peak (the capacity of the device is not recorded)";
  return make("div", { class: "gauge" }, bar, keys, make("div", { class: "what" }, title));
}

const where = [peakStatement.step >= 0 && `step ${peakStatement.step + 1}`, peakStatement.phase].filter(Boolean).join(", ");
$("hero").append(
  bigNumber(peakStatement.allocated, `allocated at the peak${where ? " (" + where + ")" : ""}`),
  bigNumber(top_.reserved, "reserved at its peak"),
  gauge(),
);

function statement(index) {
  const one = DATA.statements[index];
  const whole = Math.max(one.used, one.capacity < 2 * one.used ? one.capacity : 0, 1);
  const rows = [
    ["requested", one.requested, "part", "var(--accent)", "requested"],
    ["+ rounding, unsplit blocks", one.rounding, "part", "var(--c-workspace)", "rounding"],
    ["= allocated", one.allocated, "sum", "var(--accent)", "allocated"],
    ["+ waiting for a stream", one.pending, "part", "var(--c-communication)", "pending"],
    ["= active", one.active, "sum", "var(--accent)", "active"],
    ["+ stranded", one.stranded, "part", "hatch", "stranded"],
    ["= reserved", one.reserved, "sum", "var(--accent)", "reserved"],
    ["+ context", one.context, "part", "var(--faint)", "context"],
    ["= used (nvidia-smi)", one.used, "sum", "var(--accent)", "used"],
  ];
  if (one.capacity) rows.push(["capacity", one.capacity, "", "var(--bad)", "capacity"]);
  $("statement").replaceChildren(make("tbody", {}, ...rows.map(([label, bytes, kind, color, key]) => {
    const unknown = key === "context" && bytes === 0;
    return make("tr", { class: kind }, make("td", {}, label),
      make("td", { class: "n", "data-key": key, "data-bytes": bytes }, unknown ? "not recorded" : size(bytes)),
      make("td", { class: "b" }, unknown ? "" : exact(bytes)),
      make("td", { class: "w" }, make("div", { class: color === "hatch" ? "bar hatch" : "bar", style: { width: Math.min(100, (100 * bytes) / whole) + "%", background: color === "hatch" ? undefined : color, visibility: bytes > whole || !bytes ? "hidden" : undefined } })));
  })));
}
toggles($("statement-tools"), DATA.statements.map((one, index) => [index, one.title]), 0, statement);
statement(0);

$("groups-title").textContent = DATA.by_role ? "What it is for" : "Where it was allocated";
$("groups-sub").textContent = `Allocated at the peak: ${size(peakStatement.allocated)}, ${DATA.by_role ? "by role" : "by line of code"}.`;
const largestGroup = Math.max(1, ...DATA.groups.map((group) => group.at_peak));
const shown = DATA.groups.map((group, index) => [group, index]).filter(([group]) => group.at_peak || group.key === "unattributed");
for (const [group, index] of shown.sort((a, b) => b[0].at_peak - a[0].at_peak)) {
  $("groups").append(make("div", { class: "group" },
    make("span", { class: "label" }, dot(groupCss(index)), group.title),
    make("span", { "data-group": group.key, "data-bytes": group.at_peak }, size(group.at_peak)),
    make("span", { class: "pct" }, percent(group.at_peak, peakStatement.allocated)),
    make("div", { class: "track" }, make("i", { style: { width: (100 * group.at_peak) / largestGroup + "%", background: groupCss(index) } }))));
}

function holderRows() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const groupOf = (holder) => DATA.groups.findIndex((group) => (DATA.by_role ? group.key === holder.role : group.title === holder.line));
  const rows = DATA.holders.filter((holder) => {
    const text = [holder.title, holder.name, holder.module, holder.line, holder.dtype].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const body = rows.map((holder) => {
    const group = groupOf(holder);
    const shape = holder.shape.length ? ` ${holder.dtype} [${holder.shape.join(", ")}]` : "";
    const named = ["parameter", "buffer", "gradient", "optimizer_state"].includes(holder.role);
    const texts = named ? [holder.name, holder.module, holder.line] : [holder.module, holder.name, holder.line];
    const [title, ...more] = [...new Set(texts.filter(Boolean))];
    const rest = more.join(" · ");
    return make("tr", {},
      make("td", {}, make("span", {}, dot(group >= 0 ? groupCss(group) : "var(--c-other)"), title + shape), rest ? make("small", {}, rest) : ""),
      DATA.by_role ? make("td", {}, make("span", { class: "tag" }, holder.title)) : null,
      make("td", { class: "n", "data-bytes": holder.size, title: exact(holder.size) }, size(holder.size)),
      make("td", { class: "n" }, holder.count === 1 ? "1 block" : `${count(holder.count)} blocks`));
  });
  const left = DATA.holders_left;
  if (left.count && !words.length) {
    body.push(make("tr", {}, make("td", {}, "smaller ones"), DATA.by_role ? make("td") : null, make("td", { class: "n" }, size(left.size)), make("td", { class: "n" }, `${count(left.count)} blocks`)));
  }
  const head = make("thead", {}, make("tr", {}, make("th", {}, "what"), DATA.by_role ? make("th", {}, "role") : null, make("th", { class: "n" }, "size"), make("th", { class: "n" }, "blocks")));
  $("holders").replaceChildren(head, make("tbody", {}, ...body));
  $("holders-sub").textContent = words.length ? `${rows.length} of ${DATA.holders.length}` : "Blocks that differ only in the number of their layer are counted together (*); sizes after rounding.";
}
$("filter").addEventListener("input", holderRows);
holderRows();
