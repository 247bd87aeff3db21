/** The menu that saves the graph as a picture or as a page. */

import type { Dispatch, Saving } from "../scene/state.ts";
import { createMenu, item, type Menu } from "./menu.ts";

const CHOICES: readonly (readonly [what: Saving, text: string, title: string])[] = [
  ["svg", "SVG, whole graph", "Vectors: all that is open, at life size"],
  ["svg-view", "SVG, this view", "Vectors: what the view shows now"],
  ["png", "PNG, this view", "Pixels, at twice the size of the view"],
];

const PAGES: readonly (readonly [statistics: boolean, text: string, title: string])[] = [
  [false, "HTML page", "The live graph in one file that works offline"],
  [true, "HTML page with statistics", "… with statistics of all weights, and of the capture, in it"],
];

/** @param pages whether a kernel can write the live graph as a page */
export function createSaveMenu(pages: boolean, dispatch: Dispatch, signal: AbortSignal): Menu {
  const menu = createMenu("Save", { title: "Save a picture or a page (s)", label: "Save" }, signal);
  const write = (statistics: boolean): void => {
    menu.close();
    dispatch({ type: "page", statistics });
  };
  const choose = (what: Saving): void => {
    menu.close();
    dispatch({ type: "save", what });
  };
  menu.fill(
    ...CHOICES.map(([what, text, title]) => item(text, title, () => choose(what), signal)),
    ...(pages ? PAGES.map(([statistics, text, title]) => item(text, title, () => write(statistics), signal)) : []),
  );
  return menu;
}
