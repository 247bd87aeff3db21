/** What differs between two models: both graphs side by side, in step, and the list of differences. */

import type { Columns, Target } from "../protocol/columns.ts";
import { type Change, type PairData, type SideOf, wordsOf } from "../protocol/diff.ts";
import { DiffStatuses } from "../scene/diffstatus.ts";
import { BOX } from "../scene/scene.ts";
import { other } from "./alignment.ts";
import { createDifferenceList } from "./differencelist.ts";
import { el, elide, on } from "./dom.ts";
import { createGraphPair, type GraphPair, type GraphPairHost, ROLES } from "./graphpair.ts";

export type DiffHost = Omit<GraphPairHost, "compared">;

export interface DiffOptions {
  /** pixels of each picture */
  readonly height: number;
  readonly synced: boolean;
  readonly names: readonly [string, string];
}

/** The handle that tests and tools find at the root element. */
export interface DiffView extends GraphPair {
  readonly data: PairData;
  /** the change that was gone to last, −1 before */
  readonly at: number;
}

export function createDiff(
  root: HTMLElement,
  columns: readonly [Columns, Columns],
  data: PairData,
  host: DiffHost,
  options: DiffOptions,
  signal: AbortSignal,
): DiffView {
  const live = el("div.onnx-nb-voice", { "aria-live": "polite" });
  const goTo = (change: Change, text: string): void => {
    const [left, right] = [targetOf(change, 0), targetOf(change, 1)];
    const side: SideOf = left === null && right !== null ? 1 : 0;
    const target = left ?? right;
    pair.lead(side);
    pair.views[side].dispatch({ type: "select", target });
    if (target !== null) pair.views[side].dispatch({ type: "reveal", target, centered: true });
    live.textContent = elide(text, 300);
  };
  const list = createDifferenceList(data, goTo, signal);
  const compared = (side: SideOf, target: Target): [string, string][] => comparedWith(columns, data, side, target);
  const pair = createGraphPair(
    root,
    columns,
    data,
    { ...host, compared },
    { ...options, titles: ROLES, tools: list.tools, list: list.element },
    signal,
  );
  root.append(live);
  // before a graph takes the key
  on(root, "keydown", { signal, capture: true }, (event) => {
    const from = event.target instanceof HTMLElement ? event.target : null;
    if (event.ctrlKey || event.metaKey || event.altKey || from === null) return;
    if (from.matches("input, textarea, select")) return;
    const by = ({ n: 1, p: -1 } as const)[event.key.toLowerCase()];
    if (by !== undefined || !from.closest(".onnx-nb-pane")) event.stopPropagation(); // the notebook would take it
    if (by === undefined) return;
    event.preventDefault();
    list.step(by);
  });

  const handle: DiffView = {
    ...pair,
    data,
    get at() {
      return list.at;
    },
    get synced() {
      return pair.synced;
    },
  };
  Object.assign(root, { onnxNb: handle });
  return handle;
}

function targetOf({ nodes, tensors }: Change, side: SideOf): Target | null {
  if (nodes[side] >= 0) return { kind: "node", id: nodes[side] };
  return tensors[side] >= 0 ? { kind: "tensor", id: tensors[side] } : null;
}

/** Returns what the inspector shows about a target and the other graph. */
function comparedWith(
  columns: readonly [Columns, Columns],
  data: PairData,
  side: SideOf,
  target: Target,
): [string, string][] {
  const there = other(side);
  const found = data.counterpart(side, target);
  const name = found === null ? "no counterpart" : columns[there].nameOf(found) || "(unnamed)";
  const rows: [string, string][] = [[`in ${ROLES[there]}`, name]];
  if (target.kind === "scope") {
    const { long } = new DiffStatuses(data.statuses(side)).say(BOX.SCOPE, target.id);
    rows.push(["differs", long || "no"]);
    return rows;
  }
  const changes = data.about(side, target, columns[side]);
  for (const change of changes) {
    const inside = target.kind === "node" && change.nodes[side] !== target.id;
    const label = inside ? `${change.kind === "weight" ? "weight" : "constant"} ${change.name}` : "differs";
    rows.push([label, wordsOf(change)]);
  }
  const matched = changes.find(({ how }) => how !== "");
  if (matched !== undefined) rows.push(["matched by", matched.how]);
  return rows;
}
