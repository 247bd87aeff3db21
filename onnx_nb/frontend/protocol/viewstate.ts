/** The trait `view` of a graph, twin of `widgets/graph.py`: scopes go by their path, which outlives the kernel. */

import type { Columns, Target } from "./columns.ts";
import type { CameraPosition, Patch } from "./host.ts";

/** A target in a trait. `id` finds it if several have its name, or none has one. */
export interface TargetReference {
  readonly kind: Target["kind"];
  readonly name: string;
  readonly id?: number;
}

export interface ViewState extends Pick<Patch, "camera" | "brief" | "plumbing" | "search" | "color"> {
  readonly open?: readonly string[];
  readonly column_height?: number;
  readonly bookmarks?: readonly {
    readonly name: string;
    readonly selection?: TargetReference | null;
    readonly open: readonly string[];
    readonly camera: CameraPosition;
  }[];
}

/** Returns changes of a view in the form of the trait. */
export function viewFrom(columns: Columns, patch: Patch): ViewState {
  const { open, camera, columnHeight, brief, plumbing, search, color, bookmarks } = patch;
  return definedMembers({
    ...{ camera, brief, plumbing, search, color },
    open: open && pathsOf(columns, open),
    column_height: columnHeight,
    bookmarks: bookmarks?.map(({ name, target, open, camera }) => ({
      name,
      selection: target && { kind: target.kind, name: columns.nameOf(target), id: target.id },
      open: pathsOf(columns, open),
      camera,
    })),
  });
}

/** Returns changes of the trait in the form of a view. */
export function viewTo(columns: Columns, state: ViewState): Patch {
  const { open, column_height: columnHeight, bookmarks, ...shared } = state;
  return definedMembers({
    ...shared,
    open: open && scopesAt(columns, open),
    columnHeight,
    bookmarks: bookmarks?.map(({ name, selection, open, camera }) => ({
      name,
      target: selection == null ? null : targetOf(columns, selection),
      open: new Set(scopesAt(columns, open)),
      camera,
    })),
  });
}

/** Returns the members that are not undefined. */
function definedMembers<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, member]) => member !== undefined)) as typeof members;
}

export function targetOf(
  columns: Columns,
  { kind, name, id = columns.find(name, kind)?.id }: TargetReference,
): Target | null {
  return kind === undefined || id === undefined ? null : { kind, id };
}

/** Maximum number of open scopes that are listed; beyond it the closed ones are, if they are fewer. */
const MAX_OPEN_SCOPES = 200;

/** Returns paths of open scopes; if nearly all of many are open, "*" and then the closed ones as "-path". */
function pathsOf(columns: Columns, scopes: Iterable<number>): string[] {
  const open = new Set(scopes);
  const closed: number[] = [];
  for (let scope = 1; scope < columns.scopeCount; scope++) if (!open.has(scope)) closed.push(scope);
  // scopes that only fold others have no path: the number distinguishes them
  const path = (scope: number): string => `${columns.nameOf({ kind: "scope", id: scope })}#${scope}`;
  return open.size <= MAX_OPEN_SCOPES || closed.length >= open.size
    ? Array.from(open, path)
    : ["*", ...closed.map((scope) => `-${path(scope)}`)];
}

export function scopesAt(columns: Columns, paths: readonly string[]): number[] {
  const scopesNamed = (path: string): number[] => {
    const [name, number] = [path.replace(/#\d+$/, ""), Number(/#(\d+)$/.exec(path)?.[1] ?? Number.NaN)];
    if (number < columns.scopeCount && columns.nameOf({ kind: "scope", id: number }) === name) return [number];
    const scope = columns.find(name, "scope");
    return scope === undefined ? [] : [scope.id];
  };
  if (paths[0] !== "*") return paths.flatMap(scopesNamed);
  const closed = new Set(paths.slice(1).flatMap((path) => scopesNamed(path.replace(/^-/, ""))));
  return Array.from({ length: columns.scopeCount }, (_, scope) => scope).filter((scope) => !closed.has(scope));
}
