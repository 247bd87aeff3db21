/** The scopes around the selection, from the outermost in. Where they do not fit, those in the middle are left out. */

import type { Columns, Target } from "../protocol/columns.ts";
import { el, elide, onAbort } from "./dom.ts";
import { link } from "./link.ts";

export interface Breadcrumbs {
  readonly element: HTMLElement;
  update(selection: Target | null): void;
}

/** Names are shortened to these, one after the other, before whole scopes give way. */
const LENGTHS = [40, 24, 14, 9];

export function createBreadcrumbs(columns: Columns, signal: AbortSignal): Breadcrumbs {
  const element = el("nav.onnx-nb-crumbs", { "aria-label": "Scope of the selection" });
  let inside: readonly number[] = [];

  /** `left` scopes from the outside and `right` from the inside, in names of at most `most` characters. */
  const fill = (left: number, right: number, most: number): void => {
    element.replaceChildren();
    const slash = (): HTMLElement => el("span", { "aria-hidden": "true" }, "/");
    const add = (scope: number): void => {
      if (element.childElementCount > 0) element.append(slash());
      const name = columns.str(columns.scopeName[scope]) || "scope";
      element.append(link(elide(name, most), { kind: "scope", id: scope }, columns.str(columns.scopePath[scope])));
    };
    inside.slice(0, left).forEach(add);
    if (left + right < inside.length) {
      const hidden = inside.slice(left, inside.length - right).map((scope) => columns.str(columns.scopeName[scope]));
      if (element.childElementCount > 0) element.append(slash());
      element.append(el("span", { title: hidden.join(" / ").slice(0, 2000) }, "…"));
    }
    inside.slice(inside.length - right).forEach(add);
  };
  const fits = (): boolean => element.scrollWidth <= element.clientWidth;
  const refit = (): void => {
    const all = inside.length;
    // both ends stay as long as they can: the nearest scopes say most, then the outermost one
    for (const most of LENGTHS) {
      for (let right = all; right > 0; right--) {
        const left = right === all ? 0 : right > 1 || most === LENGTHS.at(-1) ? 1 : 0;
        fill(left, right, most);
        if (fits()) return;
        if (right <= 2 && most !== LENGTHS.at(-1)) break;
      }
    }
    fill(0, Math.min(1, all), LENGTHS.at(-1) ?? 14);
  };

  const observer = new ResizeObserver(refit);
  observer.observe(element);
  onAbort(signal, () => observer.disconnect());
  return {
    element,
    update(selection) {
      inside =
        selection === null
          ? []
          : columns.ancestry(selection.kind === "scope" ? selection.id : columns.scopeOf(selection)).slice(1);
      refit();
    },
  };
}
