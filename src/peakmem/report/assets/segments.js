(() => {
  const map = DATA.segments;
  const canvas = $("segments");
  const rowHeight = 20, gap = 5;
  let order = "address";
  let laid = []; // segments in the order they are drawn, with the byte at which each begins
  let rows = 1;

  const strandedWhole = map.free_segments;
  $("segments-sub").textContent = map.segments.length
    ? `${count(map.segments.length)} segments, ${size(map.total)} reserved; ${size(map.stranded)} stranded` +
      (strandedWhole ? `, of which ${size(strandedWhole)} in wholly free segments` +
        (DATA.framework ? "." : " (given back by empty_cache or when memory runs out).") : ".") +
      (map.merged ? " Neighbours of one colour are drawn as one." : "")
    : "No segments are known at this moment.";

  function arrange() {
    const segments = [...map.segments];
    if (order === "stranded") segments.sort((a, b) => b.stranded - a.stranded);
    let at = 0;
    laid = segments.map((segment) => {
      const entry = { segment, at };
      at += segment.size;
      return entry;
    });
  }

  function draw() {
    if (!map.total) return;
    const narrow = canvas.clientWidth < 600;
    rows = Math.min(Math.max(Math.ceil(Math.sqrt(map.segments.length) * (narrow ? 1.4 : 0.8)), 5), narrow ? 34 : 26);
    const [pen, width] = context2d(canvas, rows * (rowHeight + gap));
    const perRow = map.total / rows;
    const hatch = hatchPattern(pen);
    pen.clearRect(0, 0, width, rows * (rowHeight + gap));
    /** Fills bytes [from, to) of the whole, over as many rows as it takes. */
    const fill = (from, to, style) => {
      for (let row = Math.min(Math.floor(from / perRow), rows - 1); row < rows; row++) {
        const begin = Math.max(from, row * perRow), end = row === rows - 1 ? to : Math.min(to, (row + 1) * perRow);
        if (begin >= to) return;
        const left = ((begin - row * perRow) / perRow) * width, right = ((end - row * perRow) / perRow) * width;
        pen.fillStyle = style;
        pen.fillRect(left, row * (rowHeight + gap), Math.max(right - left, 0.4), rowHeight);
      }
    };
    for (const { segment, at } of laid) {
      fill(at, at + segment.size, hatch);
      for (const [offset, length, , group] of segment.blocks) fill(at + offset, at + offset + length, css(groupVariable(group)));
    }
    // where segments begin: a cut through the strip
    if (map.segments.length < width * rows / 6) {
      for (const { at } of laid) {
        const row = Math.min(Math.floor(at / perRow), rows - 1);
        pen.fillStyle = css("--card");
        pen.fillRect(((at - row * perRow) / perRow) * width - 0.75, row * (rowHeight + gap), 1.5, rowHeight);
      }
    }
  }

  function find(event) {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / (rowHeight + gap));
    const byte = (row + (event.clientX - box.left) / box.width) * (map.total / rows);
    let low = 0, high = laid.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (laid[middle].at <= byte) low = middle;
      else high = middle - 1;
    }
    const entry = laid[low];
    if (!entry || byte < 0 || byte >= map.total) return null;
    const offset = byte - entry.at;
    const block = entry.segment.blocks.find(([start, length]) => start <= offset && offset < start + length);
    return { segment: entry.segment, block };
  }

  canvas.addEventListener("pointermove", (event) => {
    const found = find(event);
    if (!found) return hideTip();
    const { segment, block } = found;
    const kind = [segment.small ? "small pool" : "large pool", segment.expandable && "expandable", segment.stream && `stream 0x${segment.stream.toString(16)}`].filter(Boolean).join(", ");
    const content = block
      ? [make("b", {}, DATA.groups[block[3]].title), ...(DATA.texts[block[4]] && DATA.texts[block[4]] !== DATA.groups[block[3]].title ? [tipNote(DATA.texts[block[4]])] : []),
         tipRow("block", size(block[1])), tipRow("requested", exact(block[2])), ...(block[5] ? [tipNote("freed, waiting for another stream")] : [])]
      : [make("b", {}, segment.blocks.length ? "stranded" : "free segment")];
    showTip(event.clientX, event.clientY, ...content, make("hr"),
      tipRow("segment", size(segment.size)), tipRow("stranded in it", size(segment.stranded)),
      tipNote(`${kind}, ${count(segment.blocks.length)} blocks, at 0x${segment.address.toString(16)}`));
  });
  canvas.addEventListener("pointerleave", hideTip);

  const pick = (choice) => {
    order = choice;
    arrange();
    draw();
  };
  toggles($("segments-tools"), [["address", "by address"], ["stranded", "most stranded first"]], "address", pick);
  const used = new Set(map.segments.flatMap((segment) => segment.blocks.map((block) => block[3])));
  DATA.groups.forEach((group, index) => used.has(index) && $("segments-legend").append(make("span", {}, dot(groupCss(index)), group.title)));
  $("segments-legend").append(make("span", {}, dot("", true), "stranded"), make("span", {}, "a cut is where a segment begins"));
  if (map.pinners.length) {
    $("pinners").append(
      make("thead", {}, make("tr", {}, make("th", {}, "blocks of"), make("th", { class: "n" }, "stranded beside them"), make("th", { class: "n" }, "their size, segments"))),
      make("tbody", {}, ...map.pinners.map((pin) => make("tr", {},
        make("td", {}, dot(groupCss(pin.group)), DATA.texts[pin.text] || "unknown"),
        make("td", { class: "n", "data-bytes": pin.stranded }, size(pin.stranded)),
        make("td", { class: "n" }, `${size(pin.size)}, ${count(pin.segments)}`)))));
  } else $("pinners-box").hidden = true;
  canvas.setAttribute("aria-label", `Map of ${count(map.segments.length)} segments.`);
  arrange();
  drawn(draw);
})();
document.body.dataset.ready = "true";
