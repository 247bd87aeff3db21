/**
 * A page of several parts in tabs. A part is mounted when it is first shown, since a graph is laid out for the size of
 * its view. What is selected in one part is selected in each other part that has a tensor of the name.
 */

import { type Parts, pagePart } from "../protocol/model.ts";
import { el, elide } from "../ui/dom.ts";
import { CHOICE_EVENT, fillRoot, type LinkedView, type Page, rootIn } from "./mount.ts";

interface Part {
  readonly title: string;
  /** the tab's part of the address, after "#" */
  readonly id: string;
  /** size of the part, as text */
  readonly size: string;
  /** widget of the part; "" for a part that is HTML already, in the element `onnx-nb-section-<id>` */
  readonly kind: string;
  readonly about: unknown;
  /** name of packed columns → element that holds them, which other parts may share */
  readonly data: Readonly<Record<string, string>>;
}

/** Starts the page that the JSON describes. */
export function createReport(parts: readonly Part[], pageOf: (kind: string) => Page | undefined): void {
  const { signal } = new AbortController();
  const tabs = parts.map(({ title, id, size }) => {
    const controls = { "aria-controls": `onnx-nb-section-${id}`, title: `${title}, ${size}` };
    const tab = el("button", { type: "button", role: "tab", id: `onnx-nb-tab-${id}`, ...controls }, elide(title, 60));
    tab.addEventListener("click", () => go(id));
    return tab;
  });
  const list = el("nav", { role: "tablist", "aria-label": "Parts" }, ...tabs);
  const sections = parts.map(({ id }) => {
    const section = document.getElementById(`onnx-nb-section-${id}`) as HTMLElement;
    section.setAttribute("role", "tabpanel");
    section.setAttribute("aria-labelledby", `onnx-nb-tab-${id}`);
    return section;
  });
  document.body.classList.add("onnx-nb-report");
  sections[0]?.before(list);

  const views = new Map<number, Promise<LinkedView | undefined>>();
  /** what was selected elsewhere since a part was shown */
  const pendingNames = new Map<number, readonly string[]>();
  const mount = (at: number): Promise<LinkedView | undefined> => {
    const { kind, about, data } = parts[at];
    const page = pageOf(kind);
    if (page === undefined) return Promise.resolve(undefined);
    const root = rootIn(sections[at], kind);
    root.addEventListener(CHOICE_EVENT, (event) => {
      const names = (event as CustomEvent<readonly string[]>).detail;
      for (const index of parts.keys()) if (index !== at) pendingNames.set(index, names);
    });
    const part: Parts = (name) => pagePart(data[name] ?? name);
    return new Promise((resolve) => {
      fillRoot(root, signal, async () => resolve((await page(root, about, part, signal)) ?? undefined));
    });
  };
  const show = async (at: number): Promise<void> => {
    tabs.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === at));
      tab.tabIndex = index === at ? 0 : -1;
      sections[index].hidden = index !== at;
    });
    const view = views.get(at) ?? mount(at);
    views.set(at, view);
    const linkedView = await view;
    const names = pendingNames.get(at);
    pendingNames.delete(at);
    if (names !== undefined) requestAnimationFrame(() => linkedView?.choose(names)); // once it has a size
  };
  const go = (id: string): void => {
    if (location.hash.slice(1) === id) void showAddressPart();
    else location.hash = id;
  };
  /** Shows the part that the address names; the first one if there is none. */
  const showAddressPart = (): Promise<void> => {
    const at = parts.findIndex(({ id }) => id === decodeURIComponent(location.hash.slice(1)));
    return show(Math.max(0, at));
  };
  window.addEventListener("hashchange", () => void showAddressPart());
  list.addEventListener("keydown", (event) => {
    const now = tabs.findIndex((tab) => tab.tabIndex === 0);
    const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const at = (to + tabs.length) % tabs.length;
    tabs[at].focus();
    go(parts[at].id);
  });
  void showAddressPart();
}
