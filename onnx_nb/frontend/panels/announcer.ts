/** The live region: what a screen reader reads out when something happens in the view. */

import type { Columns, Target } from "../protocol/columns.ts";
import { counted } from "../scene/formatting.ts";
import { el, elide } from "./dom.ts";
import { describe } from "./link.ts";

export interface Announcer {
  readonly element: HTMLElement;
  announce(text: string): void;
  /** reads out what is selected now */
  announceSelection(targets: readonly Target[]): void;
}

export function createAnnouncer(columns: Columns): Announcer {
  const element = el("div.onnx-nb-voice", { "aria-live": "polite" });
  const announce = (text: string): void => {
    element.textContent = elide(text, 300);
  };
  return {
    element,
    announce,
    announceSelection(targets) {
      const target = targets.at(-1);
      if (target === undefined) {
        announce("Nothing selected");
        return;
      }
      if (targets.length > 1) {
        announce(`${countedByKind(targets)} selected`);
        return;
      }
      const { title, sub, kind } = describe(columns, target);
      let more = "";
      if (target.kind === "tensor") {
        const producer = columns.producer[target.id];
        const readers = columns.consumersOf(target.id).length;
        more = `${producer >= 0 ? `, made by ${columns.opOf(producer)}` : ""}, read by ${counted(readers, "node")}`;
      }
      announce(`${kind} ${elide(title, 120)} ${elide(sub, 80)}${more}`);
    },
  };
}

/** "3 nodes, 1 scope" */
export function countedByKind(targets: readonly Target[]): string {
  return (["node", "scope", "tensor"] as const)
    .map((kind) => [targets.filter((each) => each.kind === kind).length, kind] as const)
    .filter(([count]) => count > 0)
    .map(([count, kind]) => counted(count, kind))
    .join(", ");
}
