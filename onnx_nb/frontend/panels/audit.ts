/** Location of the bytes of a model's weights: problems first, then the files and how full they are, then tensors. */

import { bytes, countOf, integer } from "../scene/formatting.ts";
import { button, el, elide, moreButton } from "../ui/dom.ts";
import { numbers, Table, texts } from "../ui/table.ts";

/** An `external_data.Audit` as plain data. */
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
  /** null for a file that is missing or must not be read */
  readonly nbytes: number | null;
  readonly tensors: number;
  readonly used: number;
  readonly padding: number;
  readonly orphan: number;
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

/** Problems shown before the others wait behind a button. */
const PROBLEMS_AT_FIRST = 6;

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
  const present = files.flatMap(({ nbytes }) => nbytes ?? []);
  const size = present.reduce((sum, nbytes) => sum + nbytes, 0);
  const unreadable = files.length - present.length;
  const sizes = present.length > 0 || unreadable === 0 ? [`${countOf(present.length, "file")} of ${bytes(size)}`] : [];
  if (unreadable > 0) sizes.push(`${countOf(unreadable, "file")} that cannot be read`);
  const where =
    outside === 0
      ? `${countOf(tensors.length, "tensor")}, all in the model's own file`
      : `${integer(outside)} of ${countOf(tensors.length, "tensor")} outside, in ${sizes.join(" and ")}`;
  const [style, verdict] =
    errors > 0
      ? ["bad", `✕ ${countOf(errors, "error")}`]
      : problems.length > 0
        ? ["caution", `! ${countOf(problems.length, "warning")}`]
        : ["fine", "✓ No problems"];
  const reassurance =
    outside === 0
      ? "All tensors are inside the model file, so no data file can be lost or moved."
      : "The bytes of every tensor are inside their file, their number fits its type and shape, and none overlap.";
  const head = el("section.onnx-nb-part", el("div.onnx-nb-parthead", el("h4", "Tensors"), table.filter));
  root.replaceChildren(
    el(
      "header.onnx-nb-bar",
      el("b.onnx-nb-name", { title: audit.model }, elide(audit.model, 60)),
      el(`span.onnx-nb-verdict.onnx-nb-${style}`, verdict),
      el("span.onnx-nb-dim.onnx-nb-ellipsis", where),
    ),
    problems.length === 0 ? el("section.onnx-nb-part", el("p", reassurance)) : issues(audit, table, signal),
    ...(files.length > 0 ? [fileList(files)] : []),
    ...(tensors.length > 0 ? [head, el("div.onnx-nb-split-body", table.element)] : []),
  );
}

function issues({ problems, tensors }: AuditData, table: Table, signal: AbortSignal): HTMLElement {
  const list = el("ul.onnx-nb-issues");
  let activeButton: HTMLElement | null = null;
  // problems of one kind in one file affect the same rows
  const filters = new Set<string>();
  const item = (problem: Problem): HTMLElement => {
    const fatal = problem.severity === "error";
    const parts: (Node | string | null)[] = [
      fatal ? el("b.onnx-nb-bad", `✕ Error: ${problem.kind}`) : el("b.onnx-nb-caution", `! Warning: ${problem.kind}`),
      el("span", ` ${elide(problem.message, 500)}`),
      problem.advice === "" ? null : el("span.onnx-nb-dim", ` ${elide(problem.advice, 500)}`),
    ];
    const concerns = (row: number): boolean => {
      const { problems: kinds, location } = tensors[row];
      return kinds.includes(problem.kind) && (problem.location === null || location === problem.location);
    };
    const count = tensors.reduce((sum, _, row) => sum + Number(concerns(row)), 0);
    const about = `${problem.kind} ${problem.location}`;
    if (count > 0 && !filters.has(about)) {
      filters.add(about);
      const press = (): void => {
        const on = activeButton !== show;
        activeButton?.setAttribute("aria-pressed", "false");
        activeButton = on ? show : null;
        show.setAttribute("aria-pressed", String(on));
        table.restrict(on ? concerns : null);
      };
      const text = `Show ${count === 1 ? "the tensor" : `the ${integer(count)} tensors`}`;
      const show = button(text, press, signal, { class: "onnx-nb-small", "aria-pressed": false });
      parts.push(" ", show);
    }
    return el("li", ...parts);
  };
  // errors come first, whatever order they were found in
  const bySeverity = [...problems].sort((a, b) => Number(b.severity === "error") - Number(a.severity === "error"));
  list.append(...bySeverity.slice(0, PROBLEMS_AT_FIRST).map(item));
  const section = el("section.onnx-nb-part", { "aria-label": "Problems" }, list);
  const showRest = (): void => list.append(...bySeverity.slice(PROBLEMS_AT_FIRST, 1000).map(item));
  if (bySeverity.length > PROBLEMS_AT_FIRST) section.append(moreButton(bySeverity.length, showRest));
  return section;
}

