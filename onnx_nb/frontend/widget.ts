/**
 * The entry of the bundle. As an anywidget module it shows the view that `_kind` names and answers for it over the
 * channel; in a page that `drawing/html.py` wrote it mounts itself on the data in that page, with no kernel at all.
 */

import {
  bytesIn,
  bytesOf,
  fail,
  hearKernel,
  hidePicture,
  type Mount,
  mount,
  rootIn,
  style,
  type WidgetModel,
} from "./mount.ts";
import { alone } from "./panels/alone.ts";
import { createGraphView, type GraphOptions, type GraphView } from "./panels/graphview.ts";
import { createSummary, type Shapes, type SummaryData } from "./panels/summary.ts";
import { bakedOf } from "./protocol/baked.ts";
import { Channel, type Progress } from "./protocol/channel.ts";
import { unpack } from "./protocol/codec.ts";
import { Columns, type Packed, type Target } from "./protocol/columns.ts";
import type {
  GraphHost,
  InspectReply,
  PageReply,
  Patch,
  Selected,
  SelectionReply,
  StatisticsReply,
} from "./protocol/host.ts";
import { colorsOf, namesIn, overlayOf, pageHost, SILENCE_MS } from "./protocol/kernel.ts";
import { watchTheme } from "./render/theme.ts";
import type { OverlayData } from "./scene/overlay.ts";
import type { Direction } from "./scene/scene.ts";
import { type Plan, type Standing, same } from "./scene/state.ts";
import { css } from "./style/graph.ts";

/** The kernel calls them tensors and scopes. */

/** One graph widget: columns and channel are shared by all its views. */
class GraphWidget {
  readonly #model: WidgetModel;
  readonly #channel: Channel;
  readonly columns: Promise<Columns>;
  #live = true;
  #ping: Promise<unknown> | null = null;

  constructor(model: WidgetModel, signal: AbortSignal) {
    this.#model = model;
    this.#channel = new Channel(model, signal);
    this.columns = this.#load();
    this.columns.catch(() => undefined); // each view reports it
  }

