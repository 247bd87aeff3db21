/**
 * Two graph views side by side, in step: what is panned, zoomed, opened, searched or selected in one is in the other, as
 * far as it has it; and the list of what differs.
 */

import type { Columns, Target } from "../protocol/columns.ts";
import { type PairData, type SideOf, wordsOf } from "../protocol/diff.ts";
import type { GraphHost, Patch } from "../protocol/host.ts";
import type { Point } from "../render/camera.ts";
import { boxOf } from "../render/highlights.ts";
import { watchTheme } from "../render/theme.ts";
import { type DiffStatus, DiffStatuses, SIGNS } from "../scene/diffstatus.ts";
import { defaultOpen } from "../scene/opening.ts";
import { BOX, type Scene } from "../scene/scene.ts";
import { search } from "../search/search.ts";
import { button, counted, el, elide, plain } from "./dom.ts";
import { createGraphView, type GraphView, shownAs } from "./graphview.ts";
import { describe } from "./link.ts";

export interface PairOptions {
  /** px of each picture */
  readonly height: number;
  readonly synced: boolean;
  readonly names: readonly [string, string];
  /** what the graphs are to each other, "reference" and "candidate" if it is not said */
  readonly titles?: readonly [string, string];
  /** stands in the bar in place of the differences, which are listed elsewhere */
  readonly legend?: readonly HTMLElement[];
  /** groups of the reference that stand open at first */
  readonly open?: Iterable<number>;
}

/** What a pair of graphs needs from outside. */
export interface PairHost {
  /** of each graph; it need not plan or extract */
  readonly graphs: readonly [GraphHost, GraphHost];
  selected(side: SideOf, selection: NonNullable<Patch["selection"]>): void;
  synced(synced: boolean): void;
  /** takes the picture that stands in the notebook where the live graphs cannot */
  picture?(svg: string): void;
  /** what the inspector says of a target in the light of the other graph, label and text */
  compared?(side: SideOf, target: Target): [string, string][];
}

/** The handle that tests and tools find at the root element. */
export interface Pair {
  readonly views: readonly [GraphView, GraphView];
  readonly data: PairData;
  /** the change that was gone to last, −1 before */
  readonly at: number;
  readonly synced: boolean;
  setSynced(synced: boolean): void;
  /** Selects targets in both graphs, without telling the host, and brings the first of each into view side by side. */
  show(targets: readonly [readonly Target[], readonly Target[]]): void;
}

const SIDES = [0, 1] as const;
/** How the graphs are called by tests and tools. */
const ROLES = ["reference", "candidate"] as const;
const WORDS: readonly DiffStatus[] = ["removed", "added", "changed"];
/** Below this width the graphs stand one above the other. */
const NARROW = 760;
/** … each so much lower, that both are on one screen. */
const STACKED = 0.72;
/** Of a long list so many rows are made; a filter leads to the others. */
const ROWS = 400;
/** The scopes around so many of the targets that are shown are opened. */
const OPENED = 8;
/** What lies this near to the middle decides most where the other graph is put, world px. */
const NEAR = 160;
/** … and what is selected as much as so many others. */
const ANCHOR = 60;

const other = (side: SideOf): SideOf => (side === 0 ? 1 : 0);

