import { defineConfig } from "vitest/config";

// both cores may be busy
export default defineConfig({ test: { testTimeout: 60_000 } });
