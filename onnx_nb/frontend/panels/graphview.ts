/**
 * The whole graph view: one state, and the panels that show it. Everything that needs a kernel goes through the host;
 * the rest lives here, so the graph stays alive without one.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import { failure, type GraphHost, type Patch } from "../protocol/host.ts";
import type { DiffStatuses } from "../scene/diffstatus.ts";
import { defaultOpen, opening } from "../scene/opening.ts";
import { Overlay } from "../scene/overlay.ts";
import type { Direction } from "../scene/scene.ts";
import {
  type Action,
  type Bookmark,
  type Command,
  initialState,
  reduce,
  type State,
  same,
  selected,
} from "../scene/state.ts";
import { createVoice } from "./announcer.ts";
import { createStrips } from "./banners.ts";
import { counted, el, elide } from "./dom.ts";
import { emptyState } from "./emptystate.ts";
import { createExtractBar } from "./extractbar.ts";
import { createInspector } from "./inspector.ts";
import { listenKeys } from "./keys.ts";
import { createLegend } from "./legend.ts";
import { describe, followLinks } from "./link.ts";
import { createWork, namesOf } from "./requests.ts";
import { createSelection } from "./selection.ts";
import { createHelp, PAIR_KEYS } from "./shortcuts.ts";
import { createBeside } from "./submodelpane.ts";
import { createToolbar } from "./toolbar.ts";
import { createTree } from "./tree.ts";
import { createStage, type Stage } from "./viewport.ts";

export interface GraphOptions {
  /** groups that stand open at first; by default enough for 20 to 60 boxes */
  readonly open?: Iterable<number>;
  /** px of the part with the picture */
  readonly height?: number;
  readonly direction?: Direction;
  /** what a person left behind when the graph was shown last */
  readonly given?: Patch;
  /** the view is part of another one: it has no bar for extracting below and no submodel pane */
  readonly nested?: boolean;
  /** what is different from the graph beside it */
  readonly statuses?: DiffStatuses;
  /** how long a layout may hold up the page, in ms, before it goes on in slices */
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
  /** Where in the viewport a pointer would hit this tensor, node or scope; null if it cannot be seen now. */
  locate(name: string, kind?: Target["kind"]): { x: number; y: number } | null;
  /** the part with the picture */
  readonly stage: Stage;
  /** Shows a submodel in a pane beside the graph. */
  showSubmodel(columns: Columns): void;
}

/** The handle that tests and tools find at the root element. */
export interface Handle extends GraphView {
  /** the view of the submodel, when one is shown */
  submodel: GraphView | null;
}

const HEIGHT = 600;

/** An extraction as one would write it in a cell. */
function callOf(columns: Columns, { inputs, outputs }: State["boundary"]): string {
  const list = (values: readonly number[]): string =>
    `[${values.map((value) => JSON.stringify(columns.valueNameOf(value))).join(", ")}]`;
  return `submodel = onnx_nb.extract(g.model, ${list(inputs)}, ${list(outputs)})`;
}