function fileList(files: readonly DataFile[]): HTMLElement {
  const row = ({ location, nbytes, tensors, used, padding, orphan }: DataFile): HTMLElement => {
    const name = el("td.onnx-nb-mono", { title: location }, elide(location, 60));
    const count = el("td.onnx-nb-number", integer(tensors));
    if (nbytes === null) {
      return el("tr", name, el("td.onnx-nb-number.onnx-nb-bad", "missing"), count, el("td"), el("td"), el("td"));
    }
    const unusedBytes = orphan + Math.max(0, nbytes - used - padding - orphan);
    const share = (part: number): string => `${nbytes > 0 ? (100 * part) / nbytes : 0}%`;
    const bytesOrDash = (part: number): string => (part > 0 ? bytes(part) : "–");
    const title = `${bytes(used)} used, ${bytes(padding)} padding, ${bytes(unusedBytes)} unused`;
    const stretch = (kind: string, part: number): HTMLElement =>
      el(`i.onnx-nb-${kind}`, { style: { width: share(part) } });
    const bar = el(
      "div.onnx-nb-fill",
      { role: "img", "aria-label": `${share(used)} used`, title },
      ...[stretch("used", used), stretch("padding", padding), stretch("orphan", orphan)],
    );
    return el(
      "tr",
      name,
      el("td.onnx-nb-number", bytes(nbytes)),
      count,
      el("td", bar),
      el("td.onnx-nb-number", bytesOrDash(padding)),
      el(`td.onnx-nb-number${orphan > 0 ? ".onnx-nb-caution" : ""}`, bytesOrDash(orphan)),
    );
  };
  const heads = ["File", "Size", "Tensors", "Used", "Padding", "Unused"];
  const head = el("tr", ...heads.map((text) => el("th", { scope: "col" }, text)));
  const body = el("tbody", ...files.slice(0, 200).map(row));
  const remainder = files.length > 200 ? el("p.onnx-nb-dim", `and ${integer(files.length - 200)} more`) : null;
  const table = el("table.onnx-nb-files", { "aria-label": "Files" }, el("thead", head), body);
  return el("section.onnx-nb-part", table, remainder);
}

const ALIGNMENT_HINT = "The largest power of two that divides the offset; 4,096 and more can be mapped everywhere";

function tensorTable(tensors: readonly TensorEntry[], signal: AbortSignal): Table {
  const of = (key: "nbytes" | "offset" | "alignment"): Float64Array =>
    Float64Array.from(tensors, (entry) => entry[key] ?? Number.NaN);
  const integerText = (x: number): string => (Number.isNaN(x) ? "–" : integer(x));
  const type = (row: number): string => `${tensors[row].dtype} ${tensors[row].shape.join("×") || "scalar"}`;
  const hasProblem = (row: number): boolean => tensors[row].problems.length > 0;
  const checksum = texts("checksum", "Checksum", [96, 0], (row) => tensors[row].checksum, { spare: 3 });
  const columns = [
    texts("name", "Tensor", [150, 2.4], (row) => tensors[row].name || tensors[row].place, { names: true }),
    texts("type", "Type", [110, 1], type),
    numbers("bytes", "Size", [70, 0], of("nbytes"), bytes),
    texts("file", "File", [90, 1], (row) => tensors[row].location ?? "in the model"),
    numbers("offset", "Offset", [96, 0], of("offset"), integerText, { spare: 1 }),
    numbers("alignment", "Aligned", [64, 0], of("alignment"), integerText, { spare: 2, hint: ALIGNMENT_HINT }),
    ...(tensors.some((entry) => entry.checksum !== "") ? [checksum] : []),
    texts("problems", "Problems", [90, 1], (row) => tensors[row].problems.join(", "), { isBad: hasProblem }),
  ];
  return new Table({ label: "Tensors", noun: "tensor", count: tensors.length, columns }, signal);
}