  async #load(): Promise<Columns> {
    const saved = this.#model.get("_columns");
    if (saved instanceof DataView) return new Columns(await unpack(bytesOf(saved)));
    const { buffers } = await this.#channel.request("columns", {});
    const [packed] = buffers;
    if (packed === undefined) throw new Error("the kernel sent no graph");
    return new Columns(await unpack(bytesOf(packed)));
  }

  /** Tells a view whether a kernel answers: not at once, for a kernel may be busy with a cell. */
  #watchKernel(view: GraphView, signal: AbortSignal): void {
    this.#ping ??= this.#channel.request("ping", {});
    const silent = setTimeout(() => {
      this.#live = false;
      view.dispatch({ type: "live", live: false });
    }, SILENCE_MS);
    signal.addEventListener("abort", () => clearTimeout(silent));
    this.#ping.then(
      () => {
        clearTimeout(silent);
        this.#live = true;
        if (!signal.aborted) view.dispatch({ type: "live", live: true });
      },
      () => undefined,
    );
  }

  /** @param tell sets what changed; meanwhile the view that changed it need not hear of it */
  host(columns: Columns, tell: (set: () => void) => void): GraphHost {
    const model = this.#model;
    const channel = this.#channel;
    const isLive = (): boolean => this.#live;
    return {
      get live(): boolean {
        return isLive();
      },
      reason: "The kernel does not answer: it is busy, or this notebook was opened without one.",
      cancellable: true,
      async plan(inputs, outputs, signal) {
        const { value, buffers } = await channel.request("plan", { inputs, outputs }, { signal });
        const [nodes] = buffers;
        if (nodes === undefined) throw new Error("the kernel's plan names no nodes");
        // copied: the buffer of a message need not be aligned
        return { ...(value as Omit<Plan, "nodes">), nodes: new Int32Array(bytesOf(nodes).slice().buffer) };
      },
      async extract(inputs, outputs, signal) {
        const { value, buffers } = await channel.request("extract", { inputs, outputs }, { signal });
        const [packed] = buffers;
        if (packed === undefined) throw new Error("the kernel sent no submodel");
        return { ...(value as { message: string }), columns: bytesOf(packed) };
      },
      async inspect(target, _name, signal) {
        const { value } = await channel.request("inspect", { kind: target.kind, id: target.id }, { signal });
        return value as InspectReply;
      },
      async figures(target, signal) {
        const { value } = await channel.request("figures", { kind: target.kind, id: target.id }, { signal });
        return value as readonly (readonly [string, string])[];
      },
      async select(targets, signal) {
        const ids = (kind: Target["kind"]): number[] =>
          targets.filter((each) => each.kind === kind).map(({ id }) => id);
        const { value } = await channel.request("select", { nodes: ids("node"), groups: ids("scope") }, { signal });
        return value as SelectionReply;
      },
      changed(patch) {
        tell(() => {
          if (patch.inputs !== undefined) model.set("inputs", patch.inputs);
          if (patch.outputs !== undefined) model.set("outputs", patch.outputs);
          if (patch.selection !== undefined) {
            model.set("selection", [...patch.selection]);
          }
          if (patch.overlay === null) model.set("_overlay", null);
          if (patch.direction !== undefined) model.set("direction", patch.direction);
          const view = viewFrom(columns, patch);
          if (Object.keys(view).length > 0) model.set("view", { ...viewIn(model), ...view });
        });
        model.save_changes();
      },
      values: {
        async capture(value, progress, signal) {
          const told = ({ fraction, message }: Progress): void => progress(fraction, message);
          const reply = await channel.request("capture", { value }, { signal, progress: told });
          return String((reply.value as { message: string }).message);
        },
        async statistics(value, progress, signal) {
          const told = ({ fraction, message }: Progress): void => progress(fraction, message);
          const reply = await channel.request("statistics", { value }, { signal, progress: told });
          return reply.value as StatisticsReply | null;
        },
        async page(value, place, signal) {
          const reply = await channel.request("values", { value, ...place }, { signal });
          const [pixels] = reply.buffers;
          const page = reply.value as PageReply;
          return pixels === undefined ? page : { ...page, pixels: bytesOf(pixels) };
        },
        async npy(value, signal) {
          const { buffers } = await channel.request("npy", { value }, { signal });
          if (buffers[0] === undefined) throw new Error("the kernel sent no array");
          return bytesOf(buffers[0]);
        },
      },
      async page(statistics, progress, signal) {
        const told = ({ fraction, message }: Progress): void => progress(fraction, message);
        const { buffers } = await channel.request("page", { statistics }, { signal, progress: told });
        if (buffers[0] === undefined) throw new Error("the kernel sent no page");
        return bytesOf(buffers[0]);
      },
      async overlay(name, signal) {
        const { value, buffers } = await channel.request("overlay", { name }, { signal });
        return overlayOf(value as Record<string, unknown>, buffers[0], buffers[1]);
      },
      picture(svg) {
        if (isLive()) channel.request("picture", { svg }).catch(() => undefined); // the live graph is there all the same
      },
    };
  }

  async render(root: HTMLElement, signal: AbortSignal): Promise<void> {
    const model = this.#model;
    const columns = await this.columns;
    if (signal.aborted) return;
    const paths = viewIn(model).open;
    const options: GraphOptions = {
      alone,
      height: Number(model.get("height")),
      direction: directionIn(model),
      ...(paths === undefined ? {} : { open: scopesAtPaths(columns, paths) }),
      given: {
        inputs: namesIn(model, "inputs"),
        outputs: namesIn(model, "outputs"),
        overlay: overlayIn(model),
        selection: selectionIn(model, columns),
        ...viewTo(columns, model),
      },
    };
    let telling = false;
    const tell = (set: () => void): void => {
      telling = true;
      try {
        set();
      } finally {
        telling = false;
      }
    };
    const view = createGraphView(root, columns, this.host(columns, tell), options, signal);
    const follow = (trait: string, patch: () => Patch): void => {
      const changed = (): void => {
        if (!telling) view.apply(patch());
      };
      model.on(`change:${trait}`, changed);
      signal.addEventListener("abort", () => model.off(`change:${trait}`, changed));
    };
    const boundary = (): Patch => ({ inputs: namesIn(model, "inputs"), outputs: namesIn(model, "outputs") });
    follow("inputs", boundary);
    follow("outputs", boundary);
    const select = (): void => {
      if (telling) return;
      const before = view.state.selection;
      view.apply({ selection: selectionIn(model, columns) });
      const target = view.state.selection;
      // chosen elsewhere: in a cell, a table, another view
      if (target !== null && !same(target, before)) view.dispatch({ type: "reveal", target });
    };
    model.on("change:selection", select);
    signal.addEventListener("abort", () => model.off("change:selection", select));
    follow("view", () => viewTo(columns, model));
    follow("_overlay", () => ({ overlay: overlayIn(model) }));
    follow("direction", () => ({ direction: directionIn(model) }));
    this.#watchKernel(view, signal);
  }
}

