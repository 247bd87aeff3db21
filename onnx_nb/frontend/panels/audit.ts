/** Where the bytes of a model's weights are: problems first, then the files and how full they are, then every tensor. */

import { bytes, counted, plain } from "../scene/formatting.ts";
import { button, el, elide } from "./dom.ts";
import { Table, type TableColumn } from "./table.ts";

/** As `external_data.Audit` has it. */
export interface AuditData {
  readonly model: string;
  readonly problems: readonly Problem[];
  readonly files: readonly DataFile[];
  readonly tensors: readonly TensorEntry[];
}

interface Problem {
  readonly kind: string;
  readonly severity: string;
  readonly message: string;
  readonly advice: string;
  readonly tensors: number;
  readonly location: string | null;
}

interface DataFile {
  readonly location: string;
  readonly nbytes: number;
  readonly tensors: number;
  readonly used: number;
  readonly padding: number;
  readonly orphan: number;
  readonly sha1: string;
}

interface TensorEntry {
  readonly name: string;
  readonly place: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly nbytes: number | null;
  readonly location: string | null;
  readonly offset: number | null;
  readonly alignment: number | null;
  readonly checksum: string;
  readonly problems: readonly string[];
}

/** More problems than these wait behind a button. */
const SHOWN = 6;

export function createExternalData(
  root: HTMLElement,
  audit: AuditData,
  options: { readonly height?: number },
  signal: AbortSignal,
): void {
  root.classList.add("onnx-nb-external");
  root.style.setProperty("--nb-height", `${options.height ?? 300}px`);
  const { problems, files, tensors } = audit;
  const errors = problems.filter(({ severity }) => severity === "error").length;
  const table = tensorTable(tensors, signal);
  const outside = tensors.filter(({ location }) => location !== null).length;
  const size = files.reduce((sum, { nbytes }) => sum + nbytes, 0);
  const where =
    outside === 0
      ? `${counted(tensors.length, "tensor")}, all in the model's own file`
      : `${plain(outside)} of ${counted(tensors.length, "tensor")} outside, in ${counted(files.length, "file")} of ${bytes(size)}`;
  const verdict =
    errors > 0
      ? el("span.onnx-nb-verdict.onnx-nb-bad", `✕ ${counted(errors, "error")}`)
      : problems.length > 0
        ? el("span.onnx-nb-verdict.onnx-nb-caution", `! ${counted(problems.length, "warning")}`)
        : el("span.onnx-nb-verdict.onnx-nb-fine", "✓ No problems");
  root.replaceChildren(
    el(
      "header.onnx-nb-bar",
      el("b.onnx-nb-name", { title: audit.model }, elide(audit.model, 60)),
      verdict,
      el("span.onnx-nb-dim.onnx-nb-ellipsis", where),
    ),
    problems.length === 0 ? well(outside) : issues(audit, table, signal),
    ...(files.length > 0 ? [fileList(files)] : []),
    ...(tensors.length > 0
      ? [
          el("section.onnx-nb-part", el("div.onnx-nb-parthead", el("h4", "Tensors"), table.filter)),
          el("div.onnx-nb-split-body", table.element),
        ]
      : []),
  );
}

function well(outside: number): HTMLElement {
  const text =
    outside === 0
      ? "All tensors are inside the model file, so no data file can be lost or moved."
      : "The bytes of every tensor are inside their file, their number fits its type and shape, and none overlap.";
  return el("section.onnx-nb-part", el("p", text));
}

function issues({ problems, tensors }: AuditData, table: Table, signal: AbortSignal): HTMLElement {
  const list = el("ul.onnx-nb-issues");
  let pressed: HTMLElement | null = null;
  // problems of one kind in one file concern the same rows
  const offered = new Set<string>();
  const item = (problem: Problem): HTMLElement => {
    const fatal = problem.severity === "error";
    const parts: (Node | string | null)[] = [
      el(
        "b",
        { class: fatal ? "onnx-nb-bad" : "onnx-nb-caution" },
        `${fatal ? "✕ Error" : "! Warning"}: ${problem.kind}`,
      ),
      el("span", ` ${elide(problem.message, 500)}`),
      problem.advice === "" ? null : el("span.onnx-nb-dim", ` ${elide(problem.advice, 500)}`),
    ];
    const affected = (row: number): boolean => {
      const { problems: kinds, location } = tensors[row];
      return kinds.includes(problem.kind) && (problem.location === null || location === problem.location);
    };
    const count = tensors.reduce((sum, _, row) => sum + Number(affected(row)), 0);
    const about = `${problem.kind} ${problem.location}`;
    if (count > 0 && !offered.has(about)) {
      offered.add(about);
      const show = button(
        `Show ${count === 1 ? "the tensor" : `the ${plain(count)} tensors`}`,
        () => {
          const on = pressed !== show;
          pressed?.setAttribute("aria-pressed", "false");
          pressed = on ? show : null;
          show.setAttribute("aria-pressed", String(on));
          table.restrict(on ? affected : null);
        },
        signal,
        { class: "onnx-nb-small", "aria-pressed": "false" },
      );
      parts.push(" ", show);
    }
    return el("li", ...parts);
  };
  // errors come first, whatever order they were found in
  const sorted = [...problems].sort((a, b) => Number(b.severity === "error") - Number(a.severity === "error"));
  list.append(...sorted.slice(0, SHOWN).map(item));
  const section = el("section.onnx-nb-part", { "aria-label": "Problems" }, list);
  if (sorted.length > SHOWN) {
    const more = button(
      `Show all ${plain(sorted.length)}`,
      () => {
        more.remove();
        list.append(...sorted.slice(SHOWN, 1000).map(item));
      },
      signal,
      { class: "onnx-nb-small" },
    );
    section.append(more);
  }
  return section;
}

