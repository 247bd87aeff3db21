/** What a screen reader says of what happens in the view. */

import type { Columns, Target } from "../model/columns.ts";
import { counted, el, elide } from "./dom.ts";
import { describe } from "./link.ts";

export interface Voice {
  readonly element: HTMLElement;
  say(text: string): void;
  /** says what was selected */
  selected(target: Target | null): void;
}

export function createVoice(columns: Columns): Voice {
  const element = el("div", { class: "onnx-nb-voice", attrs: { "aria-live": "polite" } });
  const say = (text: string): void => {
    element.textContent = elide(text, 300);
  };
  return {
    element,
    say,
    selected(target) {
      if (target === null) {
        say("Nothing selected");
        return;
      }
      const { title, sub, kind } = describe(columns, target);
      let more = "";
      if (target.kind === "value") {
        const producer = columns.producer[target.id];
        const readers = columns.consumersOf(target.id).length;
        more = `${producer >= 0 ? `, made by ${columns.opOf(producer)}` : ""}, read by ${counted(readers, "node")}`;
      }
      say(`${kind} ${elide(title, 120)} ${elide(sub, 80)}${more}`);
    },
  };
}
