/**
 * The whole graph view: one state, and the panels that show it. Everything that needs a kernel goes through the host;
 * the rest lives here, so the graph works without a kernel too.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import { failure, type GraphHost, type Patch } from "../protocol/host.ts";
import type { DiffStatuses } from "../scene/diffstatus.ts";
import { counted } from "../scene/formatting.ts";
import { defaultOpen, opening } from "../scene/opening.ts";
import { Overlay } from "../scene/overlay.ts";
import type { Direction } from "../scene/scene.ts";
import {
  type Action,
  type Bookmark,
  type Command,
  initialState,
  isCommand,
  reduce,
  type State,
  same,
  selected,
} from "../scene/state.ts";
import { type Announcer, createAnnouncer } from "./announcer.ts";
import { createBanners } from "./banners.ts";
import { el, elide } from "./dom.ts";
import { emptyState } from "./emptystate.ts";
import { createExtractBar } from "./extractbar.ts";
import { createInspector } from "./inspector.ts";
import { createKernelActions, type KernelActions, namesOf } from "./kernelactions.ts";
import { listenKeys } from "./keys.ts";
import { createLegend } from "./legend.ts";
import { describe, followLinks } from "./link.ts";
import { createSelection } from "./selection.ts";
import { createHelp, PAIR_KEYS } from "./shortcuts.ts";
import { createSubmodelPane, type SubmodelPane } from "./submodelpane.ts";
import { createToolbar, type Toolbar } from "./toolbar.ts";
import { Tree } from "./tree.ts";
import { Viewport } from "./viewport.ts";

export interface GraphOptions {
  /** scopes that are open at first; by default enough for 20 to 60 boxes */
  readonly open?: Iterable<number>;
  /** pixels of the part with the picture */
  readonly height?: number;
  readonly direction?: Direction;
  /** what a person left behind when the graph was shown last */
  readonly given?: Patch;
  /** the view is part of another one: it has no bar for extracting below and no submodel pane */
  readonly nested?: boolean;
  /** what differs from the graph that this one is compared with */
  readonly statuses?: DiffStatuses;
  /** milliseconds that a layout may hold up the page before it goes on in slices */
  readonly atOnce?: number;
  /** the camera has moved, by hand or in a glide */
  readonly looked?: () => void;
  /** somebody searched */
  readonly searched?: (text: string) => void;
}

export interface GraphView {
  readonly columns: Columns;
  readonly state: State;
  dispatch(action: Action | Command): void;
  /** Takes over what the kernel changed; does not call `host.changed`. */
  apply(patch: Patch): void;
  /** Opens the scopes around a tensor, node or scope and brings it into view. */
  reveal(name: string, kind?: Target["kind"]): Promise<void>;
  /** Where in the window a pointer would hit this tensor, node or scope; null if it cannot be seen now. */
  locate(name: string, kind?: Target["kind"]): { x: number; y: number } | null;
  /** the part with the picture */
  readonly viewport: Viewport;
  /** Shows a submodel in a pane next to the graph. */
  showSubmodel(columns: Columns): void;
}

/** The handle that tests and tools find at the root element. */
export interface Handle extends GraphView {
  /** the view of the submodel, when one is shown */
  submodel: GraphView | null;
}

/** Pixels of the part with the picture. */
const HEIGHT = 600;

export function createGraphView(
  root: HTMLElement,
  columns: Columns,
  host: GraphHost,
  options: GraphOptions,
  signal: AbortSignal,
): GraphView {
  return new View(root, columns, host, options, signal);
}

/** What follows when a field of the state has changed. */
type Effect = (before: State, action: Action) => void;

class View implements Handle {
  readonly columns: Columns;
  readonly viewport: Viewport;
  submodel: GraphView | null = null;
  readonly #root: HTMLElement;
  readonly #host: GraphHost;
  readonly #options: GraphOptions;
  readonly #announcer: Announcer;
  readonly #kernel: KernelActions;
  readonly #submodelPane: SubmodelPane | null;
  readonly #toolbar: Toolbar;
  /** shows the state in the panels around the picture */
  readonly #update: (state: State) => void;
  #state: State;
  /** the open scopes, while nobody has chosen them */
  #unchosen: ReadonlySet<number> | null;
  /** what is being applied came from the host, which need not hear of it */
  #applying = false;

