/** Mounts the kernels of a profile, and original and optimized graph side by side. */

import { createGraphPair } from "../panels/graphpair.ts";
import { createProfile, type PairView } from "../panels/profile.ts";
import { Columns, type Target } from "../protocol/columns.ts";
import { PairData, type SideOf } from "../protocol/diff.ts";
import type { GraphHost } from "../protocol/host.ts";
import { bakedOf, pageHost, sideHost } from "../protocol/kernel.ts";
import { bindLink, bindTrait, loadPart, type Parts } from "../protocol/model.ts";
import { ProfileData, ResourceData } from "../protocol/profile.ts";
import { el, onState } from "../ui/dom.ts";
import { announceChoice, markDrawn, type Page, roomBelow, sharing } from "./mount.ts";

const SIDES = ["reference", "candidate"] as const;

/** Shows both graphs; the nodes of a chosen kernel are selected in both. */
async function showPair(
  parent: HTMLElement,
  data: ProfileData,
  part: Parts,
  host: (side: SideOf) => GraphHost | Promise<GraphHost>,
  onChoose: (kernel: number) => void,
  signal: AbortSignal,
): Promise<PairView> {
  const [left, right, differences] = await Promise.all([...SIDES, "differences"].map(part));
  const columns = [new Columns(left), new Columns(right)] as const;
  const graphs = [await host(0), await host(1)] as const;
  const root = el("div");
  parent.replaceChildren(root);
  let shownKernel = -1;
  const pair = createGraphPair(
    root,
    columns,
    new PairData(differences),
    {
      graphs,
      onSelect(side, [first]) {
        const kernel = first?.kind === "node" ? data.kernelOf(side, first.id) : -1;
        if (kernel < 0 || kernel === shownKernel) return;
        onChoose(kernel);
      },
      onSync: () => undefined,
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
        resources: async () => new ResourceData(await part("resources")),
        ...(data.about.pair && {
          pair: (parent, onChoose, signal) =>
            showPair(parent, data, part, (side) => sideHost(channel, { part: SIDES[side] }), onChoose, signal),
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
  const host = async (side: SideOf): Promise<GraphHost> => pageHost(bakedOf(await part(`baked-${SIDES[side]}`)));
  const view = createProfile(
    root,
    data,
    {
      height: roomBelow(root, 98, 420),
      onChoose: (kernel) => kernel >= 0 && announceChoice(root, ...data.nodeNames(kernel)),
      tensor: (name) => announceChoice(root, name),
      resources: async () => new ResourceData(await part("resources")),
      ...(data.about.pair && {
        pair: (parent, onChoose, signal) => showPair(parent, data, part, host, onChoose, signal),
      }),
    },
    signal,
  );
  markDrawn(root, signal, view.redraw);
};
