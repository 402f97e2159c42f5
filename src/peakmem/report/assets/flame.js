(() => {
  const box = $("flame");
  const root = DATA.tree;
  const height = 23;
  let focus = [root]; // from the root to the part that fills the width
  $("flame-sub").textContent = (DATA.by_role
    ? "Allocated at the peak, by role, then by module."
    : "Allocated at the peak, by the user's frames, the outermost first.") + " A click on a part enlarges it.";

  function draw() {
    const width = box.clientWidth;
    const elements = [];
    let rows = 0;
    const put = (node, left, share, row, chain, above) => {
      const pixels = share * width;
      if (pixels < 1.5) return;
      rows = Math.max(rows, row + 1);
      const element = make("div", {
        class: "node" + (node.group < 0 ? " mixed" : "") + (above ? " above" : ""), role: "treeitem", tabindex: "0",
        "data-bytes": node.size, "aria-label": `${node.name}, ${size(node.size)}`,
        style: { left: left * width + "px", width: Math.max(pixels - 1, 1) + "px", top: row * height + "px", background: node.group >= 0 ? groupCss(node.group) : undefined },
        onclick: () => {
          focus = chain;
          hideTip();
          draw();
        },
        onkeydown: (event) => {
          if (event.key === "Enter") event.currentTarget.click();
        },
        onpointermove: (event) => showTip(event.clientX, event.clientY, make("b", {}, node.name),
          tipRow("size", `${size(node.size)} (${exact(node.size)})`), tipRow("of all", percent(node.size, root.size)),
          ...(chain.length > 2 ? [tipNote(chain.slice(1, -1).map((one) => one.name).join(" › "))] : [])),
        onpointerleave: hideTip,
      }, pixels > 34 ? `${node.name}${pixels > 150 ? "  " + size(node.size) : ""}` : "");
      elements.push(element);
    };
    const below = (node, left, share, row, chain) => {
      let at = left;
      for (const part of node.parts) {
        const own = (share * part.size) / node.size;
        put(part, at, own, row, [...chain, part], false);
        if (own * width >= 1.5) below(part, at, own, row + 1, [...chain, part]);
        at += own;
      }
    };
    focus.forEach((node, row) => put(node, 0, 1, row, focus.slice(0, row + 1), row < focus.length - 1));
    const last = focus[focus.length - 1];
    if (last.size) below(last, 0, 1, focus.length, focus);
    box.style.height = rows * height + "px";
    box.replaceChildren(...elements);
  }
  $("flame-tools").append(make("button", { type: "button", onclick: () => {
    focus = [root];
    draw();
  } }, "all"));
  drawn(draw);
})();
