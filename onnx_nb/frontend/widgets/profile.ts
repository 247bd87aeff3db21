/** Mounts the kernels of a profile, and original and optimized graph side by side. */

import { createGraphPair } from "../panels/graphpair.ts";
import { createProfile, type PairView } from "../panels/profile.ts";
import type { Target } from "../protocol/columns.ts";
import { PairData } from "../protocol/diff.ts";
import type { GraphHost } from "../protocol/host.ts";
import { sideHost } from "../protocol/kernel.ts";
import { bindLink, bindTrait, loadPart, type Parts } from "../protocol/model.ts";
import { ProfileData, ResourceData } from "../protocol/profile.ts";
import { el, onState } from "../ui/dom.ts";
import { announceChoice, chartGraph, markDrawn, type Page, roomBelow, sharing } from "./mount.ts";
import { loadPair, pageHosts, SIDES } from "./pair.ts";

/** Shows both graphs; the nodes of a chosen kernel are selected in both. */
async function showPair(
  parent: HTMLElement,
  data: ProfileData,
  part: Parts,
  graphs: readonly [GraphHost, GraphHost],
  onChoose: (kernel: number) => void,
  signal: AbortSignal,
): Promise<PairView> {
  const { columns, data: differences } = await loadPair(part, PairData);
  const root = el("div");
  parent.replaceChildren(root);
  let shownKernel = -1;
  const pair = createGraphPair(
    root,
    columns,
    differences,
    {
      graphs,
      onSelect(side, [first]) {
        const kernel = first?.kind === "node" ? data.kernelOf(side, first.id) : -1;
        if (kernel < 0 || kernel === shownKernel) return;
        onChoose(kernel);
      },
      counterpartFacts: (_side, _target, name) => [["runs as", name]],
    },
    { height: "300px", synced: true, names: ["as loaded", "as it ran"], titles: ["Original", "Optimized"], tools: [] },
    signal,
  );
  await new Promise<void>((ready) => {
    onState([root], signal, () => root.dataset.state === "drawn" && ready());
  });
  return {
    choose(kernel): void {
      shownKernel = kernel;
      const node = (id: number): Target => ({ kind: "node", id });
      if (kernel < 0) pair.show([[], []]);
      else {
        const optimizedNode = data.optimizedNode[kernel];
        pair.show([Array.from(data.nodes(kernel), node), optimizedNode < 0 ? [] : [node(optimizedNode)]]);
      }
    },
  };
}

export const profileWidget = sharing(
  async (part) => new ProfileData(await part("columns")),
  (data, model, channel, root, signal) => {
    const part: Parts = (name) => loadPart(model, channel, name);
    const view = createProfile(
      root,
      data,
      {
        height: Number(model.get("height")),
        onChoose: (kernel) => put(kernel),
        tensor: (name) => select([{ kind: "tensor", name }]),
        ...chartGraph(model, channel, SIDES[0]),
        resources: async () => new ResourceData(await part("resources")),
        ...(data.about.pair && {
          pair(parent, onChoose, signal) {
            const graphs = [sideHost(channel, { part: SIDES[0] }), sideHost(channel, { part: SIDES[1] })] as const;
            return showPair(parent, data, part, graphs, onChoose, signal);
          },
        }),
      },
      signal,
    );
    view.choose(Number(model.get("kernel")));
    const put = bindTrait<number>(model, "kernel", view.choose, signal);
    const select = bindTrait<object[]>(model, "selection", () => undefined, signal);
    bindLink(model, channel, view.setLink, signal);
    markDrawn(root, signal, view.redraw);
  },
);

export const profilePage: Page = async (root, _about, part, signal) => {
  const data = new ProfileData(await part("columns"));
  const view = createProfile(
    root,
    data,
    {
      height: roomBelow(root, 98, 420),
      onChoose: (kernel) => kernel >= 0 && announceChoice(root, ...data.nodeNames(kernel)),
      tensor: (name) => announceChoice(root, name),
      graph: { load: () => part(SIDES[0]) },
      resources: async () => new ResourceData(await part("resources")),
      ...(data.about.pair && {
        pair: async (parent, onChoose, signal) => showPair(parent, data, part, await pageHosts(part), onChoose, signal),
      }),
    },
    signal,
  );
  markDrawn(root, signal, view.redraw);
};
