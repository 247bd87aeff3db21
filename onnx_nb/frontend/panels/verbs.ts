/** Verbs of the search field, in plain words; each is an action of the view. */

import type { Columns } from "../protocol/columns.ts";
import type { GraphHost } from "../protocol/host.ts";
import type { Action, Command } from "../scene/state.ts";
import { search } from "../search/search.ts";
import { elide } from "../ui/dom.ts";
import { LENSES, lensAction } from "./lenses.ts";

export interface Verb {
  readonly text: string;
  readonly note: string;
  readonly action: Action | Command;
}

/** Letters from which on a text may be the beginning of a verb. */
const SHORTEST = 3;
const MOST_VERBS = 4;

const OF_VIEW: readonly Verb[] = [
  { text: "fit", note: "show the whole graph", action: { type: "fit" } },
  { text: "expand all", note: "open all scopes", action: { type: "expandAll" } },
  { text: "collapse all", note: "close all scopes", action: { type: "collapseAll" } },
  { text: "bookmark", note: "keep this view", action: { type: "bookmark" } },
  { text: "save svg", note: "a picture of the whole graph", action: { type: "save", what: "svg" } },
  { text: "save png", note: "a picture of this view", action: { type: "save", what: "png" } },
];
const OF_KERNEL: readonly Verb[] = [
  { text: "capture", note: "run the model and see every value", action: { type: "capture", value: null } },
  { text: "profile", note: "where the time goes", action: { type: "profile" } },
];
const SIMPLIFY: Verb = {
  text: "simplify",
  note: "remove what computes nothing",
  action: { type: "edit", request: { edit: "simplify" } },
};

/** Returns the verbs that a text begins, each word of the text a word of the verb. */
export function verbsFor(text: string, columns: Columns, host: GraphHost): readonly Verb[] {
  const words = text.trim().toLowerCase().split(/\s+/);
  if (text.trim().length < SHORTEST) return [];
  if (words[0] === "extract" && words.length > 1) {
    const [hit] = search(columns, text.trim().slice(words[0].length).trim(), 1).hits;
    if (!host.live || host.canExtract === false || hit === undefined || hit.kind === "tensor") return [];
    const name = elide(columns.nameOf(hit) || columns.opOf(hit.id), 60);
    return [{ text: `extract ${name}`, note: "as a model of its own", action: { type: "extract", targets: [hit] } }];
  }
  const colors = LENSES.map(([word, name, note]) => ({
    text: `color by ${word}`,
    note: note[0].toLowerCase() + note.slice(1),
    action: lensAction(name),
  }));
  const verbs = [
    ...OF_VIEW,
    ...(host.overlay === undefined ? [] : colors),
    ...(host.live ? OF_KERNEL : []),
    ...(host.live && host.edit !== undefined ? [SIMPLIFY] : []),
  ];
  const begins = (verb: Verb): boolean => {
    const all = verb.text.toLowerCase().split(" ");
    return all[0].startsWith(words[0]) && words.every((word) => all.some((other) => other.startsWith(word)));
  };
  return verbs.filter(begins).slice(0, words.length > 1 ? MOST_VERBS : 2 * MOST_VERBS);
}
