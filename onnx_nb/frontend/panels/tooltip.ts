/** The tooltip under the pointer. */

import type { Columns, Target } from "../protocol/columns.ts";
import type { Point, Size } from "../render/camera.ts";
import type { Overlay } from "../scene/overlay.ts";
import { BOX } from "../scene/scene.ts";
import { el, elide } from "./dom.ts";
import { describe } from "./link.ts";

export interface Tooltip {
  readonly element: HTMLElement;
  /** `at` and `room` in px of the picture that the tooltip must stay in */
  show(target: Target, overlay: Overlay | null, at: Point, room: Size): void;
  hide(): void;
}

export function createTooltip(columns: Columns): Tooltip {
  const tip = el("div.onnx-nb-tip", { "aria-hidden": "true" });
  tip.hidden = true;
  return {
    element: tip,
    show(target, overlay, at, room) {
      const { title, sub } = describe(columns, target);
      const more = target.kind === "node" ? columns.str(columns.nodeAttributes[target.id]) : "";
      tip.replaceChildren(el("b", elide(title, 70) || "(unnamed)"), sub === "" ? "" : el("span", ` ${elide(sub, 90)}`));
      if (more !== "") tip.append(el("div.onnx-nb-dim", elide(more, 90)));
      if (overlay !== null && target.kind !== "tensor") {
        const x = overlay.number(target.kind === "node" ? BOX.NODE : BOX.SCOPE, target.id);
        tip.append(el("div", elide(`${overlay.data.label || "value"}: ${overlay.say(x)}`, 90)));
      }
      tip.hidden = false;
      const { offsetWidth: w, offsetHeight: h } = tip;
      tip.style.left = `${Math.max(4, Math.min(at.x + 14, room.w - w - 4))}px`;
      tip.style.top = `${at.y + 20 + h > room.h ? at.y - h - 10 : at.y + 18}px`;
    },
    hide() {
      tip.hidden = true;
    },
  };
}
