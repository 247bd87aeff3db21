/** The root element of a widget in a cell or on a page: its theme, its errors, its removal. */

import { hearKernel } from "../hosts/comm.ts";
import { outputWith } from "../hosts/output.ts";
import type { GraphSource } from "../panels/chartgraph.ts";
import type { GraphView } from "../panels/graphview.ts";
import type { ModelPart } from "../panels/summary.ts";
import type { Channel } from "../protocol/channel.ts";
import type { Target } from "../protocol/columns.ts";
import { failureText } from "../protocol/host.ts";
import { bindTrait, loadPart, type Parts, type WidgetModel } from "../protocol/model.ts";
import { watchTheme } from "../render/theme.ts";
import { el, onAbort } from "../ui/dom.ts";
import { stillOf } from "../ui/still.ts";

export interface Mount {
  readonly model: WidgetModel;
  readonly el: HTMLElement;
}

/** Shows a widget in a root of its own in the cell. The returned function removes it, which the signal reports. */
export function mount(
  { model, el: parent }: Mount,
  css: string,
  channel: Channel,
  show: (root: HTMLElement, signal: AbortSignal) => void | Promise<void>,
): () => void {
  const view = new AbortController();
  style(parent, css);
  const root = rootIn(parent, String(model.get("_kind")));
  const id = String(model.get("_picture_id") ?? "");
  if (/^\w+$/.test(id)) {
    // the picture that replaces a widget, drawn or still empty, and the output around it
    const picture = `:is(.onnx-nb-picture-${id}, img[src^="data:image/gif"][src$="${id}"])`;
    style(parent, `${picture}, ${outputWith(picture)} { display: none !important; }`);
    sendPictures(root, channel, view.signal);
  }
  hearKernel(model).catch((error) => console.error(error));
  showNotice(root, channel, view.signal);
  const paint = (theme: unknown): void => {
    root.dataset.theme = String(theme);
  };
  paint(model.get("theme"));
  bindTrait(model, "theme", paint, view.signal);
  fillRoot(root, view.signal, () => show(root, view.signal));
  return () => {
    view.abort();
    parent.replaceChildren(); // the page keeps the element of each view that a cell showed
  };
}

/** Says over the view that its requests wait for the kernel, while they do. */
function showNotice(root: HTMLElement, channel: Channel, signal: AbortSignal): void {
  const note = el("div.onnx-nb-layout.onnx-nb-waiting", { role: "status" });
  channel.watch((notice) => {
    note.textContent = notice;
    if (notice === "") note.remove();
    else root.append(note);
  }, signal);
}

/** Runs the function that fills a root; shows an error in its place. */
export function fillRoot(root: HTMLElement, signal: AbortSignal, fill: () => void | Promise<void>): void {
  (async () => fill())().catch((error: unknown) => {
    if (signal.aborted) return;
    root.dataset.state = "error";
    root.replaceChildren(el("p", { role: "alert" }, failureText(error)));
  });
}

/** Marks a root without a canvas as drawn, and keeps it consistent with the page's theme. */
export function markDrawn(root: HTMLElement, signal: AbortSignal, redraw: () => void = () => undefined): void {
  watchTheme(root, redraw, signal);
  root.dataset.state = "drawn";
}

export function style(parent: HTMLElement, css: string): void {
  parent.append(el("style", css));
}

/** Milliseconds without a change until a view is at rest. */
const REST_MS = 800;

/** Sends the kernel a picture of the view whenever it has come to rest and looks different from the last picture. */
function sendPictures(root: HTMLElement, channel: Channel, signal: AbortSignal): void {
  let timer = 0;
  let lastPicture = "";
  const send = (): void => {
    if (root.dataset.state !== "drawn" || !channel.live) return;
    const svg = stillOf(root);
    if (svg === null || svg === lastPicture) return;
    lastPicture = svg;
    channel.request("picture", { svg }).catch(() => undefined); // the saved notebook keeps the previous one
  };
  const observer = new MutationObserver(() => {
    window.clearTimeout(timer);
    timer = window.setTimeout(send, REST_MS);
  });
  observer.observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
  onAbort(signal, () => {
    window.clearTimeout(timer);
    observer.disconnect();
  });
}

export function rootIn(parent: HTMLElement, kind: string): HTMLElement {
  const root = el("div.onnx-nb", { data: { widget: kind, state: "loading" } });
  keepFocus(root);
  parent.append(root);
  return root;
}

/** Fills the root of one view, which lives until the signal aborts. */
export type View = (root: HTMLElement, signal: AbortSignal) => void | Promise<void>;

/** Called once for each widget: loads the data that its views share. */
export type Widget = (model: WidgetModel, channel: Channel) => View;

/** Returns a widget that loads the data of its views once. */
export function sharing<T>(
  load: (part: Parts, model: WidgetModel) => Promise<T>,
  show: (data: T, model: WidgetModel, channel: Channel, root: HTMLElement, signal: AbortSignal) => void,
): Widget {
  return (model, channel) => {
    const loading = load((part) => loadPart(model, channel, part), model);
    loading.catch(() => undefined); // each view reports it
    return async (root, signal) => {
      const data = await loading;
      if (!signal.aborted) show(data, model, channel, root, signal);
    };
  };
}