  constructor(root: HTMLElement, columns: Columns, host: GraphHost, options: GraphOptions, signal: AbortSignal) {
    this.columns = columns;
    this.#root = root;
    this.#host = host;
    this.#options = options;
    this.#state = { ...initialState(options.open ?? defaultOpen(columns), options.direction), live: host.live };
    this.#unchosen = options.open === undefined ? this.#state.open : null;
    const nested = options.nested === true;
    root.classList.add("onnx-nb", "onnx-nb-graph");
    root.dataset.widget = nested ? "submodel" : "graph";
    root.dataset.state = "loading";
    root.style.setProperty("--nb-height", `${options.height ?? HEIGHT}px`);

    this.#announcer = createAnnouncer(columns);
    this.#kernel = createKernelActions(
      columns,
      host,
      {
        state: () => this.#state,
        dispatch: this.dispatch,
        announce: this.#announcer.announce,
        extracted: (submodel) => this.showSubmodel(submodel),
      },
      signal,
    );
    this.viewport = this.#createViewport(signal);
    this.#submodelPane = nested ? null : createSubmodelPane(root, () => this.#submodelClosed(), signal);
    const { toolbar, update } = this.#createPanels(nested, signal);
    this.#toolbar = toolbar;
    this.#update = update;
    Object.assign(root, { onnxNb: this });