export function createGraphView(
  root: HTMLElement,
  columns: Columns,
  host: GraphHost,
  options: GraphOptions,
  signal: AbortSignal,
): GraphView {
  root.classList.add("onnx-nb", "onnx-nb-graph");
  const nested = options.nested === true;
  root.dataset.widget = nested ? "submodel" : "graph";
  root.dataset.state = "loading";
  root.style.setProperty("--nb-height", `${options.height ?? HEIGHT}px`);

  const first = options.open ?? defaultOpen(columns);
  let state: State = { ...initialState(first, options.direction), live: host.live };
  /** what stands open was chosen by nobody */
  let unchosen = options.open === undefined ? state.open : null;
  const now = (): State => state;
  /** what is being applied came from the host, which need not be told */
  let quiet = false;

  const dispatch = (action: Action | Command): void => {
    switch (action.type) {
      case "fit":
        stage.fit(action.targets);
        return;
      case "extract":
        if (state.boundary.outputs.length > 0 || !host.live) work.extract();
        return;
      case "reveal":
        bringIntoView(action.target, action.centered ?? false);
        return;
      case "save":
        stage.save(action.what);
        return;
      case "capture":
        work.capture(action.value);
        return;
      case "page":
        work.page(action.statistics);
        return;
      case "color":
        work.color(action.by);
        return;
      case "bookmark":
        bookmark();
        return;
      case "visit":
        visit(action.bookmark);
        return;
    }
    if (action.type === "overlay" && (action.overlay === null || action.overlay.data !== state.overlay?.data)) {
      work.recolored();
    }
    const before = state;
    state = reduce(state, action, columns);
    if (state === before) {
      if (action.type === "undo" || action.type === "redo") voice.say(`Nothing to ${action.type}`);
      return;
    }
    if (state.open !== before.open) {
      stage.rebuild("group" in action ? action.group : turned(before.open, state.open));
      if (!quiet) host.changed({ open: [...state.open] });
    }
    if (state.direction !== before.direction) {
      stage.reopen();
      if (!quiet) host.changed({ direction: state.direction });
    }
    if (state.overlay !== before.overlay) fitOverlay();
    if (!same(state.selection, before.selection) || state.others !== before.others) {
      const targets = selected(state);
      voice.selected(targets);
      root.classList.toggle("onnx-nb-selected", targets.length > 0);
      if (!quiet) host.changed({ selection: targets.map((target) => ({ ...target, name: columns.nameOf(target) })) });
    }
    if (state.boundary !== before.boundary) {
      if (!quiet) host.changed(namesOf(columns, state.boundary));
      if (action.type === "input" || action.type === "output") {
        const chosen = state.boundary[`${action.type}s`].includes(action.value);
        voice.say(`${columns.valueNameOf(action.value)} is ${chosen ? "an" : "no longer an"} ${action.type}`);
      }
      work.plan();
    }
    if (state.overlay?.data !== before.overlay?.data && !quiet) host.changed({ overlay: state.overlay?.data ?? null });
    if (!quiet) {
      if (state.search !== before.search) {
        host.changed({ search: state.search });
        options.searched?.(state.search);
      }
      if (state.color !== before.color) host.changed({ color: state.color });
      if (state.bookmarks !== before.bookmarks) host.changed({ bookmarks: state.bookmarks });
    }
    if (state.plan !== before.plan && state.plan !== null) {
      voice.say(state.plan.message || `The extraction takes ${counted(state.plan.nodes.length, "node")}`);
    }
    if (action.type === "undo" || action.type === "redo") voice.say(action.type === "undo" ? "Undone" : "Redone");
    refresh();
  };

  /** The colors of an overlay go over the numbers of the boxes that are drawn. */
  const fitOverlay = (): void => {
    if (state.overlay !== null && stage.scene !== null) {
      state = { ...state, overlay: state.overlay.over(stage.scene.boxes) };
    }
  };

  const refresh = (): void => {
    toolbar.update(state);
    strip.update(state);
    many.update(state);
    if (state.others.length === 0) inspector.update(state);
    const side = state.others.length > 0 ? manyRoot : inspectorRoot;
    if (body.lastElementChild !== side) body.lastElementChild?.replaceWith(side);
    tree.update(state);
    bottom?.update(state);
    key.update(state, stage.dark);
    root.setAttribute("aria-busy", String(state.busy !== null));
    stage.update(state);
  };

  const fail = (error: unknown): void => {
    console.error(error);
    root.dataset.state = "error";
    const { message } = failure(error);
    state = {
      ...state,
      error: {
        message: `The graph could not be drawn: ${message}`,
        advice: "The tree still lists it; please report this model.",
      },
    };
    refresh();
  };

  const bookmark = (): void => {
    const target = state.selection;
    const camera = stage.standing;
    if (camera === null) return;
    const taken = new Set(state.bookmarks.map(({ name }) => name));
    const words = target === null ? "View" : elide(describe(columns, target).title || "View", 48);
    let name = words;
    for (let at = 2; taken.has(name); at++) name = `${words} ${at}`;
    dispatch({ type: "bookmarks", bookmarks: [...state.bookmarks, { name, target, open: state.open, camera }] });
    voice.say(`Bookmarked as ${name}`);
  };
  const visit = ({ target, open, camera }: Bookmark): void => {
    dispatch({ type: "openOnly", groups: open });
    dispatch({ type: "select", target });
    stage.goTo(camera, true);
  };

  const bringIntoView = (target: Target, centered = false): void => {
    const shown = shownAs(columns, target);
    const closed = columns.ancestry(columns.scopeOf(shown)).filter((group) => !state.open.has(group));
    if (closed.length > 0) dispatch({ type: "openAll", groups: closed });
    stage.show(shown, centered);
  };

  const showSubmodel = (submodel: Columns): void =>
    beside?.show(submodel, callOf(columns, state.boundary), (inner, closing) => {
      handle.submodel = createGraphView(inner, submodel, NOBODY, { nested: true }, closing);
    });

  // ---------------------------------------------------------------- panels

  const bar = el("header", { class: "onnx-nb-bar" });
  const strips = el("div", { class: "onnx-nb-strips" });
  const drawer = el("aside", { class: "onnx-nb-drawer onnx-nb-hiddenish", attrs: { "aria-label": "Tree" } });
  const legend = el("div", { class: "onnx-nb-legend" });
  const manyRoot = el("aside", { class: "onnx-nb-inspector", attrs: { "aria-label": "Selection", tabindex: 0 } });
  const inspectorRoot = el("aside", { class: "onnx-nb-inspector", attrs: { "aria-label": "Inspector", tabindex: 0 } });
  const extractRoot = el("footer", { class: "onnx-nb-extract" });

  const voice = createVoice(columns);
  const work = createWork(columns, host, now, dispatch, voice.say, showSubmodel, signal);
  const stage = createStage(
    root,
    columns,
    host,
    {
      state: now,
      dispatch,
      say: voice.say,
      rested(camera) {
        if (quiet) return;
        // where one stands says little without what is open there
        const { columnHeight, brief } = stage;
        const stands = { camera, columnHeight, brief };
        host.changed(unchosen === state.open ? { ...stands, open: [...state.open] } : stands);
        unchosen = null;
      },
      dressed: () => refresh(),
      laid(later) {
        fitOverlay();
        if (later) refresh();
      },
      sized(fits) {
        if (unchosen !== state.open || state.selection !== null) return;
        const { open, columnHeight, brief } = opening(columns, fits);
        state = { ...state, open };
        unchosen = open;
        stage.columnHeight = columnHeight;
        stage.brief = brief;
        stage.rebuild(null);
      },
      failed: fail,
      looked: () => options.looked?.(),
      atOnce: options.atOnce,
      statuses: options.statuses ?? null,
      start: { columnHeight: options.given?.columnHeight ?? 0, brief: options.given?.brief ?? false },
    },
    signal,
  );
  const submodelClosed = (): void => {
    handle.submodel = null;
    stage.focus();
  };
  const beside = nested ? null : createBeside(root, submodelClosed, signal);
  const help = createHelp(stage.element, options.statuses === undefined ? [] : PAIR_KEYS, stage.focus, signal);
  const toolbar = createToolbar(
    bar,
    columns,
    host,
    dispatch,
    {
      help: help.toggle,
      drawer(open) {
        drawer.classList.toggle("onnx-nb-hiddenish", !open);
        stage.resize();
        tree.update(state);
      },
      leaveSearch: stage.focus,
    },
    signal,
  );
  const strip = createStrips(strips, columns, dispatch, signal);
  const inspector = createInspector(inspectorRoot, columns, host, dispatch, signal);
  const many = createSelection(manyRoot, columns, host, dispatch, voice.say, signal);
  const tree = createTree(drawer, columns, dispatch, signal);
  const bottom = nested ? null : createExtractBar(extractRoot, columns, host, dispatch, work.cancel, signal);
  const key = createLegend(legend, columns, dispatch, signal);
  followLinks(root, dispatch, signal);
  listenKeys(
    root,
    { columns, host, stage, toolbar, help, side: [inspectorRoot, manyRoot], state: now, dispatch, say: voice.say },
    signal,
  );

  const middle = el("div", { class: "onnx-nb-middle" }, stage.element, legend);
  const body = el("div", { class: "onnx-nb-body" }, drawer, middle, beside?.element ?? null, inspectorRoot);
  const empty = emptyState(columns);
  if (empty !== null) stage.element.append(empty);
  root.replaceChildren(bar, strips, body, ...(bottom === null ? [] : [extractRoot]), voice.element);

  // ---------------------------------------------------------------- handle

  const find = (name: string, kind?: Target["kind"]): Target | null => columns.find(name, kind) ?? null;

  const handle: Handle = {
    columns,
    submodel: null,
    stage,
    get state() {
      return state;
    },
    dispatch,
    apply(patch) {
      quiet = true;
      try {
        const values = (given: readonly string[]): number[] =>
          given.flatMap((name) => {
            const target = find(name, "tensor");
            return target === null ? [] : [target.id];
          });
        if (patch.inputs !== undefined || patch.outputs !== undefined) {
          const inputs = patch.inputs === undefined ? state.boundary.inputs : values(patch.inputs);
          const outputs = patch.outputs === undefined ? state.boundary.outputs : values(patch.outputs);
          dispatch({ type: "boundary", boundary: { inputs, outputs } });
        }
        if (patch.selection !== undefined) {
          dispatch({ type: "selectAll", targets: patch.selection.map(({ kind, id }) => ({ kind, id })) });
        }
        if (patch.direction !== undefined && patch.direction !== state.direction) {
          dispatch({ type: "direction", direction: patch.direction });
        }
        if (patch.overlay !== undefined) {
          dispatch({ type: "overlay", overlay: patch.overlay === null ? null : new Overlay(patch.overlay) });
        }
        if (patch.bookmarks !== undefined) dispatch({ type: "bookmarks", bookmarks: patch.bookmarks });
        if (patch.search !== undefined && patch.search !== state.search) toolbar.search(patch.search);
        if (patch.color != null && patch.color !== state.color) work.recolor(patch.color);
        if (patch.color === null && state.color !== null) dispatch({ type: "overlay", overlay: null });
        if (patch.open !== undefined) {
          const wanted = new Set(patch.open);
          const known = wanted.size === state.open.size && patch.open.every((group) => state.open.has(group));
          if (!known) dispatch({ type: "openOnly", groups: wanted });
        }
        const { columnHeight = stage.columnHeight, brief = stage.brief } = patch;
        if (columnHeight !== stage.columnHeight || brief !== stage.brief) {
          stage.columnHeight = columnHeight;
          stage.brief = brief;
          stage.rebuild(null);
        }
        if (patch.camera !== undefined) stage.goTo(patch.camera, false);
      } finally {
        quiet = false;
      }
    },
    async reveal(name, kind) {
      const target = find(name, kind);
      if (target === null) throw new Error(`there is no tensor, node or scope '${elide(name, 200)}' in this graph`);
      bringIntoView(target);
      while (stage.busy || stage.gliding) await new Promise((resolve) => setTimeout(resolve, 10));
    },
    locate(name, kind) {
      const target = find(name, kind);
      return target === null ? null : stage.locate(target);
    },
    showSubmodel,
  };
  Object.assign(root, { onnxNb: handle });

  stage.start();
  if (options.given !== undefined) {
    handle.apply(options.given);
    state = { ...state, undo: [], redo: [] }; // nobody did that just now
  }
  refresh();
  return handle;
}

/** The only scope that was opened or closed, null if there are more. */
function turned(before: ReadonlySet<number>, after: ReadonlySet<number>): number | null {
  if (Math.abs(before.size - after.size) !== 1) return null;
  const [fewer, more] = before.size < after.size ? [before, after] : [after, before];
  const found = [...more].filter((group) => !fewer.has(group));
  return found.length === 1 ? found[0] : null;
}

/** A weight has no place of its own on the canvas: the node that reads it stands for it. */
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

/** The host of a submodel: nothing is cut out of what was cut out. */
const NOBODY: GraphHost = {
  live: false,
  reason: "This is a cut-out; in the kernel it is g.submodel.",
  plan: () => Promise.reject(new Error("a submodel is not planned")),
  extract: () => Promise.reject(new Error("a submodel is not extracted from")),
  inspect: () => Promise.reject(new Error("a submodel has no inspector in the kernel")),
  changed: () => undefined,
};
