/** Tables in one place, of which one is shown: a button for each. */

import { plain } from "../scene/formatting.ts";
import { button } from "./dom.ts";
import type { Table } from "./table.ts";

export interface TableTabs {
  readonly buttons: readonly HTMLButtonElement[];
  readonly filters: readonly HTMLElement[];
  readonly tables: readonly HTMLElement[];
  show(tab: number): void;
}

/** @param shown is called with the number of the tab */
export function createTableTabs(
  tabs: readonly (readonly [name: string, count: number, table: Table])[],
  shown: (tab: number) => void,
  signal: AbortSignal,
): TableTabs {
  const buttons = tabs.map(([name, count], at) =>
    button(`${name} (${plain(count)})`, () => show(at), signal, { class: "onnx-nb-small" }),
  );
  const show = (tab: number): void => {
    tabs.forEach(([, , { element, filter }], at) => {
      buttons[at].setAttribute("aria-pressed", String(at === tab));
      element.hidden = filter.hidden = at !== tab;
    });
    shown(tab);
  };
  return {
    buttons,
    filters: tabs.map(([, , { filter }]) => filter),
    tables: tabs.map(([, , { element }]) => element),
    show,
  };
}
