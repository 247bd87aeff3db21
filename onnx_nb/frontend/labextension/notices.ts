/** Notices of a tab that cannot show its model: the cause, and the next step. */

import type { Evaluated } from "../hosts/jupyter.d.ts";

/** Action of a notice's button. */
export type NoticeAction = "again" | "restart" | "choose";

export interface Notice {
  readonly what: string;
  readonly now: string;
  /** a command to copy */
  readonly command?: string;
  /** for those who want to know, folded */
  readonly details?: string;
  readonly actions: readonly NoticeAction[];
  /** there is no such file */
  readonly gone?: boolean;
}

/** Reply of the kernel. */
export interface ShownFile {
  readonly file: string;
  readonly widget: string;
  readonly parts: readonly string[];
}

const INSTALL = "-m pip install --upgrade onnx-nb";

/** Returns the value of an expression, or what to say instead. */
export function resultOf<T>(evaluation: Evaluated | undefined, python: Evaluated | undefined): T | Notice {
  if (evaluation === undefined) return NOT_PYTHON;
  const path = String(python?.data?.["text/plain"] ?? "").replace(/^'|'$/g, "");
  if (evaluation.status === "error") return failureOf(evaluation, path);
  return (evaluation.data?.["application/json"] as T | Notice | undefined) ?? NOT_PYTHON;
}

export function isNotice(value: unknown): value is Notice {
  return typeof value === "object" && value !== null && "what" in value;
}

function failureOf({ ename, evalue, traceback }: Evaluated, python: string): Notice {
  const missing = /^No module named '([\w.]+)'/.exec(evalue ?? "")?.[1];
  const command = `${python === "" ? "python" : python} ${INSTALL}`;
  const now = "Run this in a terminal on the kernel's machine, then restart the kernel; or choose another kernel.";
  const actions = ["restart", "choose"] as const;
  if (missing === "onnx_nb") return { what: "onnx_nb is not installed where the kernel runs.", now, command, actions };
  if (missing?.startsWith("onnx_nb.")) {
    return { what: "onnx_nb is older where the kernel runs than where JupyterLab runs.", now, command, actions };
  }
  const what = `The kernel could not show the model: ${ename}: ${evalue}`;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: colors of a terminal
  const details = (traceback ?? []).join("\n").replace(/\x1b\[[\d;]*m/g, "");
  return { what, now: "Try again in a fresh kernel.", details, actions };
}

const NOT_PYTHON: Notice = {
  what: "The kernel of this tab does not run Python.",
  now: "Choose a Python kernel.",
  actions: ["choose"],
};

export const NO_KERNEL: Notice = {
  what: "No kernel is running for this tab.",
  now: "Choose one: it reads the model and answers clicks.",
  actions: ["choose"],
};

export const NO_WIDGETS: Notice = {
  what: "Jupyter shows no widgets here.",
  now: "Run this in the environment that Jupyter is started from, then start Jupyter again.",
  command: "python -m pip install --upgrade ipywidgets anywidget",
  actions: [],
};

export const CRASH: Notice = {
  what: "The kernel stopped unexpectedly, most often because memory ran out.",
  now: "What it had computed is lost. Open the model again, or choose another kernel.",
  actions: ["again", "choose"],
};

export const NO_RESTART: Notice = {
  what: "The kernel has stopped and does not start again.",
  now: "Start it anew, or choose another kernel.",
  actions: ["restart", "choose"],
};

export function missingFile(name: string): Notice {
  return {
    what: `${name} is gone: it was removed or renamed.`,
    now: "The picture is that of the file as it was; its weights can no longer be read. It is opened again when the file is back.",
    actions: ["again"],
    gone: true,
  };
}

export function changed(name: string): Notice {
  const what = `${name} has changed since it was opened.`;
  return { what, now: "Open it again to see the change.", actions: ["again"] };
}

/** Return the notice of an error on the page. */
export function failureNotice(error: unknown): Notice {
  const what = `The model could not be shown: ${error instanceof Error ? error.message : String(error)}`;
  return { what, now: "Try again; if it stays, restart the kernel.", actions: ["again", "restart", "choose"] };
}
