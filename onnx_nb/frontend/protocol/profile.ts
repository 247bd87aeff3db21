/** The kernels of a profile, as packed by `analysis/view/result_columns.py`. */

import { PackedTable } from "./codec.ts";

interface ProfileAbout {
  readonly model: string;
  /** what the profile says, in a sentence */
  readonly message: string;
  readonly facts: readonly string[];
  /** there are changes from another profile */
  readonly compared: boolean;
  /** the optimized graph can be shown beside the original */
  readonly pair: boolean;
  readonly categories: readonly string[];
  /** executions that are not on the timeline */
  readonly left_out: number;
}

interface ResourceAbout {
  /** FLOP/s and bytes/s of this machine; 0 where no kernel ran on its CPU */
  readonly speeds: readonly [flops: number, bytes: number];
  /** what is counted, in words */
  readonly message: string;
}

/** The speeds of this machine, which limit every kernel, and the memory of a run, which is counted. */
export class ResourceData extends PackedTable<ResourceAbout> {
  readonly about = this.meta;
  /** kernel of each step of a run without optimization, −1 for none, and the bytes that are alive then */
  readonly kernel = this.column("step_kernel", Int32Array);
  readonly aliveBytes = this.column("step_bytes", Float64Array);
  /** bytes of the tensors that are alive at the peak, the largest first; their names are in `tensor` */
  readonly heldBytes = this.column("held_bytes", Float64Array);
}

export class ProfileData extends PackedTable<ProfileAbout> {
  readonly about = this.meta;
  readonly count = this.column("name").length;
  readonly seconds = this.numbers("seconds");
  readonly share = this.numbers("share");
  readonly category = this.column("category", Uint8Array);
  readonly parent = this.column("parent", Int32Array);
  readonly scope = this.column("scope", Int32Array);
  readonly scopeParent = this.column("scope_parent", Int32Array);
  /** node of the optimized graph, −1 for none */
  readonly optimizedNode = this.column("optimized", Int32Array);
  readonly spans = {
    kernel: this.column("span_kernel", Uint32Array),
    start: this.numbers("span_start"),
    seconds: this.numbers("span_seconds"),
    thread: this.column("span_thread", Uint32Array),
  };
  readonly changes = this.column("change_name").length;
  readonly #ptr = this.column("node_ptr", Uint32Array);
  readonly #node = this.column("node", Int32Array);

  numbers(name: string): Float64Array {
    return this.column(name, Float64Array);
  }

  /** Returns the nodes of the model that a kernel computes. */
  nodes(kernel: number): Int32Array {
    return this.#node.subarray(this.#ptr[kernel], this.#ptr[kernel + 1]);
  }

  /** Returns the names of a kernel's nodes, with their operators. */
  nodeNames(kernel: number): string[] {
    return Array.from(this.nodes(kernel), (_, at) => this.text("node_name", this.#ptr[kernel] + at));
  }

  /** Returns the kernel that computes a node, of the model for 0 and of the optimized graph for 1; −1 for none. */
  kernelOf(side: 0 | 1, node: number): number {
    if (side === 1) return this.optimizedNode.indexOf(node);
    for (let kernel = 0; kernel < this.count; kernel++) {
      if (this.text("edge", kernel) === "" && this.nodes(kernel).includes(node)) return kernel;
    }
    return -1;
  }
}