function fileList(files: readonly DataFile[]): HTMLElement {
  const body = el("tbody");
  for (const file of files.slice(0, 200)) {
    const unknown = Math.max(0, file.nbytes - file.used - file.padding - file.orphan);
    const share = (part: number): string => `${file.nbytes > 0 ? (100 * part) / file.nbytes : 0}%`;
    const bar = el(
      "div.onnx-nb-fill",
      {
        role: "img",
        "aria-label": `${share(file.used)} used`,
        title: `${bytes(file.used)} used, ${bytes(file.padding)} padding, ${bytes(file.orphan + unknown)} unused`,
      },
      el("i.onnx-nb-used", { style: { width: share(file.used) } }),
      el("i.onnx-nb-padding", { style: { width: share(file.padding) } }),
      el("i.onnx-nb-orphan", { style: { width: share(file.orphan) } }),
    );
    body.append(
      el(
        "tr",
        el("td.onnx-nb-mono", { title: file.location }, elide(file.location, 60)),
        el("td.onnx-nb-number", bytes(file.nbytes)),
        el("td.onnx-nb-number", plain(file.tensors)),
        el("td", bar),
        el("td.onnx-nb-number", file.padding > 0 ? bytes(file.padding) : "–"),
        el(
          "td",
          { class: `onnx-nb-number${file.orphan > 0 ? " onnx-nb-caution" : ""}` },
          file.orphan > 0 ? bytes(file.orphan) : "–",
        ),
      ),
    );
  }
  const heads = ["File", "Size", "Tensors", "Used", "Padding", "Unused"];
  const head = el("tr", ...heads.map((text) => el("th", { scope: "col" }, text)));
  const more = files.length > 200 ? el("p.onnx-nb-dim", `and ${plain(files.length - 200)} more`) : null;
  return el(
    "section.onnx-nb-part",
    el("table.onnx-nb-files", { "aria-label": "Files" }, el("thead", head), body),
    more,
  );
}

function tensorTable(tensors: readonly TensorEntry[], signal: AbortSignal): Table {
  const numbers = (of: (entry: TensorEntry) => number | null): Float64Array =>
    Float64Array.from(tensors, (entry) => of(entry) ?? Number.NaN);
  const columns: TableColumn[] = [
    {
      key: "name",
      title: "Tensor",
      width: [150, 2.4],
      names: true,
      text: (row) => tensors[row].name || tensors[row].place,
    },
    {
      key: "type",
      title: "Type",
      width: [110, 1],
      text: (row) => `${tensors[row].dtype} ${tensors[row].shape.join("×") || "scalar"}`,
    },
    { key: "bytes", title: "Size", width: [70, 0], numbers: numbers(({ nbytes }) => nbytes), write: size },
    { key: "file", title: "File", width: [90, 1], text: (row) => tensors[row].location ?? "in the model" },
    {
      key: "offset",
      title: "Offset",
      width: [96, 0],
      spare: 1,
      numbers: numbers(({ offset }) => offset),
      write: whole,
    },
    {
      key: "alignment",
      title: "Aligned",
      hint: "The largest power of two that divides the offset; 4,096 and more can be mapped everywhere",
      width: [64, 0],
      spare: 2,
      numbers: numbers(({ alignment }) => alignment),
      write: whole,
    },
    {
      key: "problems",
      title: "Problems",
      width: [90, 1],
      text: (row) => tensors[row].problems.join(", "),
      bad: (row) => tensors[row].problems.length > 0,
    },
  ];
  if (tensors.some(({ checksum }) => checksum !== "")) {
    columns.splice(-1, 0, {
      key: "checksum",
      title: "Checksum",
      width: [96, 0],
      spare: 3,
      text: (row) => tensors[row].checksum,
    });
  }
  return new Table({ label: "Tensors", noun: "tensor", count: tensors.length, columns }, signal);
}

function size(x: number): string {
  return Number.isNaN(x) ? "–" : bytes(x);
}

function whole(x: number): string {
  return Number.isNaN(x) ? "–" : plain(x);
}
