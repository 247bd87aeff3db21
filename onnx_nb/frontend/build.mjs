/**
 * Bundles entry.ts with its stylesheet into ../static/widget.js, stub.ts into ../static/stub.js, and the extension of
 * JupyterLab into ../static/labextension, whose file has a hash in its name because browsers keep it.
 */

import { readFile, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const common = {
  absWorkingDir: here("."),
  bundle: true,
  target: "es2022",
  minify: true,
  legalComments: "none",
  loader: { ".svg": "text" },
  plugins: [
    {
      // a stylesheet and what it imports are one text in the bundle
      name: "css as text",
      setup({ onLoad }) {
        onLoad({ filter: /\.css$/ }, async ({ path }) => {
          const { outputFiles } = await build({ entryPoints: [path], bundle: true, minify: true, write: false });
          return { contents: outputFiles[0].text, loader: "text" };
        });
      },
    },
  ],
  logLevel: "info",
};
const widgets = {
  ...common,
  entryPoints: { widget: "entry.ts", stub: "stub.ts" },
  outdir: here("../static"),
  format: "esm",
};
const labextension = {
  ...common,
  entryPoints: { remoteEntry: "labextension/remote.ts" },
  outdir: here("../static/labextension/static"),
  entryNames: "[name].[hash]",
  format: "iife",
  metafile: true,
};

/** Writes what JupyterLab reads about the extension. */
async function describe({ metafile }) {
  const [remote] = Object.keys(metafile.outputs).map((path) => basename(path));
  const [, version] = /^__version__ = "(.+)"$/m.exec(await readFile(here("../__init__.py"), "utf8"));
  const described = {
    name: "onnx-nb",
    version,
    description: "Opens ONNX models in a tab with a kernel",
    license: "Apache-2.0",
    dependencies: { "@jupyterlab/application": "^4.2.0" },
    jupyterlab: { extension: true, _build: { load: `static/${remote}`, extension: "./extension" } },
  };
  const install = {
    packageManager: "python",
    packageName: "onnx-nb",
    uninstallInstructions: "Use your Python package manager (pip, conda, …) to uninstall onnx-nb",
  };
  for (const [name, value] of Object.entries({ package: described, install })) {
    await writeFile(here(`../static/labextension/${name}.json`), `${JSON.stringify(value, null, 2)}\n`);
  }
}

if (process.argv.includes("--watch")) await (await context({ ...widgets, sourcemap: "inline" })).watch();
else {
  await rm(here("../static/labextension"), { recursive: true, force: true });
  await Promise.all([build(widgets), build(labextension).then(describe)]);
}
