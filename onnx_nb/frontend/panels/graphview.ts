/**
 * The whole graph view: one state, and the panels that show it. Everything that needs a kernel goes through the host;
 * the rest is here, so the graph also works without a kernel.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import { type Bookmark, type Direction, failure, type GraphHost, type Patch } from "../protocol/host.ts";
import { pageHost } from "../protocol/kernel.ts";
import type { EditRequest } from "../protocol/wire.ts";
import { DiffStatuses } from "../scene/diffstatus.ts";
import { countOf } from "../scene/formatting.ts";
import { defaultOpen, type Fits, type Opening, opening } from "../scene/opening.ts";
import { Overlay } from "../scene/overlay.ts";
import {
  type Action,
  type Command,
  initialState,
  reduce,
  type State,
  type Submodel,
  sameTarget,
  selectionOf,
} from "../scene/state.ts";
import { createAnnouncer, el, elide, on, onAbort } from "../ui/dom.ts";
import { type Entry, openMenu, type Place } from "../ui/menu.ts";
import { drawnAs, stack, stillOf } from "../ui/still.ts";
import { createBanners, emptyState } from "./banners.ts";
import { menuOf, shapeEdit } from "./edits.ts";
import { createExtractBar } from "./extractbar.ts";
import { createInspector } from "./inspector.ts";
import { createKernelActions, namesOf } from "./kernelactions.ts";
import { createHelp, listenKeys, PAIR_KEYS } from "./keys.ts";
import { createLegend } from "./legend.ts";
import { createLenses } from "./lenses.ts";
import { createSelection } from "./selection.ts";
import { paneParts, showVerdicts } from "./submodelpane.ts";
import { createToolbar, type Toolbar } from "./toolbar.ts";
import { Tree } from "./tree.ts";
import { countedByKind, describe, factsOf, followLinks, type ViewContext } from "./viewcontext.ts";
import { Viewport } from "./viewport.ts";

export interface GraphOptions {
  /** scopes that are open at first; by default enough for 20 to 60 boxes */
  readonly open?: Iterable<number>;
  /** chooses them once the size of the view is known */
  readonly opening?: (fits: Fits, where: string) => Opening;
  /** CSS height of the part with the picture; by default what fits the window */
  readonly height?: string;
  /** where the bar goes, if not above the picture; a `data-widget` */
  readonly bar?: HTMLElement;
  readonly direction?: Direction;
  /** the view as a person left it */
  readonly initialView?: Patch;
  /** the view is part of another one: it has no bar for extraction and no submodel pane */
  readonly isNested?: boolean;
  /** differences from the graph that this one is compared with */
  readonly statuses?: DiffStatuses;
  /** the two graphs move in step, so that both have one layout */
  readonly isPaired?: boolean;
  /** milliseconds that a layout may block the page before it continues in slices */
  readonly maxBlockingMs?: number;
  /** the camera has moved, by hand or in a glide */
  readonly onLook?: () => void;
  /** a person searched */
  readonly onSearch?: (text: string) => void;
  /** a person edits the edited model; it is the view of the original that has a kernel */
  readonly onEdit?: (request: EditRequest) => void;
}

/** Pixels of a notebook's window that the bars, the summary of the model and a short cell take. */
const MARGIN = 356;

/** Handle for tests and tools, `onnxNb` at the root element. */
export class GraphView {
  readonly columns: Columns;
  /** the part with the picture */
  readonly viewport: Viewport;
  /** the view of the submodel, when one is shown */
  submodel: GraphView | null = null;
  readonly #root: HTMLElement;
  readonly #options: GraphOptions;
  readonly #view: ViewContext;
  readonly #kernel: ReturnType<typeof createKernelActions>;
  readonly #toolbar: Toolbar;
  /** shows the state in the panels around the picture */
  readonly #update: (state: State) => void;
  /** the pane with the submodel, and how to end its view */
  readonly #pane = el("section.onnx-nb-submodel", { "aria-label": "Submodel", hidden: true });
  #closing: AbortController | null = null;
  /** what the edits beside this graph change in it */
  #editStatuses: DiffStatuses | null = null;
  #state: State;
  /** the scopes open at first, until a person opens or closes one */
  #unchosen: ReadonlySet<number> | null;
  /** a change from the host is being applied, which need not be reported to it */
  #applying = false;

