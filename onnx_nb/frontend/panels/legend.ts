/** What the colours mean: only the categories that this model has. */

import { type Columns, NODE_FOLDED } from "../model/columns.ts";
import { categoryTitle, categoryVariable } from "../render/theme.ts";
import { counted, el } from "./dom.ts";

export function createLegend(root: HTMLElement, columns: Columns): void {
  const perOp = new Uint32Array(columns.opName.length);
  for (let node = 0; node < columns.nodeCount; node++) {
    if ((columns.nodeFlags[node] & NODE_FOLDED) === 0) perOp[columns.nodeOp[node]]++;
  }
  const counts = new Map<number, number>();
  perOp.forEach((count, op) => {
    const category = columns.opCategory[op];
    if (count > 0) counts.set(category, (counts.get(category) ?? 0) + count);
  });
  root.setAttribute("aria-label", "Colours of op categories");
  root.setAttribute("role", "list");
  for (const [category, count] of [...counts].sort(([a], [b]) => a - b)) {
    const name = columns.meta.categories[category] ?? "other";
    root.append(
      el(
        "span",
        { title: counted(count, "node"), attrs: { role: "listitem" } },
        el("i", { style: { background: `var(${categoryVariable(name)}, var(--nb-cat-other))` } }),
        categoryTitle(name),
      ),
    );
  }
  root.hidden = counts.size === 0;
}
