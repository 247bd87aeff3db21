/** Mounts the graph of a model: with its kernel in a widget, with embedded data on a page. */

import { GraphView } from "../panels/graphview.ts";
import { createSummary, type ModelPart, type SummaryData } from "../panels/summary.ts";
import { Columns } from "../protocol/columns.ts";
import type { Direction, GraphHost, NamedTarget, OverlayData, Patch } from "../protocol/host.ts";
import { bakedOf, graphHost, overlayOf, pageHost } from "../protocol/kernel.ts";
import { bindTrait, type Parts } from "../protocol/model.ts";
import { scopesAt, type TargetReference, targetOf, type ViewState, viewFrom, viewTo } from "../protocol/viewstate.ts";
import type { OverlayReply } from "../protocol/wire.ts";
import { sameTarget } from "../scene/state.ts";
import { announceChoice, hearSummary, markDrawn, type Page, roomBelow, rootIn, sharing, showInGraph } from "./mount.ts";

/** The trait `_overlay`. */
type OverlayMessage = OverlayReply & { readonly nodes: DataView; readonly scopes: DataView };

/** Number of views of this page that are reporting a change; a view that takes it may report one in turn. */
let reportingCount = 0;

/** Columns on this page by their digest: shown in views, and still being loaded. */
const columnsOnPage = new Map<string, WeakRef<Columns>>();
const coming = new Map<string, Promise<Columns>>();

/** Loads columns, unless another view on this page shows the same. */
async function columnsOf(part: Parts, digest: string): Promise<Columns> {
  const cached = columnsOnPage.get(digest)?.deref() ?? coming.get(digest);
  // a request of a view that was closed in the meantime failed: repeat it
  const cachedColumns = cached instanceof Promise ? await cached.catch(() => undefined) : cached;
  if (cachedColumns !== undefined) return cachedColumns;
  const loading = part("columns").then((pack) => new Columns(pack));
  if (digest === "") return loading; // saved by an older version
  coming.set(digest, loading);
  try {
    const columns = await loading;
    for (const [key, reference] of columnsOnPage) if (reference.deref() === undefined) columnsOnPage.delete(key);
    columnsOnPage.set(digest, new WeakRef(columns));
    return columns;
  } finally {
    coming.delete(digest);
  }
}

export const graphWidget = sharing(
  (part, model) => columnsOf(part, String(model.get("_digest") ?? "")),
  (columns, model, channel, root, signal) => {
    const read = <T>(name: string): T => model.get(name) as T;
    const selectionOf = (references: readonly TargetReference[]): NamedTarget[] =>
      references.flatMap((reference) => {
        const target = targetOf(columns, reference);
        return target === null ? [] : [{ ...target, name: reference.name }];
      });
    const overlay = (numbers: OverlayMessage | null): OverlayData | null =>
      numbers && overlayOf({ value: numbers, buffers: [numbers.nodes, numbers.scopes] });

    const host: GraphHost = Object.assign(graphHost(channel), {
      changed(patch: Patch): void {
        reportingCount++;
        if (patch.inputs !== undefined) putInputs(patch.inputs);
        if (patch.outputs !== undefined) putOutputs(patch.outputs);
        if (patch.selection !== undefined) putSelection([...patch.selection]);
        if (patch.overlay === null) putOverlay(null);
        if (patch.direction !== undefined) putDirection(patch.direction);
        const changed = viewFrom(columns, patch);
        if (Object.keys(changed).length > 0) putView({ ...read<ViewState>("view"), ...changed });
        reportingCount--;
      },
    });
    const state = read<ViewState>("view");
    const view = new GraphView(
      root,
      columns,
      host,
      {
        ...(typeof read("height") === "number" && { height: `${read<number>("height")}px` }),
        direction: read("direction"),
        ...(state.open !== undefined && { open: scopesAt(columns, state.open) }),
        initialView: {
          inputs: read<string[]>("inputs"),
          outputs: read<string[]>("outputs"),
          overlay: overlay(read("_overlay")),
          selection: selectionOf(read("selection")),
          ...viewTo(columns, state),
        },
      },
      signal,
    );
    channel.watch((_, live) => view.dispatch({ type: "live", live }), signal);
    hearSummary(root, view, String(read("_own")), signal);
    const putInputs = bindTrait<readonly string[]>(model, "inputs", (inputs) => view.apply({ inputs }), signal);
    const putOutputs = bindTrait<readonly string[]>(model, "outputs", (outputs) => view.apply({ outputs }), signal);
    const putView = bindTrait<ViewState>(model, "view", (to) => view.apply(viewTo(columns, to)), signal);
    const putDirection = bindTrait<Direction>(model, "direction", (direction) => view.apply({ direction }), signal);
    const color = (numbers: OverlayMessage | null): void => view.apply({ overlay: overlay(numbers) });
    const putOverlay = bindTrait<OverlayMessage | null>(model, "_overlay", color, signal);
    const select = (references: readonly TargetReference[]): void => {
      const before = view.state.selection;
      view.apply({ selection: selectionOf(references) });
      const target = view.state.selection;
      if (target === null || sameTarget(target, before)) return;
      view.dispatch({ type: "reveal", target }); // selected elsewhere: in a cell, a table, another view
      if (reportingCount > 0) view.viewport.follow();
    };
    const putSelection = bindTrait<TargetReference[]>(model, "selection", select, signal);
  },
);

/** A page with the summary of a model above its graph. */
export const graphPage: Page = async (root, about, part, signal) => {
  const height = `${roomBelow(root, 178, 400)}px`;
  const summaryRoot = rootIn(root.parentElement as HTMLElement, "summary");
  root.before(summaryRoot);
  const onShow = (part: ModelPart): void => showInGraph("", part);
  createSummary(summaryRoot, about as SummaryData, { expanded: false, onShow }, signal);
  markDrawn(summaryRoot, signal);
  const pageData = bakedOf(await part("baked"));
  const overlays = pageData.initialOverlay == null ? {} : { initialView: { overlay: pageData.initialOverlay } };
  const columns = new Columns(await part("columns"));
  const host = Object.assign(pageHost(pageData), {
    changed({ selection }: Patch): void {
      if (selection?.length === 1 && selection[0].kind === "tensor") announceChoice(root, selection[0].name);
    },
  });
  const view = new GraphView(root, columns, host, { height, ...overlays }, signal);
  hearSummary(root, view, "", signal);
  return {
    choose(names) {
      const target = names.map((name) => columns.find(name, "tensor")).find((tensor) => tensor !== undefined);
      if (target === undefined) return;
      view.apply({ selection: [{ ...target, name: columns.nameOf(target) }] });
      view.dispatch({ type: "reveal", target });
    },
  };
};
