/**
 * Bundles entry.ts with its stylesheet into ../static/widget.js, stub.ts into ../static/stub.js, and the extension of
 * JupyterLab into ../static/labextension, whose file has a hash in its name because browsers keep it. The licenses of
 * the packages in them go into ../static/THIRD-PARTY-LICENSES.txt, their names and versions into the bill of materials
 * ../static/onnx_nb.cdx.json.
 */

import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const common = {
  absWorkingDir: here("."),
  bundle: true,
  target: "es2022",
  minify: true,
  legalComments: "none",
  metafile: true,
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
  write: false,
};

const [, version] = /^__version__ = "(.+)"$/m.exec(await readFile(here("../__init__.py"), "utf8"));
const json = (value) => `${JSON.stringify(value, null, 2)}\n`;

/** Writes the extension, and what JupyterLab reads about it. A file that would stay the same keeps its time. */
async function extend({ outputFiles: [{ path, text }] }) {
  const remote = `static/${basename(path)}`;
  const described = {
    name: "onnx-nb",
    version,
    description: "Opens ONNX models in a tab with a kernel",
    license: "Apache-2.0",
    dependencies: { "@jupyterlab/application": "^4.2.0" },
    jupyterlab: { extension: true, _build: { load: remote, extension: "./extension" } },
  };
  const install = {
    packageManager: "python",
    packageName: "onnx-nb",
    uninstallInstructions: "Use your Python package manager (pip, conda, …) to uninstall onnx-nb",
  };
  const files = { [remote]: text, "package.json": json(described), "install.json": json(install) };
  const folder = here("../static/labextension/");
  await mkdir(dirname(path), { recursive: true });
  for (const name of await readdir(folder, { recursive: true })) {
    if (name !== "static" && !(name in files)) await rm(folder + name);
  }
  for (const [name, text] of Object.entries(files)) {
    if ((await readFile(folder + name, "utf8").catch(() => "")) !== text) await writeFile(folder + name, text);
  }
}

/** Writes the license of each package from which the bundles have code, and their list in the format of CycloneDX. */
async function notices(results) {
  const inputs = results.flatMap(({ metafile }) => Object.keys(metafile.inputs));
  const packages = inputs.flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? []);
  const parts = ["The bundles of onnx_nb hold code of these packages."];
  const components = [];
  for (const folder of [...new Set(packages)].sort()) {
    const { name, version, license } = JSON.parse(await readFile(here(`${folder}/package.json`), "utf8"));
    const file = (await readdir(here(folder))).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} has no license file`);
    const text = await readFile(here(`${folder}/${file}`), "utf8");
    parts.push(`${name} ${version} (${license})`, text.trim());
    const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
    components.push({
      type: "library",
      "bom-ref": purl,
      name,
      version,
      licenses: [{ license: { id: license } }],
      purl,
    });
  }
  await writeFile(here("../static/THIRD-PARTY-LICENSES.txt"), `${parts.join("\n\n")}\n`);
  const purl = `pkg:pypi/onnx-nb@${version}`;
  const component = { type: "library", "bom-ref": purl, name: "onnx-nb", version, purl };
  const bill = { bomFormat: "CycloneDX", specVersion: "1.6", version: 1, metadata: { component }, components };
  const dependencies = [{ ref: purl, dependsOn: components.map((component) => component.purl) }];
  await writeFile(here("../static/onnx_nb.cdx.json"), json({ ...bill, dependencies }));
}

if (process.argv.includes("--watch")) await (await context({ ...widgets, sourcemap: "inline" })).watch();
else {
  const results = await Promise.all([build(widgets), build(labextension)]);
  // esbuild leaves regular expressions as they are, and one such character doubles the memory of the whole text in V8
  const bundle = here("../static/widget.js");
  const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  await writeFile(bundle, (await readFile(bundle, "utf8")).replace(/[\u0080-\uffff]/g, escaped));
  await Promise.all([extend(results[1]), notices(results)]);
}