  constructor(root: HTMLElement, columns: Columns, host: GraphHost, options: GraphOptions, signal: AbortSignal) {
    this.columns = columns;
    this.#root = root;
    this.#options = options;
    this.#state = { ...initialState(options.open ?? defaultOpen(columns), options.direction), live: host.live };
    this.#unchosen = options.open === undefined ? this.#state.open : null;
    const isNested = options.isNested === true;
    root.classList.add("onnx-nb", "onnx-nb-graph");
    root.dataset.widget = isNested ? "submodel" : "graph";
    root.dataset.state = "loading";
    root.style.setProperty("--nb-height", options.height ?? fittingHeight(undefined, MARGIN, [320, 640]));

    const { element: liveRegion, announce } = createAnnouncer();
    const state = (): State => this.#state;
    const canEdit = (): boolean => options.onEdit !== undefined || (host.live && host.edit !== undefined);
    const view: ViewContext = { columns, host, state, canEdit, dispatch: this.dispatch, announce, signal };
    this.#view = view;
    this.#kernel = createKernelActions(view);
    const viewport = this.#createViewport();
    this.viewport = viewport;

    const focus = (): void => viewport.focus();
    const help = createHelp(options.isPaired === true ? PAIR_KEYS : [], focus, signal);
    const tree = new Tree(view);
    const drawer = (open: boolean): void => {
      tree.toggle(open);
      viewport.resize();
    };
    const toolbar = createToolbar(view, { help: help.toggle, drawer, leaveSearch: focus }, isNested);
    const banners = createBanners(view);
    const [inspector, selection] = [createInspector(view), createSelection(view)];
    const extractBar = isNested ? null : createExtractBar(view, this.#kernel.cancel);
    const [legend, lenses] = [createLegend(view, () => viewport.isDark), createLenses(view)];
    if (options.bar === undefined) legend.element.prepend(lenses.element);
    else toolbar.element.append(lenses.element);
    for (const element of [root, ...(options.bar ? [options.bar] : [])]) {
      followLinks(element, view);
      listenKeys(element, view, { viewport, toolbar, help }, [inspector.element, selection.element]);
    }
    const empty = emptyState(columns);
    viewport.element.append(help.element, ...(empty ? [empty] : []));
    const middle = el("div.onnx-nb-middle", viewport.element, legend.element);
    const body = el("div.onnx-nb-body", tree.element, middle, isNested ? null : this.#pane, inspector.element);
    on(root, "dragover", signal, (event) => event.preventDefault()); // or the browser leaves the page for a dropped file
    on(root, "drop", signal, (event) => this.#refuse(event));
    on(body, "scroll", signal, () => {
      body.scrollTop = 0; // focus scrolls it, and no wheel scrolls it back
    });
    root.replaceChildren(banners.element, body, ...(extractBar ? [extractBar.element] : []), liveRegion);
    (options.bar ?? root).prepend(toolbar.element);
    this.#toolbar = toolbar;
    this.#update = (state) => {
      const sidePanel = state.others.length > 0 ? selection : inspector;
      for (const panel of [toolbar, banners, selection, tree, extractBar, legend, lenses]) panel?.update(state);
      if (sidePanel === inspector) inspector.update(state);
      if (body.lastElementChild !== sidePanel.element) body.lastElementChild?.replaceWith(sidePanel.element);
    };
    onAbort(signal, () => this.#closing?.abort());
    Object.assign(root, { onnxNb: this });
    drawnAs(root, () => {
      const picture = viewport.still();
      const { inputs, outputs } = this.#state.boundary;
      // a scale is below the graph already; without a choice the bar only explains how to choose
      const colors = this.#state.overlay === null ? stillOf(legend.element, false) : null;
      const choice = extractBar !== null && inputs.length + outputs.length > 0 ? stillOf(extractBar.element) : null;
      return picture && stack([stillOf(banners.element, false), picture, colors, choice], viewport.ground);
    });

    viewport.start();
    if (options.initialView !== undefined) {
      this.apply(options.initialView);
      this.#state = { ...this.#state, undo: [], redo: [] }; // restored, not done by a person just now
    }
    this.#refresh();
  }

  get state(): State {
    return this.#state;
  }

  #createViewport(): Viewport {
    const { statuses = null, isPaired = false, maxBlockingMs, initialView, onLook = () => undefined } = this.#options;
    return new Viewport(this.#root, this.#view, {
      onRest: (camera) => {
        // a viewpoint means little without the scopes that are open there
        const open = this.#unchosen === this.#state.open ? { open: [...this.#state.open] } : {};
        this.#unchosen = null;
        this.#view.host.changed({ camera, ...this.viewport.layout, ...open });
      },
      onRestyle: () => this.#refresh(),
      onLoad: (late) => {
        this.#fitOverlay();
        if (late) this.#refresh();
      },
      onSize: (fits, where, first) => {
        const { selection } = this.#state;
        if (this.#unchosen !== this.#state.open || (selection !== null && !first)) return;
        const choose = this.#options.opening ?? opening.bind(null, this.columns);
        const { open: firstOpen, columnHeight, brief } = choose(fits, where);
        // another view selected something: its scopes are open here, too
        const target = selection === null ? null : shownAs(this.columns, selection);
        const ancestors = target === null ? [] : this.columns.ancestry(this.columns.scopeOf(target));
        const open = ancestors.length > 0 ? new Set([...firstOpen, ...ancestors]) : firstOpen;
        this.#state = { ...this.#state, open };
        this.#unchosen = open;
        this.viewport.opening = target;
        this.viewport.rebuild(null, { columnHeight, brief });
      },
      onFailure: (error) => {
        console.error(error);
        this.#root.dataset.state = "error";
        const message = `The graph could not be drawn: ${failure(error).message}`;
        const advice = "The tree still lists its content. Please report this model.";
        this.#state = { ...this.#state, error: { message, advice } };
        this.#refresh();
      },
      onLook,
      onMenu: (target, at) => this.#openMenu(at, ...menuOf(this.#view, target)),
      onDoubleClick: (target, at) => {
        const shape = shapeEdit(this.#view, target);
        if (target.kind === "scope") this.dispatch({ type: "toggle", scope: target.id });
        else if (shape !== undefined) this.#openMenu(at, `Shape of ${describe(this.columns, target).title}`, [shape]);
        else if (target.kind === "tensor") this.#view.announce("Only the shape of an input can change");
      },
      maxBlockingMs,
      // after edits both graphs show what differs
      statuses: () => statuses ?? this.#editStatuses,
      isPaired,
      start: { columnHeight: initialView?.columnHeight ?? 0, brief: initialView?.brief ?? false },
    });
  }

  #openMenu(at: Place, label: string, entries: readonly Entry[]): void {
    openMenu(this.#root, label, at, entries, () => this.viewport.focus(), this.#view.signal);
  }

  #refresh(): void {
    this.#update(this.#state);
    this.#root.setAttribute("aria-busy", String(this.#state.busy !== null));
    this.viewport.update(this.#state);
  }

  // ---------------------------------------------------------------- state

  readonly dispatch = (action: Action | Command): void => {
    const obey = this.#commands[action.type as Command["type"]] as ((command: Action | Command) => void) | undefined;
    if (obey !== undefined) {
      obey(action);
      return;
    }
    const before = this.#state;
    if (action.type === "overlay" && (action.overlay === null || action.overlay.data !== before.overlay?.data)) {
      this.#kernel.recolored();
    }
    this.#state = reduce(before, action, this.columns);
    const travels = action.type === "undo" || action.type === "redo";
    if (this.#state === before) {
      if (travels) this.#view.announce(`Nothing to ${action.type}`);
      return;
    }
    this.#follow(before, this.#state, action);
    if (travels) this.#view.announce(action.type === "undo" ? "Undone" : "Redone");
    this.#refresh();
  };

  /** Actions that change no state: they move the camera or ask the kernel. */
  readonly #commands: { readonly [T in Command["type"]]: (command: Extract<Command, { readonly type: T }>) => void } = {
    fit: ({ targets }) => this.viewport.fit(targets),
    save: ({ what }) => this.viewport.save(what),
    reveal: ({ target, toCenter }) => this.#bringIntoView(target, toCenter),
    bookmark: () => this.#bookmark(),
    visit: ({ bookmark }) => this.#visit(bookmark),
    capture: ({ value }) => this.#kernel.capture(value),
    profile: () => this.#kernel.profile(),
    page: ({ statistics }) => this.#kernel.page(statistics),
    color: ({ by }) => this.#kernel.look(by),
    edit: ({ request }) => (this.#options.onEdit ?? this.#kernel.edit)(request),
    extract: ({ targets }) => {
      const { boundary } = this.#state;
      if (targets !== undefined || boundary.outputs.length > 0 || !this.#view.host.live) this.#kernel.extract(targets);
    },
  };

  /** Draws and announces a change of the state, and reports it to the host unless it came from there. */
  #follow(before: State, now: State, action: Action | Command): void {
    const { announce, host } = this.#view;
    const differs = (field: keyof State): boolean => now[field] !== before[field];
    const report = (patch: Patch): void => {
      if (!this.#applying) host.changed(patch);
    };
    if (differs("open")) {
      this.viewport.rebuild("scope" in action ? action.scope : toggledScope(before.open, now.open));
      report({ open: [...now.open] });
    }
    if (differs("direction")) this.viewport.reopen();
    if (differs("plumbing")) this.viewport.rebuild(null);
    if (differs("others") || !sameTarget(now.selection, before.selection)) {
      const targets = selectionOf(now);
      this.#announceSelection(targets);
      this.#root.classList.toggle("onnx-nb-selected", targets.length > 0);
      report({ selection: targets.map((target) => ({ ...target, name: this.columns.nameOf(target) })) });
    }
    if (differs("boundary")) {
      report(namesOf(this.columns, now.boundary));
      if (action.type === "input" || action.type === "output") {
        const isBoundary = now.boundary[`${action.type}s`].includes(action.value);
        const name = this.columns.valueNameOf(action.value);
        announce(`${name} is ${isBoundary ? "an" : "no longer an"} ${action.type}`);
      }
      this.#kernel.plan();
    }
    if (now.submodel?.columns !== before.submodel?.columns) {
      // the first step, like all of them, starts from the model that is shown here
      const differences = (now.submodel?.step ?? 0) < 2 ? now.submodel?.differences : null;
      this.#editStatuses = differences ? new DiffStatuses(differences.statuses(0)) : null;
      this.#showSubmodel(now.submodel);
      if (action.type === "undo" || action.type === "redo") this.#kernel.restore(now.submodel);
    } else if (differs("submodel")) showVerdicts(this.#pane, now.submodel);
    if (differs("outcome")) announce(now.outcome);
    if (differs("overlay")) {
      this.#fitOverlay();
      const data = now.overlay?.data;
      if (data !== before.overlay?.data) report({ overlay: data ?? null });
    }
    if (differs("search") && !this.#applying) this.#options.onSearch?.(now.search);
    for (const field of ["direction", "plumbing", "search", "color", "bookmarks"] as const)
      if (differs(field)) report({ [field]: now[field] });
    const { plan } = now;
    if (differs("plan") && plan !== null) {
      announce(plan.message || `The extraction takes ${countOf(plan.nodes.length, "node")}`);
    }
  }

  #announceSelection(targets: readonly Target[]): void {
    const { columns, announce } = this.#view;
    const target = targets.at(-1);
    if (target === undefined) announce("Nothing selected");
    else if (targets.length > 1) announce(`${countedByKind(targets)} selected`);
    else {
      const { title, sub, kind } = describe(columns, target);
      announce([`${kind} ${elide(title, 120)} ${elide(sub, 80)}`.trim(), ...factsOf(columns, target)].join(", "));
    }
  }

  /** Fits the colors of an overlay to the numbers of the drawn boxes. */
  #fitOverlay(): void {
    const { overlay } = this.#state;
    const { scene } = this.viewport;
    if (overlay !== null && scene !== null) this.#state = { ...this.#state, overlay: overlay.scaledTo(scene.boxes) };
  }

  /** Applies a change of the kernel; does not call `host.changed`. */
  apply(patch: Patch): void {
    this.#applying = true;
    try {
      this.#applyPatch(patch);
    } finally {
      this.#applying = false;
    }
  }

  #applyPatch(patch: Patch): void {
    const { inputs, outputs, selection, direction, plumbing, overlay, bookmarks, search, color, open } = patch;
    const { dispatch } = this;
    const { boundary } = this.#state;
    const tensors = (names: readonly string[] | undefined, now: readonly number[]): readonly number[] =>
      names === undefined ? now : names.flatMap((name) => this.columns.find(name, "tensor")?.id ?? []);
    const ends = { inputs: tensors(inputs, boundary.inputs), outputs: tensors(outputs, boundary.outputs) };
    dispatch({ type: "boundary", boundary: ends });
    if (selection !== undefined) {
      dispatch({ type: "selectAll", targets: selection.map(({ kind, id }) => ({ kind, id })) });
    }
    if (direction !== undefined && direction !== this.#state.direction) dispatch({ type: "direction", direction });
    if (plumbing !== undefined && plumbing !== this.#state.plumbing) dispatch({ type: "plumbing", plumbing });
    if (overlay !== undefined) dispatch({ type: "overlay", overlay: overlay === null ? null : new Overlay(overlay) });
    if (bookmarks !== undefined) dispatch({ type: "bookmarks", bookmarks });
    if (search !== undefined && search !== this.#state.search) this.#toolbar.search(search);
    if (color != null && color !== this.#state.color) this.#kernel.color(color, true);
    if (color === null && this.#state.color !== null) dispatch({ type: "overlay", overlay: null });
    if (open !== undefined) {
      const scopes = new Set(open);
      const now = this.#state.open;
      if (scopes.size !== now.size || open.some((scope) => !now.has(scope))) dispatch({ type: "openOnly", scopes });
    }
    const { layout } = this.viewport;
    const { columnHeight = layout.columnHeight, brief = layout.brief, camera } = patch;
    if (columnHeight !== layout.columnHeight || brief !== layout.brief) {
      this.viewport.rebuild(null, { columnHeight, brief });
    }
    if (camera !== undefined) this.viewport.goTo(camera, false);
    if ((camera ?? open ?? direction ?? plumbing) !== undefined) this.viewport.follow();
  }

  /** Tells what to do with a dropped file that the extension of JupyterLab did not take. */
  #refuse(event: DragEvent): void {
    const file = event.dataTransfer?.files[0];
    if (file === undefined || event.defaultPrevented) return;
    event.preventDefault();
    const message = `${elide(file.name, 100)} is on your computer.`;
    this.dispatch({ type: "error", error: { message, advice: "Upload it to Jupyter's folder and open it there." } });
  }

  // ---------------------------------------------------------------- places

  #bookmark(): void {
    const { selection: target, open, bookmarks } = this.#state;
    const camera = this.viewport.viewpoint;
    if (camera === null) return;
    const names = new Set(bookmarks.map(({ name }) => name));
    const scope = this.viewport.middleScope;
    const place: Target | null = target ?? (scope > 0 ? { kind: "scope", id: scope } : null);
    const title = elide((place !== null && describe(this.columns, place).title) || "View", 48);
    let name = title;
    for (let at = 2; names.has(name); at++) name = `${title} ${at}`;
    this.dispatch({ type: "bookmarks", bookmarks: [...bookmarks, { name, target, open, camera }] });
    this.#view.announce(`Bookmarked as ${name}`);
  }

  #visit({ target, open, camera }: Bookmark): void {
    this.dispatch({ type: "openOnly", scopes: open });
    this.dispatch({ type: "select", target });
    this.viewport.goTo(camera, true);
  }

  #bringIntoView(target: Target, toCenter = false): void {
    const { columns } = this;
    const drawnTarget = shownAs(columns, target);
    const closed = columns.ancestry(columns.scopeOf(drawnTarget)).filter((scope) => !this.#state.open.has(scope));
    if (closed.length > 0) this.dispatch({ type: "openAll", scopes: closed });
    this.viewport.show(drawnTarget, toCenter);
  }

  /** Opens the scopes around a tensor, node or scope and brings it into view. */
  async reveal(name: string, kind?: Target["kind"]): Promise<void> {
    const target = this.columns.find(name, kind);
    if (target == null) throw new Error(`there is no tensor, node or scope '${elide(name, 200)}' in this graph`);
    this.#bringIntoView(target);
    while (this.viewport.busy || this.viewport.position.gliding)
      await new Promise((resolve) => setTimeout(resolve, 10));
  }

  /** Returns where in the window a pointer would hit this tensor, node or scope; null if it cannot be seen now. */
  locate(name: string, kind?: Target["kind"]): { x: number; y: number } | null {
    const target = this.columns.find(name, kind);
    return target == null ? null : this.viewport.locate(target);
  }

  /** Shows a submodel in a pane next to the graph, or closes the pane. */
  #showSubmodel(submodel: Submodel | null): void {
    const [camera, open] = [this.submodel?.viewport.viewpoint, this.submodel?.state.open];
    const isAlike = this.submodel?.columns.scopeCount === submodel?.columns.scopeCount;
    this.#closing?.abort();
    this.#pane.replaceChildren();
    this.#pane.hidden = submodel === null;
    this.#root.classList.toggle("onnx-nb-split", submodel !== null);
    this.submodel = null;
    if (submodel === null) return;
    this.#closing = new AbortController();
    const { signal } = this.#closing;
    const close = (): void => {
      this.dispatch({ type: "closeSubmodel" });
      this.viewport.focus();
    };
    const inner = el("div");
    const tools = el("div", { data: { widget: "submodel-bar" } });
    this.#pane.append(...paneParts(this.#view, submodel, tools, close, signal), inner);
    const there = submodel.name === "" ? "." : `; in the kernel it is ${submodel.name}.`;
    const page = { ...pageHost(), reason: `This is a submodel${there}` };
    const edit = ({ kind, id = -1, ...request }: EditRequest): void => {
      const { columns } = submodel;
      const output = kind === "node" ? columns.outputsOf(id)[0] : -1; // of a node without a name
      const name = columns.nameOf({ kind, id } as Target) || columns.valueNameOf(output);
      this.dispatch({ type: "edit", request: { ...request, name } });
    };
    const options: GraphOptions = {
      isNested: true,
      bar: tools,
      ...(submodel.origin === "edit" && { onEdit: edit }),
      ...(submodel.differences && { statuses: new DiffStatuses(submodel.differences.statuses(1)) }),
      // after one more edit of a model it stays where it was
      ...(isAlike && camera && open && { open, initialView: { camera } }),
    };
    this.submodel = new GraphView(inner, submodel.columns, page, options, signal);
    // in a narrow view focus would stay on what scrolls away
    if (this.#root.matches(".onnx-nb-narrow") && this.viewport.hasFocus) this.submodel.viewport.focus();
    this.#pane.querySelector(".onnx-nb-edits")?.scrollTo?.(0, Number.MAX_SAFE_INTEGER); // to the latest
    this.#pane.scrollIntoView?.({ block: "nearest" }); // in a narrow view it is below the graph
    const { inputs, outputs } = submodel.boundary;
    this.viewport.resize(); // the pane takes half of the width
    const ends = [...inputs, ...outputs].map((id): Target => ({ kind: "tensor", id }));
    this.viewport.fit(ends, true);
  }
}

/**
 * Returns the CSS height of a picture: as many pixels as given, or else what is left of the window. A frame grows with
 * its content, so its own height says nothing.
 *
 * @param margin pixels of a notebook's window that all else takes
 */
export function fittingHeight(
  height: number | undefined,
  margin: number,
  [min, max]: readonly [number, number],
): string {
  if (height !== undefined) return `${height}px`;
  return window.self === window.top ? `clamp(${min}px, 100vh - ${margin}px, ${max}px)` : `${max}px`;
}

/** Returns the only scope that was opened or closed, null if there are more. */
function toggledScope(before: ReadonlySet<number>, after: ReadonlySet<number>): number | null {
  const changes = [...before, ...after].filter((scope) => before.has(scope) !== after.has(scope));
  return changes.length === 1 ? changes[0] : null;
}

/** Returns the target that is drawn for this one: for a weight the node that reads it, which shows it. */
export function shownAs(columns: Columns, target: Target): Target {
  if (target.kind === "node" && columns.isFolded(target.id)) {
    const [output] = columns.outputsOf(target.id);
    return output === undefined || output < 0 ? target : shownAs(columns, { kind: "tensor", id: output });
  }
  if (target.kind !== "tensor" || !columns.isConstant(target.id)) return target;
  const [reader] = columns.consumersOf(target.id);
  if (reader === undefined || columns.isFolded(reader)) return target;
  return { kind: "node", id: reader };
}