    this.viewport.start();
    if (options.given !== undefined) {
      this.apply(options.given);
      this.#state = { ...this.#state, undo: [], redo: [] }; // nobody did that just now
    }
    this.#refresh();
  }

  get state(): State {
    return this.#state;
  }

  // ---------------------------------------------------------------- panels

  #createViewport(signal: AbortSignal): Viewport {
    const { statuses, atOnce, given, looked } = this.#options;
    return new Viewport(
      this.#root,
      this.columns,
      this.#host,
      {
        state: () => this.#state,
        dispatch: this.dispatch,
        announce: this.#announcer.announce,
        rested: (camera) => {
          // a viewpoint means little without the scopes that are open there
          const open = this.#unchosen === this.#state.open ? { open: [...this.#state.open] } : {};
          this.#unchosen = null;
          this.#host.changed({ camera, ...this.viewport.layout, ...open });
        },
        restyled: () => this.#refresh(),
        loaded: (late) => {
          this.#fitOverlay();
          if (late) this.#refresh();
        },
        sized: (fits) => {
          if (this.#unchosen !== this.#state.open || this.#state.selection !== null) return;
          const { open, columnHeight, brief } = opening(this.columns, fits);
          this.#state = { ...this.#state, open };
          this.#unchosen = open;
          this.viewport.rebuild(null, { columnHeight, brief });
        },
        failed: (error) => this.#fail(error),
        looked: () => looked?.(),
        atOnce,
        statuses: statuses ?? null,
        start: { columnHeight: given?.columnHeight ?? 0, brief: given?.brief ?? false },
      },
      signal,
    );
  }

  #createPanels(nested: boolean, signal: AbortSignal): { toolbar: Toolbar; update: (state: State) => void } {
    const { columns, viewport, dispatch } = this;
    const [root, host] = [this.#root, this.#host];
    const { announce } = this.#announcer;
    const aside = (label: string): HTMLElement => el("aside.onnx-nb-inspector", { "aria-label": label, tabindex: 0 });
    const bar = el("header.onnx-nb-bar");
    const bannerRoot = el("div.onnx-nb-strips");
    const drawer = el("aside.onnx-nb-drawer.onnx-nb-hiddenish", { "aria-label": "Tree" });
    const legendRoot = el("div.onnx-nb-legend");
    const [inspectorRoot, selectionRoot] = [aside("Inspector"), aside("Selection")];
    const footer = el("footer.onnx-nb-extract");

    const focus = (): void => viewport.focus();
    const help = createHelp(viewport.element, this.#options.statuses === undefined ? [] : PAIR_KEYS, focus, signal);
    const showTree = (open: boolean): void => {
      drawer.classList.toggle("onnx-nb-hiddenish", !open);
      viewport.resize();
      tree.update(this.#state);
    };
    const actions = { help: help.toggle, drawer: showTree, leaveSearch: focus };
    const toolbar = createToolbar(bar, columns, host, dispatch, actions, signal);
    const banners = createBanners(bannerRoot, columns, dispatch, signal);
    const inspector = createInspector(inspectorRoot, columns, host, dispatch, signal);
    const selection = createSelection(selectionRoot, columns, host, dispatch, announce, signal);
    const tree = new Tree(drawer, columns, dispatch, signal);
    const extractBar = nested ? null : createExtractBar(footer, columns, host, dispatch, this.#kernel.cancel, signal);
    const legend = createLegend(legendRoot, columns, dispatch, signal);
    followLinks(root, dispatch, signal);
    const side = [inspectorRoot, selectionRoot];
    const state = (): State => this.#state;
    listenKeys(root, { columns, host, viewport, toolbar, help, side, state, dispatch, announce }, signal);

    const middle = el("div.onnx-nb-middle", viewport.element, legendRoot);
    const pane = this.#submodelPane?.element ?? null;
    const body = el("div.onnx-nb-body", drawer, middle, pane, inspectorRoot);
    const empty = emptyState(columns);
    if (empty !== null) viewport.element.append(empty);
    root.replaceChildren(bar, bannerRoot, body, ...(nested ? [] : [footer]), this.#announcer.element);

    const update = (state: State): void => {
      const several = state.others.length > 0;
      for (const panel of [toolbar, banners, selection, tree, extractBar]) panel?.update(state);
      if (!several) inspector.update(state);
      const shown = several ? selectionRoot : inspectorRoot;
      if (body.lastElementChild !== shown) body.lastElementChild?.replaceWith(shown);
      legend.update(state, viewport.dark);
    };
    return { toolbar, update };
  }

  #refresh(): void {
    this.#update(this.#state);
    this.#root.setAttribute("aria-busy", String(this.#state.busy !== null));
    this.viewport.update(this.#state);
  }

  #fail(error: unknown): void {
    console.error(error);
    this.#root.dataset.state = "error";
    const message = `The graph could not be drawn: ${failure(error).message}`;
    const advice = "The tree still lists its content. Please report this model.";
    this.#state = { ...this.#state, error: { message, advice } };
    this.#refresh();
  }

  // ---------------------------------------------------------------- state

  readonly dispatch = (action: Action | Command): void => {
    if (isCommand(action)) {
      (this.#commands[action.type] as (command: Command) => void)(action);
      return;
    }
    const before = this.#state;
    if (action.type === "overlay" && (action.overlay === null || action.overlay.data !== before.overlay?.data)) {
      this.#kernel.recolored();
    }
    this.#state = reduce(before, action, this.columns);
    const { announce } = this.#announcer;
    const travels = action.type === "undo" || action.type === "redo";
    if (this.#state === before) {
      if (travels) announce(`Nothing to ${action.type}`);
      return;
    }
    const changed = [...this.#effects].filter(([field]) => this.#state[field] !== before[field]);
    for (const effect of new Set(changed.map(([, effect]) => effect))) effect(before, action);
    if (travels) announce(action.type === "undo" ? "Undone" : "Redone");
    this.#refresh();
  };

  /** What is no change of the state: it moves the camera or talks to the kernel. */
  readonly #commands: { readonly [T in Command["type"]]: (command: Extract<Command, { readonly type: T }>) => void } = {
    fit: ({ targets }) => this.viewport.fit(targets),
    save: ({ what }) => this.viewport.save(what),
    reveal: ({ target, centered }) => this.#bringIntoView(target, centered),
    bookmark: () => this.#bookmark(),
    visit: ({ bookmark }) => this.#visit(bookmark),
    capture: ({ value }) => this.#kernel.capture(value),
    page: ({ statistics }) => this.#kernel.page(statistics),
    color: ({ by }) => this.#kernel.color(by),
    extract: () => {
      if (this.#state.boundary.outputs.length > 0 || !this.#host.live) this.#kernel.extract();
    },
  };

  /** Tells the host, unless it is what changed. */
  #tell(patch: Patch): void {
    if (!this.#applying) this.#host.changed(patch);
  }

  #selectionChanged: Effect = (before) => {
    const { selection, others } = this.#state;
    if (others === before.others && same(selection, before.selection)) return;
    const targets = selected(this.#state);
    this.#announcer.announceSelection(targets);
    this.#root.classList.toggle("onnx-nb-selected", targets.length > 0);
    this.#tell({ selection: targets.map((target) => ({ ...target, name: this.columns.nameOf(target) })) });
  };

  /** By field of the state, in the order in which they take effect. */
  readonly #effects: ReadonlyMap<keyof State, Effect> = new Map<keyof State, Effect>([
    [
      "open",
      (before, action) => {
        this.viewport.rebuild("scope" in action ? action.scope : turned(before.open, this.#state.open));
        this.#tell({ open: [...this.#state.open] });
      },
    ],
    [
      "direction",
      () => {
        this.viewport.reopen();
        this.#tell({ direction: this.#state.direction });
      },
    ],
    ["selection", this.#selectionChanged],
    ["others", this.#selectionChanged],
    [
      "boundary",
      (_before, action) => {
        const { boundary } = this.#state;
        this.#tell(namesOf(this.columns, boundary));
        if (action.type === "input" || action.type === "output") {
          const chosen = boundary[`${action.type}s`].includes(action.value);
          const text = `${chosen ? "an" : "no longer an"} ${action.type}`;
          this.#announcer.announce(`${this.columns.valueNameOf(action.value)} is ${text}`);
        }
        this.#kernel.plan();
      },
    ],
    [
      "overlay",
      (before) => {
        this.#fitOverlay();
        const data = this.#state.overlay?.data;
        if (data !== before.overlay?.data) this.#tell({ overlay: data ?? null });
      },
    ],
    [
      "search",
      () => {
        this.#tell({ search: this.#state.search });
        if (!this.#applying) this.#options.searched?.(this.#state.search);
      },
    ],
    ["color", () => this.#tell({ color: this.#state.color })],
    ["bookmarks", () => this.#tell({ bookmarks: this.#state.bookmarks })],
    [
      "plan",
      () => {
        const { plan } = this.#state;
        if (plan === null) return;
        this.#announcer.announce(plan.message || `The extraction takes ${counted(plan.nodes.length, "node")}`);
      },
    ],
  ]);

  /** The colors of an overlay span the numbers of the boxes that are drawn. */
  #fitOverlay(): void {
    const { overlay } = this.#state;
    const { scene } = this.viewport;
    if (overlay !== null && scene !== null) this.#state = { ...this.#state, overlay: overlay.over(scene.boxes) };
  }

  apply(patch: Patch): void {
    this.#applying = true;
    try {
      this.#applyPatch(patch);
    } finally {
      this.#applying = false;
    }
  }

  #applyPatch({
    inputs,
    outputs,
    selection,
    direction,
    overlay,
    bookmarks,
    search,
    color,
    open,
    ...view
  }: Patch): void {
    const { dispatch } = this;
    const { boundary } = this.#state;
    const tensors = (names: readonly string[]): number[] =>
      names.flatMap((name) => this.columns.find(name, "tensor")?.id ?? []);
    if (inputs !== undefined || outputs !== undefined) {
      const chosen = {
        inputs: inputs === undefined ? boundary.inputs : tensors(inputs),
        outputs: outputs === undefined ? boundary.outputs : tensors(outputs),
      };
      dispatch({ type: "boundary", boundary: chosen });
    }
    if (selection !== undefined) {
      dispatch({ type: "selectAll", targets: selection.map(({ kind, id }) => ({ kind, id })) });
    }
    if (direction !== undefined && direction !== this.#state.direction) dispatch({ type: "direction", direction });
    if (overlay !== undefined) dispatch({ type: "overlay", overlay: overlay === null ? null : new Overlay(overlay) });
    if (bookmarks !== undefined) dispatch({ type: "bookmarks", bookmarks });
    if (search !== undefined && search !== this.#state.search) this.#toolbar.search(search);
    if (color != null && color !== this.#state.color) this.#kernel.color(color, true);
    if (color === null && this.#state.color !== null) dispatch({ type: "overlay", overlay: null });
    if (open !== undefined) {
      const wanted = new Set(open);
      const now = this.#state.open;
      if (wanted.size !== now.size || open.some((scope) => !now.has(scope))) {
        dispatch({ type: "openOnly", scopes: wanted });
      }
    }
    const { layout } = this.viewport;
    const { columnHeight = layout.columnHeight, brief = layout.brief, camera } = view;
    if (columnHeight !== layout.columnHeight || brief !== layout.brief) {
      this.viewport.rebuild(null, { columnHeight, brief });
    }
    if (camera !== undefined) this.viewport.goTo(camera, false);
  }

  // ---------------------------------------------------------------- places

  #bookmark(): void {
    const { selection: target, open, bookmarks } = this.#state;
    const camera = this.viewport.viewpoint;
    if (camera === null) return;
    const taken = new Set(bookmarks.map(({ name }) => name));
    const title = target === null ? "View" : elide(describe(this.columns, target).title || "View", 48);
    let name = title;
    for (let at = 2; taken.has(name); at++) name = `${title} ${at}`;
    this.dispatch({ type: "bookmarks", bookmarks: [...bookmarks, { name, target, open, camera }] });
    this.#announcer.announce(`Bookmarked as ${name}`);
  }

  #visit({ target, open, camera }: Bookmark): void {
    this.dispatch({ type: "openOnly", scopes: open });
    this.dispatch({ type: "select", target });
    this.viewport.goTo(camera, true);
  }

  #bringIntoView(target: Target, centered = false): void {
    const { columns } = this;
    const shown = shownAs(columns, target);
    const closed = columns.ancestry(columns.scopeOf(shown)).filter((scope) => !this.#state.open.has(scope));
    if (closed.length > 0) this.dispatch({ type: "openAll", scopes: closed });
    this.viewport.show(shown, centered);
  }

  async reveal(name: string, kind?: Target["kind"]): Promise<void> {
    const target = this.columns.find(name, kind);
    if (target == null) throw new Error(`there is no tensor, node or scope '${elide(name, 200)}' in this graph`);
    this.#bringIntoView(target);
    while (this.viewport.busy || this.viewport.gliding) await new Promise((resolve) => setTimeout(resolve, 10));
  }

  locate(name: string, kind?: Target["kind"]): { x: number; y: number } | null {
    const target = this.columns.find(name, kind);
    return target == null ? null : this.viewport.locate(target);
  }

  showSubmodel(submodel: Columns): void {
    this.#submodelPane?.show(submodel, pythonCall(this.columns, this.#state.boundary), (inner, closing) => {
      this.submodel = createGraphView(inner, submodel, SUBMODEL_HOST, { nested: true }, closing);
    });
  }

  #submodelClosed(): void {
    this.submodel = null;
    this.viewport.focus();
  }
}

/** An extraction as one would write it in a cell. */
function pythonCall(columns: Columns, boundary: State["boundary"]): string {
  const { inputs, outputs } = namesOf(columns, boundary);
  const list = (names: readonly string[]): string => `[${names.map((name) => JSON.stringify(name)).join(", ")}]`;
  return `submodel = onnx_nb.extract(g.model, ${list(inputs)}, ${list(outputs)})`;
}

/** The only scope that was opened or closed, null if there are more. */
function turned(before: ReadonlySet<number>, after: ReadonlySet<number>): number | null {
  if (Math.abs(before.size - after.size) !== 1) return null;
  const [fewer, more] = before.size < after.size ? [before, after] : [after, before];
  const found = [...more].filter((scope) => !fewer.has(scope));
  return found.length === 1 ? found[0] : null;
}

/** Returns what is drawn of a target: a weight has no place of its own on the canvas, but is inside the node that reads it. */
export function shownAs(columns: Columns, target: Target): Target {
  if (target.kind === "node" && columns.isFolded(target.id)) {
    const [made] = columns.outputsOf(target.id);
    return made === undefined || made < 0 ? target : shownAs(columns, { kind: "tensor", id: made });
  }
  if (target.kind !== "tensor" || !columns.isConstant(target.id)) return target;
  const [reader] = columns.consumersOf(target.id);
  if (reader === undefined || columns.isFolded(reader)) return target;
  return { kind: "node", id: reader };
}

/** The host of a submodel: nothing is extracted from it here. */
const SUBMODEL_HOST: GraphHost = {
  live: false,
  reason: "This is a submodel; in the kernel it is g.submodel.",
  plan: () => Promise.reject(new Error("a submodel is not planned")),
  extract: () => Promise.reject(new Error("a submodel is not extracted from")),
  inspect: () => Promise.reject(new Error("a submodel has no inspector in the kernel")),
  changed: () => undefined,
};