export function createPair(
  root: HTMLElement,
  columns: readonly [Columns, Columns],
  data: PairData,
  host: PairHost,
  options: PairOptions,
  signal: AbortSignal,
): Pair {
  root.classList.add("onnx-nb-pair");
  root.dataset.state = "loading";
  const titles = options.titles ?? ROLES;
  let synced = options.synced;
  /** the side that a person works in: the other one follows */
  let leader: SideOf = 0;
  /** what is done to one side because of the other is not handed back */
  let following = false;
  const follow = (act: () => void): void => {
    if (following) return;
    following = true;
    try {
      act();
    } finally {
      following = false;
    }
  };

  // ---------------------------------------------------------------- panes

  const pictures: (string | undefined)[] = [undefined, undefined];
  const hostOf = (side: SideOf): GraphHost => {
    const given = host.graphs[side];
    return Object.create(given, {
      cuts: { value: false },
      changed: { value: (patch: Patch) => changed(side, patch) },
      compared: { value: (target: Target) => compared(side, target) },
      picture: {
        value: (svg: string) => {
          pictures[side] = svg;
          const [left, right] = pictures;
          if (left !== undefined && right !== undefined) host.picture?.(sideBySide(left, right));
        },
      },
    }) as GraphHost;
  };
  const first = new Set(options.open ?? defaultOpen(columns[0]));
  const opens = [first, openLike(first)] as const;
  const notes = SIDES.map(() => el("span", { class: "onnx-nb-pair-note", attrs: { role: "status" } }));
  const inner = SIDES.map(() => el("div"));
  const panes = SIDES.map((side) =>
    el(
      "section",
      { class: "onnx-nb-pane", attrs: { "aria-label": `${titles[side]}: ${elide(options.names[side], 80)}` } },
      el(
        "header",
        {},
        el("b", {}, titles[side]),
        el("span", { class: "onnx-nb-ellipsis", title: options.names[side] }, elide(options.names[side], 60)),
        notes[side],
      ),
      inner[side],
    ),
  );
  const body = el("div", { class: "onnx-nb-pair-body" }, ...panes);

  function openLike(open: Iterable<number>): Set<number> {
    const [mine, there] = [new Set(open), new Set<number>([0])];
    for (const group of mine) {
      const found = data.counterpart(0, { kind: "scope", id: group });
      if (found !== null) for (const each of [...columns[1].ancestry(found.id), found.id]) there.add(each);
    }
    for (const group of defaultOpen(columns[1])) {
      const only = data.counterpart(1, { kind: "scope", id: group }) === null;
      if (only && columns[1].ancestry(group).every((each) => each === group || there.has(each))) there.add(group);
    }
    return there;
  }

  // ---------------------------------------------------------------- in step

  function changed(side: SideOf, patch: Patch): void {
    if (patch.selection !== undefined) {
      host.selected(side, patch.selection);
      follow(() => selectThere(side, patch.selection ?? []));
      mark();
    }
    if (!synced) return;
    if (patch.direction !== undefined) {
      const { direction } = patch;
      follow(() => views[other(side)].apply({ direction }));
    }
    if (patch.color !== undefined) {
      const { color } = patch;
      follow(() => views[other(side)].apply({ color }));
    }
    if (patch.open !== undefined) {
      const { open } = patch;
      follow(() => openThere(side, open));
      settle(side);
    }
  }

  let wasOpen: readonly [ReadonlySet<number>, ReadonlySet<number>] = opens;
  function openThere(side: SideOf, open: readonly number[]): void {
    const now = new Set(open);
    const before = wasOpen[side];
    const there = other(side);
    const view = views[there];
    const wanted = new Set(view.state.open);
    const counterpart = (group: number): number => data.counterpart(side, { kind: "scope", id: group })?.id ?? -1;
    for (const group of before) if (!now.has(group)) wanted.delete(counterpart(group));
    for (const group of now) {
      const found = before.has(group) ? -1 : counterpart(group);
      if (found >= 0) for (const each of [...columns[there].ancestry(found), found]) wanted.add(each);
    }
    view.apply({ open: [...wanted] });
    remember();
  }
  const remember = (): void => {
    wasOpen = [views[0].state.open, views[1].state.open];
  };

  function selectThere(side: SideOf, selection: NonNullable<Patch["selection"]>): void {
    const there = other(side);
    const found = selection.flatMap((each) => {
      const target = data.counterpart(side, each);
      return target === null ? [] : [{ ...target, name: columns[there].nameOf(target) }];
    });
    const view = views[there];
    view.apply({ selection: found });
    const last = selection.at(-1);
    notes[side].textContent = "";
    notes[there].textContent = "";
    if (last === undefined) return;
    const target = data.counterpart(side, last);
    const { title, kind } = describe(columns[side], last);
    if (target === null) {
      notes[there].textContent = `no such ${kind}: ${elide(title || last.name, 40)}`;
      const place = data.before(side, last, columns[side]);
      if (place === null) return;
      view.dispatch({ type: "reveal", target: place });
      remember();
      anchor = pairOf(there, place);
      settle(side);
      return;
    }
    view.dispatch({ type: "reveal", target });
    remember();
    anchor = pairOf(side, last);
    settle(side);
  }

  /** what was selected last in reference and candidate: where it is in view it decides most */
  let anchor: readonly [Target, Target] | null = null;
  const pairOf = (side: SideOf, target: Target): readonly [Target, Target] | null => {
    const there = data.counterpart(side, target);
    return there === null ? null : side === 0 ? [target, there] : [there, target];
  };

  function show(given: readonly [readonly Target[], readonly Target[]]): void {
    const targets = SIDES.map((side) => drawnAs(side, given[side]));
    const [[left], [right]] = targets;
    leader = left === undefined ? 1 : 0;
    follow(() => {
      for (const side of SIDES) {
        const view = views[side];
        notes[side].textContent = "";
        view.apply({ selection: targets[side].map((each) => ({ ...each, name: columns[side].nameOf(each) })) });
        for (const target of targets[side].slice(1, OPENED)) view.dispatch({ type: "reveal", target });
        const [target] = targets[side];
        if (target !== undefined) view.dispatch({ type: "reveal", target, centered: true });
      }
      remember();
    });
    mark();
    anchor = left === undefined || right === undefined ? null : [left, right];
    if (anchor !== null) settle(leader);
  }
  /** What stands for targets in the picture, each once. */
  const drawnAs = (side: SideOf, targets: readonly Target[]): Target[] => {
    const found = targets.map((each) => shownAs(columns[side], each));
    return [...new Map(found.map((each) => [`${each.kind} ${each.id}`, each])).values()];
  };
  const mark = (): void => {
    root.classList.toggle(
      "onnx-nb-pair-selected",
      views.some((view) => view.state.selection !== null),
    );
  };
  let settling = 0;
  /** Puts the other graph beside what this one shows, once both are laid out. */
  function settle(side: SideOf): void {
    if (!synced) return;
    cancelAnimationFrame(settling);
    const look = (): void => {
      if (signal.aborted) return;
      if (views.some((view) => view.viewport.busy)) settling = requestAnimationFrame(look);
      else putBeside(side);
    };
    settling = requestAnimationFrame(look);
  }

  function putBeside(side: SideOf): void {
    const { camera, view } = views[side].viewport.position;
    const away = offset(side);
    const stage = views[other(side)].viewport;
    const there = stage.position.view;
    if (away === null || view.w === 0 || there.w === 0) return;
    const x = camera.x + view.w / camera.k / 2 + away.x;
    const y = camera.y + view.h / camera.k / 2 + away.y;
    stage.moveTo({ x: x - there.w / camera.k / 2, y: y - there.h / camera.k / 2, k: camera.k });
  }

  let table: { readonly scenes: readonly (Scene | null)[]; readonly boxes: readonly [Int32Array, Int32Array] } | null =
    null;
  /** The boxes that both graphs draw, of the one and the other. */
  function boxesOfBoth(): readonly [Int32Array, Int32Array] | null {
    const scenes = views.map((view) => view.viewport.scene);
    const [left, right] = scenes;
    if (left === undefined || right === undefined || left === null || right === null) return null;
    if (table === null || table.scenes[0] !== left || table.scenes[1] !== right) {
      const [mine, others]: [number[], number[]] = [[], []];
      for (let box = 0; box < left.boxes.count; box++) {
        const target = targetOf(left, box);
        const there = target === null ? null : data.counterpart(0, target);
        const found = there === null ? -1 : boxOf(right, columns[1], there);
        if (found < 0) continue;
        mine.push(box);
        others.push(found);
      }
      table = { scenes, boxes: [Int32Array.from(mine), Int32Array.from(others)] };
    }
    return table.boxes;
  }

  /** How far what both graphs draw lies apart, that near the middle of the picture counting most. */
  function offset(side: SideOf): Point | null {
    const both = boxesOfBoth();
    const [mine, there] = [views[side].viewport, views[other(side)].viewport];
    if (both === null || mine.scene === null || there.scene === null) return null;
    const { camera, view } = mine.position;
    const [cx, cy] = [camera.x + view.w / camera.k / 2, camera.y + view.h / camera.k / 2];
    const [a, b] = [mine.scene.boxes, there.scene.boxes];
    const [from, to] = [both[side], both[other(side)]];
    let [sum, x, y] = [0, 0, 0];
    const count = (ax: number, ay: number, bx: number, by: number, times: number): void => {
      const near = NEAR ** 2 / ((ax - cx) ** 2 + (ay - cy) ** 2 + NEAR ** 2);
      const weight = times * near * near;
      sum += weight;
      x += weight * (bx - ax);
      y += weight * (by - ay);
    };
    for (let at = 0; at < from.length; at++) {
      const [i, j] = [from[at], to[at]];
      count(a.x[i] + a.w[i] / 2, a.y[i] + a.h[i] / 2, b.x[j] + b.w[j] / 2, b.y[j] + b.h[j] / 2, 1);
    }
    const ends = anchor === null ? null : centers(anchor);
    if (ends !== null) count(ends[side].x, ends[side].y, ends[other(side)].x, ends[other(side)].y, ANCHOR);
    return sum === 0 ? null : { x: x / sum, y: y / sum };
  }

  /** Where two targets lie, in reference and candidate. */
  function centers(targets: readonly [Target, Target]): readonly [Point, Point] | null {
    const center = (at: SideOf, given: Target): Point | null => {
      const { scene } = views[at].viewport;
      if (scene === null) return null;
      let box = boxOf(scene, columns[at], given);
      if (box < 0 && given.kind === "tensor") {
        const { producer, consumers } = scene.boxesOfValue(given.id);
        const [reader] = consumers;
        box = producer >= 0 ? producer : (reader ?? -1);
      }
      if (box < 0) return null;
      const { x, y, w, h } = scene.boxes;
      return { x: x[box] + w[box] / 2, y: y[box] + h[box] / 2 };
    };
    const [mine, there] = [center(0, targets[0]), center(1, targets[1])];
    return mine === null || there === null ? null : [mine, there];
  }

  // ---------------------------------------------------------------- what is said

  function compared(side: SideOf, target: Target): [string, string][] {
    if (host.compared !== undefined) return host.compared(side, target);
    const there = other(side);
    const found = data.counterpart(side, target);
    const name = found === null ? `nothing like it` : columns[there].nameOf(found) || "(unnamed)";
    const rows: [string, string][] = [[`in ${titles[there]}`, name]];
    if (target.kind === "scope") {
      const { long } = new DiffStatuses(data.statuses(side)).say(BOX.SCOPE, target.id);
      rows.push(["differs", long || "no"]);
      return rows;
    }
    const changes = data.about(side, target, columns[side]);
    for (const change of changes) {
      const inside = target.kind === "node" && change.nodes[side] !== target.id;
      const own = inside ? `${change.kind === "weight" ? "weight" : "constant"} ${change.name}` : "differs";
      rows.push([own, wordsOf(change)]);
    }
    const [how] = changes.flatMap((change) => (change.how === "" ? [] : [change.how]));
    if (how !== undefined) rows.push(["matched by", how]);
    return rows;
  }

  const voice = el("div", { class: "onnx-nb-voice", attrs: { "aria-live": "polite" } });
  const count = el("span", { class: "onnx-nb-pair-count" });
  const list = el("ul", { class: "onnx-nb-changes", attrs: { "aria-label": "Differences" } });
  const field = el("input", {
    class: "onnx-nb-field onnx-nb-pair-filter",
    attrs: { type: "search", placeholder: "Filter differences", "aria-label": "Filter differences" },
  });
  const off = new Set<DiffStatus>();
  let shown: readonly number[] = [];
  let at = -1;

  const chips = WORDS.filter((word) => (data.counts[word] ?? 0) > 0).map((word) => {
    const chip = button(
      "",
      () => {
        if (off.has(word)) off.delete(word);
        else off.add(word);
        chip.setAttribute("aria-pressed", String(!off.has(word)));
        fill();
      },
      signal,
      { class: `onnx-nb-chip onnx-nb-${word}`, title: `List what was ${word}`, attrs: { "aria-pressed": "true" } },
    );
    const number = data.counts[word] ?? 0;
    chip.append(el("i", { attrs: { "aria-hidden": true } }, SIGNS[word]), `${plain(number)} ${word}`);
    return chip;
  });

  const fill = (): void => {
    const wanted = field.value.trim().toLowerCase().split(/\s+/);
    shown = data.changes.flatMap((change, index) => {
      const text = `${change.what} ${change.op} ${change.name} ${wordsOf(change)} ${change.how}`.toLowerCase();
      return !off.has(change.what) && wanted.every((word) => text.includes(word)) ? [index] : [];
    });
    list.replaceChildren(...shown.slice(0, ROWS).map(row));
    const unlisted = shown.length - Math.min(shown.length, ROWS) + data.total - data.changes.length;
    if (unlisted > 0) {
      list.append(el("li", { class: "onnx-nb-dim" }, `${counted(unlisted, "more difference")}: the filter finds them`));
    }
    if (data.changes.length === 0) list.append(el("li", { class: "onnx-nb-dim" }, "The two models are the same."));
    else if (shown.length === 0) list.append(el("li", { class: "onnx-nb-dim" }, "Nothing that differs is like this."));
    tell();
  };
  const row = (index: number): HTMLElement => {
    const change = data.changes[index];
    const press = button("", () => goTo(index), signal, { class: "onnx-nb-change", data: { change: String(index) } });
    press.append(
      el("i", { class: `onnx-nb-sign onnx-nb-${change.what}`, attrs: { "aria-hidden": true } }, SIGNS[change.what]),
      el("b", {}, elide(change.op || change.kind, 40)),
      el("span", { class: "onnx-nb-mono onnx-nb-ellipsis", title: change.name.slice(0, 4000) }, elide(change.name, 90)),
      el("span", { class: "onnx-nb-change-words" }, elide(wordsOf(change), 160)),
      el("span", { class: "onnx-nb-dim" }, change.how === "" || change.how === "name" ? "" : `by ${change.how}`),
    );
    return el("li", {}, press);
  };
  const tell = (): void => {
    const place = shown.indexOf(at);
    count.textContent =
      shown.length === 0 ? "none" : `${place < 0 ? "" : `${plain(place + 1)} of `}${plain(shown.length)}`;
    for (const each of list.querySelectorAll<HTMLElement>(".onnx-nb-change")) {
      const current = each.dataset.change === String(at);
      each.toggleAttribute("aria-current", current);
      if (current) {
        each.setAttribute("aria-current", "true");
        // only the list scrolls, not the notebook
        const [top, height] = [each.offsetTop, each.offsetHeight];
        if (top < list.scrollTop) list.scrollTop = top;
        else if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
      }
    }
    previous.disabled = next.disabled = shown.length === 0;
  };

  function goTo(index: number): void {
    const change = data.changes[index];
    at = index;
    const target = (side: SideOf): Target | null =>
      change.nodes[side] >= 0
        ? { kind: "node", id: change.nodes[side] }
        : change.tensors[side] >= 0
          ? { kind: "tensor", id: change.tensors[side] }
          : null;
    const side: SideOf = target(0) === null && target(1) !== null ? 1 : 0;
    const chosen = target(side);
    leader = side;
    views[side].dispatch({ type: "select", target: chosen });
    if (chosen !== null) views[side].dispatch({ type: "reveal", target: chosen, centered: true });
    tell();
    voice.textContent = elide(
      `${count.textContent}: ${change.op || change.kind} ${change.name} ${wordsOf(change)}`,
      300,
    );
  }
  const step = (by: 1 | -1): void => {
    if (shown.length === 0) return;
    const place = shown.indexOf(at);
    const from = place < 0 && by < 0 ? 0 : place;
    goTo(shown[(from + by + shown.length) % shown.length]);
  };
  const previous = button("‹", () => step(-1), signal, {
    class: "onnx-nb-small",
    title: "Previous difference (p)",
    attrs: { "aria-label": "Previous difference" },
  });
  const next = button("›", () => step(1), signal, {
    class: "onnx-nb-small",
    title: "Next difference (n)",
    attrs: { "aria-label": "Next difference" },
  });
  const toggle = button("In step", () => setSynced(!synced), signal, {
    title: "Move, zoom, open and search both graphs together",
    attrs: { "aria-pressed": String(synced) },
  });
  const setSynced = (on: boolean): void => {
    if (on === synced) return;
    synced = on;
    toggle.setAttribute("aria-pressed", String(on));
    host.synced(on);
    if (on) settle(leader);
  };
  field.addEventListener("input", fill, { signal });

  // ---------------------------------------------------------------- together

  const { legend } = options;
  const about = data.total === 0 ? "No differences" : counted(data.total, "difference");
  const tools = legend ?? [el("b", {}, about), ...chips, field, previous, count, next];
  root.replaceChildren(
    el("header", { class: "onnx-nb-bar onnx-nb-pair-bar" }, ...tools, toggle),
    ...(legend === undefined ? [list] : []),
    body,
    voice,
  );
  watchTheme(root, () => undefined, signal);
  const view = (side: SideOf): GraphView => {
    const made = createGraphView(
      inner[side],
      columns[side],
      hostOf(side),
      {
        nested: true,
        open: opens[side],
        height: options.height,
        statuses: new DiffStatuses(data.statuses(side)),
        looked() {
          if (synced && leader === side && !following) putBeside(side);
        },
        searched(text) {
          if (!synced) return;
          const there = other(side);
          follow(() => views[there].dispatch({ type: "search", text, hits: search(columns[there], text).hits }));
        },
      },
      signal,
    );
    inner[side].dataset.widget = ROLES[side];
    return made;
  };
  const views: readonly [GraphView, GraphView] = [view(0), view(1)];
  for (const side of SIDES) {
    const lead = (): void => {
      leader = side;
    };
    for (const kind of ["pointerdown", "wheel", "keydown", "focusin"]) {
      panes[side].addEventListener(kind, lead, { signal, capture: true, passive: true });
    }
  }
  // before a graph takes the key
  root.addEventListener(
    "keydown",
    (event) => {
      const from = event.target instanceof HTMLElement ? event.target : null;
      const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
      if (!plain || from === null || from.matches("input, textarea, select")) return;
      const key = event.key.toLowerCase();
      if (legend !== undefined || (key !== "n" && key !== "p")) {
        if (!from.closest(".onnx-nb-pane")) event.stopPropagation(); // the notebook would take it
        return;
      }
      event.preventDefault();
      event.stopPropagation();
      step(key === "n" ? 1 : -1);
    },
    { signal, capture: true },
  );
  fill();

  const drawn = (): void => {
    const states = inner.map((each) => each.dataset.state);
    root.dataset.state = states.includes("error") ? "error" : states.every((s) => s === "drawn") ? "drawn" : "loading";
  };
  const watcher = new MutationObserver(drawn);
  for (const each of inner) watcher.observe(each, { attributes: true, attributeFilter: ["data-state"] });
  const sized = new ResizeObserver(() => {
    const stacked = root.clientWidth > 0 && root.clientWidth < NARROW;
    if (stacked === root.classList.contains("onnx-nb-stacked")) return;
    root.classList.toggle("onnx-nb-stacked", stacked);
    const height = Math.round(options.height * (stacked ? STACKED : 1));
    for (const each of inner) each.style.setProperty("--nb-height", `${height}px`);
  });
  sized.observe(root);
  signal.addEventListener(
    "abort",
    () => {
      watcher.disconnect();
      sized.disconnect();
      cancelAnimationFrame(settling);
    },
    { once: true },
  );
  drawn();

  const handle: Pair = {
    views,
    data,
    get at() {
      return at;
    },
    get synced() {
      return synced;
    },
    setSynced,
    show,
  };
  Object.assign(root, { onnxNb: handle });
  return handle;
}

function targetOf({ boxes: { kind, id } }: Scene, box: number): Target | null {
  switch (kind[box]) {
    case BOX.NODE:
      return { kind: "node", id: id[box] };
    case BOX.SCOPE:
      return { kind: "scope", id: id[box] };
    case BOX.OPEN:
      return null; // its middle says little of what is seen
    default:
      return { kind: "tensor", id: id[box] };
  }
}

const GAP = 16;

/** Two pictures as one. */
export function sideBySide(left: string, right: string): string {
  const [a, b] = [left, right].map((svg) => {
    const [, w, h] = /^<svg [^>]*?width="(\d+)" height="(\d+)"/.exec(svg) ?? ["", "0", "0"];
    return { w: Number(w), h: Number(h) };
  });
  const [w, h] = [a.w + GAP + b.w, Math.max(a.h, b.h)];
  const placed = right.replace(/^<svg /, `<svg x="${a.w + GAP}" y="0" `);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" role="img">` +
    `${left}${placed}</svg>`
  );
}