function directionIn(model: WidgetModel): Direction {
  return model.get("direction") === "right" ? "right" : "down";
}

function overlayIn(model: WidgetModel): OverlayData | null {
  const given = model.get("_overlay") as Record<string, unknown> | null | undefined;
  if (given == null) return null;
  return overlayOf(given, given.nodes as DataView, given.groups as DataView);
}

function selectionIn(model: WidgetModel, columns: Columns): Selected[] {
  const given = (model.get("selection") as { kind: Target["kind"]; name: string; id?: number }[] | undefined) ?? [];
  return given.flatMap((each) => {
    const target = targetOf(columns, each);
    return target === null ? [] : [{ ...target, name: each.name }];
  });
}

/** The trait `view`: scopes by their paths, which mean the same in a notebook that is opened again. */
interface View {
  readonly open?: readonly string[];
  readonly camera?: Standing;
  readonly column_height?: number;
  readonly brief?: boolean;
  readonly search?: string;
  readonly color?: string | null;
  readonly bookmarks?: readonly {
    readonly name: string;
    readonly selection?: { readonly kind: Target["kind"]; readonly name: string; readonly id?: number } | null;
    readonly open: readonly string[];
    readonly camera: Standing;
  }[];
}

function viewIn(model: WidgetModel): View {
  return (model.get("view") as View | undefined) ?? {};
}

function viewFrom(columns: Columns, { open, camera, columnHeight, brief, search, color, bookmarks }: Patch): View {
  return {
    ...(open !== undefined && { open: pathsOf(columns, open) }),
    ...(camera !== undefined && { camera }),
    ...(columnHeight !== undefined && { column_height: columnHeight }),
    ...(brief !== undefined && { brief }),
    ...(search !== undefined && { search }),
    ...(color !== undefined && { color }),
    ...(bookmarks !== undefined && {
      bookmarks: bookmarks.map(({ name, target, open, camera }) => ({
        name,
        selection: target && { kind: target.kind, name: columns.nameOf(target), id: target.id },
        open: pathsOf(columns, open),
        camera,
      })),
    }),
  };
}

function viewTo(columns: Columns, model: WidgetModel): Patch {
  const { open, camera, column_height: columnHeight, brief, search, color, bookmarks } = viewIn(model);
  return {
    ...(open !== undefined && { open: scopesAtPaths(columns, open) }),
    ...(camera !== undefined && { camera }),
    ...(columnHeight !== undefined && { columnHeight }),
    ...(brief !== undefined && { brief }),
    ...(search !== undefined && { search }),
    ...(color !== undefined && { color }),
    ...(bookmarks !== undefined && {
      bookmarks: bookmarks.map(({ name, selection, open, camera }) => ({
        name,
        target: targetOf(columns, selection ?? null),
        open: new Set(scopesAtPaths(columns, open)),
        camera,
      })),
    }),
  };
}

function targetOf(
  columns: Columns,
  given: { readonly kind: Target["kind"]; readonly name: string; readonly id?: number } | null,
): Target | null {
  if (given === null) return null;
  const kind = given.kind;
  const id = given.id ?? columns.find(given.name, kind)?.id;
  return kind === undefined || id === undefined ? null : { kind, id };
}

/** A scope's path names it; the groups that only fold others have none of their own and are told apart by number. */
function pathOf(columns: Columns, group: number): string {
  return `${columns.nameOf({ kind: "scope", id: group })}#${group}`;
}

/** Of more than so many open scopes those that are closed are named, if they are fewer. */
const MANY = 200;

/** The paths of open groups; where nearly all of many are open "*" and then the closed ones, as "-path". */
function pathsOf(columns: Columns, groups: Iterable<number>): string[] {
  const open = new Set(groups);
  const closed: number[] = [];
  for (let group = 1; group < columns.scopeCount; group++) if (!open.has(group)) closed.push(group);
  return open.size <= MANY || closed.length >= open.size
    ? Array.from(open, (group) => pathOf(columns, group))
    : ["*", ...closed.map((group) => `-${pathOf(columns, group)}`)];
}