/** Returns the graph beside a panel's chart; none without a kernel, or where a linked graph shows the same. */
export function chartGraph(model: WidgetModel, channel: Channel, part: string): { readonly graph?: GraphSource } {
  if (!channel.live || (model.get("_linked") ?? "") !== "") return {};
  return {
    graph: {
      load: () => loadPart(model, channel, part),
      extract: (nodes, signal, progress) => channel.value("range", { nodes: [...nodes] }, { signal, progress }),
    },
  };
}

/** Fills the root of a page from the page's JSON and its packed columns. */
export type Page = (
  root: HTMLElement,
  about: unknown,
  part: Parts,
  signal: AbortSignal,
) => void | Promise<void> | Promise<LinkedView>;

/** A view on a page with several of them, in which a tensor can be selected that was selected in another one. */
export interface LinkedView {
  /** selects the first of these tensors that the view has; changes nothing if it has none */
  choose(names: readonly string[]): void;
}

/** Type of the event with which a view reports the names of the tensor that a person selected. */
export const CHOICE_EVENT = "onnx-nb-chosen";

/** Reports a selected tensor to the other views on the page. */
export function announceChoice(root: HTMLElement, ...names: readonly string[]): void {
  const detail = names.filter((name) => name !== "");
  if (detail.length > 0) root.dispatchEvent(new CustomEvent(CHOICE_EVENT, { detail }));
}

/** Type of the event with which a summary asks the graph below to show something; in one page that needs no kernel. */
const SHOW_EVENT = "onnx-nb-show";

/** Asks the graph of a widget, by its id, to show something. */
export function showInGraph(graph: string, part: ModelPart): void {
  document.dispatchEvent(new CustomEvent(SHOW_EVENT, { detail: { graph, ...part } }));
}

/** Selects and frames what the summary above a graph asks for. */
export function hearSummary(root: HTMLElement, view: GraphView, own: string, signal: AbortSignal): void {
  const { columns } = view;
  const show = (event: Event): void => {
    const { graph, kind, name } = (event as CustomEvent<ModelPart & { readonly graph: string }>).detail;
    if (graph !== own) return;
    const nodes = kind === "op" ? [...columns.nodeOp.keys()].filter((node) => columns.opOf(node) === name) : [];
    const target = kind === "op" ? undefined : columns.find(name, kind);
    const targets = target === undefined ? nodes.map((id): Target => ({ kind: "node", id })) : [target];
    view.dispatch({ type: "selectAll", targets });
    view.dispatch(targets.length === 1 ? { type: "reveal", target: targets[0] } : { type: "fit", targets });
    root.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener(SHOW_EVENT, show, { signal });
}

/** Returns the pixels of the window below the top of a view on a page, minus a margin for the view's bars. */
export function roomBelow(root: HTMLElement, margin: number, minHeight: number): number {
  return Math.max(minHeight, window.innerHeight - margin - root.getBoundingClientRect().top - window.scrollY);
}

/** Elements that take the focus if nothing around the removed one does. */
const HOME = ["canvas[tabindex]", "[role=grid][tabindex]", "button:not([disabled])"];

/**
 * Keeps the focus in the view when the focused element is removed (a used button, a previous page): keys without
 * the focus are commands to the notebook, which may delete the cell.
 */
function keepFocus(root: HTMLElement): void {
  /** the focused element and its ancestors */
  let focusPath: readonly HTMLElement[] = [];
  const isGone = (element: HTMLElement): boolean =>
    !element.isConnected || element.getClientRects().length === 0 || element.matches(":disabled");
  const back = (): void => {
    const [last] = focusPath;
    if (last === undefined || !root.isConnected || !isGone(last)) return;
    const { activeElement } = root.getRootNode() as Document | ShadowRoot;
    // the focus is already elsewhere
    if (activeElement !== null && activeElement !== document.body && activeElement !== last) return;
    const ancestor = focusPath
      .slice(1)
      .find((element) => element.hasAttribute("tabindex") && root.contains(element) && !isGone(element));
    const home = HOME.map((selector) => root.querySelector<HTMLElement>(selector)).find((element) => element !== null);
    (ancestor ?? home)?.focus({ preventScroll: true });
  };
  root.addEventListener("focusin", (event) => {
    const path = event.composedPath().filter((target) => target instanceof HTMLElement);
    focusPath = path.slice(0, path.indexOf(root));
  });
  root.addEventListener("focusout", (event) => {
    if (event.relatedTarget !== null) return;
    const left = focusPath;
    // a click somewhere else, or the focused element is about to be removed
    setTimeout(() => {
      const [last] = left;
      if (focusPath === left && last !== undefined && !isGone(last)) focusPath = [];
    });
  });
  const changes = { subtree: true, childList: true, attributeFilter: ["hidden", "disabled"] };
  new MutationObserver(back).observe(root, changes);
}