function scopesAtPaths(columns: Columns, paths: readonly string[]): number[] {
  const named = (path: string): number[] => {
    const [name, number] = [path.replace(/#\d+$/, ""), Number(/#(\d+)$/.exec(path)?.[1] ?? Number.NaN)];
    const given: Target = { kind: "scope", id: number };
    if (number < columns.scopeCount && columns.nameOf(given) === name) return [number];
    const found = columns.find(name, "scope");
    return found === undefined ? [] : [found.id];
  };
  if (paths[0] !== "*") return paths.flatMap(named);
  const closed = new Set(paths.slice(1).flatMap((path) => named(path.replace(/^-/, ""))));
  return Array.from({ length: columns.scopeCount }, (_, group) => group).filter((group) => !closed.has(group));
}

function renderSummary(root: HTMLElement, model: WidgetModel, signal: AbortSignal): void {
  const fill = (): void => {
    const held = root.contains(document.activeElement)
      ? (document.activeElement?.getAttribute("aria-label") ?? "")
      : null;
    const turned = (expanded: boolean): void => {
      model.set("expanded", expanded);
      model.save_changes();
    };
    const resized = (shapes: Shapes): void => {
      model.set("shapes", shapes);
      model.save_changes();
    };
    const shapes = (model.get("shapes") ?? {}) as Shapes;
    const problem = String(model.get("_problem") ?? "");
    const options = { expanded: model.get("expanded") === true, turned, shapes, resized, problem };
    createSummary(root, model.get("_summary") as SummaryData, options, signal);
    if (held === null) return;
    const same = [...root.querySelectorAll<HTMLElement>("[aria-label]")].find(
      (each) => each.getAttribute("aria-label") === held,
    );
    (same ?? root.querySelector<HTMLElement>(".onnx-nb-details"))?.focus({ preventScroll: true });
  };
  fill();
  // of a large model the kernel counts what a run costs when the tables are opened
  for (const trait of ["_summary", "_problem"] as const) {
    model.on(`change:${trait}`, fill);
    signal.addEventListener("abort", () => model.off(`change:${trait}`, fill));
  }
  watchTheme(root, () => undefined, signal);
  root.dataset.state = "drawn";
}

export default () => {
  let shared: GraphWidget | undefined;
  const closing = new AbortController();
  const widgetOf = (model: WidgetModel): GraphWidget => {
    shared ??= new GraphWidget(model, closing.signal);
    return shared;
  };
  return {
    initialize({ model }: { model: WidgetModel }): () => void {
      hearKernel(model).catch((error) => console.error(error)); // before anything is asked
      if (model.get("_kind") !== "summary") widgetOf(model);
      return () => closing.abort();
    },
    render({ model, el }: Mount): () => void {
      return mount({ model, el }, css, (root, signal) => {
        if (model.get("_kind") === "summary") return renderSummary(root, model, signal);
        hidePicture(el, model);
        return widgetOf(model).render(root, signal);
      });
    },
  };
};

/** An exported page has its data in two elements; a notebook has neither. */
async function mountPage(summary: HTMLElement, columns: HTMLElement, baked: HTMLElement | null): Promise<void> {
  const { signal } = new AbortController();
  style(document.body, css);
  const summaryRoot = rootIn(document.body, "summary");
  const graphRoot = rootIn(document.body, "graph");
  try {
    createSummary(summaryRoot, JSON.parse(summary.textContent ?? "") as SummaryData, { expanded: false }, signal);
    watchTheme(summaryRoot, () => undefined, signal);
    summaryRoot.dataset.state = "drawn";
    const read = (element: HTMLElement): Promise<Packed> => unpack(bytesIn(element));
    const height = Math.max(400, window.innerHeight - 190);
    const known = baked === null || baked.textContent === "" ? null : bakedOf(await read(baked));
    const host: GraphHost = { ...pageHost, ...(known !== null && { baked: known, ...colorsOf(known) }) };
    const given = known?.shown == null ? {} : { given: { overlay: known.shown } };
    createGraphView(graphRoot, new Columns(await read(columns)), host, { height, alone, ...given }, signal);
  } catch (error) {
    fail(graphRoot, error);
  }
}

const summary = document.getElementById("onnx-nb-summary");
const columns = document.getElementById("onnx-nb-columns");
const baked = document.getElementById("onnx-nb-baked");
if (summary !== null && columns !== null) void mountPage(summary, columns, baked);
